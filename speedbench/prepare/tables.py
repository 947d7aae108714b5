"""Rows of the files that data sets come in: Parquet, JSON lines, JSON, each also gzipped; never the whole in memory
where the file allows it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from speedbench.errors import Missing, UserError, first_line
from speedbench.prepared import FIX

Row = dict[str, Any]


def matching(files: Iterable[str], split: str, config: str = "") -> list[str]:
    """The files of a split, as data sets name them: `CONFIG/SPLIT-00000-of-00001.parquet`, `data/CONFIG/SPLIT.json`."""
    found = []
    for file in sorted(files):
        *folders, name = file.split("/")
        stem, dot, ending = name.partition(".")
        fits = stem == split or stem.startswith(f"{split}-")
        if dot and fits and ending.split(".")[0] in ("parquet", "json", "jsonl") and (not config or config in folders):
            found.append(file)
    return found


def rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Every row in order. `columns` spares reading the others of a Parquet file; other files give all they have."""
    try:
        yield from _parquet(path, columns) if path.name.endswith(".parquet") else _json(path)
    except (OSError, ValueError) as error:  # pyarrow's errors and those of JSON and UTF-8 are both
        raise UserError(f"{path} does not read: {first_line(error)}") from None


def by_key(files: Iterable[Path], key: str, wanted: set[str], columns: Sequence[str] | None = None) -> dict[str, Row]:
    """The first row for each wanted value of a column; no file is read, nor fetched, once all are found."""
    left, found = set(wanted), {}
    for path in files:
        for row in rows(path, columns):
            name = str(row.get(key))
            if name in left:
                left.discard(name)
                found[name] = row
        if not left:
            break
    return found


def by_number(files: Iterable[Path], wanted: set[int], columns: Sequence[str] | None = None) -> dict[int, Row]:
    """The rows with these numbers, counted from 0 through the files in their order."""
    found: dict[int, Row] = {}
    last = max(wanted, default=-1)
    for number, row in enumerate(row for path in files for row in rows(path, columns)):
        if number in wanted:
            found[number] = row
        if number >= last:
            break
    return found


def _parquet(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise Missing(f"reading Parquet needs the package pyarrow: {FIX}") from None
    with pyarrow.parquet.ParquetFile(path) as file:
        have = set(file.schema_arrow.names)
        for batch in file.iter_batches(
            batch_size=256, columns=None if columns is None else sorted(have & set(columns))
        ):
            yield from batch.to_pylist()


def _json(path: Path) -> Iterator[Row]:
    """One array of objects, or one object a line, or one object that is the only row."""
    with _opened(path) as file:
        start = file.read(64).lstrip()
        file.seek(0)
        if start.startswith("["):
            yield from json.load(file)
            return
        first = file.readline()
        try:
            yield json.loads(first)
        except json.JSONDecodeError:
            yield json.loads(first + file.read())
            return
        for line in file:
            if line.strip():
                yield json.loads(line)


def _opened(path: Path) -> io.TextIOWrapper:
    if path.name.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="\n")
    return path.open(encoding="utf-8-sig", newline="\n")
