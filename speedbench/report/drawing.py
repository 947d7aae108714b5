"""What a chart is, and the marks that most of them share; Altair makes Vega-Lite of them for page, PNG and SVG."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, TypeVar

import altair as alt

from speedbench.columns import measurement
from speedbench.report.subject import Subject
from speedbench.report.theme import SHAPES
from speedbench.types import Result

Row = Mapping[str, Any]

MOST_POINTS = 2000
"""Points of one panel; beyond, every n-th is drawn, and the reading says so."""

ROW_HEIGHT = 26
"""Pixels of one name on a vertical axis."""

_LONGEST = 60
"""Letters of a name on an axis or in a legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture. `chart` names its data, `rows` unless it says otherwise, and never holds them."""

    title: str
    chart: alt.LayerChart
    rows: Sequence[Row]
    more: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    height: int = 260

    def spec(self, description: str, width: int | str) -> dict[str, Any]:
        """Vega-Lite; the description is what a screen reader says of it."""
        made = self.chart.properties(
            width=width, height=self.height, title=self.title, description=f"{self.title}. {description}"
        ).to_dict()
        for key in ("$schema", "config", "datasets"):
            made.pop(key, None)
        return _with_data(made, {"rows": self.rows, **self.more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a chart says of one run: a sentence, the pictures, and the same numbers as a table."""

    reading: str
    panels: Sequence[Panel]
    columns: Mapping[str, str]
    """Heading by key of the rows, in order."""
    rows: Sequence[Row]


About = TypeVar("About")
"""What a chart is drawn of: a run's `Subject`, or a `Profiled`."""


@dataclass(frozen=True, kw_only=True)
class Chart(Generic[About]):
    """Module-level `CHART` of a file in charts/ or profiles/. `draw` gives a figure, or the reason why there is nothing
    to draw."""

    title: str
    how: str
    """How to read it."""
    place: int
    """Charts stand in the order of their places."""
    draw: Callable[[About], Figure | str]


def _with_data(spec: dict[str, Any], data: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """The values in place of their names, here and in every layer."""
    if "name" in spec.get("data", {}):
        spec["data"] = {"values": [dict(row) for row in data[spec["data"]["name"]]]}
    for layer in spec.get("layer", ()):
        _with_data(layer, data)
    return spec


# ---- rows ------------------------------------------------------------------------------------------------------------

CELL = {"drafter": "drafter", "D": "D", "B": "B"}
ESTIMATE = {"low": "low", "high": "high", "n": "n", "origin": "origin"}


def cell_row(result: Result) -> dict[str, Any]:
    cell = result.cell
    return {"drafter": cell.drafter, "D": cell.draft_length, "B": cell.concurrency}


def estimate_row(result: Result, name: str) -> dict[str, Any]:
    """A metric's value under its name, with its interval; where there is none, it is the point itself in `from` and
    `to`, which are drawn."""
    found = measurement(result, name)
    drawn = {
        "from": found.value if found.low is None else found.low,
        "to": found.value if found.high is None else found.high,
    }
    return {name: found.value, "low": found.low, "high": found.high, "n": found.n, "origin": found.origin, **drawn}


def by_batch(subject: Subject, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows apart by B, each with a title; no B without a row."""
    parts = [(f"B = {b}", [row for row in rows if row["B"] == b]) for b in subject.concurrencies]
    return [(title, some) for title, some in parts if some]


def aside(subject: Subject, row: Row, lengths: Sequence[int]) -> float:
    """D, moved a little by drafter, so that intervals do not lie upon each other, nor come near the next D."""
    apart = min((b - a for a, b in pairwise(sorted(set(lengths)))), default=1)
    step = min(0.02 * max(max(lengths) - min(lengths), 1), apart / 2 / len(subject.drafters))
    return float(row["D"] + (subject.drafters.index(row["drafter"]) - len(subject.drafters) / 2) * step)


# ---- marks -----------------------------------------------------------------------------------------------------------


def over(name: str) -> alt.Chart:
    """Marks over one of a panel's `more`."""
    return alt.Chart(alt.NamedData(name=name))


def layered(*marks: alt.Chart) -> alt.LayerChart:
    """Marks over a panel's `rows`, unless they name their own data."""
    return alt.LayerChart(data=alt.NamedData(name="rows"), layer=list(marks))


def _legend(names: Sequence[str], rows: Sequence[Row], key: str) -> alt.Legend:
    shown = [name for name in names if any(row[key] == name for row in rows)]
    columns = 3 if max(map(len, shown), default=0) <= 10 else 2
    return alt.Legend(values=shown, title=None, labelLimit=150, columns=columns)


def colour(names: Sequence[str], rows: Sequence[Row], key: str = "drafter") -> alt.Color:
    """The first of `names` is the baseline, whose colour and shape are the first."""
    return alt.Color(f"{key}:N", scale=alt.Scale(domain=list(names)), legend=_legend(names, rows, key))


def shape(names: Sequence[str], rows: Sequence[Row], key: str = "drafter") -> alt.Shape:
    ring = [SHAPES[i % len(SHAPES)] for i in range(len(names))]
    return alt.Shape(f"{key}:N", scale=alt.Scale(domain=list(names), range=ring), legend=_legend(names, rows, key))


def draft_axis(rows: Sequence[Row]) -> alt.X:
    """D on a true scale, marked where something was measured."""
    lengths = sorted({row["D"] for row in rows})
    room = 0.08 * max(1, lengths[-1] - lengths[0])
    axis = alt.Axis(values=lengths, format="d", grid=False)
    scale = alt.Scale(domain=[lengths[0] - room, lengths[-1] + room], nice=False, zero=False)
    return alt.X("at:Q", title="D, draft tokens per pass", axis=axis, scale=scale)


def few() -> alt.Axis:
    """An axis on which narrow pages have room for the numbers."""
    return alt.Axis(tickCount=6)


def height_for(names: int, each: int = ROW_HEIGHT) -> int:
    return 20 + each * max(names, 1)


def short(name: str) -> str:
    """A name as an axis has room for."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
