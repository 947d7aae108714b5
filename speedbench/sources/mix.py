"""Other tasks' prompts in given parts, as one workload; the category is the part, `part_category` the prompt's own.

where:
  parts:
    - {task: throughput-8k, categories: [low_entropy], weight: 60, name: coding}
    - {task: demo, weight: 40}                    # name: the task's

As many conversations as the parts can give at these weights, so that numbers over all of them are those of the mix.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speedbench import catalog, plugins
from speedbench.errors import UnknownName, UserError
from speedbench.settings import resolve
from speedbench.types import Settings

_DEFAULTS: dict[str, Any] = {"task": "", "name": "", "weight": 0.0, "categories": []}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    weight: float
    rows: Sequence[Row]


def rows(where: Settings, folder: str) -> Iterator[Row]:
    """Part by part, each row with the weight of its part, by which a limit is spread."""
    for key in where:
        if key != "parts":
            raise UnknownName("key of 'where' for a mix", str(key), ("parts",))
    given = where.get("parts")
    if not isinstance(given, list) or len(given) < 2 or not all(isinstance(part, dict) for part in given):
        raise UserError(
            f"where.parts: should be a list of two parts or more, each {{task: NAME, weight: N}} (got {given!r})"
        )
    parts = [_part(part, f"where.parts, part {number}", folder) for number, part in enumerate(given, start=1)]
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise UserError(f"where.parts: should have names of their own (got {', '.join(names)})")
    whole = sum(part.weight for part in parts)
    total = min(len(part.rows) * whole / part.weight for part in parts)
    for part in parts:
        count = max(1, int(total * part.weight / whole + 1e-9))
        yield from (_row(part, row) for row in part.rows[:count])


def _part(given: Settings, at: str, folder: str) -> _Part:
    part = resolve(at, given, _DEFAULTS)
    if not part["task"] or part["weight"] <= 0:
        raise UserError(f"{at}: should have a task and a weight above 0 (got {dict(given)!r})")
    task = catalog.task(part["task"])
    if task.source == "mix":
        raise UserError(f"{at}: '{task.name}' is a mix itself; name the tasks that it is made of")
    rows = plugins.load("sources", task.source)(task.where, task.folder)
    found = [
        {**row, "id": _id(row, number), "system": row.get("system") or task.system}
        for number, row in enumerate(rows, start=1)
    ]
    have = {str(row.get("category", "all")) for row in found}
    for category in part["categories"]:
        if category not in have:
            raise UnknownName(f"category of '{task.name}'", str(category), have)
    wanted = [row for row in found if not part["categories"] or str(row.get("category", "all")) in part["categories"]]
    if not wanted:
        raise UserError(f"{at}: task '{task.name}' has no prompts")
    return _Part(part["name"] or task.name, part["weight"], _dealt(wanted))


def _id(row: Row, number: int) -> Any:
    return next((row[key] for key in ("id", "question_id") if row.get(key) is not None), number)


def _dealt(rows: Sequence[Row]) -> list[Row]:
    """The rows with their categories in turn, so that any number of the first ones is balanced."""
    seen: dict[str, int] = {}
    order = []
    for index, row in enumerate(rows):
        category = str(row.get("category", "all"))
        seen[category] = seen.get(category, 0) + 1
        order.append((seen[category], index))
    return [rows[index] for _, index in sorted(order)]


def _row(part: _Part, row: Row) -> dict[str, Any]:
    said = any(message.get("role") == "system" for message in row.get("messages") or () if isinstance(message, dict))
    return {
        **row, "id": f"{part.name}/{row['id']}", "category": part.name,
        "part_category": str(row.get("category", "all")), "system": None if said else row["system"],
        "_share": part.weight, "_at": f"{part.name}, {row.get('_at')}",
    }  # fmt: skip
