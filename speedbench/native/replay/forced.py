"""Answers forced through the target side by side: what it says along them, the states it goes through, and what it
goes on to say."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from speedbench.native.replay.tensors import NOTHING, Held, host, log_chances, padded, verdicts
from speedbench.native.target import Target
from speedbench.native.verify import best, draw, probabilities
from speedbench.types import Answer, Chances, Sampling


class Forced:
    """Some answers at once, a row each; everything is made when it is first asked for."""

    def __init__(self, answers: Sequence[Answer], stage: Stage) -> None:
        self.answers, self._stage = answers, stage
        self.ids = [[*answer.prompt, *answer.output] for answer in answers]
        self._tails: list[list[int]] = [[] for _ in answers]
        """What the target goes on to say behind a stop token: engines verify drafts there and count them as accepted,
        though they commit none."""
        self._tail_logs: list[list[float]] = [[] for _ in answers]
        self._level = 0
        """Tokens that every tail has, up to its end."""
        self._beyond = [self._room(answer, len(ids)) for answer, ids in zip(answers, self.ids, strict=True)]

    @property
    def rows(self) -> range:
        return range(len(self.ids))

    def starts(self, row: int) -> range:
        """Tokens in the row where a proposal begins: behind every token of the output but the last."""
        return range(len(self.answers[row].prompt) + 1, len(self.ids[row]))

    # ---- along the answers -------------------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Tensor:
        """[rows, tokens]: each row with its tail as far as it is known, then NOTHING."""
        size = max(map(len, self.ids)) + self._stage.reach
        return padded(self.ids, size, self._stage.target.device)

    @cached_property
    def _judged(self) -> list[list[float]]:
        """[row][i], of token i + 1: whether the target says it, 1 or 0; sampled, its log p. Prompts are not judged."""
        stage, fed = self._stage, [ids[:-1] for ids in self.ids]
        first = min(len(answer.prompt) for answer in self.answers) - 1
        found = torch.zeros(len(fed), max(map(len, fed)), device=stage.target.device)
        for columns, seen in stage.held.feed(fed, judged=first, taps=tuple(stage.taps)):
            live = len(seen.logits)
            for tap, state in seen.features.items():
                stage.states(tap)[:live, columns] = state
            if columns.start >= first:
                said = self.tokens[:live, columns.start + 1 : columns.stop + 1]
                found[:live, columns] = verdicts(seen.logits, said, stage.sampling)
        rows: list[list[float]] = host(found)
        return rows

    @property
    def features(self) -> Mapping[int, Tensor]:
        """The target's states of every token of the longest row but its last, [rows, N-1, H] by tap."""
        size = len(self._judged[0])
        return {tap: self._stage.states(tap)[: len(self.ids), :size] for tap in self._stage.taps}

    def differing(self, row: int) -> tuple[int, ...] | None:
        """Positions of the output where the target, its tokens given, says another. None: it was not run over it, or
        tokens are drawn."""
        if "_judged" not in self.__dict__ or self._stage.sampled:
            return None
        first = len(self.answers[row].prompt) - 1
        return tuple(i for i, hit in enumerate(self._judged[row][first : len(self.ids[row]) - 1]) if not hit)

    # ---- behind their ends -------------------------------------------------------------------------------------------

    def _room(self, answer: Answer, size: int) -> int:
        """Tokens behind the output that a draft could stand for; none where no engine would have looked there."""
        context = self._stage.target.context
        limits = [self._stage.reach - 1 if answer.finish == "stop" else 0]
        limits += [] if answer.cap is None else [answer.cap - len(answer.output)]
        limits += [] if context is None else [context - size]
        return max(0, min(limits))

    @property
    def goes_on(self) -> bool:
        """Whether an engine would have looked at drafts behind an end."""
        return max(self._beyond) > 0

    def said(self, row: int) -> list[int]:
        """A row with its tail as far as it is known."""
        return [*self.ids[row], *self._tails[row]]

    def _extend(self) -> None:
        """One token more of every tail that has not ended, in one pass; the other rows only keep it company."""
        assert self._judged, "the slots hold the rows"
        stage, device = self._stage, self._stage.target.device
        going = [row for row in self.rows if self._beyond[row] > self._level]
        known = [self.said(row) if row in going else self.ids[row] for row in self.rows]
        at, last = [len(row) - 1 for row in known], torch.tensor([row[-1:] for row in known], device=device)
        logits = stage.target.forward(stage.held.slots.rows(0, len(at)), last, at, last_only=True).logits[:, -1]
        if stage.sampled:
            luck = [self._dice[row].random() if row in going else 0.0 for row in self.rows]
            every = probabilities(logits, stage.sampling)
            picked = draw(every, torch.tensor(luck, dtype=torch.float64, device=device))
            logs = host(log_chances(every, picked))
        else:
            picked, logs = best(logits), [0.0] * len(at)
        tokens, some = host(picked), torch.tensor(going, device=device)
        self.tokens[some, torch.tensor([at[row] + 1 for row in going], device=device)] = picked[some]
        for row in going:
            self._tails[row].append(tokens[row])
            self._tail_logs[row].append(logs[row])
        self._level += 1

    @cached_property
    def _dice(self) -> list[np.random.Generator]:
        """Luck of its own for each row: an engine's own dice are not known here."""
        words = [f"replay/{self._stage.sampling.seed}/{each.request}/{each.turn}" for each in self.answers]
        seeds = [int.from_bytes(hashlib.sha256(each.encode()).digest()[:8], "big") for each in words]
        return [np.random.default_rng(seed) for seed in seeds]

    def following(self, rows: Tensor, at: Tensor) -> Tensor:
        """The tokens [N] that stand at indices `at` of these rows, NOTHING where nobody knows; behind a stop token
        they are made known where they can be."""
        found = self.tokens[rows, at]
        if self._level < max(self._beyond) and host((found == NOTHING).any()):
            self._extend()
            found = self.tokens[rows, at]
        return found

    def matches(self, row: int, drafts: Sequence[int], start: int) -> int:
        """How many drafts, from the first, are what the row says from index `start` on."""
        ids, tail, same = self.ids[row], self._tails[row], 0
        while same < len(drafts):
            beyond = start + same - len(ids)
            if len(tail) <= beyond < self._beyond[row]:
                self._extend()
            if beyond >= len(tail) or drafts[same] != (ids[start + same] if beyond < 0 else tail[beyond]):
                break
            same += 1
        return same

    def chances(self, row: int, offered: Sequence[int], log_q: Sequence[Sequence[float]]) -> Chances:
        """The table of log q by start and draft; where a row of it ends early, nothing more is ever drafted. What
        nobody knows the target to say is never reached, and so not offered."""
        self.complete()
        log_p = self._judged[row][len(self.answers[row].prompt) : len(self.ids[row]) - 1] + self._tail_logs[row]
        target = [tuple(log_p[k : k + n]) for k, n in enumerate(offered)]
        drafter = [(*q[: len(p)], *[-math.inf] * (len(p) - len(q))) for p, q in zip(target, log_q, strict=True)]
        return Chances(offered=tuple(map(len, target)), target=tuple(target), drafter=tuple(drafter))

    def complete(self) -> None:
        """All tails to their ends."""
        while self._level < max(self._beyond):
            self._extend()


class Stage:
    """The target and what all drafters of a replay share: answers are forced through it once for all of them."""

    def __init__(self, target: Target, longest: int, reach: int, sampling: Sampling, rows: int = 1) -> None:
        """`longest`: tokens of the longest row; `reach`: the longest D; `rows`: answers that are taken at once."""
        self.target, self.reach, self.sampling, self.rows = target, reach, sampling, rows
        self.taps: set[int] = set()
        self.held = Held(target, target.slots(rows, longest + reach))
        self._longest = longest
        self._states: dict[int, Tensor] = {}
        self._last: Forced | None = None

    @property
    def sampled(self) -> bool:
        return self.sampling.temperature > 0

    @property
    def never(self) -> float:
        """The verdict on a token that is not drafted, behind which nothing counts."""
        return -math.inf if self.sampled else 0.0

    def needs(self, taps: Iterable[int]) -> None:
        """A drafter reads these states."""
        self.taps.update(taps)

    def states(self, tap: int) -> Tensor:
        """Where the states of the rows at hand are kept: in place, so that what rows begin with alike stays."""
        if tap not in self._states:
            shape, like = (self.rows, self._longest, self.target.hidden), self.target
            self._states[tap] = torch.zeros(shape, dtype=like.dtype, device=like.device)
        return self._states[tap]

    def forced(self, answers: Sequence[Answer]) -> Forced:
        if self._last is None or list(map(id, self._last.answers)) != list(map(id, answers)):
            self._last = Forced(answers, self)
        return self._last

    def differing(self, answers: Sequence[Answer]) -> list[tuple[int, ...] | None]:
        forced = self.forced(answers)
        return [forced.differing(row) for row in forced.rows]
