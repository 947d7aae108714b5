"""What is kept while a preparation is made: finished pieces, so that a killed one goes on; licences once accepted."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from speedbench.errors import Missing
from speedbench.files import dumps, loads, safe, write_whole
from speedbench.prepared import COLUMNS, FIX, MANIFEST, ROWS, file_hash, row_hash

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Gathered:
    """A piece that is done: its rows, those that it could not give, and the files it was made from."""

    rows: dict[int, Row] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    """Why, of each row that is not there."""
    step: str = ""
    """What to do about it, where one thing is to be done for all of them."""
    used: dict[str, dict[str, Any]] = field(default_factory=dict)
    licences: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Journal:
    """The finished pieces of one preparation, a file each. One that lacks rows is made again."""

    folder: Path

    def get(self, source: str, address: str, key: str) -> Gathered | None:
        path = self._path(source, address)
        if not path.is_file():
            return None
        told = loads(path.read_bytes())
        if told["key"] != key or told["missing"]:
            return None
        rows = {int(number): row for number, row in told["rows"].items()}
        return Gathered(rows=rows, used=told["used"], licences=told["licences"])

    def put(self, source: str, address: str, key: str, done: Gathered) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(source, address), dumps({"key": key, **asdict(done)}))

    def drop(self) -> None:
        """All of them: the preparation is whole."""
        if self.folder.is_dir():
            for path in self.folder.glob("*.json*"):
                path.unlink()
            self.folder.rmdir()

    def _path(self, source: str, address: str) -> Path:
        return self.folder / f"{safe(f'{source} {address}')}.json"


def key(*made_from: Any) -> str:
    """A hash of what a piece is made from."""
    return hashlib.sha256(dumps(made_from).encode("utf-8", "backslashreplace")).hexdigest()


# ---- the finished preparation ---------------------------------------------------------------------------------------


def write(where: Path, rows: Sequence[Row], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The rows, then the manifest with the file's hash: without the one that fits it, a file of rows counts for
    nothing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise Missing(f"writing prepared prompts needs the package pyarrow: {FIX}") from None
    texts = ("id", "category", *COLUMNS, "sha256")
    types = {**dict.fromkeys(texts, pyarrow.string()), "turns": pyarrow.list_(pyarrow.string())}
    hashed = [{**row, "sha256": row_hash(row)} for row in rows]
    table = pyarrow.Table.from_pylist(hashed, schema=pyarrow.schema(list(types.items())))
    scratch = where / f"{ROWS}.tmp"
    pyarrow.parquet.write_table(table, scratch, compression="zstd")
    (where / MANIFEST).unlink(missing_ok=True)
    os.replace(scratch, where / ROWS)
    size = (where / ROWS).stat().st_size
    told = {**manifest, "file": {"name": ROWS, "sha256": file_hash(where / ROWS), "bytes": size}}
    write_whole(where / MANIFEST, dumps(told, indent=2))
    return told


# ---- licences -------------------------------------------------------------------------------------------------------


def accepted(base: Path, name: str, terms: Sequence[str]) -> str | None:
    """When these very terms of a set were accepted; None where they were not."""
    path = base / "licences.json"
    told = loads(path.read_bytes()).get(name) if path.is_file() else None
    return str(told["time"]) if told and told["terms"] == key(list(terms)) else None


def accept(base: Path, name: str, terms: Sequence[str]) -> str:
    """Note that they are."""
    path, now = base / "licences.json", datetime.now(timezone.utc).isoformat(timespec="seconds")
    base.mkdir(parents=True, exist_ok=True)
    told = loads(path.read_bytes()) if path.is_file() else {}
    write_whole(path, dumps({**told, name: {"terms": key(list(terms)), "time": now}}, indent=2))
    return now
