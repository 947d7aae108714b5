"""Which drafts are accepted, by their place in the proposal."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.columns import measurement, value
from speedbench.report.drawing import CELL, Chart, Figure, Panel, Row, cell_row, height_for, layered, short
from speedbench.report.subject import Subject
from speedbench.report.theme import INK, LIGHT
from speedbench.report.words import named, range_of

MARGINAL, CONDITIONAL = "accepted_at_marginal", "accepted_at_conditional"
KINDS = {"marginal": "at least i accepted", "conditional": "draft i accepted, given those before"}


def draw(subject: Subject) -> Figure | str:
    rows = [row for result in subject.drafted for row in _rows(result)]
    if not rows:
        return "the engine does not tell which of its drafts were accepted"
    first = [row["marginal"] for row in rows if row["i"] == 1]
    late = [row["conditional"] for row in rows if row["i"] == row["D"] > 1 and row["conditional"] is not None]
    reading = f"The first draft is accepted in {_percent(first)} of the steps" if first else "No step was complete"
    reading += f"; the last, once all before it were, in {_percent(late)}." if late else "."
    columns = CELL | {"i": "i"} | KINDS | {"n": "n", "origin": "origin"}
    panels = [
        _panel(f"B = {b}: {title}", kind, [row for row in rows if row["B"] == b and row[kind] is not None])
        for b in subject.concurrencies
        for kind, title in KINDS.items()
    ]
    return Figure(reading=reading, panels=[each for each in panels if each.rows], columns=columns, rows=rows)


def _rows(result: Any) -> list[dict[str, Any]]:
    found = []
    for i in range(1, result.cell.draft_length + 1):
        marginal = measurement(result, f"{MARGINAL}[{i}]")
        given = value(result, f"{CONDITIONAL}[{i}]")
        if marginal.value is not None:
            told = {"marginal": marginal.value, "conditional": given, "n": marginal.n, "origin": marginal.origin}
            found.append({**cell_row(result), "i": i, **told, "cell": short(named(result.cell))})
    return found


def _percent(shares: Sequence[float]) -> str:
    return f"{range_of([100 * share for share in shares], '{:.0f}'.format)}%"


def _panel(title: str, kind: str, rows: Sequence[Row]) -> Panel:
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    shown = [{**row, "share": row[kind], "text": f"{100 * row[kind]:.0f}"} for row in rows]
    base = alt.Chart().encode(
        x=alt.X("i:O", title="draft position i", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("cell:N", title=None, sort=cells, axis=alt.Axis(labelLimit=150)),
    )
    legend = alt.Legend(title=None, format="%", orient="top", gradientLength=160)
    heat = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1]), legend=legend)
    ink = alt.condition(f"datum.share > {INK}", alt.value(LIGHT.ground), alt.value(LIGHT.text))
    chart = layered(base.mark_rect().encode(color=heat), base.mark_text(fontSize=11).encode(text="text:N", color=ink))
    return Panel(title=title, chart=chart, rows=shown, height=height_for(len(cells)))


CHART = Chart(
    title="Acceptance by position",
    how="Percent of the steps that no stop token and no cap cut short. 1 + the sum of a row on the left is its AL "
    "over those steps.",
    place=50,
    draw=draw,
)
