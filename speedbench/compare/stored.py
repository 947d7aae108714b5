"""summary.json back into results: what is left of a run when its raw records are not there."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from speedbench.errors import UserError
from speedbench.files import document
from speedbench.results import SCHEMA, read
from speedbench.types import Cell, Measurement, Result


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """What must stand of a cell in summary.json."""

    task: str
    runner: str
    drafter: str
    draft_length: int
    concurrency: int
    repeat: int | None
    metrics: dict[str, Measurement]
    by_category: dict[str, dict[str, Measurement]]


_KEYS = tuple(field.name for field in fields(Cell))
_CELLS = TypeAdapter(list[_Cell])


def cells(summary: Mapping[str, Any], path: str) -> list[Result]:
    """The cells of a summary. Raises `UserError`, naming file and key, for one that has not the shape."""
    return [
        Result(
            cell=Cell(**{name: getattr(each, name) for name in _KEYS}),
            metrics=each.metrics,
            by_category=each.by_category,
        )
        for each in read(_CELLS, summary.get("cells"), f"{path}: cells")
    ]


def stored(path: Path) -> list[Result]:
    """The cells in a file. Raises `UserError` for one that is not there, or is none."""
    if not path.is_file():
        raise UserError(f"'{path.parent}' has neither raw records nor a summary.json; name the folder of a whole run")
    return cells(document(path, SCHEMA), str(path))
