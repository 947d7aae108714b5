"""Where `run` measures: in this process, or on the workers of an executor."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from speedbench import plugins
from speedbench import sweep as sweeps
from speedbench.cli.progress import progress
from speedbench.cli.tables import console, plain
from speedbench.environment import snapshot
from speedbench.results import Writer, load
from speedbench.sweep import Sweep, dispatch
from speedbench.types import Session, Settings
from speedbench.workload import Preflight


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known before anything runs."""

    preflight: Preflight
    target: Mapping[str, Any]
    environment: Mapping[str, Any]
    """Of the machine that measures."""
    units: Mapping[str, int]
    """Cells of each part that one worker measures; empty without workers."""


class Place(Protocol):
    """Somewhere a sweep can be measured."""

    def look(self, sweep: Sweep, *, skip_long: bool) -> Known:
        """Raises `UserError` for what could not run there."""

    def run(self, sweep: Sweep, ahead: Preflight, writer: Writer) -> bool:
        """False: cells were given up."""


@contextmanager
def opened(sweep: Sweep, out: Path, executor: str | None, settings: Settings) -> Iterator[Place]:
    """This process where `executor` is None."""
    if executor is None:
        with plugins.load("backends", sweep.runner.backend).open(sweep.runner) as session:
            yield _Here(session)
    else:
        with dispatch.reached(executor, settings, out, _tell) as pool:
            yield _There(pool, {"executor": {"name": executor, **settings}})


def _tell(unit: str, line: str) -> None:
    console(stderr=True).print(plain(f"{unit}: {line}"), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Here:
    session: Session

    def look(self, sweep: Sweep, *, skip_long: bool) -> Known:
        ahead = sweeps.preflight(sweep, self.session, skip_long=skip_long)
        return Known(preflight=ahead, target=dict(self.session.facts), environment=snapshot(), units={})

    def run(self, sweep: Sweep, ahead: Preflight, writer: Writer) -> bool:
        done = sum(len(each.records) for each in load(writer.path).measured)
        with progress(ahead.turns, done) as notify:
            return sweeps.run(sweep, self.session, ahead.fits, writer, notify)


@dataclass(frozen=True, slots=True)
class _There:
    pool: dispatch.Pool
    said: Mapping[str, Any]
    """Of the executor, for run.json."""

    def look(self, sweep: Sweep, *, skip_long: bool) -> Known:
        found = dispatch.ask(self.pool, sweep, skip_long=skip_long)
        units = dict.fromkeys(dispatch.units(sweep), len(sweep.pairs) * sweep.repeats)
        return Known(
            preflight=found.preflight, target=found.target, environment={**found.environment, **self.said}, units=units
        )

    def run(self, sweep: Sweep, ahead: Preflight, writer: Writer) -> bool:
        return dispatch.run(self.pool, sweep, ahead.fits, writer)
