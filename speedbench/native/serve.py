"""Conversations against the loop: turns one call at a time, rows refilled as they free up, a record for each turn."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from speedbench.errors import UserError, first_line
from speedbench.native.chat import Chat, sha
from speedbench.native.decode import Decoder, Stepped, cut
from speedbench.native.proposer import Row
from speedbench.types import Conversation, Finish, Pass, Record, Step

_FAILURES = (RuntimeError, ValueError, IndexError, KeyError, UserError)
"""What one request may raise without ending the cell; torch reports misuse as RuntimeError."""


@dataclass(slots=True)
class _Talk:
    """A conversation under way: its answers so far, and the turn being answered."""

    conversation: Conversation
    answers: list[tuple[int, ...]]
    row: Row | None = None
    steps: list[Step] = field(default_factory=list)
    prompt_sha: str = ""
    sent: float = 0.0
    first: float | None = None
    prefill: float | None = None

    @property
    def turn(self) -> int:
        return len(self.answers)

    @property
    def is_over(self) -> bool:
        return self.turn >= len(self.conversation.request.turns)


class NativeEngine:
    """One decoder serving conversations, `rows` at a time."""

    def __init__(self, decoder: Decoder, chat: Chat, facts: Mapping[str, Any]) -> None:
        self._decoder, self._chat, self.facts = decoder, chat, facts

    def warm_up(self) -> None:
        """Prefill and decode a made-up row at every width, so that no kernel is first met while measuring."""
        decoder, plan = self._decoder, self._decoder.plan
        for width in range(1, plan.draft_length + 2):
            ids = torch.zeros(plan.rows, width, dtype=torch.int64, device=plan.device)
            decoder.target.forward(decoder.slots, ids, [8] * plan.rows)
        if decoder.proposer and decoder.proposer.stateful:
            return  # it would remember the made-up row
        row = Row(0, [1, 2, 3, 1, 2, 3, 1, 2], 8, plan.draft_length + 3, np.random.default_rng(0))
        decoder.admit(row)
        for _ in range(2):
            decoder.step()
        decoder.release(row)

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass]:
        waiting = deque(_Talk(c, list(c.done)) for c in work)
        live: dict[int, _Talk] = {}
        free = list(range(self._decoder.plan.rows))
        while waiting or live:
            while waiting and free:
                talk, index = waiting.popleft(), free.pop(0)
                live[index] = talk
                yield from self._open_turns(live, index, free)
            if live:
                yield from self._pass(live, free)

    def _open_turns(self, live: dict[int, _Talk], index: int, free: list[int]) -> Iterator[Record]:
        """Begin the next turn of the talk in this row; turns that end at once are recorded at once."""
        talk = live[index]
        while not talk.is_over:
            try:
                finish = self._begin(talk, index)
            except _FAILURES as error:
                yield self._failed(talk, error)
                break
            if finish is None:
                return
            yield self._close(talk, finish)
        del live[index]
        free.append(index)
        free.sort()

    def _begin(self, talk: _Talk, index: int) -> Finish | None:
        plan, request = self._decoder.plan, talk.conversation.request
        now = time.perf_counter
        talk.sent, talk.steps, talk.first, talk.prefill, talk.row = now(), [], None, None, None
        talk.prompt_sha = ""
        ids = self._chat.prompt(request, talk.answers)
        expected = (talk.conversation.expected or ())[talk.turn : talk.turn + 1]
        dice = np.random.default_rng(_seed(plan.sampling.seed, request.id, talk.turn))
        row = Row(index, ids, len(ids), plan.sampling.max_tokens, dice, expected[0] if expected else None)
        talk.row, talk.prompt_sha = row, sha(ids)
        self._check_room(row)
        first, talk.prefill = self._decoder.admit(row)
        talk.first = now()
        return cut([first], row.cap, plan.stops)[1]

    def _check_room(self, row: Row) -> None:
        """A later turn holds answers re-encoded, which can come out longer than the prompts were sized for."""
        asks = f"{row.prompt} prompt tokens and {row.cap} to answer exceed"
        context, longest = self._decoder.target.context, self._decoder.longest
        if context is not None and row.prompt + row.cap > context:
            raise UserError(f"{asks} the target's context of {context}")
        if row.prompt + row.cap > longest:
            raise UserError(f"{asks} the {longest} that were planned for a row")

    def _pass(self, live: dict[int, _Talk], free: list[int]) -> Iterator[Record | Pass]:
        """One pass over all live rows; a failure in it fails every request that was in it."""
        try:
            passed, stepped = self._decoder.step()
        except _FAILURES as error:
            for index in list(live):
                yield self._failed(live.pop(index), error)
                free.append(index)
            free.sort()
            return
        yield passed
        for done in stepped:
            yield from self._advance(done, live, free)

    def _advance(self, done: Stepped, live: dict[int, _Talk], free: list[int]) -> Iterator[Record]:
        talk = live[done.row.index]
        talk.steps.append(done.step)
        if done.finish is not None:
            yield self._close(talk, done.finish)
            yield from self._open_turns(live, done.row.index, free)

    def _close(self, talk: _Talk, finish: Finish) -> Record:
        row = talk.row
        assert row is not None, "a turn that ends was begun"
        self._decoder.release(row)
        output = tuple(row.ids[row.prompt :])
        record = self._record(talk, output, finish, talk.steps[-1].at if talk.steps else talk.first)
        talk.answers.append(output)
        return record

    def _failed(self, talk: _Talk, error: BaseException) -> Record:
        if talk.row is not None and self._decoder.rows[talk.row.index] is talk.row:
            self._decoder.release(talk.row)
        return self._record(talk, (), "error", None, f"{type(error).__name__}: {first_line(error)}")

    def _record(
        self, talk: _Talk, output: tuple[int, ...], finish: Finish, last: float | None, error: str | None = None
    ) -> Record:
        request = talk.conversation.request
        return Record(
            request=request.id, category=request.category, turn=talk.turn,
            prompt_tokens=talk.row.prompt if talk.row else 0, prompt_sha=talk.prompt_sha, output=output,
            steps=() if error else tuple(talk.steps), sent=talk.sent, first=talk.first, last=last,
            first_tokens=1 if output else 0, prefill=talk.prefill, finish=finish, error=error,
        )  # fmt: skip


def _seed(seed: int, request: str, turn: int) -> int:
    """A row's own luck: equal for equal (seed, request, turn), whatever shares its batch."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{request}/{turn}".encode()).digest()[:8], "big")
