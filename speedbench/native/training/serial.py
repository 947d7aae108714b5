"""Serial learners (EAGLE-3, MTP): the head run on its own outputs while it is trained, as it will be when it drafts.

Training-time test (Li et al. 2025, arXiv 2503.01840; SpecForge `specforge/core/eagle3.py`; FastMTP's three steps with
one module): step k reads the outputs of step k-1 at the same index and the true tokens one further on. At step k a
query sees the keys of step 0 up to its own index, and of each later step its own index alone: a column each.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.native.head import Head, HeadSpec
from speedbench.native.publish import publish
from speedbench.native.training.parts import Frozen, Labels, Stack, Weights, labels, published, wide
from speedbench.native.training.shards import Batch


class Unrolled:
    """Attention over the steps of one unrolling, a key and value for every index of every step and layer."""

    def __init__(self, layers: int) -> None:
        self._first: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self._later: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(layers)]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All [B, heads, T, d]."""
        first = self._first[layer]
        if first is None:
            self._first[layer] = key, value
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        later = self._later[layer]
        later.append((key, value))
        scale, size = query.shape[-1] ** -0.5, query.shape[2]
        hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
        causal = (query @ first[0].transpose(2, 3)).masked_fill(hidden, -torch.inf)
        own = torch.stack([(query * k).sum(-1) for k, _ in later], -1)
        chances = (torch.cat([causal, own], -1).float() * scale).softmax(-1)
        mixed: Tensor = chances[..., :size] @ first[1]
        for step, (_, v) in enumerate(later):
            mixed += chances[..., size + step, None] * v
        return mixed


class Fusion(Protocol):
    """How states and tokens become the first layer's input, as in `native/serial.py`, but differentiable."""

    def read(self, stack: Stack, states: dict[int, Tensor]) -> Tensor: ...

    def enter(self, stack: Stack, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(slots=True)
class Serial:
    """A serial head being trained."""

    spec: HeadSpec
    target: Frozen
    weights: Weights
    fusion: Fusion
    steps: int = 3
    decay: float = 0.8
    """The weight of step k is decay^k."""
    soft: bool = True
    ids: Tensor | None = None
    """The target's ids of a reduced vocabulary, ascending; None: all."""
    commonest: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """With all ids: those that every loss is computed over, beside the batch's own."""
    frozen: Weights = field(default_factory=dict)
    """Tensors that belong to the head and are not trained."""

    @property
    def taps(self) -> tuple[int, ...]:
        return (*self.spec.taps, self.target.layers)

    def unroll(self, batch: Batch, tokens: Callable[[int], Tensor], steps: int) -> Iterator[Tensor]:
        """Outputs [B, T, H] after the last norm; tokens(k) are the ids [B, T] that step k reads, asked for in turn."""
        everything = {**self.weights, **self.frozen}
        size = batch.ids.shape[1]
        stack, attend = Stack(self.spec, everything, size + steps), Unrolled(self.spec.layers)
        g = self.fusion.read(stack, batch.states)
        at = torch.arange(size).expand(len(batch.ids), -1)
        for step in range(steps):
            embedded = F.embedding(tokens(step), self.target.embedding)
            x, z = self.fusion.enter(stack, embedded, g)
            for layer in range(self.spec.layers):
                z = stack.norm(f"layers.{layer}.input_layernorm", x) if layer else z
                mixed = attend(layer, stack.query(layer, z, at + step), *stack.key_value(layer, z, at + step))
                x = stack.finish(layer, x, mixed)
            out = stack.norm("norm", x)
            g = out if self.spec.recycle_normed else x
            yield out

    def rows(self, ids: Tensor) -> Tensor:
        """The head's weight for target ids [N]: the target's, or the head's own where it has one."""
        own = {**self.weights, **self.frozen}.get("lm_head.weight")
        return self.target.head[ids] if own is None else own

    def loss(self, batch: Batch, dice: torch.Generator) -> Tensor:
        """The output of index i at step k is held against the token at i + 2 + k, where i + 1 is the anchor."""
        ids = wide(batch, self.commonest) if self.ids is None else self.ids
        said, head = labels(batch, self.target, ids, soft=self.soft), self.rows(ids)
        size = batch.ids.shape[1]
        padded = F.pad(batch.ids, (0, self.steps + 1))
        at = torch.arange(size).expand(len(batch.ids), -1)
        asked = at + 2 >= batch.answers[:, None]
        outputs = self.unroll(batch, lambda k: padded[:, 1 + k : 1 + k + size], self.steps)
        total, weight = torch.zeros(()), 0.0
        for step, out in enumerate(outputs):
            rows, valid = said.at(at + 2 + step)
            total = total + self.decay**step * _mean(said, out, head, rows, valid & asked)
            weight += self.decay**step
        return total / weight

    @torch.no_grad()
    def drafts(self, batch: Batch, count: int) -> Tensor:
        """[B, T, count]: what is drafted with the token at a position as the anchor; -1 at 0, which has no state
        before it."""
        every = torch.arange(self.target.vocab) if self.ids is None else self.ids
        head, found = self.rows(every), list[Tensor]()

        def tokens(step: int) -> Tensor:
            return found[-1] if step else F.pad(batch.ids[:, 1:], (0, 1))

        for out in self.unroll(batch, tokens, count):
            found.append(every[best(out, head)])
        drafted = torch.stack(found, -1).roll(1, 1)
        drafted[:, 0] = -1
        return drafted

    def head(self, dtype: torch.dtype = torch.bfloat16) -> Head:
        return published(self.spec, {**self.weights, **self.frozen}, dtype)

    def save(self, folder: Path, target_name: str) -> None:
        publish(self.head(), folder, target_name)


def best(out: Tensor, head: Tensor) -> Tensor:
    """The argmax of out·headᵀ [B, T], some positions at a time: all their logits at once fill the memory."""
    return torch.cat([(part @ head.T).argmax(-1) for part in torch.split(out, 32, 1)], 1)


def _mean(said: Labels, out: Tensor, head: Tensor, rows: Tensor, valid: Tensor) -> Tensor:
    if not bool(valid.any()):
        return out.sum() * 0
    return said.loss(out[valid] @ head.T, rows[valid]).mean()
