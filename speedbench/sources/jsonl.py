"""Rows of a JSONL file: one conversation a line.

where: {file: prompts.jsonl}                      # beside the YAML
where: {file: prompts.jsonl, per_category: 1}     # the first of each category only

{"id": "math-1", "category": "math", "turns": ["What is 17 × 23?", "And half of that?"]}
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from speedbench import catalog
from speedbench.errors import UnknownName, UserError
from speedbench.types import Settings

KEYS = ("file", "per_category")


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """The rows in the file's order, as they stand, each with `_at`: file and line."""
    file, most = _settings(where)
    taken: Counter[str] = Counter()
    # Not splitlines(): it also splits at U+2028 and others, which JSON allows inside a string.
    for number, line in enumerate(catalog.read(folder, file).split("\n"), start=1):
        if not line.strip():
            continue
        row = _row(line, f"{file}, line {number}")
        category = str(row.get("category"))
        taken[category] += 1
        if most is None or taken[category] <= most:
            yield row


def _settings(where: Settings) -> tuple[str, int | None]:
    for key in where:
        if key not in KEYS:
            raise UnknownName("key of 'where' for a jsonl source", str(key), KEYS)
    file, most = where.get("file"), where.get("per_category")
    if not isinstance(file, str) or not file:
        raise UserError(f"where.file: should name a JSONL file (got {file!r})")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise UserError(f"where.per_category: should be a whole number from 1 (got {most!r})")
    return file, most


def _row(line: str, at: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{at}: not JSON: {error.msg}, column {error.colno}") from None
    except RecursionError:
        raise UserError(f"{at}: not JSON: nested too deeply") from None
    if not isinstance(row, dict):
        raise UserError(f"{at}: should be an object with id, category and turns (got {type(row).__name__})")
    return {**row, "_at": at}
