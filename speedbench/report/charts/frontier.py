"""Speed for one user against speed of the whole: what a service trades."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.columns import measurement, value
from speedbench.report.drawing import CELL, Chart, Figure, Panel, Row, cell_row, colour, few, layered, over, shape
from speedbench.report.subject import Subject
from speedbench.report.words import listed, named
from speedbench.types import Result


def draw(subject: Subject) -> Figure | str:
    known = [
        each
        for each in subject.judged
        if value(each, "decode_tps") is not None and value(each, "output_tps") is not None
    ]
    if len(known) < 2:
        return "fewer than two cells have both the speed of a request and that of the whole batch"
    whole, unit = _machine(subject)
    rows = _on_front([_row(each) for each in known])
    front = [each for each, row in zip(known, rows, strict=True) if row["front"]]
    names = listed(f"{named(each.cell)} at B={each.cell.concurrency}" for each in front[:6])
    more = f" and {len(front) - 6} more" if len(front) > 6 else ""
    reading = f"{len(front)} of {len(known)} cells are beaten by none on both axes: {names}{more}."
    columns = CELL | {"user": "tok/s per user", "whole": unit, "front": "on the frontier", "origin": "origin"}
    return Figure(reading=reading, panels=[_panel(subject, rows, whole, unit)], columns=columns, rows=rows)


def _machine(subject: Subject) -> tuple[str, str]:
    """What the speed for all is of, and its unit. Only one GPU can be known to have served."""
    cards = subject.environment.get("gpus")
    if cards is not None and len(cards) == 1:
        return "Of one GPU", "tok/s per GPU"
    why = "whether it has GPUs is not known" if cards is None else "it has no GPU" if not cards else ""
    why = why or f"which of its {len(cards or ())} GPUs served is not recorded"
    return f"Of the whole machine: {why}", "tok/s, all users"


def _row(result: Result) -> dict[str, Any]:
    user, whole = measurement(result, "decode_tps"), measurement(result, "output_tps")
    cell = result.cell
    told = {"user": user.value, "whole": whole.value, "origin": whole.origin}
    return {**cell_row(result), **told, "label": f"D={cell.draft_length} B={cell.concurrency}"}


def _on_front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Marked where no other row is as good on one axis and better on the other."""

    def beaten(row: Row) -> bool:
        return any(
            each["user"] >= row["user"] and each["whole"] >= row["whole"] and
            (each["user"], each["whole"]) != (row["user"], row["whole"])
            for each in rows
        )  # fmt: skip

    return [{**row, "front": not beaten(row)} for row in rows]


def _panel(subject: Subject, rows: Sequence[Row], title: str, unit: str) -> Panel:
    x = alt.X("user:Q", title="tok/s per user", scale=alt.Scale(zero=False, padding=25), axis=few())
    y = alt.Y("whole:Q", title=unit, scale=alt.Scale(zero=False, padding=15))
    front = sorted((row for row in rows if row["front"]), key=lambda row: float(row["user"]))
    strength = alt.condition("datum.front", alt.value(1), alt.value(0.45))
    base = alt.Chart().encode(x=x, y=y)
    chart = layered(
        over("front").mark_line(style="limit", interpolate="step-before").encode(x=x, y=y),
        base.mark_point(filled=True).encode(
            color=colour(subject.drafters, rows), shape=shape(subject.drafters, rows), opacity=strength
        ),
        over("front").mark_text(style="words").encode(x=x, y=y, text="label:N"),
    )
    return Panel(title=title, chart=chart, rows=rows, more={"front": front})


CHART = Chart(
    title="Speed for one against speed for all",
    how="To the right a user gets the answer faster; further up the machine serves more. The dotted steps join the "
    "cells that no other beats on both.",
    place=80,
    draw=draw,
)
