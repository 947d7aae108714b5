"""The scripted engine: no model, a virtual clock, and acceptance as told; for trying sweeps, files and reports out.

Its answers are made up, so nothing it yields is a result; every number can be worked out by hand from its settings.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from speedbench import plugins
from speedbench.errors import UserError
from speedbench.settings import at_least, resolve
from speedbench.types import Conversation, Drafting, Finish, Fit, Load, Pass, Record, Request, Runner, Settings, Step

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
    "gap": 2.0,
    "real_seconds": 0.0,
}
"""`accepted` is cycled over the steps of a turn, cut at D; `fails` and `flips` name requests that raise an error, or
whose drafted answers differ from the baseline's, where the target's top-2 gap is `gap`. A pass takes `real_seconds` of
real time, so that there is time to kill a run; its clock does not notice."""

_LEAST = {
    "verify_seconds": 0, "verify_per_token": 0, "draft_per_token": 0, "other_seconds": 0, "prefill_seconds": 0,
    "context": 1, "gap": 0, "real_seconds": 0,
}  # fmt: skip


@dataclass(frozen=True)
class _Scripted:
    name: str = "scripted"
    title: str = "no model: acceptance and times as told"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[ScriptedSession]:
        script = resolve("engine", runner.engine, _DEFAULTS)
        at_least("engine", script, **_LEAST)
        if not script["accepted"] or not all(type(each) is int and each >= 0 for each in script["accepted"]):
            raise UserError(f"engine.accepted: should be whole numbers from 0 (got {script['accepted']})")
        yield ScriptedSession(script)


BACKEND = _Scripted()


class ScriptedSession:
    """Words stand for tokens, and every answer is as long as it may be."""

    blocks = None

    def keep_in(self, folder: Path) -> None:
        """Nothing is kept."""

    def plan(self, drafting: Drafting, draft_length: int, concurrency: int) -> None:
        """Nothing is told to anybody."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._script = script
        self.context: int | None = script["context"]

    @property
    def facts(self) -> Mapping[str, Any]:
        said = "scripted: made-up answers on a made-up clock; no number of this run was measured"
        return {"model": "scripted", "engine": dict(self._script), "warnings": [said]}

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

    def token_ends(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        """For each text, the character at which each of its words ends."""
        return [[found.end() for found in re.finditer(r"\S+", text)] for text in texts]

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        return 0.0, self._script["verify_seconds"]

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> ScriptedEngine:
        settings = plugins.load("drafters", drafting.drafter).backends["scripted"](draft_length, drafting.settings)
        return ScriptedEngine(self._script, draft_length, load, settings)

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        return float(self._script["gap"])

    def near_tie(self) -> float:
        return 1e-3

    def probe(self) -> float:
        return 0.001


class ScriptedEngine:
    """One conversation after another on a clock that only the script moves."""

    def __init__(self, script: Mapping[str, Any], draft_length: int, load: Load, settings: Settings) -> None:
        self._script, self._draft_length, self._most = script, draft_length, load.sampling.max_tokens
        self._now = 0.0
        self.facts: Mapping[str, Any] = {"acceptance": "scripted", "settings": dict(settings)}

    def warm_up(self) -> None: ...

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass]:
        for conversation in work:
            request = conversation.request
            for turn in range(len(conversation.done), len(request.turns)):
                if request.id in self._script["fails"]:
                    error = "ScriptedError: told to fail"
                    yield self._record(request, turn, (), (), self._now, None, "error", error)
                    break
                yield from self._turn(request, turn)

    def _turn(self, request: Request, turn: int) -> Iterator[Record | Pass]:
        script, sent = self._script, self._now
        self._now += script["prefill_seconds"]
        first, left, steps = self._now, self._most - 1, []
        accepted = cycle(script["accepted"])
        while left:
            proposed = min(self._draft_length, left - 1)
            drafting = proposed * script["draft_per_token"]
            verifying = script["verify_seconds"] + proposed * script["verify_per_token"]
            self._now += drafting + verifying + script["other_seconds"]
            time.sleep(script["real_seconds"])
            right = min(next(accepted), proposed)
            steps.append(Step(at=self._now, proposed=proposed, accepted=right, committed=right + 1))
            left -= right + 1
            yield Pass(
                at=self._now, batch=1, width=1 + proposed, proposed=proposed, draft=drafting, verify=verifying,
                other=script["other_seconds"],
            )  # fmt: skip
        output = tuple((i * 7 + self._flips(request)) % 1000 for i in range(self._most))
        yield self._record(request, turn, output, tuple(steps), sent, first, "length", None)

    def _flips(self, request: Request) -> bool:
        return self._draft_length > 0 and request.id in self._script["flips"]

    def _record(
        self, request: Request, turn: int, output: tuple[int, ...], steps: tuple[Step, ...], sent: float,
        first: float | None, finish: Finish, error: str | None,
    ) -> Record:  # fmt: skip
        return Record(
            request=request.id, category=request.category, turn=turn, prompt_tokens=len(request.turns[turn].split()),
            prompt_sha=_sha(request, turn, self._flips(request)), output=output, steps=steps, sent=sent, first=first,
            last=None if first is None else self._now, first_tokens=1 if output else 0,
            prefill=None if first is None else first - sent, finish=finish, error=error,
        )  # fmt: skip


def _sha(request: Request, turn: int, flips: bool = False) -> str:
    """A later prompt holds the earlier answers, so it differs where they do."""
    said = (*request.turns[: turn + 1], "flipped") if flips and turn else request.turns[: turn + 1]
    return hashlib.sha256(" ".join(said).encode()).hexdigest()[:16]
