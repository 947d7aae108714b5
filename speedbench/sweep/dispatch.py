"""A run's units handed out to workers: followed, relayed, handed out again when lost."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speedbench import plugins
from speedbench.attendant import GIVEN_UP
from speedbench.errors import UserError
from speedbench.results import WORKERS, Writer
from speedbench.settings import at_least, resolve
from speedbench.sweep import Sweep, orders
from speedbench.sweep.orders import Answer, Unit, Work
from speedbench.types import Ended, Fit, Job, Settings, Workers

COMMON: Mapping[str, Any] = {"retries": 2, "python": ""}
"""Settings of every executor: how often a lost unit is handed out again; the interpreter that has speedbench and the
engine, where it is not the workers' own."""

POLL = 0.1
_FINAL = (0, GIVEN_UP, 2)
"""Exit statuses after which trying again would change nothing: done, cells given up, the user's to mend."""

_LONGEST = 200
"""Of a reason; clusters explain themselves at length."""

Tell = Callable[[str, str], None]
"""(unit, a line that its worker said)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """An executor, reached."""

    workers: Workers
    desk: Path
    """A folder beside the run's, for what goes to and fro before that is there."""
    retries: int
    tell: Tell


@dataclass(slots=True)
class _Handed:
    """Something to do, and how far it is."""

    name: str
    log: Path
    hand_out: Callable[[int], list[str]]
    """(tries before this one) → a worker's command."""
    job: Job | None = None
    tries: int = 0
    heard: int = 0
    """Bytes of the log that were relayed."""


def settings(name: str, given: Settings) -> dict[str, Any]:
    """An executor's settings, checked. Raises `UserError`."""
    found = resolve("executor", given, {**COMMON, **plugins.load("executors", name).settings})
    at_least("executor", found, retries=0)
    return found


@contextmanager
def reached(name: str, given: Settings, out: Path, tell: Tell) -> Iterator[Pool]:
    """The workers of an executor, for a run that will be in the folder `out`."""
    known = settings(name, given)
    beside = next(folder for folder in out.absolute().parents if folder.is_dir())
    with (
        TemporaryDirectory(prefix=".speedbench-", dir=beside, ignore_cleanup_errors=True) as desk,
        plugins.load("executors", name).open(known, Path(desk)) as workers,
    ):
        yield Pool(workers=workers, desk=Path(desk), retries=known["retries"], tell=tell)


def units(sweep: Sweep) -> dict[str, int]:
    """The concurrencies, by the name of the unit that each is.

    A unit is measured on one machine, so it carries its own baseline: within it every block of conversations goes
    through the baseline and then the other cells (A B A B), as in a run without workers, and an engine starts no more
    often than there. A smaller unit would tear cells from their baseline, and a speedup would be a ratio of two
    machines' times; or it would need baselines of its own, which are other results. The repeats stay together, for the
    passes of a cell's repeats are pooled with each other. No number is made of the times of two concurrencies.
    """
    return {f"b{concurrency}": concurrency for concurrency in sweep.concurrencies}


def ask(pool: Pool, sweep: Sweep, *, skip_long: bool) -> Answer:
    """What a worker finds before anything runs. Raises `UserError` with what is wrong there."""
    order, work = pool.desk / "preflight.order", pool.desk / "work.json"
    orders.write(work, Work(sweep=sweep))
    told: list[str] = []

    def hand_out(_: int) -> list[str]:
        told[:] = orders.hand_out(order, work, skip_long=skip_long)
        return told

    handed = _Handed("preflight", order.with_suffix(".log"), hand_out)
    ended = _follow(pool, [handed])[handed.name]
    if ended.code != 0:
        raise UserError(_why(ended))
    return orders.answered(order.with_suffix(".answer"), told[-1])


def run(pool: Pool, sweep: Sweep, fits: Sequence[Fit], writer: Writer) -> bool:
    """Measure every unit on a worker; False: cells or units were given up.

    A unit that fails does not end the others. Raises `UserError` where all failed by what is the user's to mend.
    """
    folder = writer.path.absolute() / WORKERS
    folder.mkdir(exist_ok=True, mode=0o700)  # settings of an engine may be in what is handed out
    work = folder / "work.json"
    orders.write(work, Work(sweep=sweep, fits=tuple(fits)))
    handed = [_unit(writer, folder, work, name, concurrency) for name, concurrency in units(sweep).items()]
    ended = _follow(pool, handed)
    for file in (work, *folder.glob("*.order")):
        file.unlink()
    failed = {name: each for name, each in ended.items() if each.code not in (0, GIVEN_UP)}
    for name, each in failed.items():
        pool.tell(name, f"given up: {_why(each)}")
    if len(failed) == len(ended) and all(each.code == 2 for each in failed.values()):
        raise UserError(_why(next(iter(failed.values()))))
    return all(each.code == 0 for each in ended.values())


def _unit(writer: Writer, folder: Path, work: Path, name: str, concurrency: int) -> _Handed:
    order, first = folder / f"{name}.order", writer.process

    def hand_out(tries: int) -> list[str]:
        processes = writer.document["processes"]
        if len(processes) <= first + tries:  # another try is another process, with a clock of its own
            processes.append(processes[first])
            writer.save()
        unit = Unit(run=str(writer.path.absolute()), concurrency=concurrency, process=first + tries)
        return orders.hand_out(order, work, unit=unit)

    return _Handed(name, order.with_suffix(".log"), hand_out)


def _follow(pool: Pool, handed: Sequence[_Handed]) -> dict[str, Ended]:
    """How each ended, once all have; those that were lost are handed out again, a bounded number of times."""
    waiting, running, ended = list(handed), list[_Handed](), dict[str, Ended]()
    for each in handed:
        each.heard = each.log.stat().st_size if each.log.is_file() else 0
    while waiting or running:
        while waiting and (pool.workers.places is None or len(running) < pool.workers.places):
            running.append(_start(pool, waiting.pop(0)))
        time.sleep(POLL)
        for each in list(running):
            end = each.job.ended() if each.job else None
            _relay(each, pool.tell)
            if end is None:
                continue
            running.remove(each)
            if end.code in _FINAL or each.tries > pool.retries:
                ended[each.name] = end
            else:
                pool.tell(each.name, f"lost ({_why(end)}); handed out again, {each.tries} of {pool.retries}")
                waiting.append(each)
    return ended


def _start(pool: Pool, handed: _Handed) -> _Handed:
    words = handed.hand_out(handed.tries)
    handed.tries += 1
    handed.job = pool.workers.start(handed.name, words, handed.log)
    return handed


def _relay(handed: _Handed, tell: Tell) -> None:
    """The whole lines that came since."""
    if not handed.log.is_file():
        return
    with handed.log.open("rb") as file:
        file.seek(handed.heard)
        whole, newline, _ = file.read().rpartition(b"\n")
    handed.heard += len(whole) + len(newline)
    for line in whole.decode("utf-8", "replace").splitlines():
        tell(handed.name, line)


def _why(ended: Ended) -> str:
    said = ended.said.removeprefix("error: ")[:_LONGEST]
    return said or ("no word of it" if ended.code is None else f"exit status {ended.code}")
