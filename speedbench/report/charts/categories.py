"""Acceptance length and speedup by category of prompts, each drafter at its best D."""

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
    few,
    height_for,
    layered,
    over,
    shape,
    short,
)
from speedbench.report.subject import Subject
from speedbench.report.words import listed
from speedbench.stats import UNAVAILABLE
from speedbench.types import Result

METRICS = {"al": "AL, tokens per step", "speedup": "speedup over no drafting"}
SHORT = {"al": "AL", "speedup": "speedup"}


def draw(subject: Subject) -> Figure | str:
    chosen = _chosen(subject)
    rows = [row for result in chosen for name in METRICS for row in _rows(result, name)]
    if not rows:
        return "no cell with a drafter has results by category"
    if len({row["category"] for row in rows}) < 2:
        return "all prompts are of one category"
    lengths = listed(f"{short(each.cell.drafter)} at D={each.cell.draft_length}" for each in chosen)
    al = [row for row in rows if row["metric"] == "al"] or rows
    top, last = max(al, key=lambda row: float(row["value"])), min(al, key=lambda row: float(row["value"]))
    reading = (
        f"Of {lengths}, B={chosen[0].cell.concurrency}, {top['drafter']} does best on {top['category']} "
        f"({SHORT[top['metric']]} {top['value']:.2f}) and {last['drafter']} worst on {last['category']} "
        f"({last['value']:.2f})."
    )
    columns = {"category": "category"} | CELL | {"metric": "metric", "value": "value"} | ESTIMATE
    panels = [_panel(subject, name, [row for row in rows if row["metric"] == name]) for name in METRICS]
    return Figure(reading=reading, panels=[each for each in panels if each.rows], columns=columns, rows=rows)


def _chosen(subject: Subject) -> list[Result]:
    """Each drafter's fastest D at the smallest B; where no speed is known, the one of the longest AL."""
    least = subject.concurrencies[0] if subject.concurrencies else 0
    some = [each for each in subject.drafted if each.cell.concurrency == least and each.by_category]
    best: dict[str, Result] = {}
    for each in some:
        kept = best.get(each.cell.drafter)
        if kept is None or _rank(each) > _rank(kept):
            best[each.cell.drafter] = each
    return list(best.values())


def _rank(result: Result) -> tuple[float, float]:
    return value(result, "speedup") or 0.0, value(result, "al") or 0.0


def _rows(result: Result, name: str) -> list[dict[str, Any]]:
    found = []
    for category, metrics in result.by_category.items():
        one = metrics.get(name, UNAVAILABLE)
        if one.value is not None:
            ends = {
                "from": one.value if one.low is None else one.low,
                "to": one.value if one.high is None else one.high,
            }
            told = {"value": one.value, "low": one.low, "high": one.high, "n": one.n, "origin": one.origin}
            found.append({"category": short(category), **cell_row(result), "metric": name, **told, **ends})
    return found


def _panel(subject: Subject, name: str, rows: Sequence[Row]) -> Panel:
    drafters = [each for each in subject.drafters if any(row["drafter"] == each for row in rows)]
    names = sorted({row["category"] for row in rows}, key=lambda one: -_mean(rows, one))
    base = alt.Chart().encode(
        y=alt.Y("category:N", title=None, sort=names, axis=alt.Axis(labelLimit=130, grid=True)),
        yOffset=alt.YOffset("drafter:N", sort=drafters),
        color=colour(subject.drafters, rows),
    )
    x = alt.X("value:Q", title=METRICS[name], scale=alt.Scale(zero=False), axis=few())
    chart = layered(
        over("one").mark_rule(style="limit").encode(x="value:Q"),
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("from:Q", scale=alt.Scale(zero=False)), x2="to:Q"),
        base.mark_point(filled=True, opacity=1).encode(x=x, shape=shape(subject.drafters, rows)),
    )
    height = height_for(len(names), max(20, 11 * len(drafters)))
    return Panel(title=METRICS[name], chart=chart, rows=rows, more={"one": [{"value": 1}]}, height=height)


def _mean(rows: Sequence[Row], category: str) -> float:
    some = [float(row["value"]) for row in rows if row["category"] == category]
    return sum(some) / len(some)


CHART = Chart(
    title="By category",
    how="Each drafter at the D with which it is fastest. Bars are 95% intervals; a category of one conversation has "
    "none.",
    place=60,
    draw=draw,
)
