"""Any server as a session: one server for each (drafter, D, concurrency), few of them up at a time."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.agreement import agreement
from speedbench.serving.client import Timeouts
from speedbench.serving.launch import free_port
from speedbench.serving.load import by_chat, hold
from speedbench.serving.plan import HOLDING, LaunchPlan
from speedbench.serving.prometheus import NOTHING, Scrape, counted, scrape
from speedbench.serving.proof import prove
from speedbench.serving.records import Reading, read
from speedbench.serving.running import Running
from speedbench.serving.watch import Watch, forward
from speedbench.types import (
    Conversation,
    Counted,
    Drafting,
    Fit,
    Load,
    Pass,
    Record,
    Request,
    Runner,
    Sampling,
    Settings,
)

_BASELINE = Drafting(label="none", drafter="none")

_VARIABLE = ("none", "ngram", "suffix")
"""Drafters that may propose fewer than D, or nothing."""

_SAMPLING = {
    "max_tokens": "--max-tokens", "max_completion_tokens": "--max-tokens", "temperature": "--temperature",
    "top_p": "--top-p", "seed": "--seed", "messages": "the task", "model": "the runner's model",
}  # fmt: skip
"""What no plan may put into a request, and where it belongs: the record would say another thing than was asked."""

Planner = Callable[[Drafting, int, int, int], LaunchPlan]
"""(drafting, D, concurrency, port) → what the engine is told. Pure; raises `UserError` for what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How servers are held and asked."""

    at_once: int = 1
    """Servers up at the same time."""
    blocks: int | None = 2
    """Turns that each cell gets, interleaved with the others; each costs a start where only one server is up."""
    patience: float = 900.0
    """Seconds a server may take to load."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    rate: float | None = None
    """Conversations a second, arriving as a Poisson process; None: as places free up."""
    by_chunks: bool = False


def _limits(engine: Settings) -> Limits:
    """What a runner says of holding; its backend has checked it."""
    held = {key: engine.get(key, default) for key, default in HOLDING.items()}
    return Limits(
        at_once=held["at_once"], blocks=held["blocks"], patience=held["patience"], rate=held["rate"],
        timeouts=Timeouts(total=held["timeout"]), by_chunks=held["al_from_chunks"],
    )  # fmt: skip


class ServedSession:
    """Servers come up when their cell has its turn, and the one that waited longest goes."""

    context: int | None = None
    """Of the server that came up last; None while there was none."""

    def __init__(self, runner: Runner, planner: Planner) -> None:
        _refuse_sampling(planner(_BASELINE, 0, 1, 0).request)  # wrong settings are refused before they are read here
        self._runner, self._planner, self.limits = runner, planner, _limits(runner.engine)
        self.forward = forward(runner.engine)
        self._up: dict[str, Running] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="speedbench-")
        self._folder = Path(self._scratch.name)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"model": self._runner.model, "backend": self._runner.backend, "engine": dict(self._runner.engine)}

    @property
    def blocks(self) -> int | None:
        return self.limits.blocks

    def keep_in(self, folder: Path) -> None:
        self._folder = folder

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        """By a server that is up or runs already; before one is started nothing here can count its tokens."""
        with self._at_hand() as up:
            most = [None] * len(requests) if up is None else up.most_tokens(requests, max_tokens)
        return tuple(
            Fit(request=r.id, prompt_tokens=None, most_tokens=tokens,
                prompt_sha=hashlib.sha256("\n".join(r.turns).encode()).hexdigest()[:16])
            for r, tokens in zip(requests, most, strict=True)
        )  # fmt: skip

    @contextmanager
    def _at_hand(self) -> Iterator[Running | None]:
        """A server that can be asked without starting one; what is wrong with it is said when it is needed."""
        with ExitStack() as stack:
            up, plan = next(iter(self._up.values()), None), self._planner(_BASELINE, 0, 1, 0)
            if up is None and plan.mode == "attach":
                with suppress(UserError):
                    up = self._brought_up(plan, self._folder)
                    stack.callback(up.close)
                    self.context = up.context
            yield up

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        return None

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> ServedEngine:
        plan = self._planner(drafting, draft_length, concurrency, 0)  # whatever is wrong with it is said now
        notes = [*plan.notes, *_of_itself(drafting, self._runner)]
        return self.kind(self, drafting, draft_length, concurrency, load, plan.shown(), notes)

    @property
    def kind(self) -> type[ServedEngine]:
        """What its engines are."""
        return ServedEngine

    def plan(self, drafting: Drafting, draft_length: int, concurrency: int) -> Mapping[str, Any] | None:
        return self._planner(drafting, draft_length, concurrency, 0).shown()

    def up(self, key: str, drafting: Drafting, draft_length: int, concurrency: int) -> tuple[Running, bool]:
        """The server of a cell, and whether it was started for this; others go where there would be too many."""
        there = self._up.pop(key, None)
        if there is not None and not there.ended:
            self._up[key] = there
            return there, False
        if there is not None:
            there.close()
        while len(self._up) >= self.limits.at_once:
            self.down(next(iter(self._up)))
        plan = self._planner(drafting, draft_length, concurrency, free_port())
        self._up[key] = self._brought_up(plan, self._folder / key)
        self.context = self._up[key].context
        return self._up[key], True

    def _brought_up(self, plan: LaunchPlan, folder: Path) -> Running:
        return Running(plan, folder, self.limits.patience, self.limits.timeouts, self._runner.model)

    def down(self, key: str) -> None:
        """End the server of a cell, if it is up."""
        there = self._up.pop(key, None)
        if there is not None:
            there.close()

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        return None

    def near_tie(self) -> float:
        return 0.0

    def probe(self) -> float | None:
        return None

    def close(self) -> None:
        try:
            for key in list(self._up):
                self.down(key)
        finally:
            self._scratch.cleanup()


@contextmanager
def served(runner: Runner, planner: Planner) -> Iterator[ServedSession]:
    """A session whose servers are gone when it ends."""
    session = ServedSession(runner, planner)
    try:
        yield session
    finally:
        session.close()


class ServedEngine:
    """One (drafter, D) at one concurrency behind a server of its own."""

    def __init__(
        self, session: ServedSession, drafting: Drafting, draft_length: int, concurrency: int, load: Load,
        plan: Mapping[str, Any], notes: Sequence[str],
    ) -> None:  # fmt: skip
        self._session, self._drafting, self._load, self._concurrency = session, drafting, load, concurrency
        self._reading = Reading(
            draft_length=draft_length, fixed=drafting.mechanism not in _VARIABLE,
            by_chunks=session.limits.by_chunks, most=load.sampling.max_tokens,
        )  # fmt: skip
        self._key = f"{drafting.label}-d{draft_length}-b{concurrency}"
        self._facts: dict[str, Any] = {"plan": plan, "settings": dict(drafting.settings)}
        self._notes: dict[str, None] = dict.fromkeys(notes)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {**self._facts, "warnings": list(self._notes)}

    def warm_up(self) -> None:
        self._ready()

    def _ready(self) -> Running:
        """The server, warmed and proven where it was started just now."""
        d, session = self._reading.draft_length, self._session
        up, fresh = session.up(self._key, self._drafting, d, self._concurrency)
        if fresh:
            proof, notes = prove(up.client, up.scrape, self._concurrency, self._reading, up.plan.request)
            self._facts |= {"plan": up.plan.shown(), "context": up.context, "proof": proof, "server": up.info()}
            self._note(notes)
        return up

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass | Counted]:
        up, sampling, rate = self._ready(), self._load.sampling, self._session.limits.rate
        self._note(up.reset())
        call, records = by_chat(up.client, sampling, _extra(up.plan, sampling)), list[Record]()
        before, watch = up.scrape(), Watch(up, self._session.forward)
        with up.sampled(wanted=before is not None) as samples:
            for held in hold(up.client, work, call, concurrency=self._concurrency, rate=rate, seed=sampling.seed):
                record, notes = read(held, self._reading)
                self._note(notes)
                records.append(record)
                yield record
        self._note(up.client.notes)
        if before is not None:
            moved = self._counted(up, before, samples, records)
            yield replace(moved, raw={**(moved.raw or {}), **watch.kept()})
        if up.ended:
            self._note([f"{up.ended}, while it was asked"])
            self._session.down(self._key)

    def _counted(self, up: Running, before: Scrape, samples: Sequence[str], records: Sequence[Record]) -> Counted:
        """What the counters moved by; a reading that failed is a fault, for the block is not in them."""
        try:
            after, why = up.scrape(), "the server tells its counters no more"
        except UserError as error:
            after, why = None, str(error)
        if after is None:
            moved = replace(NOTHING, faults=(f"counters were not read after the block: {why}",))
        else:
            moved = counted(before, after, [scrape(text) for text in samples])
        self._note([*moved.faults, *agreement(records, moved, draft_length=self._reading.draft_length)])
        return moved

    def _note(self, notes: Sequence[str]) -> None:
        self._notes |= dict.fromkeys(notes)


def _of_itself(drafting: Drafting, runner: Runner) -> list[str]:
    itself = drafting.drafter == "external" and drafting.settings.get("model") == runner.model
    return ["drafts with the target itself: its acceptance is a ceiling, at full cost"] * itself


def _refuse_sampling(request: Mapping[str, Any]) -> None:
    for key in request:
        if key in _SAMPLING:
            raise UserError(f"engine.request.{key}: the run says this itself; use {_SAMPLING[key]}")


def _extra(plan: LaunchPlan, sampling: Sampling) -> dict[str, Any]:
    """What the plan adds to every request; a top-k that was asked for is not undone by an engine's neutral one."""
    return {key: value for key, value in plan.request.items() if key != "top_k" or sampling.top_k is None}
