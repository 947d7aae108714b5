"""What a worker does: look at a run before it begins, or measure one unit of it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from speedbench import plugins
from speedbench.environment import snapshot
from speedbench.errors import UserError
from speedbench.files import append, dumps
from speedbench.locks import held, is_held
from speedbench.results import as_kept, joining, load_cell
from speedbench.resuming import refuse_other
from speedbench.sweep import Notify, Sweep, orders, preflight, run
from speedbench.sweep.orders import Answer, Order, Unit, Work
from speedbench.types import Session

Progress = Callable[[int, int], AbstractContextManager[Notify]]
"""(turns there will be, turns there are)."""

PATIENCE = 120.0
"""Seconds for the worker before this one to be gone, which may be a file server's to notice."""

HARDWARE = ("cpu", "gpus")


def do(path: Path, token: str, progress: Progress) -> bool:
    """Follow the order in a file; False: cells were given up."""
    with held(path.with_suffix(".lock"), f"another worker still has '{path}'", PATIENCE):
        order = orders.order(path, token)  # now that nobody else can have it
        _enter(order.cwd)
        work = orders.work(order)
        with plugins.load("backends", work.sweep.runner.backend).open(work.sweep.runner) as session:
            if order.unit is not None:
                return _measure(work, order.unit, session, path, progress)
            _look(work, order, session, path)
            return True


def _enter(folder: str) -> None:
    """Paths of a runner may be relative to where the run was begun."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise UserError(f"a worker cannot enter '{folder}', where the run was begun: {error.strerror}") from None


def _look(work: Work, order: Order, session: Session, path: Path) -> None:
    ahead = preflight(work.sweep, session, skip_long=order.skip_long)
    answer = Answer(token=order.token, preflight=ahead, target=dict(session.facts), environment=snapshot())
    orders.write(path.with_suffix(".answer"), answer)


def _measure(work: Work, unit: Unit, session: Session, path: Path, progress: Progress) -> bool:
    folder, sweep = Path(unit.run), replace(work.sweep, concurrencies=(unit.concurrency,))
    if not is_held(folder / ".lock"):
        raise UserError(
            f"'{folder}' is held by nobody: the run was stopped, or its file system carries no locks between machines, "
            "without which two workers could write one cell; choose another --out"
        )
    cells = [cell for cell, _ in sweep.cells()]
    writer = joining(folder, cells, unit.process)
    refuse_other("the target on this worker", writer.document["config"]["target"], as_kept(session.facts))
    here = json.loads(dumps(snapshot()))
    writer.warn(cells[0], _strange(here, writer.document["processes"][0]))
    append(path.with_suffix(".jsonl"), [dumps({"process": unit.process, "environment": here})])
    done = sum(len(load_cell(folder, cell).records) for cell in cells)
    with progress(_turns(sweep), done) as notify:
        return run(sweep, session, work.fits, writer, notify)


def _turns(sweep: Sweep) -> int:
    return sweep.size * sum(len(request.turns) for request in sweep.requests)


def _strange(here: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """What differs from the machine that the run's environment was taken on."""
    return [
        f"measured on another machine than run.json describes: {key} is {dumps(here[key])}, {dumps(first[key])} there"
        for key in HARDWARE
        if key in first and here[key] != first[key]
    ]
