"""Prepared sets of prompts on this machine: where they lie, what their manifests say, whether they are whole."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from speedbench.content import user_cache
from speedbench.errors import Missing, UserError, first_line

SCHEMA = 1
MANIFEST, ROWS = "manifest.json", "rows.parquet"

MARKER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
"""What SPEED-Bench's published rows say where a text may not be passed on; no engine is ever asked that."""

COLUMNS = ("sub_category", "difficulty", "tier")
"""What is kept of a row beside id, category and turns."""

FIX = 'pip install "speedbench[data]"'


def home() -> Path:
    """Where preparations lie: $SPEEDBENCH_DATA, else `data` in the user's cache."""
    return Path(os.environ.get("SPEEDBENCH_DATA") or user_cache() / "data")


def folder(name: str, config: str, *, compat: bool = False, base: Path | None = None) -> Path:
    """The folder of one preparation, whether or not it is there."""
    for word in (name, config):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", word):
            raise UserError(f"'{word}' is no name of a prompt set or a config")
    return (base or home()) / name / (f"{config}-compat" if compat else config)


def command(name: str, config: str, *, compat: bool = False) -> str:
    """What makes it."""
    return f"speedbench prepare {name}" + f" --config {config}" * (config != "default") + " --compat" * compat


# ---- hashes ---------------------------------------------------------------------------------------------------------


def row_hash(row: Mapping[str, Any]) -> str:
    """sha256 of everything a row says, in an order of its own."""
    content = [row["id"], row["category"], list(row["turns"]), *(row.get(key) for key in COLUMNS)]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def content_hash(hashes: Iterable[str]) -> str:
    """sha256 of the rows' hashes in order."""
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


# ---- what is there --------------------------------------------------------------------------------------------------


def manifest(where: Path) -> dict[str, Any] | None:
    """What a preparation says of itself; None where there is none, or none that was finished."""
    path = where / MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise UserError(f"{path} is of another speedbench; prepare the set again, with --again")
    return found


def read(where: Path) -> Iterator[dict[str, Any]]:
    """The rows of a preparation with their hashes, as they stand."""
    parquet: Any = _parquet()
    with parquet.ParquetFile(where / ROWS) as file:
        for batch in file.iter_batches(batch_size=256):
            yield from batch.to_pylist()


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise Missing(f"prepared prompts need the package pyarrow: {FIX}") from None
    return pyarrow.parquet


def problems(where: Path) -> list[str]:
    """What is wrong with a finished preparation; nothing where every byte is as its manifest says."""
    said = manifest(where)
    if said is None:
        return [f"no {MANIFEST}: it is not prepared, or was not finished"]
    path = where / ROWS
    if not path.is_file():
        return [f"no {ROWS} beside the manifest"]
    wrong = [] if file_hash(path) == said["file"]["sha256"] else [f"{ROWS} is not the file that was written"]
    try:
        rows = list(read(where))
    except (OSError, ValueError) as error:  # pyarrow's own errors are both
        return [*wrong, f"{ROWS} does not read: {first_line(error)}"]
    hashes = [row_hash(row) for row in rows]
    wrong += [
        f"row {row['id']} was changed" for row, is_now in zip(rows, hashes, strict=True) if row["sha256"] != is_now
    ]
    if content_hash(hashes) != said["content"]:
        wrong.append("the rows together are not those that the manifest was written for")
    return wrong


def rows(name: str, config: str, *, compat: bool = False) -> list[dict[str, Any]]:
    """The checked rows of a set. Raises `Missing` with the command where it is not here, or not whole."""
    where, fix = folder(name, config, compat=compat), command(name, config, compat=compat)
    said = manifest(where)
    if said is None:
        raise Missing(f"{_called(name, config)} is not prepared; run: {fix}")
    if said["partial"] and not said["partial_accepted"]:
        raise Missing(
            f"{_called(name, config)} is prepared in part: {counts(said)}; see why: {fix} --check, then run {fix} "
            f"again; or take it as it is, marked partial: {fix} --partial"
        )
    wrong = problems(where)
    if wrong:
        raise UserError(f"{_called(name, config)} was changed since it was prepared: {wrong[0]}; run: {fix} --again")
    return list(read(where))


def facts(name: str, config: str, *, compat: bool = False) -> dict[str, Any] | None:
    """What a result should say of the preparation it used; None where there is none."""
    said = manifest(folder(name, config, compat=compat))
    if said is None:
        return None
    kept = ("name", "config", "revision", "compat", "partial", "content", "rows")
    return {key: said[key] for key in kept}


def ready(where: Mapping[str, Any]) -> bool:
    """Whether what a task's `where` names can be read, as far as its manifest says."""
    name, config, compat = where.get("name", ""), where.get("config", "default"), bool(where.get("compat"))
    said = manifest(folder(str(name), str(config), compat=compat))
    return said is not None and (not said["partial"] or bool(said["partial_accepted"]))


def counts(said: Mapping[str, Any]) -> str:
    """`672 of 880 rows resolved`."""
    return f"{said['rows']['resolved']} of {said['rows']['total']} rows resolved"


def _called(name: str, config: str) -> str:
    return f"'{name}'" if config == "default" else f"'{name}' {config}"
