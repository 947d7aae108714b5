"""Until which concurrency drafting pays."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import altair as alt

from speedbench.columns import value
from speedbench.report.drawing import (
    CELL,
    ESTIMATE,
    Chart,
    Figure,
    Panel,
    cell_row,
    colour,
    estimate_row,
    named_data,
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
    rows = [{**cell_row(each), **estimate_row(each, "speedup"), "label": f"D={each.cell.draft_length}"}
            for each in best.values()]  # fmt: skip
    tops = {b: max(_speedup(each) for (_, at), each in best.items() if at == b) for b in batches}
    reading = f"The best speedup goes from {tops[batches[0]]:.2f}x at B={batches[0]} to {tops[batches[-1]]:.2f}x at "
    reading += f"B={batches[-1]}; "
    reading += (
        "it does not fall through 1 in between."
        if subject.break_even is None
        else f"it falls through 1 at about B={subject.break_even:.1f}, on a line over log B."
    )
    return Figure(
        reading=reading, panels=[_panel(subject, rows, batches)], columns=CELL | {"speedup": "speedup"} | ESTIMATE,
        rows=rows,
    )  # fmt: skip


def _speedup(result: Result) -> float:
    return value(result, "speedup") or 0.0


def _panel(subject: Subject, rows: list[dict[str, object]], batches: list[int]) -> Panel:
    scale = alt.Scale(type="log", base=2, domain=[batches[0] / 1.2, batches[-1] * 1.2], nice=False)
    x = alt.X(
        "B:Q", title="B, sequences in the batch", scale=scale, axis=alt.Axis(values=batches, format="d", grid=False)
    )
    y = alt.Y("speedup:Q", title="speedup over no drafting", scale=alt.Scale(zero=False))
    crossing = [] if subject.break_even is None else [{"B": subject.break_even, "text": f"B≈{subject.break_even:.1f}"}]
    plain = alt.Chart().encode(x=x)
    base = plain.encode(color=colour(subject, rows))
    marked = alt.Chart(named_data("crossing")).encode(x=x)
    chart = alt.layer(
        alt.Chart(named_data("one")).mark_rule(style="limit").encode(y="speedup:Q"),
        marked.mark_rule(style="limit"),
        marked.mark_text(style="words", align="left", dx=4, baseline="top").encode(text="text:N", y=alt.value(0)),
        base.mark_rule(strokeWidth=1.5).encode(y="from:Q", y2="to:Q"),
        base.mark_line(strokeWidth=1.5).encode(y=y),
        base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape(subject, rows)),
        plain.mark_text(style="words", align="left", dx=7, dy=-7).encode(y=y, text="label:N"),
        data=named_data(),
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
