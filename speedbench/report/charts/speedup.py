"""How much faster than without drafting: measured, and what the formula makes of acceptance and pass times."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from speedbench.columns import RESIDUAL_LIMIT, measurement, value
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
from speedbench.types import Result


def draw(subject: Subject) -> Figure | str:
    known = [each for each in subject.drafted if value(each, "speedup") is not None]
    if not known:
        return "no speedup was measured: it needs a baseline (D = 0) at the same concurrency, and answers in both"
    lengths = [each.cell.draft_length for each in known]
    rows = [_row(subject, each, lengths) for each in known]
    columns = CELL | {"speedup": "speedup"} | ESTIMATE | {"formula": "by the formula", "residual": "residual"}
    panels = [_panel(subject, title, some) for title, some in by_batch(subject, rows)]
    return Figure(reading=_reading(subject, known), panels=panels, columns=columns, rows=rows)


def _row(subject: Subject, result: Result, lengths: Sequence[int]) -> dict[str, object]:
    row = cell_row(result) | estimate_row(result, "speedup")
    more = {"formula": value(result, "speedup_formula"), "residual": value(result, "residual")}
    return {**row, **more, "at": aside(subject, row, lengths)}


def _reading(subject: Subject, known: Sequence[Result]) -> str:
    best = max(subject.contenders(known), key=lambda each: value(each, "speedup") or 0.0)
    faster = sum((value(each, "speedup") or 0.0) > 1 for each in known)
    sure = sum((measurement(each, "speedup").low or 0.0) > 1 for each in known)
    explained = [residual for each in known if (residual := value(each, "residual")) is not None]
    text = (
        f"{faster} of {len(known)} cells are faster than no drafting, {sure} of them beyond their interval; the "
        f"fastest is {named(best.cell)} at B={best.cell.concurrency} with {spread(measurement(best, 'speedup'), 'x')}."
    )
    if not explained:
        return f"{text} There is no formula, for the engine tells no pass times."
    missed = sum(abs(residual) > RESIDUAL_LIMIT for residual in explained)
    worst = max(explained, key=abs)
    limit = f"{100 * RESIDUAL_LIMIT:.0f}%, at worst by {100 * worst:+.1f}%"
    return f"{text} The formula misses {missed} of {len(explained)} by more than {limit}."


def _panel(subject: Subject, title: str, rows: Sequence[Row]) -> Panel:
    x = draft_axis(rows)
    base = alt.Chart().encode(x=x, color=colour(subject.drafters, rows))
    y = alt.Y("speedup:Q", title="speedup over no drafting", scale=alt.Scale(zero=False))
    marks = [
        over("one").mark_rule(style="limit").encode(y="speedup:Q"),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.mark_line(strokeWidth=1.5).encode(y=y),
        base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape(subject.drafters, rows)),
    ]
    if any(row["formula"] is not None for row in rows):
        predicted = base.encode(y=alt.Y("formula:Q", title="speedup over no drafting"))
        marks.append(predicted.mark_line(strokeWidth=1.2, strokeDash=[5, 4]))
        hollow = predicted.mark_point(filled=False, opacity=1, size=90)
        marks.append(hollow.encode(shape=shape(subject.drafters, rows)))
    return Panel(title=title, chart=layered(*marks), rows=rows, more={"one": [{"speedup": 1}]})


CHART = Chart(
    title="Speedup, measured and by the formula",
    how="Filled and solid: measured, with the 95% interval. Hollow and dashed: AL / (verify overhead + draft "
    "overhead). The dotted line at 1 is decoding without a drafter.",
    place=20,
    draw=draw,
)
