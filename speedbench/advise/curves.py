"""AL(D): of a run's cells, of a published golden file, or as typed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedbench import catalog
from speedbench.columns import measurement, value
from speedbench.errors import UnknownName, UserError
from speedbench.types import Result

_PAIRS = re.compile(r"\d+:\d+(\.\d+)?(,\d+:\d+(\.\d+)?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """AL at one D, with its 95 % interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None
    drafted: float | None = None
    """Share of steps in which something was proposed: the others are plain steps. None: not told; none is then taken to
    be plain, the dearer case."""
    proposed: float | None = None
    """Mean drafts of a step that proposed any; None: D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """AL of one drafter by D. Nothing is said of a D that is not in it."""

    label: str
    mechanism: str
    points: Mapping[int, Accepted]
    source: str

    @property
    def longest(self) -> int:
        return max(self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A speedup that was measured, to hold predictions against."""

    label: str
    draft_length: int
    batch: int
    speedup: float
    low: float | None
    high: float | None


def of_results(results: Sequence[Result], mechanisms: Mapping[str, str], source: str) -> tuple[list[Curve], list[Seen]]:
    """The curve of each drafter in a run, and every speedup that it measured.

    AL is taken at the smallest concurrency: for greedy answers it does not depend on the batch. Of repeats, the pooled.
    """
    together = [each for each in results if each.cell.repeat is None] or list(results)
    points: dict[str, dict[int, Accepted]] = {}
    for each in sorted(together, key=lambda each: -each.cell.concurrency):
        if not each.cell.is_baseline and value(each, "al") is not None:
            points.setdefault(each.cell.drafter, {})[each.cell.draft_length] = _accepted(each)
    curves = [
        Curve(label=label, mechanism=mechanisms.get(label, label), points=dict(sorted(found.items())), source=source)
        for label, found in points.items()
    ]
    return curves, [each for each in map(_seen, together) if each is not None]


def _accepted(result: Result) -> Accepted:
    al, share, proposed = measurement(result, "al"), value(result, "drafted_share"), value(result, "effective_d")
    assert al.value is not None, "a cell without acceptance is no point of a curve"
    return Accepted(
        value=al.value,
        low=al.low,
        high=al.high,
        drafted=share,
        proposed=proposed / share if share and proposed is not None else None,
    )


def _seen(result: Result) -> Seen | None:
    found, cell = measurement(result, "speedup"), result.cell
    if cell.is_baseline or found.value is None:
        return None
    return Seen(
        label=cell.drafter, draft_length=cell.draft_length, batch=cell.concurrency, speedup=found.value,
        low=found.low, high=found.high,
    )  # fmt: skip


def typed(text: str) -> Curve:
    """`mtp=1:1.9,2:2.7`, or a golden file as `NAME` or `FILE.yaml`, with `:MODE` where it holds several curves."""
    label, equals, rest = text.partition("=")
    if not equals:
        rest, label = text, ""
    if _PAIRS.fullmatch(rest):
        if not label:
            raise UserError(f"--al {text}: which drafter? Write DRAFTER={text}, as mtp={text}")
        points = _checked({int(d): float(al) for d, al in (pair.split(":") for pair in rest.split(","))}, text)
        return Curve(label=label, mechanism=label, points=points, source="as typed")
    if rest[:1].isdigit() and ":" in rest and not Path(rest).suffix:
        raise UserError(f"--al {text}: does not read; needs D:AL pairs, as mtp=1:1.9,2:2.7")
    return _golden(rest, label)


def _golden(text: str, label: str) -> Curve:
    name, _, mode = text.partition(":")
    found = dict(catalog.golden(name))
    about = found.pop("_metadata", {})
    method = str(about.get("method") or _method(name)) if isinstance(about, dict) else _method(name)
    curves = {
        f"{target}/{key}" if len(found) > 1 else str(key): points
        for target, modes in found.items()
        for key, points in (modes.items() if isinstance(modes, dict) else ())
    }
    if not curves:
        raise UserError(f"{name}: holds no curve; needs TARGET: MODE: D: AL")
    if not mode and len(curves) > 1:
        raise UserError(f"--al {name}: holds {', '.join(curves)}; choose one, as {name}:{next(iter(curves))}")
    if mode and mode not in curves:
        raise UnknownName(f"curve in {name}", mode, curves)
    key = mode or next(iter(curves))
    said = f"{Path(name).stem} {key}"
    return Curve(label=label or method, mechanism=label or method, points=_checked(curves[key], said), source=said)


def _method(name: str) -> str:
    """The mechanism that a golden file's name ends in, as InferenceX names them."""
    words = [word for word in re.split(r"[-_.]", Path(name).stem.lower()) if word in ("mtp", "eagle3", "dspark")]
    return words[-1] if words else "mtp"


def _checked(points: Any, shown: str) -> dict[int, Accepted]:
    """Raises `UserError` for what cannot be an acceptance length."""
    if not isinstance(points, dict) or not points:
        raise UserError(f"{shown}: should map D to AL (got {points!r})")
    for d, al in points.items():
        if isinstance(d, bool) or not isinstance(d, int) or d < 1:
            raise UserError(f"{shown}: D should be a whole number from 1 (got {d!r})")
        if isinstance(al, bool) or not isinstance(al, (int, float)) or not 1 <= al <= 1 + d:
            raise UserError(f"{shown}: AL at D={d} should be from 1 to {1 + d} (got {al!r})")
    return {d: Accepted(value=float(al)) for d, al in sorted(points.items())}
