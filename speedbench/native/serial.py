"""EAGLE-3 and MTP at work: drafters that pair the target's state at i with token i+1 in slot i, and feed themselves.

A row of N prompt tokens fills slots 0 … N-1 with pairs (f_i, x_{i+1}); the output o of its newest slot predicts the
first draft, and each further draft comes from feeding (o, draft) one slot on. What was fed so is never kept: after
verification the slots of the committed tokens are written again from the target's own states (DeepSpec
`deepspec/eval/eagle3/evaluator.py` `_propose`, `_update`; vLLM `v1/spec_decode/eagle.py`; vllm#14649 measured what
keeping them costs).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.head import Attend, Head, Layer, Rotary, attention, rms_norm
from speedbench.native.packed import linear
from speedbench.native.proposer import Draft, Plan, Row, uniforms
from speedbench.native.slots import Slots
from speedbench.native.target import PREFILL_CHUNK, Target
from speedbench.native.verify import best, draw, probabilities


class Fusion(Protocol):
    """What the mechanisms do each in their own way: how states and tokens become the first layer's input."""

    def read(self, features: Tensor) -> Tensor:
        """The target's states, taps side by side [B, W, taps·H] → g [B, W, ·], in which outputs are recycled too."""

    def enter(self, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Token embeddings [B, W, H] and g → the residual stream and what the first layer's q, k and v read."""


class Body:
    """The weights of a serial head and its forward, with no memory of rows."""

    def __init__(self, head: Head, fusion: Fusion, target: Target, length: int) -> None:
        self.spec, self._fusion, self._target = head.spec, fusion, target
        dtype, device = target.dtype, target.device

        def maybe(name: str) -> Tensor | None:
            return head.tensors[name].to(device=device, dtype=dtype) if name in head.tensors else None

        self._layers = [Layer(head, index, dtype, device) for index in range(head.spec.layers)]
        self._rotary = Rotary(head.spec, length, dtype, device)
        self._norm = head.tensors["norm.weight"].to(device=device, dtype=dtype)
        self._embedding, own_head = maybe("embed_tokens.weight"), maybe("lm_head.weight")
        self._head = target.head if own_head is None else linear(own_head)
        self._ids: Tensor | None = None
        """The target's id of each of the head's, where they differ."""
        if "d2t" in head.tensors:
            offsets = head.tensors["d2t"].to(device=device, dtype=torch.int64)
            self._ids = torch.arange(head.spec.vocab, device=device) + offsets

    def slots(self, batch: int, length: int, *, static: bool) -> Slots:
        spec, dtype, device = self.spec, self._target.dtype, self._target.device
        slots = Slots(spec.layers, batch, length, dtype, device, static=static)
        entry = torch.empty(1, spec.kv_heads, 1, spec.head_dim, dtype=dtype, device=device)
        for index in range(spec.layers):
            slots.allocate(index, entry, entry)
        return slots

    def read(self, features: Mapping[int, Tensor]) -> Tensor:
        """The target's states by tap [B, W, H] → g."""
        return self._fusion.read(torch.cat([features[tap] for tap in self.spec.taps], -1))

    def run(self, slots: Slots, ids: Tensor, g: Tensor, start: Sequence[int]) -> Tensor:
        """Outputs [B, W, H], before the last norm, of pairs (g [B, W, ·], ids [B, W]) in slots start[b] …"""
        window = slots.window(start, ids.shape[1])

        def attend(index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            entries = torch.cat([key, value], 2).flatten(0, 1)
            return attention(query, *slots.write_joint(index, window, entries), window.mask)

        return self.through(ids, g, window.positions, attend)

    def through(self, ids: Tensor, g: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The same wherever keys and values are kept; positions [B, W] are the pairs' slots."""
        embedded = self._target.embed(ids) if self._embedding is None else F.embedding(ids, self._embedding)
        if self.spec.zero_first_embedding:
            embedded = embedded.masked_fill((positions == 0)[:, :, None], 0.0)
        x, z = self._fusion.enter(embedded, g)
        for index, layer in enumerate(self._layers):
            z = rms_norm(x, layer.input_norm, self.spec) if index else z
            key, value = layer.key_value(z)
            query = self._rotary(layer.query(z), positions)
            x = layer.finish(x, attend(index, query, self._rotary(key, positions), value))
        return x

    def logits(self, output: Tensor) -> Tensor:
        """[B, H] → [B, ids of the head]."""
        return self._head(rms_norm(output, self._norm, self.spec))

    def recycled(self, output: Tensor) -> Tensor:
        """The g of the next step: the output before the last norm, or after it where the head was trained so."""
        return rms_norm(output, self._norm, self.spec) if self.spec.recycle_normed else output

    def target_ids(self, picked: Tensor) -> Tensor:
        return picked if self._ids is None else self._ids[picked]

    def over_target(self, chances: Tensor) -> Tensor:
        """Probabilities over the head's ids [B, ·] → over the target's [B, V]; a head with no map has its first ids."""
        if self._ids is None:
            return chances
        return chances.new_zeros(len(chances), self._target.vocab).index_copy_(1, self._ids, chances)


class Serial:
    """Serial drafting with a head that reads the target's states. All of a row's state is what its slots hold and the
    output of its newest one; a commit brings both up to date, whether or not the row drafted."""

    limit: int | None = None
    depends_on_block_length = False
    stateful = False

    def __init__(self, head: Head, fusion: Fusion, target: Target, plan: Plan) -> None:
        self.taps, self.plan, self._device = head.spec.taps, plan, target.device
        self._last = min(plan.length, head.spec.context or plan.length)
        """Pairs of a row that the head can place: from then on it drafts no more."""
        spare = self._last + plan.draft_length + 1
        self.body = Body(head, fusion, target, spare)
        self.slots = self.body.slots(plan.rows, spare, static=plan.static)
        self._outputs = torch.zeros(plan.rows, head.spec.hidden, dtype=target.dtype, device=target.device)
        """Row → output of its newest true pair."""
        self._filled: dict[int, int] = {}
        """Row → true pairs in its slots; always one fewer than the row's tokens between passes."""
        self.facts: Mapping[str, Any] = {
            "parameters": head.parameters,
            "bytes": head.parameters * target.dtype.itemsize,
            "bytes_per_token": self.slots.bytes_per_token,
            "dialect": head.spec.dialect,
            "taps": list(head.spec.taps),
            "draft_vocab": head.spec.vocab,
            "context": head.spec.context,
            "warnings": list(head.warnings),
        }
        self._try(target)

    @torch.inference_mode()
    def _try(self, target: Target) -> None:
        """One step on made-up states: a head whose weights are broken is found before anything is measured."""
        ramp = torch.linspace(-1, 1, 2 * target.hidden, dtype=target.dtype, device=target.device)
        made_up = ramp.view(1, 2, -1)
        ids = torch.arange(2, device=target.device)[None]
        output = self.body.run(self.slots.rows(0, 1), ids, self.body.read(dict.fromkeys(self.taps, made_up)), [0])
        logits = self.body.logits(output[:, -1])
        if not bool(torch.isfinite(logits).all()):
            raise UserError("the drafter's weights are broken: one step on made-up states gave NaN or infinite logits")
        if bool(logits.max() == logits.min()):
            raise UserError("the drafter's weights are broken: one step on made-up states gave all logits equal")

    @torch.inference_mode()
    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self._filled[row.index] = row.prompt
        if row.prompt > self._last:
            return
        slots = self.slots.rows(row.index, row.index + 1)
        for at in range(0, row.prompt, PREFILL_CHUNK):
            end = min(at + PREFILL_CHUNK, row.prompt)
            g = self.body.read({tap: features[tap][:, at:end] for tap in self.taps})
            ids = torch.tensor([self._tokens(row, at, end)], device=self._device)
            output = self.body.run(slots, ids, g, [at])
        self._outputs[row.index] = output[0, -1]

    def _tokens(self, row: Row, at: int, end: int) -> list[int]:
        """The tokens of pairs at … end-1: each is one later than its state."""
        return row.ids[at + 1 : end + 1]

    @torch.inference_mode()
    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        counts = [0 if row is None else self.room(len(row.ids), n) for row, n in zip(batch, room, strict=True)]
        longest = max(counts)
        if not longest:
            return Draft(torch.zeros(len(batch), 0, dtype=torch.int64, device=self._device), counts)
        low = _low(batch)
        slots, output = self.slots.rows(low, low + len(batch)), self._outputs[low : low + len(batch)]
        start, luck = self._starts(batch), self._luck(batch, counts)
        tokens: list[Tensor] = []
        chances: list[Tensor] = []
        for step in range(longest):
            if step:
                there = [at + step - 1 for at in start]
                output = self.body.run(slots, tokens[-1][:, None], self.body.recycled(output)[:, None], there)[:, 0]
            logits = self.body.logits(output)
            if luck is None:
                picked = best(logits)
            else:
                each = probabilities(logits, self.plan.sampling)
                picked = draw(each, luck[:, step])
                chances.append(self.body.over_target(each))
            tokens.append(self.body.target_ids(picked))
        return Draft(torch.stack(tokens, 1), counts, torch.stack(chances, 1) if chances else None)

    def room(self, length: int, room: int) -> int:
        """What fits the head's own positions behind `length` tokens: draft j comes from slot length - 3 + j."""
        return max(0, min(room, self._last - length + 2))

    def _luck(self, batch: Sequence[Row | None], counts: Sequence[int]) -> Tensor | None:
        """[B, D]: a row that drafts throws D dice however many are used, one that does not throws none."""
        if self.plan.sampling.temperature == 0:
            return None
        rows = [row if n else None for row, n in zip(batch, counts, strict=True)]
        return uniforms(rows, self.plan.draft_length, self._device)

    def _starts(self, batch: Sequence[Row | None]) -> list[int]:
        """The first slot past each row's true pairs. A row that is not there or has outgrown the head needs its slots
        no more, so its padding goes to slot 0 and on."""
        filled = [0 if row is None else self._filled[row.index] for row in batch]
        return [at if at <= self._last else 0 for at in filled]

    @torch.inference_mode()
    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        fresh = [[] if r is None else self._tokens(r, self._filled[r.index], len(r.ids) - 1) for r in batch]
        start = self._starts(batch)
        for row in batch:
            if row is not None:
                self._filled[row.index] = len(row.ids) - 1
        if all(row is None or self._filled[row.index] > self._last for row in batch):
            return
        seen = features[self.taps[0]].shape[1]
        width = min(seen, self.plan.draft_length + 1) if self.plan.static else max(len(x) for x in fresh)
        ids = torch.tensor([[*x, *([0] * (width - len(x)))] for x in fresh], device=self._device)
        low = _low(batch)
        g = self.body.read({tap: features[tap][:, :width] for tap in self.taps})
        output = self.body.run(self.slots.rows(low, low + len(batch)), ids, g, start)
        newest = torch.tensor([max(0, len(x) - 1) for x in fresh], device=self._device)
        self._outputs[low : low + len(batch)] = output[torch.arange(len(batch), device=self._device), newest]

    def end(self, row: Row) -> None:
        self._filled.pop(row.index, None)


def _low(batch: Sequence[Row | None]) -> int:
    """The row of the cache that a batch begins with."""
    return next(row.index - b for b, row in enumerate(batch) if row is not None)
