"""A run as three tables for pandas, and as Parquet: its cells, its answered turns, its steps. No text is in them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas

from speedbench.columns import csv_rows
from speedbench.errors import Missing, UserError
from speedbench.stats import tallied
from speedbench.types import Cell, Measured, Record, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """What `speedbench.load` gives; unknown is missing (NA), never 0."""

    cells: pandas.DataFrame
    """A row a cell: what it was, then every metric with `_low`, `_high`, `_n` and `_origin`."""
    requests: pandas.DataFrame
    """A row an answered turn: tokens, steps, seconds."""
    steps: pandas.DataFrame
    """A row a step, in order within its turn."""


_CELL = ("drafter", "draft_length", "concurrency", "repeat")
_TURN = ("request", "category", "turn", "prompt_tokens", "output_tokens", "steps", "committed", "ttft_seconds",
         "decode_seconds", "first_tokens", "finish", "told", "process")  # fmt: skip
_STEP = ("request", "turn", "index", "at_seconds", "proposed", "accepted", "committed")
_WHOLE = ("draft_length", "concurrency", "repeat", "turn", "prompt_tokens", "output_tokens", "steps", "committed",
          "first_tokens", "process", "index", "proposed", "accepted")  # fmt: skip


def frames(measured: Sequence[Measured], results: Sequence[Result]) -> Frames:
    """The tables of a run's cells and of their results."""
    return Frames(
        cells=pandas.DataFrame(csv_rows(results)),
        requests=_table((*_CELL, *_TURN), (_of(each.cell) + _turn(r) for each in measured for r in each.records)),
        steps=_table((*_CELL, *_STEP), (row for each in measured for row in _steps(each))),
    )


def write_parquet(found: Frames, folder: Path) -> None:
    """cells.parquet, requests.parquet and steps.parquet in a new folder, all of them or none."""
    if folder.exists():
        raise UserError(f"'{folder}' is there already; name a folder that is not")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".parquet-", dir=folder.parent) as scratch:
            made = Path(scratch, folder.name)
            made.mkdir()
            for one in fields(found):
                getattr(found, one.name).to_parquet(made / f"{one.name}.parquet", engine="pyarrow", index=False)
            made.rename(folder)
    except ImportError:
        raise Missing('Parquet needs the package pyarrow: pip install "speedbench[data]"') from None
    except OSError as error:
        raise UserError(f"cannot write to '{folder}': {error.strerror or error}") from None


def _table(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> pandas.DataFrame:
    """Whole numbers stay whole where some are unknown."""
    found = pandas.DataFrame(list(rows), columns=list(names))
    whole = {name: "Int64" for name in names if name in _WHOLE}
    times = {name: "Float64" for name in names if name.endswith("_seconds")}
    try:
        typed: pandas.DataFrame = found.astype({**whole, **times})
    except OverflowError:
        raise UserError("a whole number of the records is beyond 64 bits; see: speedbench validate RUN") from None
    return typed


def _of(cell: Cell) -> tuple[Any, ...]:
    return tuple(getattr(cell, name) for name in _CELL)


def _turn(record: Record) -> tuple[Any, ...]:
    committed, steps = tallied(record)
    return (
        record.request, record.category, record.turn, record.prompt_tokens, record.size, steps, committed,
        None if record.first is None else record.first - record.sent,
        None if record.first is None or record.last is None else record.last - record.first,
        record.first_tokens, record.finish, record.told, record.process,
    )  # fmt: skip


def _steps(measured: Measured) -> Iterator[tuple[Any, ...]]:
    for record in measured.records:
        for index, step in enumerate(record.steps):
            place = (record.request, record.turn, index)
            yield (*_of(measured.cell), *place, step.at, step.proposed, step.accepted, step.committed)
