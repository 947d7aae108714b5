"""Whether settings are those that a run was begun with: every one that differs is named."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedbench.errors import UserError

DERIVED = ("cells", "request_ids")
"""Keys of a config that differ only because another does."""


def refuse_other(what: str, stored: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises `UserError` for a worker's facts that are not those in run.json."""
    if differ := [f"{key} is {_short(a)} there, {_short(b)} here" for key, a, b in _differences(stored, here)]:
        raise UserError(f"{what} is not the run's: {'; '.join(differ[:3])}")


def refuse_other_settings(stored: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    every = list(_differences(stored, wanted))
    differ = [each for each in every if each[0] not in DERIVED] or every
    if differ:
        shown = "; ".join(f"{key} is {_short(there)} there, {_short(asked)} here" for key, there, asked in differ[:3])
        more = f"; and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise UserError(
            f"--resume: '{path}' was run with other settings ({shown}{more}); use the same or another --out"
        )


def _differences(stored: Any, wanted: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every leaf that differs, as `sampling.max_tokens`, with what is there and what is wanted."""
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        for key in {**stored, **wanted}:
            yield from _differences(stored.get(key), wanted.get(key), f"{at}.{key}" if at else key)
    elif stored != wanted:
        yield at, stored, wanted


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 60 else text[:57] + "…"
