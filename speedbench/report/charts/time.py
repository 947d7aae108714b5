"""Where a pass spends its time: verifying, drafting, and the rest."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.columns import value
from speedbench.report.drawing import CELL, Chart, Figure, Panel, Row, by_batch, cell_row, height_for, layered, short
from speedbench.report.subject import Subject
from speedbench.report.words import named, range_of, three
from speedbench.types import Result

PARTS = {"t_verify": "verify", "t_draft": "draft", "t_other": "other"}


def draw(subject: Subject) -> Figure | str:
    known = [each for each in subject.judged if all(value(each, name) is not None for name in PARTS)]
    if not known:
        return "the engine does not split its passes into verifying and drafting, or the batch was never full"
    rows = [_row(each) for each in known]
    columns = CELL | {name: f"{part}, ms" for name, part in PARTS.items()} | {"n": "passes", "origin": "origin"}
    panels = [_panel(title, some) for title, some in by_batch(subject, rows)]
    return Figure(reading=_reading(known), panels=panels, columns=columns, rows=rows)


def _row(result: Result) -> dict[str, Any]:
    found = result.metrics["t_verify"]
    times = {name: 1000 * (value(result, name) or 0.0) for name in PARTS}
    name = short(named(result.cell))
    return {**cell_row(result), **times, "n": found.n, "origin": found.origin, "cell": name}


def _reading(known: Sequence[Result]) -> str:
    def share(result: Result) -> float:
        times = [value(result, name) or 0.0 for name in PARTS]
        return times[1] / (sum(times) or 1.0)

    drafted = [each for each in known if not each.cell.is_baseline]
    plain = [1000 * (value(each, "t_verify") or 0.0) for each in known if each.cell.is_baseline]
    text = f"A plain pass verifies in {range_of(plain, three)} ms. " if plain else ""
    if not drafted:
        return f"{text}Nothing was drafted."
    most = max(drafted, key=share)
    over = [found for each in drafted if (found := value(each, "verify_overhead")) is not None]
    text += f"Verifying drafts takes {range_of(over)} times as long. " if over else ""
    where = f"{named(most.cell)} at B={most.cell.concurrency}"
    return f"{text}Drafting is at most {100 * share(most):.0f}% of a pass, with {where}."


def _panel(title: str, rows: Sequence[Row]) -> Panel:
    parts = list(PARTS.values())
    split = [
        {**{key: row[key] for key in (*CELL, "cell")}, "part": part, "ms": row[name], "rank": rank}
        for row in rows
        for rank, (name, part) in enumerate(PARTS.items())
    ]
    bars = (
        alt.Chart()
        .mark_bar(style="bar")
        .encode(
            x=alt.X("ms:Q", title="ms per pass", stack="zero"),
            y=alt.Y("cell:N", title=None, sort=[row["cell"] for row in rows], axis=alt.Axis(labelLimit=150)),
            color=alt.Color("part:O", sort=parts, scale=alt.Scale(domain=parts), legend=alt.Legend(title=None)),
            order=alt.Order("rank:Q"),
        )
    )
    return Panel(title=title, chart=layered(bars), rows=split, height=height_for(len(rows)))


CHART = Chart(
    title="Time of a pass",
    how="Mean over passes at full batch, from left to right: verifying, drafting, the rest (sampling, bookkeeping).",
    place=30,
    draw=draw,
)
