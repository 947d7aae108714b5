"""DFlash and DSpark over answers: a block behind every token, side by side over one context, as they were trained."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Attend
from speedbench.native.proposer import Draft
from speedbench.native.replay.attention import beside, reaches, spans
from speedbench.native.replay.forced import Forced, Stage
from speedbench.native.replay.tensors import Proposed, budget, host, log_chances
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
    def tables(self, answers: Sequence[Answer]) -> list[Tables]:
        forced = self._stage.forced(answers)
        if self._stage.sampled:
            forced.complete()
        self._remember(forced)
        made = {key: self._tables(forced, key or self._stage.reach) for key in self._keys}
        return [{key: tables[row] for key, tables in made.items()} for row in forced.rows]

    def _remember(self, forced: Forced) -> None:
        """The context of all rows into their slots."""
        back, rows, features = self._proposer.back, len(forced.ids), forced.features
        size = min(max(map(len, forced.ids)) - 2, back.reach)
        wide = PREFILL_CHUNK if back.target.device.type != "cpu" else max(1, PREFILL_CHUNK // rows)
        for at in range(0, size, wide):
            some = {tap: features[tap][:, at : min(at + wide, size)] for tap in set(self._proposer.taps)}
            back.remember(back.slots.rows(0, rows), some, [at] * rows)

    def _tables(self, forced: Forced, d: int) -> list[Table]:
        """By row."""
        width = self._proposer.width(d)
        drafting = [
            Proposed(row, start, d)
            for row in forced.rows
            for start in forced.starts(row)
            if self._proposer.fits(start - 1, width)
        ]
        few, found = self._few(forced, width, d), dict[tuple[int, int], list[Any]]()
        for at in range(0, len(drafting), few):
            part = drafting[at : at + few]
            tell: Callable[..., list[list[Any]]] = self._log_q if self._stage.sampled else self._drafted
            drafts = tell(forced, part, self._filled(forced, part, width), d)
            found.update({(p.row, p.start): each for p, each in zip(part, drafts, strict=True)})
        return [self._table(forced, row, found, d) for row in forced.rows]

    def _table(self, forced: Forced, row: int, found: Mapping[tuple[int, int], list[Any]], d: int) -> Table:
        starts, cuts = forced.starts(row), self._proposer.pick.cuts
        drafts = [found.get((row, start)) for start in starts]
        offered = [0 if each is None else len(each) if cuts else d for each in drafts]
        if self._stage.sampled:
            return forced.chances(row, offered, [each or [] for each in drafts])
        pairs = zip(drafts, starts, strict=True)
        return Matches(
            offered=tuple(offered), matched=tuple(forced.matches(row, each or [], start) for each, start in pairs)
        )

    def _few(self, forced: Forced, width: int, d: int) -> int:
        """Blocks of one pass."""
        spec, target = self._proposer.back.spec, self._stage.target
        each = 4 * width * max(spec.vocab, spec.heads * (max(map(len, forced.ids)) + width))
        return budget(max(each, 4 * d * target.vocab * self._stage.sampled), target.device)

    def _filled(self, forced: Forced, part: Sequence[Proposed], width: int) -> Tensor:
        """States [N, width, H] of the blocks behind each start."""
        row, start = _places(part, self._stage.target.device)
        positions = start[:, None] - 1 + torch.arange(width, device=start.device)
        attend = self._attend(part, start - 1)
        return self._proposer.back.through(forced.tokens[row, start - 1], positions, attend)

    def _drafted(self, forced: Forced, part: Sequence[Proposed], states: Tensor, d: int) -> list[list[int]]:
        """The proposal behind each start. Where all have d drafts it is picked up to its first miss, and a few behind:
        one slot of all blocks, then twice as many each time of those that were right so far."""
        found, alive = [list[int]() for _ in part], [*range(len(part))]
        wide = d if self._proposer.pick.cuts else 1
        while alive:
            some = [part[i] for i in alive]
            draft = self._pick(forced, some, states if len(some) == len(part) else states[alive], wide, None)
            for i, tokens, count in zip(alive, host(draft.tokens), draft.counts, strict=True):
                found[i] = tokens[:count]
            more = [i for i in alive if wide < d and forced.matches(part[i].row, found[i], part[i].start) == wide]
            alive, wide = more, min(2 * wide, d)
        return found

    def _log_q(self, forced: Forced, part: Sequence[Proposed], states: Tensor, d: int) -> list[list[float]]:
        """Of the answer's own tokens behind each start."""
        row, start = _places(part, states.device)
        told = forced.tokens[row[:, None], start[:, None] + torch.arange(d, device=start.device)].clamp(min=0)
        draft = self._pick(forced, part, states, d, told)
        if draft.q is None:
            return [[] for _ in part]
        logs = log_chances(draft.q, told[:, : draft.q.shape[1]])
        return [each[:n] for each, n in zip(host(logs), draft.counts, strict=True)]

    def _pick(self, forced: Forced, part: Sequence[Proposed], states: Tensor, d: int, told: Tensor | None) -> Draft:
        own, first = self._proposer, self._proposer.first
        row, start = _places(part, states.device)
        used = states[:, first : first + d]
        return own.pick(
            Filled(
                states=used, logits=own.back.logits(used), anchors=forced.tokens[row, start - 1],
                counts=[d] * len(part), luck=None, sampling=self._stage.sampling, vocabulary=own.words,
                dropped=states[:, 0] if first else None, told=told,
            )
        )  # fmt: skip

    def _attend(self, part: Sequence[Proposed], at: Tensor) -> Attend:
        back, rows = self._proposer.back, spans(part, reaches(part))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return beside(query, back.slots.both(layer), rows, at, (key, value), causal=back.spec.causal)

        return attend


def _places(part: Sequence[Proposed], device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and start [N] of each."""
    row, start = torch.tensor([(p.row, p.start) for p in part], device=device).T
    return row, start
