"""An external draft model: any smaller causal LM with the target's tokenizer, run D times a pass over its own slots."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from speedbench.native.chat import shared_vocab
from speedbench.native.proposer import Draft, Near, Plan, Row, uniforms
from speedbench.native.slots import Slots
from speedbench.native.target import Target, prefill
from speedbench.native.verify import best, draw, probabilities


class External:
    """Serial drafting. Each pass first feeds the last two committed tokens, of which the earlier is a rewrite or the
    one draft that was accepted but never fed, so that all rows catch up with the same window."""

    taps: tuple[int, ...] = ()
    depends_on_block_length = False
    stateful = False

    def __init__(self, model: Target, plan: Plan, slots: Slots, shared: int) -> None:
        """`shared`: ids below it mean the same to both models; the tail is padding and never proposed."""
        self.model, self.plan, self.slots, self.vocab = model, plan, slots, shared
        self.limit: int | None = None
        self._fed: dict[int, int] = {}
        """Row → tokens of it that the drafter's slots hold."""
        self.facts: Mapping[str, Any] = {
            "parameters": model.parameters,
            "bytes": model.bytes,
            "bytes_per_token": self.slots.bytes_per_token,
            "form": model.form,
            "context": model.context,
        }

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self._fed[row.index] = row.prompt
        if row.prompt <= self.slots.length:
            prefill(self.model, self.slots.rows(row.index, row.index + 1), self.known(row.ids[: row.prompt]))

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        counts = [0 if row is None else self.room(len(row.ids), n) for row, n in zip(batch, room, strict=True)]
        longest = max(counts)
        device, sampled = self.model.device, self.plan.sampling.temperature > 0
        if not longest:
            return Draft(torch.zeros(len(batch), 0, dtype=torch.int64, device=device), counts)
        low = next(row.index - b for b, row in enumerate(batch) if row is not None)
        slots = self.slots.rows(low, low + len(batch))
        live = [row is not None and n > 0 for row, n in zip(batch, counts, strict=True)]
        self._catch_up(batch, live)
        ids = torch.tensor(
            [self.known(row.ids[-2:]) if row and on else [0, 0] for row, on in zip(batch, live, strict=True)]
        )
        start = [len(row.ids) - 2 if row and on else 0 for row, on in zip(batch, live, strict=True)]
        ids, luck = ids.to(device), self._luck(batch, live) if sampled else None
        tokens, chances = [], []
        for step in range(longest):
            logits = self.model.forward(slots, ids, start, last_only=True).logits[:, -1, : self.vocab]
            if luck is None:
                picked = best(logits)
            else:
                chances.append(probabilities(logits, self.plan.sampling))
                picked = draw(chances[-1], luck[:, step])
            tokens.append(picked)
            start = [min(at + ids.shape[1], slots.length - 1) if on else 0 for at, on in zip(start, live, strict=True)]
            ids = picked[:, None]
        return Draft(torch.stack(tokens, 1), counts, torch.stack(chances, 1) if sampled else None)

    def known(self, ids: Sequence[int]) -> list[int]:
        """The target may say an id of its padding that the drafter's embedding has no row for; any row stands in."""
        return [min(token, self.model.vocab - 1) for token in ids]

    def room(self, length: int, room: int) -> int:
        """What fits the drafter's own positions behind a row of `length` tokens: the last token fed stands at
        length + room - 2."""
        return max(0, min(room, self.slots.length - length + 1))

    def _luck(self, batch: Sequence[Row | None], live: Sequence[bool]) -> Tensor:
        """[B, D]: a row that drafts throws D dice however many are used, one that does not throws none."""
        rows = [row if on else None for row, on in zip(batch, live, strict=True)]
        return uniforms(rows, self.plan.draft_length, self.model.device)

    def _catch_up(self, batch: Sequence[Row | None], live: Sequence[bool]) -> None:
        """Feed what was committed while a row did not draft, all but the two tokens that every pass feeds. A row that
        sits out is padded from slot 0 on, so it has all to feed again."""
        for row, on in zip(batch, live, strict=True):
            if row is None:
                continue
            fed, end = self._fed[row.index], len(row.ids) - 2
            if on and fed < end:
                ids = torch.tensor([self.known(row.ids[fed:end])], device=self.model.device)
                self.model.forward(self.slots.rows(row.index, row.index + 1), ids, [fed], last_only=True)
            self._fed[row.index] = len(row.ids) if on else 0

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        for row, count in zip(batch, accepted, strict=True):
            if row is not None:
                self._fed[row.index] += max(0, count - 1)  # the last draft may have been picked and never fed

    def end(self, row: Row) -> None:
        self._fed.pop(row.index, None)


def build(plan: Plan, near: Near, *, model: str, dtype: str | None, form: str) -> External:
    drafter, chat = near.load(model, dtype, form)
    shared = shared_vocab(near.chat.tokenizer, chat.tokenizer, near.target.vocab, drafter.vocab)
    own = replace(plan, length=min(plan.length, drafter.context or plan.length))
    return External(drafter, own, near.slots(drafter, own), shared)
