"""EAGLE-3 and MTP over an answer: the head's own first pass over all true pairs, then D - 1 passes in which every
proposal feeds itself one slot further, all side by side (the layout of training-time test)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speedbench.native.replay.attention import beside
from speedbench.native.replay.forced import Forced, Stage, chances, logs, rows
from speedbench.native.serial import Serial
from speedbench.native.target import PREFILL_CHUNK
from speedbench.native.verify import best, probabilities
from speedbench.types import Answer, Matches, Tables

_NOTHING = -1
"""Stands where nobody knows what the target would say."""


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

    def keep(self, which: Tensor) -> None:
        """Forget the proposals that are not among these."""
        self.entries = {layer: (k[which], v[which]) for layer, (k, v) in self.entries.items()}


class Passes:
    """The drafts fed are the answer's own tokens: where one of them was not drafted, nothing behind it counts. A
    greedy proposal is followed no further than its first miss."""

    stateful = False

    def __init__(self, proposer: Serial, stage: Stage) -> None:
        self._proposer, self._stage, self.facts = proposer, stage, proposer.facts
        self.route = f"{stage.reach} passes of the head over all positions"
        stage.needs(proposer.taps)

    @torch.inference_mode()
    def tables(self, answer: Answer) -> Tables:
        forced, reach = self._stage.forced(answer), self._stage.reach
        offered = [self._proposer.room(start, reach) for start in forced.starts]
        outputs = self._true_pairs(forced, sum(n > 0 for n in offered))
        spec = self._proposer.body.spec
        each = 4 * max(self._stage.target.vocab, spec.heads * (len(forced.ids) + reach))
        found: list[list[float]] = []
        for at in range(0, len(offered), rows(each)):
            part = slice(at, at + rows(each))
            starts = torch.tensor(forced.starts[part], device=outputs.device)
            found += self._followed(forced, starts, offered[part], outputs)
        if self._stage.sampling.temperature > 0:
            return {None: chances(forced, offered, found)}
        return {None: Matches(offered=tuple(offered), matched=tuple(int(sum(hits)) for hits in found))}

    def _true_pairs(self, forced: Forced, starts: int) -> Tensor:
        """Outputs [pairs, H] of the pairs before the last start that drafts; the slots hold their keys and values."""
        body, slots = self._proposer.body, self._proposer.slots
        size = len(forced.answer.prompt) + starts - 1
        outputs = []
        for at in range(0, size, PREFILL_CHUNK):
            end = min(at + PREFILL_CHUNK, size)
            g = body.read({tap: forced.features[tap][:, at:end] for tap in body.spec.taps})
            ids = torch.tensor([forced.ids[at + 1 : end + 1]], device=g.device)
            outputs.append(body.run(slots, ids, g, [at])[0])
        return torch.cat(outputs) if outputs else torch.zeros(0)

    def _followed(self, forced: Forced, starts: Tensor, offered: list[int], outputs: Tensor) -> list[list[float]]:
        """For each start, what is to be known of its drafts in turn: 1 a hit and 0 the first miss; or log q."""
        found: list[list[float]] = [[] for _ in offered]
        alive = torch.tensor([i for i, n in enumerate(offered) if n], dtype=torch.int64, device=outputs.device)
        own, output, step = _Own(), outputs[starts[alive] - 2], 0
        while len(alive):
            here = starts[alive]
            said = forced.said(int(here.max()) + step)
            row = torch.tensor([*said, *[_NOTHING] * self._stage.reach], device=here.device)
            if step:
                output = self._fed(here, row[here + step - 1], output, step, own)
            verdicts = self._verdicts(output, row[here + step])
            step += 1
            for i, verdict in zip(alive.tolist(), verdicts, strict=True):
                found[i].append(verdict)
            more = [v != self._never and step < offered[i] for i, v in zip(alive.tolist(), verdicts, strict=True)]
            which = torch.tensor(more, device=here.device) & (row[here + step - 1] != _NOTHING)
            alive, output = alive[which], output[which]
            own.keep(which)
        return found

    def _fed(self, starts: Tensor, tokens: Tensor, output: Tensor, step: int, own: _Own) -> Tensor:
        """Outputs [N, H] after feeding one more token each, in the slot that comes next."""
        body, slots = self._proposer.body, self._proposer.slots

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return beside(query, slots.both(layer)[0], starts - 1, own.grow(layer, key, value))

        there = (starts - 2 + step)[:, None]
        return body.through(tokens[:, None], body.recycled(output)[:, None], there, attend)[:, 0]

    @property
    def _never(self) -> float:
        """A verdict behind which nothing counts."""
        return -math.inf if self._stage.sampling.temperature > 0 else 0.0

    def _verdicts(self, output: Tensor, tokens: Tensor) -> list[float]:
        body = self._proposer.body
        logits = body.logits(output)
        if self._stage.sampling.temperature > 0:
            return logs(body.over_target(probabilities(logits, self._stage.sampling)), tokens.clamp(min=0))
        hits: list[float] = (body.target_ids(best(logits)) == tokens).double().tolist()
        return hits
