"""EAGLE-3 and MTP over answers: the head's own first pass over all true pairs, then D - 1 passes in which every
proposal feeds itself one slot further, all side by side (the layout of training-time test)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speedbench.native.replay.attention import Span, beside, reaches, spans
from speedbench.native.replay.forced import Forced, Stage
from speedbench.native.replay.tensors import NOTHING, Proposed, budget, host, log_chances
from speedbench.native.serial import Serial
from speedbench.native.target import PREFILL_CHUNK
from speedbench.native.verify import best, probabilities
from speedbench.types import Answer, Matches, Table, Tables


@dataclass(slots=True)
class _Own:
    """Keys and values [N, K, kv heads, d] that N proposals fed themselves, by layer."""

    entries: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def grow(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All of a layer, with one slot [N, 1, kv heads, d] more."""
        had = self.entries.get(layer)
        new = (key, value) if had is None else (torch.cat([had[0], key], 1), torch.cat([had[1], value], 1))
        self.entries[layer] = new
        return new

    def keep(self, these: Tensor) -> None:
        """Forget the proposals that are not among these."""
        self.entries = {layer: (k[these], v[these]) for layer, (k, v) in self.entries.items()}


class Passes:
    """The drafts fed are the answer's own tokens: where one of them was not drafted, nothing behind it counts. A
    greedy proposal is followed no further than its first miss."""

    stateful = False

    def __init__(self, proposer: Serial, stage: Stage) -> None:
        self._proposer, self._stage, self.facts = proposer, stage, proposer.facts
        self.route = f"{stage.reach} passes of the head over all positions"
        stage.needs(proposer.taps)

    @torch.inference_mode()
    def tables(self, answers: Sequence[Answer]) -> list[Tables]:
        forced, reach = self._stage.forced(answers), self._stage.reach
        offered = [[self._proposer.room(start, reach) for start in forced.starts(row)] for row in forced.rows]
        every = [
            Proposed(row, *each) for row in forced.rows for each in zip(forced.starts(row), offered[row], strict=True)
        ]
        drafting = [one for one in every if one.offered]
        if self._stage.sampled:
            forced.complete()
        outputs = self._true_pairs(forced, drafting)
        spec, longest = self._proposer.body.spec, max(map(len, forced.ids)) + reach
        few = budget(4 * max(self._stage.target.vocab, spec.heads * longest), outputs.device)
        found: dict[tuple[int, int], list[float]] = {}
        for at in range(0, len(drafting), few):
            part = drafting[at : at + few]
            for one, verdicts in zip(part, host(self._followed(forced, part, outputs)), strict=True):
                found[one.row, one.start] = verdicts[: one.offered]
        verdicts = [[found.get((row, start), []) for start in forced.starts(row)] for row in forced.rows]
        return [{None: self._table(forced, row, offered[row], verdicts[row])} for row in forced.rows]

    def _table(self, forced: Forced, row: int, offered: list[int], verdicts: list[list[float]]) -> Table:
        if self._stage.sampled:
            return forced.chances(row, offered, verdicts)
        return Matches(offered=tuple(offered), matched=tuple(int(sum(hits)) for hits in verdicts))

    def _true_pairs(self, forced: Forced, drafting: Sequence[Proposed]) -> Tensor:
        """Outputs [rows, pairs, H] of the pairs before the last start that drafts; the slots hold their keys and
        values."""
        body, device = self._proposer.body, self._stage.target.device
        size = max((one.start - 1 for one in drafting), default=0)
        slots, features = self._proposer.slots.rows(0, len(forced.ids)), forced.features
        wide = PREFILL_CHUNK if device.type != "cpu" else max(1, PREFILL_CHUNK // len(forced.ids))
        outputs = []
        for at in range(0, size, wide):
            end = min(at + wide, size)
            g = body.read({tap: features[tap][:, at:end] for tap in set(body.spec.taps)})
            ids = forced.tokens[:, at + 1 : end + 1].clamp(min=0)
            outputs.append(body.run(slots, ids, g, [at] * len(ids)))
        return torch.cat(outputs, 1) if outputs else torch.zeros(0, device=device)

    def _followed(self, forced: Forced, part: Sequence[Proposed], outputs: Tensor) -> Tensor:
        """[N, D]: of each proposal, what is to be known of its drafts in turn: 1 a hit, 0 the first miss and all
        behind it; or log q."""
        device, never, own = outputs.device, self._stage.never, _Own()
        found = torch.full((len(part), self._stage.reach), never, device=device)
        row, start, alive = torch.tensor([(p.row, p.start, i) for i, p in enumerate(part)], device=device).T
        output, tokens, until = outputs[row, start - 2], row, reaches(part)
        for step in range(self._stage.reach):
            if step:
                output = self._fed(spans(part, until), start, tokens, output, step, own)
            tokens = forced.following(row, start + step)
            verdict = self._verdicts(output, tokens)
            found[alive, step] = verdict
            right = host((verdict > never) & (tokens != NOTHING))
            going = [i for i, p in enumerate(part) if right[i] and p.offered > step + 1]
            if not going:
                break
            part, these = [part[i] for i in going], torch.tensor(going, device=device)
            row, start, alive, tokens, output = (each[these] for each in (row, start, alive, tokens, output))
            own.keep(these)
        return found

    def _fed(
        self, rows: Sequence[Span], starts: Tensor, tokens: Tensor, output: Tensor, step: int, own: _Own
    ) -> Tensor:
        """Outputs [N, H] after feeding one more token each, in the slot that comes next."""
        body, slots = self._proposer.body, self._proposer.slots

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return beside(query, slots.both(layer), rows, starts - 1, own.grow(layer, key, value))

        there = (starts - 2 + step)[:, None]
        return body.through(tokens[:, None], body.recycled(output)[:, None], there, attend)[:, 0]

    def _verdicts(self, output: Tensor, tokens: Tensor) -> Tensor:
        body = self._proposer.body
        logits = body.logits(output)
        if self._stage.sampled:
            return log_chances(body.over_target(probabilities(logits, self._stage.sampling)), tokens)
        return (body.target_ids(best(logits)) == tokens).float()
