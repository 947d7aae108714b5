"""Any server as a session: one server for each (drafter, D, concurrency), few of them up at a time."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.agreement import agreement
from speedbench.serving.client import Answer, Client, Timeouts
from speedbench.serving.launch import Server, free_port
from speedbench.serving.load import by_chat, hold
from speedbench.serving.plan import HOLDING, LaunchPlan
from speedbench.serving.prometheus import Scrape, counted, scrape
from speedbench.serving.proof import prove
from speedbench.serving.records import Reading, read
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

_SAMPLED = 0.5
"""Seconds between readings of the running batch."""

_BASELINE = Drafting(label="none", drafter="none")

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
    takes_top_k: bool = True


def _limits(engine: Settings) -> Limits:
    """What a runner says of holding; its backend has checked it."""
    held = {key: engine.get(key, default) for key, default in HOLDING.items()}
    return Limits(
        at_once=held["at_once"], blocks=held["blocks"], patience=held["patience"], rate=held["rate"],
        timeouts=Timeouts(total=held["timeout"]), by_chunks=held["al_from_chunks"],
    )  # fmt: skip


class _Up:
    """A server that answers, its client, and what it serves."""

    def __init__(self, plan: LaunchPlan, folder: Path, limits: Limits, model: str) -> None:
        self.plan, self.server, self._stack = plan, None, ExitStack()
        try:
            if plan.argv:
                server = Server(plan, folder, limits.patience)
                self._stack.callback(server.stop)
                server.start()
            client = Client(
                plan.url, model, key_env=plan.api_key_env or None, timeouts=limits.timeouts, chat_path=plan.chat,
                takes_top_k=limits.takes_top_k,
            )  # fmt: skip
            self.client = self._stack.enter_context(client)
            served = _served(self.client.get("/v1/models"))
            self.client.model = str(served.get("id", model))
            self.context: int | None = served.get("max_model_len")
        except BaseException:
            self.close()
            raise

    def counters(self) -> str | None:
        """Their text now; None where the server has none."""
        found = self.client.get(self.plan.metrics) if self.plan.metrics else None
        return found.text if found is not None and found.ok else None

    def scrape(self) -> Scrape | None:
        """The same, read."""
        text = self.counters()
        return None if text is None else scrape(text)

    def reset(self) -> list[str]:
        """Empty the caches between blocks; what refused to."""
        refused = []
        for how, path in self.plan.resets:
            answer = self.client.post(path) if how == "POST" else self.client.get(path)
            if not answer.ok:
                refused.append(f"{path} answered {answer.status}: that cache was not emptied between blocks")
        return refused

    def close(self) -> None:
        self._stack.close()


def _served(answer: Answer) -> Mapping[str, Any]:
    """The first model the server names."""
    data = answer.document.get("data") if answer.ok and isinstance(answer.document, dict) else None
    return data[0] if data else {}


class ServedSession:
    """Servers come up when their cell has its turn, and the one that waited longest goes."""

    context: int | None = None

    def __init__(self, runner: Runner, planner: Planner) -> None:
        planner(_BASELINE, 0, 1, 0)  # refuses wrong settings before they are read here
        self._runner, self._planner, self.limits = runner, planner, _limits(runner.engine)
        self._up: dict[str, _Up] = {}
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
        """No server is up yet, so nothing here can count its tokens; a prompt too long is refused by the server."""
        return tuple(
            Fit(request=r.id, prompt_tokens=None, most_tokens=None,
                prompt_sha=hashlib.sha256("\n".join(r.turns).encode()).hexdigest()[:16])
            for r in requests
        )  # fmt: skip

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        return None

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> ServedEngine:
        plan = self._planner(drafting, draft_length, concurrency, 0)  # whatever is wrong with it is said now
        return ServedEngine(self, drafting, draft_length, concurrency, load, plan)

    def plan(self, drafting: Drafting, draft_length: int, concurrency: int) -> Mapping[str, Any] | None:
        return self._planner(drafting, draft_length, concurrency, 0).shown()

    def up(self, key: str, drafting: Drafting, draft_length: int, concurrency: int) -> tuple[_Up, bool]:
        """The server of a cell, and whether it was started for this; others go where there would be too many."""
        there = self._up.pop(key, None)
        if there is not None and (there.server is None or not there.server.ended):
            self._up[key] = there
            return there, False
        if there is not None:
            there.close()
        while len(self._up) >= self.limits.at_once:
            self._up.pop(next(iter(self._up))).close()
        plan = self._planner(drafting, draft_length, concurrency, free_port())
        self._up[key] = _Up(plan, self._folder / key, self.limits, self._runner.model)
        return self._up[key], True

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        return None

    def near_tie(self) -> float:
        return 0.0

    def probe(self) -> float | None:
        return None

    def close(self) -> None:
        for up in self._up.values():
            up.close()
        self._up.clear()
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
        plan: LaunchPlan,
    ) -> None:  # fmt: skip
        self._session, self._drafting, self._load, self._concurrency = session, drafting, load, concurrency
        self._reading = Reading(
            draft_length=draft_length, fixed=drafting.drafter not in _VARIABLE, by_chunks=session.limits.by_chunks
        )
        self._key = f"{drafting.label}-d{draft_length}-b{concurrency}"
        self._facts: dict[str, Any] = {"plan": plan.shown(), "settings": dict(drafting.settings)}
        self._notes: dict[str, None] = dict.fromkeys(plan.notes)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {**self._facts, "warnings": list(self._notes)}

    def warm_up(self) -> None:
        self._ready()

    def _ready(self) -> _Up:
        """The server, warmed and proven where it was started just now."""
        d, session = self._reading.draft_length, self._session
        up, fresh = session.up(self._key, self._drafting, d, self._concurrency)
        if fresh:
            self._facts |= {"plan": up.plan.shown(), "context": up.context}
            self._facts["proof"], notes = prove(
                up.client, up.scrape, self._concurrency, self._reading, up.plan.request, sure=self._reading.fixed
            )
            self._note(notes)
        return up

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass | Counted]:
        up, limits = self._ready(), self._session.limits
        self._note(up.reset())
        sampling = self._load.sampling
        call, records = by_chat(up.client, sampling, _extra(up.plan, sampling)), list[Record]()
        before = up.scrape()
        with _sampled(up, wanted=before is not None) as samples:
            for held in hold(
                up.client, work, call, concurrency=self._concurrency, rate=limits.rate, seed=sampling.seed
            ):  # fmt: skip
                record, notes = read(held, self._reading)
                self._note(notes)
                records.append(record)
                yield record
        after = up.scrape()
        self._note(up.client.notes)
        if before is not None and after is not None:
            moved = counted(before, after, [scrape(text) for text in samples])
            self._note([*moved.faults, *agreement(records, moved, draft_length=self._reading.draft_length)])
            yield moved

    def _note(self, notes: Sequence[str]) -> None:
        self._notes |= dict.fromkeys(notes)


def _extra(plan: LaunchPlan, sampling: Sampling) -> dict[str, Any]:
    """What the plan adds to every request; a top-k that was asked for is not undone by an engine's neutral one."""
    return {key: value for key, value in plan.request.items() if key != "top_k" or sampling.top_k is None}


_VARIABLE = ("none", "ngram", "suffix")
"""Drafters that may propose fewer than D, or nothing."""


@contextmanager
def _sampled(up: _Up, *, wanted: bool) -> Iterator[list[str]]:
    """The counters every half second, fetched by a thread of its own and not read yet, which takes milliseconds."""
    found: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLED):
            try:
                now = up.counters()
            except UserError:
                continue  # the requests will say what is wrong with the server
            if now is not None:
                found.append(now)

    watcher = threading.Thread(target=watch, daemon=True)
    if wanted:
        watcher.start()
    try:
        yield found
    finally:
        over.set()
        if wanted:
            watcher.join()
