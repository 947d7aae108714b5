"""Seconds to draft, by drafter, D and batch."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.report.drawing import Chart, Figure, Panel, Row, colour, draft_axis, layered, shape
from speedbench.report.profiled import Profiled
from speedbench.report.words import three
from speedbench.types import Timed

COLUMNS = {
    "drafter": "drafter", "B": "B", "D": "D", "ms": "T_draft, ms", "overhead": "T_draft / T_verif of a plain pass",
    "context": "context",
}  # fmt: skip


def draw(of: Profiled) -> Figure | str:
    drafted = [each for each in of.profile.timed if each.drafter is not None and each.draft is not None]
    if not drafted:
        return "no drafter was timed; name some to speedbench profile --drafter"
    rows = [_row(of, each) for each in drafted]
    batches = [f"B={b}" for b in sorted({each.batch for each in drafted})]
    labels = list(dict.fromkeys(row["drafter"] for row in rows))
    parts = [[row for row in rows if row["drafter"] == label] for label in labels]
    panels = [_panel(batches, label, some) for label, some in zip(labels, parts, strict=True)]
    return Figure(reading=" ".join(map(_sentence, parts)), panels=panels, columns=COLUMNS, rows=rows)


def _row(of: Profiled, each: Timed) -> dict[str, Any]:
    alone = [p for p in of.plain if (p.batch, p.context, p.draft_length) == (each.batch, each.context, 0)]
    drafting = each.draft or 0.0
    return {
        "drafter": each.drafter, "B": each.batch, "batch": f"B={each.batch}", "D": each.draft_length,
        "at": each.draft_length, "context": each.context, "ms": 1000 * drafting,
        "overhead": drafting / alone[0].verify if alone else None,
    }  # fmt: skip


def _sentence(rows: Sequence[Row]) -> str:
    """From the smallest D to the largest, at the smallest batch."""
    some = sorted((row for row in rows if row["B"] == min(each["B"] for each in rows)), key=lambda row: int(row["D"]))
    first, last = some[0], some[-1]
    text = f"At B={first['B']} {first['drafter']} takes {three(first['ms'])} ms for D={first['D']}"
    text += f" and {three(last['ms'])} ms for D={last['D']}" if last["D"] > first["D"] else ""
    return f"{text}." if last["overhead"] is None else f"{text}, {100 * last['overhead']:.2g}% of a plain pass."


def _panel(batches: Sequence[str], title: str, rows: Sequence[Row]) -> Panel:
    base = alt.Chart().encode(
        x=draft_axis(rows), y=alt.Y("ms:Q", title="T_draft, ms"), color=colour(batches, rows, "batch")
    )
    marks = base.mark_line(strokeWidth=1.5), base.mark_point(filled=True, opacity=1)
    return Panel(title=title, rows=rows, chart=layered(marks[0], marks[1].encode(shape=shape(batches, rows, "batch"))))


CHART = Chart(
    title="T_draft against D",
    how="A flat line is a drafter that proposes all its tokens at once or looks them up; a rising one runs once a "
    "token. Each panel has a scale of its own.",
    place=20,
    draw=draw,
)
