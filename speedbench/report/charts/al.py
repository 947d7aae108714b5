"""Acceptance length against D, below its ceiling."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from speedbench.columns import measurement, value
from speedbench.report.drawing import (
    CELL,
    ESTIMATE,
    Chart,
    Figure,
    Panel,
    Row,
    aside,
    by_batch,
    cell_row,
    colour,
    draft_axis,
    estimate_row,
    layered,
    over,
    shape,
)
from speedbench.report.subject import Subject
from speedbench.report.words import named, spread


def draw(subject: Subject) -> Figure | str:
    known = [each for each in subject.drafted if value(each, "al") is not None]
    if not known:
        return "no cell with a drafter has an acceptance length"
    lengths = [each.cell.draft_length for each in known]
    rows = [{**cell_row(each), **estimate_row(each, "al")} for each in known]
    rows = [{**row, "at": aside(subject, row, lengths), "ceiling": row["D"] + 1} for row in rows]
    contenders = subject.contenders(known)
    best = max(contenders, key=lambda each: value(each, "al") or 0.0)
    full = max(contenders, key=lambda each: ((value(each, "al") or 0.0) - 1) / each.cell.draft_length)
    used = ((value(full, "al") or 0.0) - 1) / full.cell.draft_length
    reading = (
        f"The longest is {named(best.cell)} at B={best.cell.concurrency} with {spread(measurement(best, 'al'))} of at "
        f"most {best.cell.draft_length + 1}. {named(full.cell)} uses most of what it drafts: {100 * used:.0f}% of D."
    )
    top = max(1.25 * (max(row["to"] for row in rows) - 1), 1.35 * min(lengths)) + 1
    panels = [_panel(subject, title, some, top) for title, some in by_batch(subject, rows)]
    columns = CELL | {"al": "AL"} | ESTIMATE | {"ceiling": "D+1"}
    return Figure(reading=reading, panels=panels, columns=columns, rows=rows)


def _panel(subject: Subject, title: str, rows: Sequence[Row], top: float) -> Panel:
    """Up to `top`, which lets the ceiling of the smallest D be seen."""
    x = draft_axis(rows)
    y = alt.Scale(domain=[1, top], nice=False, zero=False)
    limit = [{"at": at, "al": at + 1} for at in (0, max(row["D"] for row in rows) + 1)]
    ceiling = over("limit").mark_line(style="limit", clip=True).encode(x=x, y=alt.Y("al:Q", scale=y))
    base = alt.Chart().encode(x=x, color=colour(subject.drafters, rows))
    al = alt.Y("al:Q", title="AL, tokens per step", scale=y)
    chart = layered(
        ceiling,
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("from:Q", scale=y), y2="to:Q"),
        base.mark_line(strokeWidth=1.5).encode(y=al),
        base.mark_point(filled=True, opacity=1).encode(y=al, shape=shape(subject.drafters, rows)),
    )
    return Panel(title=title, chart=chart, rows=rows, more={"limit": limit})


CHART = Chart(
    title="Acceptance length against D",
    how="Bars are 95% intervals over conversations. The dotted line is the ceiling, D + 1: every draft accepted.",
    place=10,
    draw=draw,
)
