"""Time of decode attention over the queries of a KV head: does it rise by tiles?"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.costs.passes import TILE
from speedbench.report.drawing import Chart, Figure, Panel, Row, few, layered, over
from speedbench.report.profiled import Profiled
from speedbench.report.words import three
from speedbench.types import Kernel

COLUMNS = {
    "rows": "G·(1+D)", "D": "D", "B": "B", "us": "µs", "gflops": "GFLOPS", "each": "µs a query", "share": "roofline, %",
}  # fmt: skip


def draw(of: Profiled) -> Figure | str:
    kernels = sorted(of.study("attention"), key=lambda each: each.rows)
    if not kernels:
        return "attention was not studied (--gemm 0, or no time was left)"
    rows = [_row(each) for each in kernels]
    by = of.profile.kernel_name or "an unknown kernel"
    panels = [_panel("Time", "us", "µs of one layer", rows), _panel("Throughput", "gflops", "GFLOPS", rows)]
    return Figure(reading=f"By {by}: {_reading(rows)}", panels=panels, columns=COLUMNS, rows=rows)


def _row(each: Kernel) -> dict[str, Any]:
    us = 1e6 * each.seconds
    return {
        "rows": each.rows, "D": each.draft_length, "B": each.batch, "us": us,
        "gflops": each.flops / each.seconds / 1e9, "each": us / each.rows, "share": 100 * each.share,
    }  # fmt: skip


def _reading(rows: Sequence[Row]) -> str:
    """What the first tile costs to fill, and what the step beyond it is."""
    within = [row for row in rows if row["rows"] <= TILE]
    beyond = [row for row in rows if row["rows"] > TILE]
    said = []
    if len(within) > 1:
        first, last = within[0], within[-1]
        said.append(
            f"from {first['rows']} queries of a KV head to {last['rows']} its time goes from {three(first['us'])} to "
            f"{three(last['us'])} µs, {last['us'] / first['us']:.2f} times"
        )
    if within and beyond:
        step = beyond[0]["us"] / within[-1]["us"] - 1
        said.append(
            f"across the tile of {TILE}, from {within[-1]['rows']} to {beyond[0]['rows']}, by {100 * step:+.1f}%"
        )
    return f"{'; '.join(said)}." if said else "too few points to say more."


def _panel(title: str, key: str, words: str, rows: Sequence[Row]) -> Panel:
    x = alt.X("rows:Q", title="G·(1+D), queries of a KV head", axis=few())
    base = alt.Chart().encode(x=x, y=alt.Y(f"{key}:Q", title=words))
    last = int(rows[-1]["rows"])
    edges = [{"rows": edge} for edge in range(TILE, last + 1, TILE)]
    chart = layered(
        over("edges").mark_rule(style="limit").encode(x=x),
        base.mark_line(strokeWidth=1.5),
        base.mark_point(filled=True, opacity=1),
    )
    return Panel(title=title, chart=chart, rows=rows, more={"edges": edges})


CHART = Chart(
    title="Decode attention over G·(1+D)",
    how="Dotted: whole tiles of 128 queries. A kernel that computes by such tiles is flat between them and steps up "
    "just beyond.",
    place=40,
    draw=draw,
)
