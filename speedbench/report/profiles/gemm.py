"""Throughput of a linear layer over its rows, and the batch at which it reaches its knee."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.report.drawing import Chart, Figure, Panel, Row, colour, layered, over, shape
from speedbench.report.profiled import Profiled
from speedbench.report.words import listed, three
from speedbench.types import Kernel, Peaks

COLUMNS = {
    "B": "B", "D": "D", "rows": "rows, B·(1+D)", "us": "µs", "gflops": "GFLOPS", "roofline": "roofline, GFLOPS",
    "share": "share of it, %",
}  # fmt: skip

KNEE = 0.8
"""Share of the best throughput at which a layer is said to be past its knee."""


def draw(of: Profiled) -> Figure | str:
    kernels, peaks = of.study("gemm"), of.profile.peaks
    if not kernels or peaks is None:
        return "linear layers were not studied (--gemm 0, or no time was left)"
    rows = [_row(each, peaks) for each in kernels]
    size = of.profile.settings.get("gemm")
    panels = [
        _panel(of, "Against B", "B, sequences in the batch", "B", rows),
        _panel(of, "Against rows", "B·(1+D), rows of the product", "rows", rows),
    ]
    reading = f"{'A layer' if size is None else f'A layer of {size}²'} in {peaks.dtype} {_knee(rows)}"
    return Figure(reading=reading, panels=panels, columns=COLUMNS, rows=rows)


def _row(each: Kernel, peaks: Peaks) -> dict[str, Any]:
    """The roofline is the lesser of the peak and of what the memory feeds."""
    fed = each.flops / each.bytes * (peaks.bandwidth or 0.0)
    return {
        "B": each.batch, "D": each.draft_length, "length": f"D={each.draft_length}", "rows": each.rows,
        "us": 1e6 * each.seconds, "gflops": each.flops / each.seconds / 1e9,
        "roofline": min(peaks.flops or fed, fed) / 1e9, "share": 100 * each.share,
    }  # fmt: skip


def _knee(rows: Sequence[Row]) -> str:
    """From which rows on KNEE of the best is reached, and which batch that is by D."""
    best = max(float(row["gflops"]) for row in rows)
    slow = [int(row["rows"]) for row in rows if row["gflops"] < KNEE * best]
    past = [row for row in rows if row["rows"] > max(slow, default=0)]
    text = f"does {three(best)} GFLOPS at best, and {100 * KNEE:.0f}% of that"
    if not past:
        return f"{text} at no number of rows for good."
    batches: dict[int, int] = {}
    for row in past:
        batches[row["D"]] = min(row["B"], batches.get(row["D"], row["B"]))
    reached = listed(f"B={b} with D={d}" for d, b in sorted(batches.items()))
    return f"{text} from {min(row['rows'] for row in past)} rows on: {reached}."


def _panel(of: Profiled, title: str, words: str, key: str, rows: Sequence[Row]) -> Panel:
    values = sorted({row[key] for row in rows})
    scale = alt.Scale(type="log", base=2, domain=[values[0] / 1.15, values[-1] * 1.15], nice=False)
    powers = [2**k for k in range(12) if values[0] <= 2**k <= values[-1]]
    x = alt.X(f"{key}:Q", title=words, scale=scale, axis=alt.Axis(values=powers, format="d", grid=False))
    y = alt.Y("gflops:Q", title="GFLOPS")
    base = alt.Chart().encode(x=x, y=y, color=colour(of.lengths, rows, "length"))
    marks = [base.mark_line(strokeWidth=1.2)] if key == "B" else []
    points = base.mark_point(filled=True, opacity=1).encode(shape=shape(of.lengths, rows, "length"))
    limit = sorted(({"rows": row["rows"], "gflops": row["roofline"]} for row in rows), key=lambda row: int(row["rows"]))
    if key == "rows":
        marks.append(over("roofline").mark_line(style="limit").encode(x=x, y=y))
    return Panel(title=title, chart=layered(*marks, points), rows=rows, more={"roofline": limit})


CHART = Chart(
    title="A linear layer over its rows",
    how="Over B, drafts move the knee to smaller batches: with D = 7 an eighth of them. Over rows all D fall on one "
    "line; the dotted one is the roofline of this machine's own measured peaks.",
    place=30,
    draw=draw,
)
