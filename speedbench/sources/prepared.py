"""Rows that `speedbench prepare` made: checked against their manifest, and refused where they are not whole.

where: {name: gsm8k}
where: {name: speed-bench, config: qualitative, categories: [coding, math], compat: true}
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from speedbench import prepared
from speedbench.errors import UnknownName, UserError
from speedbench.types import Settings

KEYS = ("name", "config", "categories", "compat")


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """The rows in the set's own order, each with `_at`; a column that no row fills is empty text in every row."""
    name, config, compat, wanted = _settings(where)
    found = prepared.rows(name, config, compat=compat)
    _refuse_unknown(wanted, found)
    _warn_of_partial(name, config, compat)
    filled = {key for key in prepared.COLUMNS if any(row.get(key) for row in found)}
    for row in found:
        if wanted and row["category"] not in wanted:
            continue
        columns = {key: (row[key] or None) if key in filled else "" for key in prepared.COLUMNS}
        yield {
            "id": row["id"],
            "category": row["category"],
            "turns": row["turns"],
            "_at": f"row {row['id']}",
            **columns,
        }


def _settings(where: Settings) -> tuple[str, str, bool, list[str]]:
    for key in where:
        if key not in KEYS:
            raise UnknownName("key of 'where' for a prepared source", str(key), KEYS)
    name, config = where.get("name"), where.get("config", "default")
    compat, wanted = where.get("compat", False), where.get("categories", [])
    for key, got in (("name", name), ("config", config)):
        if not isinstance(got, str) or not got:
            raise UserError(f"where.{key}: should be a name (got {got!r})")
    if not isinstance(compat, bool):
        raise UserError(f"where.compat: should be true or false (got {compat!r})")
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise UserError(f"where.categories: should be a list of names (got {wanted!r})")
    return str(name), str(config), compat, wanted


def _refuse_unknown(wanted: list[str], found: list[dict[str, Any]]) -> None:
    have = {row["category"] for row in found}
    for each in wanted:
        if each not in have:
            raise UnknownName("category", each, have)


def _warn_of_partial(name: str, config: str, compat: bool) -> None:
    said = prepared.manifest(prepared.folder(name, config, compat=compat))
    if said is not None and said["partial"]:
        warnings.warn(
            f"{name} {config}: {prepared.counts(said)}; numbers on it are not those of the whole set",
            UserWarning,
            stacklevel=2,
        )
