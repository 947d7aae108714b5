"""Progress on stderr: a bar with the time left on a terminal, a line a block elsewhere."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from speedbench.cli.tables import console
from speedbench.sweep import Notify
from speedbench.types import Cell, Record


@contextmanager
def progress(turns: int, done: int) -> Iterator[Notify]:
    """What a sweep tells goes to stderr; `turns` is how many there will be, of which `done` are there already."""
    out = console(stderr=True)
    if out.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("left"), TimeRemainingColumn())  # fmt: skip
        with Progress(*columns, console=out, transient=True) as bar:
            task = bar.add_task("starting", total=turns, completed=done)
            yield lambda cell, record: bar.update(task, description=cell.key, advance=record is not None)
    else:
        yield _Lines(turns, done)


class _Lines:
    """One plain line as each cell takes its turn."""

    def __init__(self, turns: int, done: int) -> None:
        self._turns, self._before, self._done, self._began = turns, done, done, time.perf_counter()

    def __call__(self, cell: Cell, record: Record | None) -> None:
        if record is not None:
            self._done += 1
            return
        spent = time.perf_counter() - self._began
        ours = self._done - self._before
        left = spent / ours * (self._turns - self._done) if ours else None
        eta = "" if left is None else f", about {left:.0f} s left"
        console(stderr=True).print(f"{self._done}/{self._turns} turns, {spent:.0f} s{eta}: {cell.key}")
