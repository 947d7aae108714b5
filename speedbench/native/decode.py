"""The loop: prefill a row, then propose → verify → commit over all live rows, each pass timed in its parts."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speedbench.native.clock import Clock
from speedbench.native.kernels import kernels
from speedbench.native.proposer import Draft, Plan, Proposer, Row, uniforms
from speedbench.native.slots import Slots
from speedbench.native.target import Target, prefill
from speedbench.native.verify import best, draw, greedy, probabilities, rejection, relaxed
from speedbench.types import Finish, Pass, Step

Relaxed = tuple[int, float]
"""(top_k, delta) of the lossy rule."""


@dataclass(slots=True)
class Stepped:
    """What one pass did to one row."""

    row: Row
    step: Step
    finish: Finish | None


def cut(tokens: Sequence[int], room: int, stops: frozenset[int]) -> tuple[list[int], Finish | None]:
    """What of newly decided tokens is committed: up to the first stop token, it included, and at most `room`."""
    kept: list[int] = []
    for token in tokens[:room]:
        kept.append(token)
        if token in stops:
            return kept, "stop"
    return kept, "length" if len(kept) == room else None


def _lists(draft: Draft) -> list[list[int]]:
    """A draft's tokens on the host."""
    return draft.tokens.tolist() if draft.tokens.shape[1] else [[] for _ in draft.counts]


def agreed(picks: Sequence[Sequence[int]], drafts: Sequence[Sequence[int]], counts: Sequence[int]) -> list[int]:
    """`verify.greedy` on the host, where a handful of small operators cost more than these loops: how many of the
    counts[b] drafts [B, W-1] are the target's own picks [B, W], none counted after the first that is not."""
    accepted = []
    for own, drafted, count in zip(picks, drafts, counts, strict=True):
        same = 0
        while same < count and own[same] == drafted[same]:
            same += 1
        accepted.append(same)
    return accepted


class Decoder:
    """Slots for the rows of a cell, a target and a proposer, decoding side by side."""

    def __init__(
        self,
        target: Target,
        proposer: Proposer | None,
        plan: Plan,
        slots: Slots,
        *,
        width: int | None = None,
        lossy: Relaxed | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`width` fixes the tokens per row of every pass (None: 1 + the longest proposal); `proposer` None is D = 0."""
        self.target, self.proposer, self.plan = target, proposer, plan
        self.slots = slots
        self.rows: list[Row | None] = [None] * plan.rows
        self._width, self._lossy, self._now = width, lossy, now
        self.longest = slots.length - (width or 1 + plan.draft_length)
        """Tokens a row may come to: what the slots hold beside the widest window."""
        self._clock = Clock(plan.device)
        self._taps = proposer.taps if proposer else ()
        self._kernels = kernels(target.dtype) if plan.device.type == "cpu" else None
        self._resumed = now()

    def admit(self, row: Row) -> tuple[int, float]:
        """Prefill a row's prompt and commit its first token: (token, seconds)."""
        began = self._now()
        view = self.slots.rows(row.index, row.index + 1)
        logits, features = prefill(self.target, view, row.ids, self._taps)
        first = self._first(logits, row)
        row.ids.append(first)
        self.rows[row.index] = row
        if self.proposer:
            self.proposer.begin(row, features)
        self._clock.settle()
        self._resumed = self._now()
        return first, self._resumed - began

    def _picks(self, logits: Tensor) -> list[list[int]]:
        """The target's own token after each of logits [B, W, V]; C where it can be, a tenth of the time on CPU."""
        if self._kernels is None or self._kernels.dtype != logits.dtype:
            return best(logits).tolist()
        return self._kernels.best(logits)

    def _first(self, logits: Tensor, row: Row) -> int:
        """A row's first token, from logits [1, 1, V]."""
        if self.plan.sampling.temperature == 0:
            return self._picks(logits)[0][0]
        chances = probabilities(logits[:, -1], self.plan.sampling)
        return int(draw(chances, uniforms([row], 1, logits.device)[:, 0]))

    def release(self, row: Row) -> None:
        """A row's turn is over."""
        if self.proposer:
            self.proposer.end(row)
        self.rows[row.index] = None

    def step(self) -> tuple[Pass, list[Stepped]]:
        """One pass over the live rows. Its time begins where the last one ended, so no overhead escapes."""
        low, batch = self._span()
        clock, marks = self._clock, [self._clock.mark()]
        draft = self._propose(batch)
        marks.append(clock.mark())
        seen = self.target.forward(
            self.slots.rows(low, low + len(batch)), self._ids(batch, draft), self._starts(batch), taps=self._taps
        )
        marks.append(clock.mark())
        accepted, added = self._judge(batch, draft, seen.logits)
        done = self._commit(batch, draft, accepted, added)
        marks.append(clock.mark())
        if self.proposer:
            self.proposer.commit(batch, accepted, seen.features)
        marks.append(clock.mark())
        clock.settle()
        ended = self._now()
        drafting = clock.between(marks[0], marks[1]) + clock.between(marks[3], marks[4])
        verifying = clock.between(marks[1], marks[2])
        began, self._resumed = self._resumed, ended
        width = seen.logits.shape[1]
        return Pass(
            at=ended,
            batch=len(done),
            width=width,
            proposed=sum(draft.counts),
            draft=drafting,
            verify=verifying,
            other=max(0.0, ended - began - drafting - verifying),
        ), done

    def _span(self) -> tuple[int, list[Row | None]]:
        """The rows from the first live one to the last; all of them when shapes are static."""
        if self.plan.static:
            return 0, self.rows
        live = [i for i, row in enumerate(self.rows) if row is not None]
        return live[0], self.rows[live[0] : live[-1] + 1]

    def _propose(self, batch: Sequence[Row | None]) -> Draft:
        room = [0 if r is None else max(0, min(self.plan.draft_length, r.cap - r.generated - 1)) for r in batch]
        if self.proposer is None or not any(room):
            return Draft(torch.zeros(len(batch), 0, dtype=torch.int64, device=self.plan.device), [0] * len(batch))
        return self.proposer.propose(batch, room)

    def _ids(self, batch: Sequence[Row | None], draft: Draft) -> Tensor:
        """[B, W]: the anchor, the drafts, and zeros up to the fixed width."""
        anchors = torch.tensor([[0 if row is None else row.ids[-1]] for row in batch], device=self.plan.device)
        ids = torch.cat([anchors, draft.tokens], 1) if draft.tokens.shape[1] else anchors
        short = (self._width or 0) - ids.shape[1]
        return torch.nn.functional.pad(ids, (0, short)) if short > 0 else ids

    def _starts(self, batch: Sequence[Row | None]) -> list[int]:
        return [0 if row is None else len(row.ids) - 1 for row in batch]

    def _judge(self, batch: Sequence[Row | None], draft: Draft, logits: Tensor) -> tuple[list[int], list[int]]:
        """Accepted drafts and the added token of each row, on the host."""
        drafts, width = draft.tokens, draft.tokens.shape[1] + 1
        used = logits if logits.shape[1] == width else logits[:, :width]
        if self.plan.device.type == "cpu" and self.plan.sampling.temperature == 0 and not self._lossy:
            picks = self._picks(used)
            agrees = agreed(picks, _lists(draft), draft.counts)
            return agrees, [own[same] for own, same in zip(picks, agrees, strict=True)]
        counts = torch.tensor(draft.counts, device=logits.device)
        if self._lossy:
            accepted, added = relaxed(used, drafts, counts, *self._lossy)
        elif self.plan.sampling.temperature == 0:
            accepted, added = greedy(used, drafts, counts)
        else:
            p, q = probabilities(used, self.plan.sampling), draft.q
            if q is not None and q.shape[2] < p.shape[2]:
                q = torch.nn.functional.pad(q, (0, p.shape[2] - q.shape[2]))
            accepted, added = rejection(p, drafts, counts, q, self._luck(batch, used.shape[1]))
        both = torch.stack([accepted, added]).tolist()
        return both[0], both[1]

    def _luck(self, batch: Sequence[Row | None], width: int) -> Tensor:
        """[B, width]: one for each draft, then one for the added token. A row throws D + 1 dice a pass, first the added
        token's, however wide the pass: what shares its batch does not move its luck."""
        return uniforms(batch, self.plan.draft_length + 1, self.plan.device)[:, :width].roll(-1, 1)

    def _commit(
        self, batch: Sequence[Row | None], draft: Draft, accepted: list[int], added: list[int]
    ) -> list[Stepped]:
        done, at, tokens = [], self._now(), _lists(draft)
        for b, row in enumerate(batch):
            if row is None:
                continue
            fresh, finish = cut([*tokens[b][: accepted[b]], added[b]], row.cap - row.generated, self.plan.stops)
            row.ids.extend(fresh)
            step = Step(at=at, proposed=draft.counts[b], accepted=accepted[b], committed=len(fresh))
            done.append(Stepped(row, step, finish))
        return done


def facts_of(proposer: Proposer | None) -> Mapping[str, Any]:
    """What the comparison table says of a drafter; the baseline has none of it."""
    return proposer.facts if proposer else {"parameters": 0, "bytes": 0, "bytes_per_token": 0}
