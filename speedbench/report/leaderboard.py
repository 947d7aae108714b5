"""The page of one leaderboard, from the rows of its CSV: what is ranked there is shown here, and nothing anew."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pandas as pd

from speedbench.columns import UNKNOWN
from speedbench.errors import UserError
from speedbench.report.drawing import Figure, Panel, colour, height_for, layered, over, shape, short
from speedbench.report.html import Html, element, joined, table
from speedbench.report.page import Section, drawn, page
from speedbench.report.words import number

By = Literal["speedup", "al"]

ALIKE = (
    "target", "target_revision", "target_dtype", "target_quant", "task", "task_version", "prompts_sha256",
    "chat_template_sha256", "temperature", "top_k", "top_p", "max_tokens", "division",
)  # fmt: skip
"""Columns in which all rows of a part are equal; a row that lacks one has it unknown."""

APART: Mapping[By, tuple[str, ...]] = {
    "speedup": ("hardware", "engine", "engine_version", "engine_settings_sha256", "concurrency"),
    "al": ("draft_length",),
}
"""And these, by what is ranked by."""

TITLES: Mapping[By, str] = {"speedup": "speedup", "al": "acceptance length"}

MOST_DRAWN = 60
"""Rows of a part that are drawn; the table has all."""


def leaderboard_page(rows: Any, by: By = "speedup") -> str:
    """A whole HTML file.

    `rows` is a pandas frame, or mappings, with the columns of a board's CSV, in its order: neighbours that are alike
    are one part, and `rank` is taken as it is. NaN and None are unknown.
    """
    known = [_known(row) for row in _mappings(rows)]
    parts = [list(part) for _, part in groupby(known, key=lambda row: [row.get(key) for key in (*ALIKE, *APART[by])])]
    about = _title(known, by)
    sections = [Section(body=joined([*map(_paragraph, _INTRODUCTION)]))]
    for at, part in enumerate(parts, start=1):
        sections += _part(part, by, f"part{at}")
    return page(about, sections if known else [Section(body=_paragraph("No entry yet."))])


def page_of(board: Path) -> str:
    """The same of a board's CSV, ranked by what its folder says. Raises `UserError` for a file that is none."""
    try:
        rows = pd.read_csv(board, keep_default_na=False, na_values=[""])
    except (ValueError, UnicodeDecodeError) as error:  # pandas' own errors are both
        raise UserError(f"{board} is not a board's CSV: {str(error).splitlines()[0]}") from None
    missing = [name for name in ("rank", "drafter", "draft_length", "speedup", "al") if name not in rows]
    if missing:
        raise UserError(f"{board} is not a board's CSV: it has no column '{missing[0]}'")
    return leaderboard_page(rows, "al" if board.resolve().parent.parent.name == "al" else "speedup")


_INTRODUCTION = (
    "Speedup is over the baseline of the same run. Intervals are 95% over conversations. Rows whose intervals overlap "
    "share a rank, in order of names; a row without a rank is a baseline, has no interval, or is marked. Nothing is "
    "ranked across the parts of this page, and entries slower than their baseline stay listed.",
)


def _mappings(rows: Any) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    return found


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is unknown (NaN is the one value that is not itself); a frame has made whole numbers with gaps
    to floats."""
    known = {key: said for key, said in row.items() if said is not None and said == said and said != ""}
    return known | {key: int(known[key]) for key in _WHOLE if key in known}


_WHOLE = ("rank", "draft_length", "concurrency", "n_conversations", "task_version", "top_k", "max_tokens",
          "engine_threads")  # fmt: skip


def _title(rows: Sequence[Mapping[str, Any]], by: By) -> str:
    first = rows[0] if rows else {}
    where = [first.get("hardware")] if by == "speedup" else ["acceptance length"]
    return ", ".join(str(each) for each in (first.get("target"), first.get("task"), *where) if each) or "Leaderboard"


def _paragraph(text: str) -> Html:
    return element("p", text)


def _part(rows: Sequence[Mapping[str, Any]], by: By, id_: str) -> list[Section]:
    found = [Section(body=element("h2", _heading(rows[0], by), id=f"{id_}-head"))]
    figure = _figure(rows, by)
    if figure is not None:
        found.append(drawn(f"By {TITLES[by]}", _HOW[by], figure, id_))
    lines = [[of(row) for _, of in COLUMNS] for row in rows]
    return [*found, Section(body=table(f"Entries ({len(rows)})", [name for name, _ in COLUMNS], lines))]


_HOW: Mapping[By, str] = {
    "speedup": "The dotted line at 1 is decoding without a drafter. Within a rank the order is that of names.",
    "al": "The dotted line at 1 is no draft accepted. Within a rank the order is that of names.",
}


def _heading(row: Mapping[str, Any], by: By) -> str:
    told = [f"B = {row.get('concurrency', UNKNOWN)}", row.get("engine_version") or row.get("engine")]
    told += [f"CPU threads: {row['engine_threads']}"] if "engine_threads" in row else []
    told = [f"D = {row.get('draft_length', UNKNOWN)}"] if by == "al" else told
    told += [row.get("target_dtype"), "greedy" if not row.get("temperature") else f"temperature {row['temperature']}"]
    told += [f"{number(row['n_conversations'])} conversations"] if "n_conversations" in row else []
    return " · ".join(str(each) for each in (*told, row.get("division")) if each)


def _figure(rows: Sequence[Mapping[str, Any]], by: By) -> Figure | None:
    """None where no row has the number."""
    ranked = [row for row in rows if by in row and row.get("draft_length")]
    if not ranked:
        return None
    some = [_drawn(row, by) for row in ranked[:MOST_DRAWN]]
    reading = _leaders(ranked)
    reading += f" The first {MOST_DRAWN} of {len(ranked)} are drawn." if len(ranked) > MOST_DRAWN else ""
    columns = {"rank": "rank", "name": "entry", "value": by, "low": "low", "high": "high"}
    return Figure(reading=reading, panels=[_panel(some, by)], columns=columns, rows=some)


def _leaders(rows: Sequence[Mapping[str, Any]]) -> str:
    first = [row for row in rows if row.get("rank") == 1]
    if not first:
        marks = {mark for row in rows for mark in str(row.get("marks") or "").split("; ") if mark}
        return f"No row has a rank{'; marks: ' if marks else ''}{', '.join(sorted(marks))}."
    names = ", ".join(f"{row.get('drafter')} D={row.get('draft_length')}" for row in first[:5])
    more = f" and {len(first) - 5} more" if len(first) > 5 else ""
    return f"First, within their intervals: {names}{more}."


def _drawn(row: Mapping[str, Any], by: By) -> dict[str, Any]:
    low, high = row.get(f"{by}_lo"), row.get(f"{by}_hi")
    ends = {"from": row[by] if low is None else low, "to": row[by] if high is None else high}
    name = short(f"{row.get('drafter', UNKNOWN)} D={row.get('draft_length')} ({row.get('entry', UNKNOWN)})")
    told = {"rank": row.get("rank"), "drafter": str(row.get("drafter", UNKNOWN)), "name": name}
    return {**told, "value": row[by], "low": low, "high": high, **ends}


def _panel(rows: Sequence[dict[str, Any]], by: By) -> Panel:
    drafters = ["none", *dict.fromkeys(row["drafter"] for row in rows)]
    base = alt.Chart().encode(
        y=alt.Y("name:N", sort=[row["name"] for row in rows], title=None, axis=alt.Axis(labelLimit=190)),
        color=colour(drafters, rows).legend(None),
    )
    chart = layered(
        over("one").mark_rule(style="limit").encode(x="value:Q"),
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("from:Q", scale=alt.Scale(zero=False)), x2="to:Q"),
        base.mark_point(filled=True, opacity=1).encode(
            x=alt.X("value:Q", title=TITLES[by], scale=alt.Scale(zero=False)), shape=shape(drafters, rows).legend(None)
        ),
    )
    return Panel(
        title=TITLES[by], chart=chart, rows=rows, more={"one": [{"value": 1}]}, height=height_for(len(rows), 22)
    )


def _plain(name: str) -> Any:
    return lambda row: number(row.get(name))


def _interval(name: str, unit: str = "") -> Any:
    def of(row: Mapping[str, Any]) -> str:
        if name not in row:
            return UNKNOWN
        point, low, high = f"{row[name]:.2f}{unit}", row.get(f"{name}_lo"), row.get(f"{name}_hi")
        return point if low is None or high is None else f"{point} [{low:.2f}, {high:.2f}]"

    return of


COLUMNS: tuple[tuple[str, Any], ...] = (
    ("rank", _plain("rank")),
    ("drafter", _plain("drafter")),
    ("D", _plain("draft_length")),
    ("AL", _interval("al")),
    ("accept", _plain("acceptance_rate")),
    ("tok/s", _plain("decode_tps")),
    ("out tok/s", _plain("output_tps")),
    ("speedup", _interval("speedup", "x")),
    ("formula", _interval("speedup_formula", "x")),
    ("lossless", _plain("lossless")),
    ("marks", _plain("marks")),
    ("tier", _plain("tier")),
    ("by", _plain("submitter")),
    ("date", _plain("date_utc")),
    ("entry", _plain("entry")),
)
"""Heading and text of a row's cell."""
