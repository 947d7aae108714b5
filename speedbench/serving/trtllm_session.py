"""TensorRT-LLM in a process of ours as a session: as servers are held, but with the seconds of each pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from speedbench.serving.agreement import agreement
from speedbench.serving.load import by_chat, hold
from speedbench.serving.plan import LaunchPlan
from speedbench.serving.prometheus import NOTHING
from speedbench.serving.proof import prove
from speedbench.serving.records import read
from speedbench.serving.running import Running
from speedbench.serving.session import Planner, ServedEngine, ServedSession
from speedbench.serving.trtllm_process import Process, Read
from speedbench.serving.trtllm_stats import Iteration, Iterations, iterations, passes
from speedbench.types import Conversation, Counted, Pass, Record, Request, Runner

_SHOWN = 3
"""Faults of single iterations that are named."""


class Inside(Running):
    """An engine that is up in a process of ours; it has no address, so no client and no counters."""

    def __init__(self, plan: LaunchPlan, folder: Path, patience: float, longest: float) -> None:
        self.plan, self._stack = plan, ExitStack()
        self.process = self._server = Process(plan, folder, patience, longest)
        self._stack.callback(self.process.stop)
        self.process.start()

    def counters(self) -> str | None:
        return None

    def most_tokens(self, requests: Sequence[Request], max_tokens: int) -> Sequence[int | None]:
        return [None] * len(requests)

    def info(self) -> Mapping[str, Any] | None:
        return self.process.built


class ApiSession(ServedSession):
    """One process for each (drafter, D, concurrency), few of them up at a time."""

    def _brought_up(self, plan: LaunchPlan, folder: Path) -> Inside:
        return Inside(plan, folder, self.limits.patience, self.limits.timeouts.total)

    @property
    def kind(self) -> type[ServedEngine]:
        return ApiEngine


@contextmanager
def in_process(runner: Runner, planner: Planner) -> Iterator[ApiSession]:
    """A session whose processes are gone when it ends."""
    session = ApiSession(runner, planner)
    try:
        yield session
    finally:
        session.close()


class ApiEngine(ServedEngine):
    """One (drafter, D) at one concurrency in a process of its own."""

    def _ready(self) -> Inside:
        up, fresh = self._session.up(self._key, self._drafting, self._reading.draft_length, self._concurrency)
        assert isinstance(up, Inside)
        if fresh:
            proof, notes = prove(up.process, up.scrape, self._concurrency, self._reading, up.plan.request)
            up.process.drain()
            seen = _counted(_found(up.process.read()))
            proof |= {"drafts_by_iterations": seen.proposed}
            self._facts |= {"plan": up.plan.shown(), "proof": proof, "server": up.info()}
            self._note([*notes, *_other_version(up.plan, up.process.built)])
        return up

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass | Counted]:
        up, sampling, rate = self._ready(), self._load.sampling, self._session.limits.rate
        process, records, told = up.process, list[Record](), _Told()
        call = by_chat(process, sampling, up.plan.request)
        for held in hold(process, work, call, concurrency=self._concurrency, rate=rate, seed=sampling.seed):
            yield from told.passes(process.read())
            record, notes = read(held, self._reading)
            self._note(notes)
            records.append(record)
            yield record
        process.drain()
        yield from told.passes(process.read())
        found = _found(told.all)
        moved = _counted(found)
        self._note([*_faults(found), *agreement(records, moved, draft_length=self._reading.draft_length)])
        yield moved


class _Told:
    """The iterations of a block as they come, each joined to the one before."""

    def __init__(self) -> None:
        self.all: list[Read] = []
        self._last: tuple[Iteration, ...] = ()

    def passes(self, reads: Sequence[Read]) -> Iterator[Pass]:
        for each in reads:
            self.all.append(each)
            rows = (*self._last, *iterations(each.rows).rows)
            self._last = rows[-1:]
            yield from passes(rows, each.at)


def _found(reads: Sequence[Read]) -> Iterations:
    return iterations(row for each in reads for row in each.rows)


def _counted(found: Iterations) -> Counted:
    """What all iterations add up to; every request in decode makes a step in each."""
    rows, decoding = found.rows, [row.batch for row in found.decode if row.batch]
    lost = (f"{found.lost} iterations were dropped before they were read",) if found.lost else ()
    return replace(
        NOTHING,
        drafted=_sum([row.drafted for row in rows]),
        proposed=_sum([row.proposed for row in rows]),
        accepted=_sum([row.accepted for row in rows]),
        steps=_sum([row.batch for row in rows]),
        running=sum(decoding) / len(decoding) if decoding else None,
        faults=lost,
        raw={"iterations": len(rows), "lost": found.lost},
    )


def _sum(each: Sequence[int | None]) -> int | None:
    """Over all, where every one is told."""
    known = [n for n in each if n is not None]
    return sum(known) if known and len(known) == len(each) else None


def _faults(found: Iterations) -> list[str]:
    more = len(found.faults) - _SHOWN
    said = [*found.faults[:_SHOWN], *([f"and {more} more faults of iterations"] if more > 0 else [])]
    return [*said, *_counted(found).faults]


def _other_version(plan: LaunchPlan, built: Mapping[str, Any]) -> list[str]:
    have = str(built.get("version") or plan.version)
    same = have.split(".")[:2] == plan.version.split(".")[:2]
    return [] if same else [f"TensorRT-LLM is {have}, and was told what {plan.version} takes"]
