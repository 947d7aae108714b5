"""The run in the order in which it happened: was the machine the same all along?"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from speedbench.measure import NOISY, noise
from speedbench.metrics.latency import tpot
from speedbench.report.drawing import MOST_POINTS, Chart, Figure, Panel, Row, by_batch, colour, layered, shape
from speedbench.report.subject import Subject
from speedbench.report.words import three
from speedbench.stats import answered, percentile
from speedbench.types import Measured


def draw(subject: Subject) -> Figure | str:
    probes = [{"at": i, "ms": 1000 * seconds} for i, seconds in enumerate(subject.run.noise, start=1)]
    turns = [row for measured in subject.run.measured for row in _turns(measured)]
    if not probes and not turns:
        return "no turn was answered and no noise was probed"
    panels = [_probes(probes)] if probes else []
    panels += [_answers(subject, title, _thinned(some)) for title, some in by_batch(subject, turns)]
    spread, middle = noise(subject.run.noise), percentile(subject.run.noise, 50)
    reading = "The machine's noise was not probed often enough to say how quiet it was."
    if spread is not None and middle is not None:
        quiet = "noisy, and times are no result" if spread > NOISY else "quiet enough"
        reading = f"A fixed piece of work took {three(1000 * middle)} ms and varied by {100 * spread:.0f}%: {quiet}."
    most = max((len(some) for _, some in by_batch(subject, turns)), default=0)
    reading += f" Of the answers every {-(-most // MOST_POINTS)}th is drawn." if most > MOST_POINTS else ""
    rows = [{"what": "noise probe", **row} for row in _thinned(probes)]
    rows += [{"what": "turn", **row} for _, some in by_batch(subject, turns) for row in _thinned(some)]
    columns = {"what": "what", "drafter": "drafter", "D": "D", "B": "B", "at": "number", "ms": "ms"}
    return Figure(reading=reading, panels=panels, columns=columns, rows=rows)


def _turns(measured: Measured) -> list[dict[str, Any]]:
    """Milliseconds per token of each answer, numbered within its cell as they ended."""
    cell = measured.cell
    at = {"drafter": cell.drafter, "D": cell.draft_length, "B": cell.concurrency}
    waits = [wait for record in answered(measured) for wait in tpot(record)]
    return [{**at, "at": i, "ms": 1000 * wait} for i, wait in enumerate(waits, start=1)]


def _thinned(rows: Sequence[Row]) -> list[Row]:
    return list(rows[:: max(1, -(-len(rows) // MOST_POINTS))])


def _number(title: str) -> alt.X:
    axis = alt.Axis(format="d", tickMinStep=1, tickCount=8)
    return alt.X("at:Q", title=title, axis=axis, scale=alt.Scale(zero=False, nice=False, padding=12))


def _probes(rows: Sequence[Row]) -> Panel:
    base = alt.Chart().encode(
        x=_number("block of the run, in order"),
        y=alt.Y("ms:Q", title="ms of a fixed piece of work"),
    )
    chart = layered(base.mark_line(style="limit", strokeDash=[1, 0]), base.mark_point(filled=True, opacity=1, size=30))
    return Panel(title="Noise probe before every block", chart=chart, rows=_thinned(rows), height=200)


def _answers(subject: Subject, title: str, rows: Sequence[Row]) -> Panel:
    points = (
        alt.Chart()
        .mark_point(filled=True, opacity=0.7, size=35)
        .encode(
            x=_number("answer of its cell, in order"),
            y=alt.Y("ms:Q", title="ms per token"),
            color=colour(subject.drafters, rows),
            shape=shape(subject.drafters, rows),
        )
    )
    return Panel(title=title, chart=layered(points), rows=rows, height=200)


CHART = Chart(
    title="In the order of the run",
    how="A trend or a jump in the probe, or in the baseline's answers, is the machine and not the drafter. Answers "
    "differ among themselves too: their prompts do.",
    place=90,
    draw=draw,
)
