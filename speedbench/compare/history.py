"""A number over a history of runs, and where it fell: each run against the best level before it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from speedbench.compare import cells, identity, wording
from speedbench.compare.gates import Gate
from speedbench.compare.judging import Rules, compared, number
from speedbench.compare.operand import Operand, key
from speedbench.compare.values import Finding
from speedbench.types import Measurement, Metric

Mark = Literal["reference", "ok", "better", "drop", "still lower", "inconclusive", "not comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run's number, and how it stands against the reference's."""

    run: str
    time: str
    """When the run was begun, ISO 8601."""
    version: str
    value: Measurement
    change: Measurement | None
    """None for a reference itself, and for what is not comparable with it."""
    mark: Mark
    changed: tuple[str, ...]
    """What is not as it was in the reference, as `target`."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One cell through the history."""

    name: str
    points: tuple[Point, ...]

    @property
    def fell(self) -> bool:
        return any(point.mark == "drop" for point in self.points)


def lines(operands: Sequence[Operand], rules: Rules, metrics: Sequence[Metric]) -> list[Line]:
    """A line a cell, in the order of time; the one gate of `rules` says what a drop is."""
    ordered = sorted(operands, key=lambda each: (identity.began(each.document), each.label))
    named = {key(cell): cells.pair_name(cell, cell) for each in ordered for cell in each.chosen}
    return [Line(name=name, points=tuple(_points(at, ordered, rules, metrics))) for at, name in named.items()]


def _points(at: str, operands: Sequence[Operand], rules: Rules, metrics: Sequence[Metric]) -> Iterator[Point]:
    """The first run is the reference; so is one clearly better than it, and one that is not comparable with it."""
    reference: Operand | None = None
    fallen, gate = False, rules.gates[0]
    for each in operands:
        here = replace(each, chosen=tuple(cell for cell in each.chosen if key(cell) == at))
        if not here.chosen:
            continue
        if reference is None:
            yield _point(here, gate, "reference")
            reference = here
            continue
        point = _against(reference, here, rules, metrics, fallen)
        yield point
        mark = point.mark
        fallen = mark in ("drop", "still lower") or (fallen and mark == "inconclusive")
        if mark in ("better", "not comparable"):
            reference, fallen = here, False


def _against(reference: Operand, here: Operand, rules: Rules, metrics: Sequence[Metric], fallen: bool) -> Point:
    one = compared(reference, [here], rules, metrics).comparisons[0]
    changed = tuple(facet.name for facet in one.facets if not facet.same)
    refusal = wording.refusal(one) or one.pairs[0].refused
    if refusal:
        return _point(here, rules.gates[0], "not comparable", changed, refusal)
    finding = next(each for each in one.pairs[0].findings if each.gate)
    return _point(here, rules.gates[0], _mark(finding, fallen), changed, finding.why, finding.of.change)


def _mark(finding: Finding, fallen: bool) -> Mark:
    if finding.verdict == "regression":
        return "still lower" if fallen else "drop"
    if finding.verdict == "ok":
        return "better" if wording.moved_well(finding) else "ok"
    return "not comparable" if finding.verdict == "not comparable" else "inconclusive"


def _point(
    here: Operand,
    gate: Gate,
    mark: Mark,
    changed: tuple[str, ...] = (),
    why: str = "",
    change: Measurement | None = None,
) -> Point:
    value = number(here, here.chosen[0], gate.metric, gate.category)
    version = identity.version(here.document)
    return Point(
        run=here.label,
        time=identity.began(here.document),
        version=version,
        value=value,
        change=change,
        mark=mark,
        changed=changed,
        why=why,
    )
