"""The acceptance length that a cell has against the one from which on it pays."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.columns import measurement, value
from speedbench.report.drawing import (
    CELL,
    Chart,
    Figure,
    Panel,
    Row,
    by_batch,
    cell_row,
    colour,
    estimate_row,
    few,
    layered,
    over,
    shape,
)
from speedbench.report.subject import Subject
from speedbench.report.words import named
from speedbench.types import Result

COLUMNS = CELL | {
    "al": "AL", "low": "low", "high": "high", "break_even": "break-even AL", "break_low": "break-even low",
    "break_high": "break-even high", "margin": "AL / break-even", "origin": "origin",
}  # fmt: skip


def draw(subject: Subject) -> Figure | str:
    known = [
        each for each in subject.drafted if value(each, "al") is not None and value(each, "break_even_al") is not None
    ]
    if not known:
        return "there is no break-even AL: it needs pass times of the cell and of its baseline"
    rows = [_row(each) for each in known]
    pays = [row for row in rows if row["margin"] > 1]
    best = max(subject.contenders(known), key=lambda each: float(_row(each)["margin"]))
    at, row = best.cell, _row(best)
    which = "Furthest above it is" if row["margin"] > 1 else "Nearest below it is"
    reading = (
        f"{len(pays)} of {len(rows)} cells lie above the line, where drafting pays. {which} {named(at)} at "
        f"B={at.concurrency}: AL {row['al']:.2f} against {row['break_even']:.2f} to break even."
    )
    panels = [_panel(subject, title, some) for title, some in by_batch(subject, rows)]
    return Figure(reading=reading, panels=panels, columns=COLUMNS, rows=rows)


def _row(result: Result) -> dict[str, Any]:
    even = measurement(result, "break_even_al")
    al, needed = value(result, "al") or 0.0, even.value or 1.0
    return {
        **cell_row(result),
        **estimate_row(result, "al"),
        "break_even": needed,
        "break_low": even.low,
        "break_high": even.high,
        "margin": al / needed,
        "origin": even.origin,
        "left": needed if even.low is None else even.low,
        "right": needed if even.high is None else even.high,
        "label": f"D={result.cell.draft_length}",
    }


def _panel(subject: Subject, title: str, rows: Sequence[Row]) -> Panel:
    ends = (min(1.0, *(row["left"] for row in rows)), max(row["right"] for row in rows))
    diagonal = [{"break_even": end, "al": end} for end in ends]
    x = alt.X("break_even:Q", title="AL needed to break even", scale=alt.Scale(zero=False, padding=15), axis=few())
    y = alt.Y("al:Q", title="AL measured", scale=alt.Scale(zero=False, padding=15))
    plain = alt.Chart().encode(x=x, y=y)
    base = plain.encode(color=colour(subject.drafters, rows))
    chart = layered(
        over("diagonal").mark_line(style="limit").encode(x=x, y=y),
        base.mark_rule().encode(y="from:Q", y2="to:Q"),
        base.mark_rule().encode(x="left:Q", x2="right:Q"),
        base.mark_point(filled=True, opacity=1).encode(shape=shape(subject.drafters, rows)),
        plain.mark_text(style="words").encode(text="label:N"),
    )
    return Panel(title=title, chart=chart, rows=rows, more={"diagonal": diagonal})


CHART = Chart(
    title="Break-even AL against measured AL",
    how="Above the dotted diagonal drafting pays: more is accepted than verifying and drafting cost in plain passes "
    "(verify overhead + draft overhead). Bars are 95% intervals both ways.",
    place=40,
    draw=draw,
)
