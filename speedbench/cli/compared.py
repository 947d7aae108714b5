"""A comparison on a terminal: rows of one width, a pair after another, then the verdict."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from speedbench.cli.tables import plain
from speedbench.compare import wording
from speedbench.compare.gates import Gate
from speedbench.compare.history import Line, Point
from speedbench.compare.values import Comparison, Finding, Pair, Report

_TITLES = ("", "base", "cand", "change, 95 %", "rests on", "detects", "verdict")
_STYLES = {
    "regression": "bold red",
    "not comparable": "magenta",
    "inconclusive": "yellow",
    "acknowledged": "cyan",
    "ok": "green",
    "shown": "dim",
}
_MARKS = {"drop": "bold red", "still lower": "red", "better": "green", "inconclusive": "yellow", "reference": "dim"}
_CODES = {0: "bold green", 1: "bold red", 3: "bold yellow", 4: "bold magenta", 5: "bold red"}

Row = tuple[str, ...]


def print_report(out: Console, report: Report) -> None:
    for one in report.comparisons:
        _print_comparison(out, one)
    out.print(Text(wording.headline(report), style=_CODES[report.code]))


def print_trend(out: Console, gate: Gate, found: Sequence[Line]) -> None:
    """A row a run, oldest first, a cell after another."""
    _line(out, f"{gate.metric.title}, a drop is {gate.text}", "bold")
    for line in found:
        _line(out, line.name, "bold")
        rows = [_past(gate, point) for point in line.points]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row, point in zip(rows, line.points, strict=True):
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            _line(out, f"  {'  '.join(cells)}".rstrip(), _MARKS.get(point.mark, ""))
            if point.mark == "not comparable":
                _line(out, f"    {point.why}", "magenta")


def _past(gate: Gate, point: Point) -> Row:
    mark = "◀ first significant drop" if point.mark == "drop" else point.mark
    return (
        point.time[:16].replace("T", " "),
        wording.clean(point.run, 30),
        point.version.replace("speedbench ", ""),
        wording.number(point.value, gate.metric.name),
        "" if point.change is None else wording.relative(point.change),
        mark + (f" · {', '.join(point.changed)} changed" if point.changed else ""),
    )


def _print_comparison(out: Console, one: Comparison) -> None:
    _line(out, f"{one.base} → {one.cand}", "bold")
    _line(out, one.subject, "dim")
    for name, told in wording.facets(one):
        _line(out, f"{name:<10}{told}", "dim" if name == "same" else "")
    for control in one.controls:
        _line(out, f"{'control':<10}{wording.control(control)}", "yellow" if control.drifted else "dim")
    for each in one.unpaired:
        _line(out, f"{'unpaired':<10}{each}", "yellow")
    for each in one.notes:
        _line(out, f"{'note':<10}{each}", "yellow")
    if refusal := wording.refusal(one):
        _line(out, f"{'REFUSED':<10}{refusal}", "bold magenta")
    if one.pairs:
        _print_pairs(out, one.pairs)
    out.print()


def _print_pairs(out: Console, pairs: Sequence[Pair]) -> None:
    rows = [_row(finding) for pair in pairs for finding in pair.findings]
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    out.print()
    _line(out, _set(_TITLES, widths), "dim")
    _line(out, "─" * min(out.width, sum(widths) + 2 * len(widths)), "dim")
    for pair in pairs:
        _line(out, pair.name, "bold")
        for finding in pair.findings:
            _line(out, _set(_row(finding), widths), _STYLES[finding.verdict] if finding.gate else "")
        for text, style in _beneath(pair):
            _line(out, f"    {text}", style)


def _row(finding: Finding) -> Row:
    """Points only: what matters is whether they differ, and that has its interval."""
    change = finding.of
    return (
        wording.title(change),
        wording.point(change.base, change.metric),
        wording.point(change.cand, change.metric),
        wording.evidence(finding),
        wording.size(change),
        wording.detectable(change),
        wording.verdict(finding),
    )


def _set(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names and verdicts to the left, numbers to the right."""
    left = (0, 3, 6)
    cells = [text.ljust(w) if i in left else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))]
    return f"  {'  '.join(cells)}".rstrip()


def _beneath(pair: Pair) -> Iterator[tuple[str, str]]:
    if pair.refused:
        yield f"not compared: {pair.refused}", "magenta"
    for wrong in pair.wrong:
        yield f"WRONG: {wrong}", "bold red"
    for finding in pair.findings:
        if remark := wording.remark(finding):
            yield remark, "dim"
    if told := wording.split(pair):
        yield told, "dim"
    if fallen := wording.categories(pair):
        yield f"AL fell most in {fallen}", "dim"


def _line(out: Console, text: str, style: str = "") -> None:
    out.print(Text(plain(text), style=style), soft_wrap=True)
