"""Tables for people: the cells of a run, its categories and its positions."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from speedbench.columns import UNKNOWN, Column, shown
from speedbench.recommend import sentence
from speedbench.types import Measurement, Result

_WIDE = 2000
"""Columns of a page that is no terminal: nothing is wrapped or cut."""

_GAP = 3
"""Blanks between the texts of two columns."""

_KEYS = ("drafter", "D", "B", "repeat")
"""Columns that say which cell a row is, and so begin every part of a table."""


def console(*, stderr: bool = False) -> Console:
    """Plain and wide when not a terminal, so that logs and pipes get whole lines. Names are never read as markup."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if made.is_terminal:
        return made
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=_WIDE, color_system=None)


def cells(found: Sequence[Result], width: int = _WIDE) -> list[Table]:
    """One row a cell; the columns are those of columns.py. What is wider than the page is dealt out to more tables."""
    columns = shown(found)
    keys = [column for column in columns if column.title in _KEYS]
    room = width - sum(_width(column, found) for column in keys)
    parts: list[list[Column]] = [[]]
    left = room
    for column in columns[len(keys) :]:
        left -= _width(column, found)
        if left < 0 and parts[-1]:
            parts.append([])
            left = room - _width(column, found)
        parts[-1].append(column)
    return [_cells(found, [*keys, *part]) for part in parts]


def _width(column: Column, found: Sequence[Result]) -> int:
    return _GAP + max(len(text) for text in (column.title, *(column.of(result) for result in found)))


def _cells(found: Sequence[Result], columns: Sequence[Column]) -> Table:
    table = blank()
    for column in columns:
        table.add_column(column.title, justify="left" if column.title == "drafter" else "right")
    for result in found:
        style = "bold" if result.cell.is_baseline else None
        table.add_row(*(column.of(result) for column in columns), style=style)
    return table


def categories(result: Result, by: str = "category") -> Table:
    """AL and speed of one cell by category, or by what its categories were put to stand for."""
    names = ("al", "acceptance_rate", "effective_d", "decode_tps", "speedup", "lossless")
    table = blank(plain(f"{result.cell.key} by {by}"))
    table.add_column(plain(by), overflow="fold")
    for name in ("n", *names):
        table.add_column(name, justify="right", overflow="fold")
    for category, metrics in result.by_category.items():
        n = metrics["al"].n if "al" in metrics else 0
        table.add_row(plain(category), str(n), *(_text(metrics.get(name)) for name in names))
    return table


def positions(result: Result) -> Table:
    """Acceptance by draft position, both ways of saying it."""
    table = blank(f"{result.cell.key} by draft position")
    for title in ("i", "accepted_at marginal", "accepted_at conditional", "steps that accepted exactly i"):
        table.add_column(title, justify="right", overflow="fold")
    for i in range(result.cell.draft_length + 1):
        names = (f"accepted_at_marginal[{i}]", f"accepted_at_conditional[{i}]", f"accepted_histogram[{i}]")
        table.add_row(str(i), *(_text(result.metrics.get(name)) for name in names))
    return table


def buckets(result: Result, lows: Mapping[str, Sequence[int]]) -> Table:
    """Acceptance length by tokens before a step: of the whole context, then of the answer."""
    table = blank(f"{result.cell.key} by context")
    table.add_column("tokens", overflow="fold")
    for title in ("al", "n"):
        table.add_column(title, justify="right", overflow="fold")
    for name, begins in lows.items():
        for low, after in zip(begins, [*begins[1:], None], strict=True):
            found = result.metrics.get(f"{name}[{low}]")
            span = f"{low} to {after - 1}" if after else f"{low} and more"
            table.add_row(f"{name.removeprefix('al_by_')} {span}", _text(found), str(found.n) if found else UNKNOWN)
    return table


def print_result(out: Console, found: Sequence[Result], document: Mapping[str, Any]) -> None:
    """The table, then what to serve with, then what to be warned of."""
    for table in cells(found, out.width):
        out.print(table)
    for one in document["recommendation"]:
        out.print(plain(sentence(one)), soft_wrap=True)
    for warning in document["warnings"]:
        out.print(plain(f"warning: {warning}"), style="yellow", soft_wrap=True)


def plain(text: str) -> str:
    """Without a character that a terminal would obey: the names of tasks and categories are other people's."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _text(found: Measurement | None) -> str:
    if found is None or found.value is None:
        return UNKNOWN
    point = f"{found.value:.3f}" if found.value < 10 else f"{found.value:.1f}"
    if found.low is None or found.high is None or found.low == found.high:
        return point
    return f"{point} [{found.low:.2f}, {found.high:.2f}]"


def blank(title: str | None = None) -> Table:
    """An empty table in the house style."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
