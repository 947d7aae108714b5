"""Until which concurrency drafting pays."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.columns import value
from speedbench.report.drawing import (
    CELL,
    ESTIMATE,
    Chart,
    Figure,
    Panel,
    Row,
    cell_row,
    colour,
    estimate_row,
    layered,
    over,
    shape,
)
from speedbench.report.subject import Subject
from speedbench.types import Result


def draw(subject: Subject) -> Figure | str:
    best: dict[tuple[str, int], Result] = {}
    for each in subject.drafted:
        at = each.cell.drafter, each.cell.concurrency
        if value(each, "speedup") is not None and _speedup(each) > (_speedup(best[at]) if at in best else 0.0):
            best[at] = each
    batches = sorted({b for _, b in best})
    if len(batches) < 2:
        have = f"only B = {batches[0]} has a speedup" if batches else "no speedup was measured"
        return f"{have}; `--concurrency 1,4,16` shows until which batch drafting pays"
    rows = [_row(subject, each) for each in best.values()]
    columns = CELL | {"speedup": "speedup"} | ESTIMATE
    reading = _reading(subject, batches, subject.contenders(list(best.values())))
    return Figure(reading=reading, panels=[_panel(subject, rows, batches)], columns=columns, rows=rows)


def _row(subject: Subject, result: Result) -> dict[str, Any]:
    """B stands a little aside by drafter, so that intervals do not lie upon each other."""
    cell, place = result.cell, subject.drafters.index(result.cell.drafter) - len(subject.drafters) / 2
    told = {"at": cell.concurrency * 1.03**place, "label": f"D={cell.draft_length}"}
    return {**cell_row(result), **estimate_row(result, "speedup"), **told}


def _reading(subject: Subject, batches: Sequence[int], best: Sequence[Result]) -> str:
    ends = []
    for b in (batches[0], batches[-1]):
        top = max((_speedup(each) for each in best if each.cell.concurrency == b), default=None)
        ends.append(f"{'unknown' if top is None else f'{top:.2f}x'} at B={b}")
    crossing = (
        "it does not fall through 1 in between"
        if subject.break_even is None
        else f"it falls through 1 at about B={subject.break_even:.1f}, on a line over log B"
    )
    return f"The best speedup goes from {ends[0]} to {ends[1]}; {crossing}."


def _speedup(result: Result) -> float:
    return value(result, "speedup") or 0.0


def _panel(subject: Subject, rows: Sequence[Row], batches: Sequence[int]) -> Panel:
    scale = alt.Scale(type="log", base=2, domain=[batches[0] / 1.2, batches[-1] * 1.2], nice=False)
    axis = alt.Axis(values=list(batches), format="d", grid=False)
    x = alt.X("at:Q", title="B, sequences in the batch", scale=scale, axis=axis)
    y = alt.Y("speedup:Q", title="speedup over no drafting", scale=alt.Scale(zero=False))
    crossing = [] if subject.break_even is None else [{"at": subject.break_even, "text": f"B≈{subject.break_even:.1f}"}]
    plain = alt.Chart().encode(x=x)
    base = plain.encode(color=colour(subject.drafters, rows))
    marked = over("crossing").encode(x=x)
    chart = layered(
        over("one").mark_rule(style="limit").encode(y="speedup:Q"),
        marked.mark_rule(style="limit"),
        marked.mark_text(style="words", align="left", dx=4, dy=6).encode(text="text:N", y=alt.value(0)),
        base.mark_rule(strokeWidth=1.5).encode(y="from:Q", y2="to:Q"),
        base.mark_line(strokeWidth=1.5).encode(y=y),
        base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape(subject.drafters, rows)),
        plain.mark_text(style="words").encode(y=y, text="label:N"),
    )
    return Panel(
        title="Best D of each drafter", chart=chart, rows=rows, more={"one": [{"speedup": 1}], "crossing": crossing}
    )


CHART = Chart(
    title="Speedup against concurrency",
    how="At each B every drafter stands with the D that was fastest there, which flatters it a little. "
    "The dotted line at 1 is decoding without a drafter.",
    place=70,
    draw=draw,
)
