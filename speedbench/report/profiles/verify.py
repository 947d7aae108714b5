"""Seconds of a target pass over its tokens, as measured, and as the cost model has them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from speedbench.costs.linear import Place
from speedbench.report.drawing import Chart, Figure, Panel, Row, colour, layered, over, shape
from speedbench.report.profiled import Profiled
from speedbench.report.words import range_of, three
from speedbench.types import Timed

COLUMNS = {
    "context": "context", "B": "B", "D": "D", "at": "B·(1+D)", "ms": "ms", "spread": "spread, %", "fitted": "fit, ms",
    "off": "predicted without it, %",
}  # fmt: skip

LINE_POINTS = 24
"""Points of a fitted line."""


def draw(of: Profiled) -> Figure | str:
    if not of.plain:
        return "no pass of the target alone was timed"
    errors = of.fit.errors if of.fit else [None] * len(of.plain)
    rows = [_row(of, each, error) for each, error in zip(of.plain, errors, strict=True)]
    panels = []
    for context in sorted({row["context"] for row in rows}):
        some = [row for row in rows if row["context"] == context]
        panels.append(_panel(of, f"Context {context}", some, _lines(of, some)))
    return Figure(reading=_reading(of), panels=panels, columns=COLUMNS, rows=rows)


def _row(of: Profiled, each: Timed, error: float | None) -> dict[str, Any]:
    """A point; `from` and `to` are as far apart as the rounds' tenth and ninetieth percentile."""
    place = Place(batch=each.batch, draft_length=each.draft_length, context=each.context)
    ms, half = 1000 * each.verify, each.spread / 2
    return {
        "context": each.context, "B": each.batch, "D": each.draft_length, "length": f"D={each.draft_length}",
        "at": place.tokens, "ms": ms, "spread": 100 * each.spread, "from": ms * max(0.0, 1 - half),
        "to": ms * (1 + half), "fitted": None if of.fit is None else 1000 * of.fit.at(place),
        "off": None if error is None else 100 * error,
    }  # fmt: skip


def _lines(of: Profiled, rows: Sequence[Row]) -> list[Row]:
    """The fit for every D of a context, from the smallest batch measured with it to the largest."""
    found: list[Row] = []
    if of.fit is None:
        return found
    for d in sorted({row["D"] for row in rows}):
        batches = [row["B"] for row in rows if row["D"] == d]
        for batch in np.geomspace(min(batches), max(batches), LINE_POINTS).tolist():
            place = Place(batch=batch, draft_length=d, context=rows[0]["context"])
            found.append({"length": f"D={d}", "at": place.tokens, "ms": 1000 * of.fit.at(place)})
    return found


def _reading(of: Profiled) -> str:
    alone = [each for each in of.plain if each.draft_length == 0]
    plain = range_of([1000 * each.verify for each in alone or of.plain], three)
    widest = max(of.plain, key=lambda each: each.batch * (1 + each.draft_length))
    x = widest.batch * (1 + widest.draft_length)
    text = f"A plain pass takes {plain} ms, one of {x} tokens {three(1000 * widest.verify)} ms at context "
    text += f"{widest.context}."
    if of.fit is None:
        return f"{text} There is no fit: {of.fitted[1]}."
    place = Place(batch=widest.batch, draft_length=widest.draft_length, context=widest.context)
    shares = sorted(of.fit.shares(place).items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares if share >= 0.005)
    return (
        f"{text} The fit is off by {100 * of.fit.mean_error:.1f}% on the mean, {100 * of.fit.worst_error:.0f}% at "
        f"worst, each point predicted without itself; by it the latter pass is {parts}."
    )


def _panel(of: Profiled, title: str, rows: Sequence[Row], lines: Sequence[Row]) -> Panel:
    tokens = sorted({row["at"] for row in rows})
    scale = alt.Scale(type="log", base=2, domain=[tokens[0] / 1.15, tokens[-1] * 1.15], nice=False)
    axis = alt.Axis(values=tokens, format="d", grid=False)
    x = alt.X("at:Q", title="B·(1+D), tokens verified", scale=scale, axis=axis)
    y = alt.Y("ms:Q", title="T_verif, ms")
    base = alt.Chart().encode(x=x, color=colour(of.lengths, rows, "length"))
    line = over("fit").mark_line(strokeWidth=1.2, strokeDash=[5, 4])
    chart = layered(
        line.encode(x=x, y=y, color=colour(of.lengths, rows, "length")),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("from:Q"), y2="to:Q"),
        base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape(of.lengths, rows, "length")),
    )
    return Panel(title=title, chart=chart, rows=rows, more={"fit": lines})


CHART = Chart(
    title="T_verif against the tokens of a pass",
    how="Points are measured, drafts given at no cost; bars are as long as the rounds' middle 80%. Dashed, where a D "
    "was timed at several B: the cost model, whose terms are in the reading.",
    place=10,
    draw=draw,
)
