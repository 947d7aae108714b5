"""Boards: rows of all submissions in partitions that are like for like, ranked where intervals tell them apart."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speedbench.files import csv_cell, write_whole
from speedbench.leaderboard.checks import UNRANKED_AL, UNRANKED_SPEED
from speedbench.leaderboard.rows import Row
from speedbench.leaderboard.submission import slug
from speedbench.untrusted import markdown

AL = "al"
"""The folder of the boards that no hardware matters to."""

WEAK = 0.95
"""A baseline below this share of the fastest of its partition makes its speedups easy."""

GENERATED = "<!-- Made by `speedbench leaderboard build`; do not edit. -->"

_COMMON = (
    "target", "target_revision", "target_dtype", "target_quant", "task", "task_version", "prompts_sha256",
    "chat_template_sha256", "temperature", "top_k", "top_p", "max_tokens", "division",
)  # fmt: skip
_SPEED = ("hardware", "engine", "engine_version", "engine_settings_sha256", "concurrency", *_COMMON)
_LENGTH = ("draft_length", *_COMMON)

EXTRA = ("rank", "marks")
"""Columns of a board beside those of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row on a board."""

    row: Row
    marks: tuple[str, ...]
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What sets one kind of board apart: what is ranked by, and what must be alike."""

    metric: str
    partition: tuple[str, ...]
    unranked: frozenset[str]
    said: str


SPEEDUP = Kind(metric="speedup", partition=_SPEED, unranked=UNRANKED_SPEED,
               said="Ranked by measured speedup over the baseline of the same run.")  # fmt: skip
LENGTH = Kind(metric="al", partition=_LENGTH, unranked=UNRANKED_AL,
              said="Ranked by acceptance length at equal D; hardware and engine do not matter to it.")  # fmt: skip


def files(lines: Sequence[Line]) -> dict[Path, str]:
    """Every file of the boards below their folder, with its text; the same lines give the same bytes."""
    found: dict[Path, str] = {}
    lines = [*map(_weakened(lines), lines)]
    speed = _grouped(lines, lambda row: Path(slug(row.hardware), slug(row.target), slug(row.task)))
    length = _grouped(_lowest(lines), lambda row: Path(AL, slug(row.target), slug(row.task)))
    for kind, boards in ((SPEEDUP, speed), (LENGTH, length)):
        for path, some in sorted(boards.items()):
            parts = {key: _ranked(kind, part) for key, part in _parts(kind, some).items()}
            found[path.with_name(f"{path.name}.csv")] = _csv([line for part in parts.values() for line in part])
            found[path.with_name(f"{path.name}.md")] = _markdown(kind, path, list(parts.values()))
    return found


def stale(boards: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """The files that are not as they would be built, or would not be built at all; relative to `boards`."""
    there = {path.relative_to(boards) for path in boards.glob("*/*/*") if _is_generated(path)}
    different = {path for path, text in wanted.items() if _text(boards / path) != text}
    return sorted(different | (there - wanted.keys()))


def write(boards: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """Write what is not there yet and take away what is no board any more; the files that changed."""
    changed = stale(boards, wanted)
    for path in changed:
        if path in wanted:
            (boards / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(boards / path, wanted[path])
        else:
            (boards / path).unlink()
    return changed


def _text(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() and not path.is_symlink() else None


def _is_generated(path: Path) -> bool:
    """Only what a build wrote is ever taken away by one."""
    text = _text(path) if path.suffix in (".csv", ".md") else None
    return text is not None and text.startswith((GENERATED, "rank,"))


# ---- partitions and ranks --------------------------------------------------------------------------------------------


def _grouped(lines: Sequence[Line], of: Callable[[Row], Path]) -> dict[Path, list[Line]]:
    found: dict[Path, list[Line]] = {}
    for line in lines:
        found.setdefault(of(line.row), []).append(line)
    return found


def _parts(kind: Kind, lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines that may be ranked against each other, in an order that does not depend on theirs."""
    found: dict[tuple[tuple[int, float, str], ...], list[Line]] = {}
    for line in lines:
        key = tuple(_order(getattr(line.row, name)) for name in kind.partition)
        found.setdefault(key, []).append(line)
    return {repr(key): found[key] for key in sorted(found)}


def _order(value: object) -> tuple[int, float, str]:
    """Numbers as numbers, then texts; None first."""
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))


def _ranked(kind: Kind, lines: Sequence[Line]) -> list[Line]:
    """1 + how many lie wholly above: intervals that overlap share a rank, and names order them within it."""
    bounds = {id(line): _bounds(kind, line) for line in lines}
    placed = []
    for line in lines:
        own = bounds[id(line)]
        above = [other for other in bounds.values() if own and other and other[0] > own[1]]
        placed.append(replace(line, rank=1 + len(above) if own else None))
    return sorted(placed, key=_place)


def _bounds(kind: Kind, line: Line) -> tuple[float, float] | None:
    """None for a line without a rank: a baseline, one that is marked, or one without an interval."""
    low, high = getattr(line.row, f"{kind.metric}_lo"), getattr(line.row, f"{kind.metric}_hi")
    if line.row.draft_length == 0 or kind.unranked & set(line.marks) or low is None or high is None:
        return None
    return low, high


def _place(line: Line) -> tuple[bool, int, str, int, int, str]:
    row = line.row
    return line.rank is None, line.rank or 0, row.drafter, row.draft_length, row.concurrency, row.entry


def _lowest(lines: Sequence[Line]) -> list[Line]:
    """Without baselines, and of each submission the lowest concurrency: acceptance is no matter of the batch."""
    least: dict[str, int] = {}
    for line in lines:
        least[line.row.entry] = min(line.row.concurrency, least.get(line.row.entry, line.row.concurrency))
    return [line for line in lines if line.row.draft_length and line.row.concurrency == least[line.row.entry]]


def _weakened(lines: Sequence[Line]) -> Callable[[Line], Line]:
    """Marks the rows whose run had a baseline slower than another's on the same hardware and engine."""
    fastest: dict[tuple[object, ...], float] = {}
    own: dict[tuple[str, int], float] = {}
    for line in lines:
        row = line.row
        if row.draft_length == 0 and row.decode_tps:
            key = tuple(getattr(row, name) for name in _SPEED if name != "division")
            fastest[key] = max(row.decode_tps, fastest.get(key, 0.0))
            own[row.entry, row.concurrency] = row.decode_tps

    def mark(line: Line) -> Line:
        row = line.row
        key = tuple(getattr(row, name) for name in _SPEED if name != "division")
        weak = own.get((row.entry, row.concurrency), 0.0) < WEAK * fastest.get(key, 0.0)
        return replace(line, marks=(*line.marks, "weak baseline")) if weak else line

    return mark


# ---- texts -----------------------------------------------------------------------------------------------------------


def _csv(lines: Sequence[Line]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(Row.model_fields)
    writer.writerow([EXTRA[0], *names, EXTRA[1]])
    for line in lines:
        cells = [getattr(line.row, name) for name in names]
        writer.writerow([csv_cell(_plain(each)) for each in (line.rank, *cells, "; ".join(line.marks))])
    return out.getvalue()


def _plain(value: object) -> object:
    """Six digits of a measured number, whole numbers in full, nothing for what is not known."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


_Columns = tuple[tuple[str, Callable[[Line], str]], ...]

_NAMED: _Columns = (
    ("rank", lambda line: "-" if line.rank is None else str(line.rank)),
    ("drafter", lambda line: markdown(line.row.drafter)),
    ("D", lambda line: str(line.row.draft_length)),
    ("AL", lambda line: _interval(line.row.al, line.row.al_lo, line.row.al_hi)),
)
_TIMED: _Columns = (
    ("tok/s", lambda line: _number(line.row.decode_tps)),
    ("speedup", lambda line: _interval(line.row.speedup, line.row.speedup_lo, line.row.speedup_hi, "x")),
    ("formula", lambda line: _number(line.row.speedup_formula, "x")),
)
_COUNTED: _Columns = (
    ("accept", lambda line: "-" if line.row.acceptance_rate is None else f"{line.row.acceptance_rate:.1%}"),
    ("engine", lambda line: markdown(line.row.engine_version)),
)
_JUDGED: _Columns = (
    ("lossless", lambda line: _lossless(line.row)),
    ("marks", lambda line: "; ".join(line.marks) or "-"),
    ("tier", lambda line: line.row.tier.replace("_", " ")),
    ("by", lambda line: markdown(line.row.submitter)),
    ("date", lambda line: line.row.date_utc),
    ("entry", lambda line: line.row.entry),
)


def _markdown(kind: Kind, path: Path, parts: Sequence[Sequence[Line]]) -> str:
    first = parts[0][0].row
    title = [first.target, first.task, *([first.hardware] if kind is SPEEDUP else ["acceptance length"])]
    text = [
        GENERATED,
        "",
        f"# {markdown(', '.join(title))}",
        "",
        kind.said,
        "Intervals are 95 % over conversations. Rows whose intervals overlap share a rank, in order of names.",
        f"All columns: [{path.name}.csv]({path.name}.csv). Rules: [README]({'../' * (len(path.parts) - 1)}README.md).",
    ]
    for part in parts:
        columns = _NAMED + (_TIMED if kind is SPEEDUP else _COUNTED) + _JUDGED
        text += ["", f"## {_heading(kind, part[0].row)}", "", *_table(columns, part)]
    return "\n".join(text) + "\n"


def _heading(kind: Kind, row: Row) -> str:
    how = "greedy" if row.temperature == 0 else f"temperature {row.temperature:g}, top-p {row.top_p}, top-k {row.top_k}"
    about = [f"D = {row.draft_length}"] if kind is LENGTH else [f"B = {row.concurrency}", row.engine_version]
    if kind is SPEEDUP and row.engine_threads is not None:
        about.append(f"CPU threads: {row.engine_threads}")
    about += [f"{row.target_dtype}, weights {row.target_quant}", how, f"{row.n_conversations} conversations",
              f"at most {row.max_tokens} tokens", row.division]  # fmt: skip
    return markdown(" · ".join(about))


def _table(columns: _Columns, lines: Sequence[Line]) -> list[str]:
    names = [name for name, _ in columns]
    rows = ["| " + " | ".join(of(line) for _, of in columns) + " |" for line in lines]
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names), *rows]


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"


def _interval(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:.2f}{unit}" if low is None or high is None else f"{value:.2f}{unit} [{low:.2f}, {high:.2f}]"


def _lossless(row: Row) -> str:
    ties = f" ({row.near_ties} of {row.lossless_n})" if row.lossless == "exact_modulo_ties" else ""
    return "-" if row.lossless == "baseline" else row.lossless.replace("_", " ") + ties
