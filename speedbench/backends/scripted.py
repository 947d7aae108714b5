"""The scripted engine: no model, a virtual clock, and acceptance as told; for trying sweeps, files and reports out.

Its answers are made up, so nothing it yields is a result; every number can be worked out by hand from its settings.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from speedbench.settings import resolve
from speedbench.types import Conversation, Drafting, Finish, Fit, Load, Pass, Record, Request, Runner, Step

_DEFAULTS: dict[str, Any] = {
    "accepted": [3, 0, 2, 1],
    "verify_seconds": 0.02,
    "verify_per_token": 0.0,
    "draft_per_token": 0.001,
    "other_seconds": 0.0,
    "prefill_seconds": 0.1,
    "context": 4096,
    "fails": [],
    "flips": [],
}
"""`accepted` is cycled over the steps of a turn, cut at D; `fails` and `flips` name requests that raise an error, or
whose drafted answers differ from the baseline's."""


@dataclass(frozen=True)
class _Scripted:
    name: str = "scripted"
    title: str = "no model: acceptance and times as told"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[ScriptedSession]:
        yield ScriptedSession(resolve("engine", runner.engine, _DEFAULTS))


BACKEND = _Scripted()


class ScriptedSession:
    """Words stand for tokens, and every answer is as long as it may be."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._script = script
        self.context: int | None = script["context"]

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"model": "scripted", "engine": dict(self._script), "warnings": []}

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        return tuple(
            Fit(
                request=request.id,
                prompt_tokens=len(request.turns[0].split()),
                most_tokens=sum(len(turn.split()) + max_tokens for turn in request.turns),
                prompt_sha=_sha(request, 0),
            )
            for request in requests
        )

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        return 0.0, self._script["verify_seconds"]

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> ScriptedEngine:
        return ScriptedEngine(self._script, draft_length, load)

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        return 2.0

    def near_tie(self) -> float:
        return 1e-3

    def probe(self) -> float:
        return 0.001


class ScriptedEngine:
    """One conversation after another on a clock that only the script moves."""

    def __init__(self, script: Mapping[str, Any], draft_length: int, load: Load) -> None:
        self._script, self._draft_length, self._most = script, draft_length, load.sampling.max_tokens
        self._now = 0.0
        self.facts: Mapping[str, Any] = {"acceptance": "scripted", "parameters": 0, "bytes": 0, "bytes_per_token": 0}

    def warm_up(self) -> None: ...

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass]:
        for conversation in work:
            for turn in range(len(conversation.done), len(conversation.request.turns)):
                yield from self._turn(conversation.request, turn)

    def _turn(self, request: Request, turn: int) -> Iterator[Record | Pass]:
        script, sent = self._script, self._now
        if request.id in script["fails"]:
            yield self._record(request, turn, (), (), sent, None, "error", "ScriptedError: told to fail")
            return
        self._now += script["prefill_seconds"]
        first, left, steps = self._now, self._most - 1, []
        accepted = cycle(script["accepted"])
        while left:
            proposed = min(self._draft_length, left - 1)
            drafting = proposed * script["draft_per_token"]
            verifying = script["verify_seconds"] + proposed * script["verify_per_token"]
            self._now += drafting + verifying + script["other_seconds"]
            right = min(next(accepted), proposed)
            steps.append(Step(at=self._now, proposed=proposed, accepted=right, committed=right + 1))
            left -= right + 1
            yield Pass(
                at=self._now, batch=1, width=1 + proposed, proposed=proposed, draft=drafting, verify=verifying,
                other=script["other_seconds"],
            )  # fmt: skip
        flip = self._draft_length > 0 and request.id in script["flips"]
        output = tuple((i * 7 + flip) % 1000 for i in range(self._most))
        yield self._record(request, turn, output, tuple(steps), sent, first, "length", None)

    def _record(
        self, request: Request, turn: int, output: tuple[int, ...], steps: tuple[Step, ...], sent: float,
        first: float | None, finish: Finish, error: str | None,
    ) -> Record:  # fmt: skip
        return Record(
            request=request.id, category=request.category, turn=turn, prompt_tokens=len(request.turns[turn].split()),
            prompt_sha=_sha(request, turn), output=output, steps=steps, sent=sent, first=first,
            last=None if first is None else self._now, first_tokens=1 if output else 0,
            prefill=None if first is None else first - sent, finish=finish, error=error,
        )  # fmt: skip


def _sha(request: Request, turn: int) -> str:
    return hashlib.sha256(" ".join(request.turns[: turn + 1]).encode()).hexdigest()[:16]
