"""What each kernel reaches of what this machine can do."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from speedbench.report.drawing import Chart, Figure, Panel, Row, colour, layered, shape
from speedbench.report.profiled import Profiled
from speedbench.report.words import range_of, three
from speedbench.types import Peaks

STUDIES: Mapping[str, tuple[str, str]] = {
    "gemm": ("Linear layer", "B·(1+D), rows of the product"),
    "attention": ("Decode attention", "G·(1+D), queries of a KV head"),
}
COLUMNS = {
    "study": "kernel", "rows": "rows", "B": "B", "D": "D", "bound": "bound by", "share": "share of the roofline, %",
}  # fmt: skip
BOUNDS = ("memory", "compute")


def draw(of: Profiled) -> Figure | str:
    rows = [row for study in STUDIES for row in _rows(of, study)]
    if not rows or of.profile.peaks is None:
        return "no kernel was studied (--gemm 0, or no time was left)"
    panels = [_panel(*STUDIES[study], some) for study in STUDIES if (some := _rows(of, study))]
    return Figure(reading=_reading(of.profile.peaks, rows), panels=panels, columns=COLUMNS, rows=rows)


def _rows(of: Profiled, study: str) -> list[dict[str, Any]]:
    """Kernels of equal rows were timed once, so each stands once."""
    found = {each.rows: each for each in of.study(study)}
    return [
        {
            "study": STUDIES[study][0], "rows": each.rows, "B": each.batch, "D": each.draft_length,
            "bound": each.bound, "share": 100 * each.share,
        }
        for _, each in sorted(found.items())
    ]  # fmt: skip


def _reading(peaks: Peaks, rows: Sequence[Row]) -> str:
    told = []
    for study, _ in STUDIES.values():
        shares = [row["share"] for row in rows if row["study"] == study]
        told += [f"the {study.lower()} reaches {range_of(shares, '{:.0f}'.format)}%"] if shares else []
    flops, bandwidth = (None if x is None else x / 1e9 for x in (peaks.flops, peaks.bandwidth))
    here = f"{'-' if flops is None else three(flops)} GFLOPS in {peaks.dtype} and "
    here += f"{'-' if bandwidth is None else three(bandwidth)} GB/s"
    return f"Of this machine's measured {here}, {' and '.join(told)} of what their roofline allows."


def _panel(title: str, words: str, rows: Sequence[Row]) -> Panel:
    values = [row["rows"] for row in rows]
    scale = alt.Scale(type="log", base=2, domain=[min(values) / 1.15, max(values) * 1.15], nice=False)
    powers = [2**k for k in range(12) if min(values) <= 2**k <= max(values)]
    x = alt.X("rows:Q", title=words, scale=scale, axis=alt.Axis(values=powers, format="d", grid=False))
    y = alt.Y("share:Q", title="share of the roofline, %", scale=alt.Scale(domainMin=0))
    points = alt.Chart().mark_point(filled=True, opacity=1)
    chart = points.encode(x=x, y=y, color=colour(BOUNDS, rows, "bound"), shape=shape(BOUNDS, rows, "bound"))
    return Panel(title=title, chart=layered(chart), rows=rows)


CHART = Chart(
    title="Share of the roofline",
    how="100% is a kernel that moves its bytes, or does its operations, as fast as this machine's own large copy or "
    "large product; the colour says which of the two bounds it. A weight that stays in a cache can exceed it.",
    place=50,
    draw=draw,
)
