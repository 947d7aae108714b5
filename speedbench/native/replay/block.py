"""DFlash and DSpark over an answer: a block behind every token, side by side over one context, as they were trained."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Attend
from speedbench.native.replay.attention import beside
from speedbench.native.replay.forced import Forced, Stage, chances, rows
from speedbench.native.target import PREFILL_CHUNK
from speedbench.types import Answer, Matches, Table, Tables


class Blocks:
    """A block of fixed width serves every D; one that is as short as D needs is filled anew for each."""

    stateful = False

    def __init__(self, proposer: DFlash, stage: Stage, lengths: Sequence[int]) -> None:
        self._proposer, self._stage, self.facts = proposer, stage, proposer.facts
        self._keys: list[int | None] = [*lengths] if proposer.depends_on_block_length else [None]
        each = " for each D" if proposer.depends_on_block_length else ""
        self.route = f"one pass over the blocks of all positions{each}"
        stage.needs(proposer.taps)

    @torch.inference_mode()
    def tables(self, answer: Answer) -> Tables:
        forced, back = self._stage.forced(answer), self._proposer.back
        size = min(len(forced.ids) - 2, back.reach)
        for at in range(0, size, PREFILL_CHUNK):
            end = min(at + PREFILL_CHUNK, size)
            back.remember(back.slots, {tap: forced.features[tap][:, at:end] for tap in set(self._proposer.taps)}, [at])
        return {key: self._table(forced, key or self._stage.reach) for key in self._keys}

    def _table(self, forced: Forced, d: int) -> Table:
        spec, width = self._proposer.back.spec, self._proposer.width(d)
        offered = [d if self._proposer.fits(start - 1, width) else 0 for start in forced.starts]
        drafting = [start for start, n in zip(forced.starts, offered, strict=True) if n]
        sampled = self._stage.sampling.temperature > 0
        each = 4 * width * max(spec.vocab, spec.heads * (len(forced.ids) + width))
        each = max(each, 4 * d * self._stage.target.vocab) if sampled else each
        found: dict[int, Sequence[float]] = {}
        for at in range(0, len(drafting), rows(each)):
            some = drafting[at : at + rows(each)]
            found.update(zip(some, self._drafted(forced, some, d, width), strict=True))
        drafts = [found.get(start, ()) for start in forced.starts]
        if sampled:
            return chances(forced, offered, drafts)
        matched = tuple(map(forced.matches, drafts, forced.starts))
        return Matches(offered=tuple(map(len, drafts)), matched=matched)

    def _drafted(self, forced: Forced, starts: Sequence[int], d: int, width: int) -> list[Sequence[float]]:
        """The proposal behind each start; with sampling, log q of the answer's own tokens in its place."""
        own, device, first = self._proposer, self._stage.target.device, self._proposer.first
        anchors = torch.tensor([forced.ids[start - 1] for start in starts], device=device)
        at = torch.tensor(starts, device=device) - 1
        whole = own.back.through(anchors, at[:, None] + torch.arange(width, device=device), self._attend(at))
        told = self._told(forced, starts, d) if self._stage.sampling.temperature > 0 else None
        states = whole[:, first : first + d]
        draft = own.pick(
            Filled(
                states=states, logits=own.back.logits(states), anchors=anchors, counts=[d] * len(starts), luck=None,
                sampling=self._stage.sampling, vocabulary=own.words, dropped=whole[:, 0] if first else None, told=told,
            )
        )  # fmt: skip
        if told is None:
            return [row[:n] for row, n in zip(draft.tokens.tolist(), draft.counts, strict=True)]
        if draft.q is None:
            return [() for _ in starts]
        q = draft.q.gather(2, told[:, : draft.q.shape[1], None])[:, :, 0].log().tolist()
        return [row[:n] for row, n in zip(q, draft.counts, strict=True)]

    def _attend(self, at: Tensor) -> Attend:
        back = self._proposer.back

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return beside(query, back.slots.both(layer)[0], at, (key, value), causal=back.spec.causal)

        return attend

    def _told(self, forced: Forced, starts: Sequence[int], d: int) -> Tensor:
        """[N, d]: the answer's own tokens; any stands where nobody knows them, for no step reaches there."""
        said = forced.said(max(starts) + d)
        tokens = [[said[min(start + i, len(said) - 1)] for i in range(d)] for start in starts]
        return torch.tensor(tokens, device=self._stage.target.device)
