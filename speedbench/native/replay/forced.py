"""Answers forced through a model: what it says and the states it goes through, a chunk of positions at a time."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from speedbench.native.slots import Slots
from speedbench.native.target import PREFILL_CHUNK, Seen, Target
from speedbench.native.verify import best, draw, probabilities
from speedbench.types import Answer, Chances, Sampling

BUDGET = 64 * 2**20
"""Bytes that the largest intermediate of one chunk may take. Beside the models, slots for one answer and its tapped
states (tokens · taps · hidden), a replay takes a small multiple of it, however many answers there are."""


def rows(each: int) -> int:
    """How many rows of `each` bytes fit the budget."""
    return max(1, BUDGET // each)


def passed(
    model: Target, slots: Slots, ids: Sequence[int], *, begin: int = 0, judged: int, taps: Sequence[int] = ()
) -> Iterator[tuple[bool, Seen]]:
    """Feed ids[begin:] through row 0 of the slots, which hold those before. From position `judged` on the chunks are
    marked true and have the logits of every position, before it of their last alone."""
    tokens = torch.tensor([list(ids)], dtype=torch.int64, device=model.device)
    few = min(PREFILL_CHUNK, rows(4 * model.vocab))
    at = begin
    while at < len(ids):
        end = min(at + few, len(ids)) if at >= judged else min(at + PREFILL_CHUNK, judged, len(ids))
        yield at >= judged, model.forward(slots, tokens[:, at:end], [at], last_only=at < judged, taps=taps)
        at = end


def logs(chances: Tensor, tokens: Tensor) -> list[float]:
    """Natural logarithms of the chances [N, V] of tokens [N]."""
    found: list[float] = chances.gather(1, tokens[:, None])[:, 0].log().tolist()
    return found


class Forced:
    """One answer forced through the target; everything is made when it is first asked for."""

    def __init__(self, answer: Answer, stage: Stage) -> None:
        self.answer, self._stage = answer, stage
        self.ids = [*answer.prompt, *answer.output]

    @property
    def starts(self) -> range:
        """Tokens in the row where a proposal begins: behind every token of the output but the last."""
        return range(len(self.answer.prompt) + 1, len(self.ids))

    @property
    def goes_on(self) -> bool:
        """Whether an engine would have looked at drafts behind the output's end."""
        return self.answer.finish == "stop" and self._beyond > 0

    @cached_property
    def _seen(self) -> tuple[dict[int, Tensor], list[float]]:
        stage, last = self._stage, len(self.ids) - 1
        sampled = stage.sampling.temperature > 0
        at = judged = len(self.answer.prompt) if sampled else last
        states: dict[int, list[Tensor]] = {tap: [] for tap in stage.taps}
        said: list[float] = []
        for judges, seen in passed(stage.target, stage.slots, self.ids[:-1], judged=judged, taps=tuple(stage.taps)):
            for tap, state in seen.features.items():
                states[tap].append(state)
            if judges:
                following = torch.tensor(self.ids[at + 1 : at + 1 + seen.logits.shape[1]], device=stage.target.device)
                said += logs(probabilities(seen.logits[0], stage.sampling), following)
                at += seen.logits.shape[1]
        return {tap: torch.cat(each, 1) for tap, each in states.items()}, said

    @property
    def features(self) -> Mapping[int, Tensor]:
        """The target's states of every token but the last, [1, N-1, H] by tap."""
        return self._seen[0]

    @cached_property
    def _tail(self) -> tuple[list[int], list[float]]:
        """What the target goes on to say behind a stop token: engines verify drafts there and count them as accepted,
        though they commit none."""
        assert self._seen, "the slots hold the row"
        stage, tokens, chances = self._stage, self.ids[-1:], list[float]()
        for at in range(len(self.ids) - 1, len(self.ids) - 1 + self._beyond):
            fed = torch.tensor([tokens[-1:]], device=stage.target.device)
            logits = stage.target.forward(stage.slots, fed, [at], last_only=True).logits[:, -1]
            if stage.sampling.temperature:
                every = probabilities(logits, stage.sampling)
                luck = torch.tensor([self._dice.random()], device=logits.device)
                picked = draw(every, luck)
                chances += logs(every, picked)
            else:
                picked = best(logits)
            tokens = [*tokens, int(picked)]
        return tokens[1:], chances

    @property
    def _beyond(self) -> int:
        """Tokens behind the output that a draft could stand for."""
        cap, context = self.answer.cap, self._stage.target.context
        limits = [self._stage.reach - 1]
        limits += [] if cap is None else [cap - len(self.answer.output)]
        limits += [] if context is None else [context - len(self.ids)]
        return max(0, min(limits))

    @cached_property
    def _dice(self) -> np.random.Generator:
        """Luck of its own: an engine's own dice are not known here."""
        words = f"replay/{self._stage.sampling.seed}/{self.answer.request}/{self.answer.turn}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big"))

    def said(self, furthest: int) -> list[int]:
        """The row, with what comes behind a stop token where index `furthest` lies there."""
        return [*self.ids, *self._tail[0]] if furthest >= len(self.ids) and self.goes_on else self.ids

    def matches(self, drafts: Sequence[float], start: int) -> int:
        """How many drafts, from the first, are what the row says from index `start` on."""
        same, said = 0, self.ids
        while same < len(drafts):
            if start + same == len(said):
                said = self.said(start + same)
            if start + same >= len(said) or drafts[same] != said[start + same]:
                break
            same += 1
        return same

    @property
    def log_p(self) -> list[float]:
        """Of every token of the output but the first, and of those behind a stop token; sampling only."""
        return self._seen[1] + (self._tail[1] if self.goes_on else [])


class Stage:
    """The target and what all drafters of a replay share: an answer is forced through it once for all of them."""

    def __init__(self, target: Target, longest: int, reach: int, sampling: Sampling) -> None:
        """`longest`: tokens of the longest row; `reach`: the longest D."""
        self.target, self.reach, self.sampling = target, reach, sampling
        self.taps: set[int] = set()
        self.slots = target.slots(1, longest + reach)
        self._last: Forced | None = None

    def needs(self, taps: Iterable[int]) -> None:
        """A drafter reads these states."""
        self.taps.update(taps)

    def forced(self, answer: Answer) -> Forced:
        if self._last is None or self._last.answer is not answer:
            self._last = Forced(answer, self)
        return self._last


def chances(forced: Forced, offered: Sequence[int], log_q: Sequence[Sequence[float]]) -> Chances:
    """The table of log q by start and draft; where a row of it ends early, nothing more is ever drafted. What nobody
    knows the target to say is never reached, and so not offered."""
    log_p = forced.log_p
    target = [tuple(log_p[k : k + n]) for k, n in enumerate(offered)]
    drafter = [(*q[: len(p)], *[-math.inf] * (len(p) - len(q))) for p, q in zip(target, log_q, strict=True)]
    return Chances(offered=tuple(map(len, target)), target=tuple(target), drafter=tuple(drafter))
