"""Block learners: DFlash, and DSpark, which corrects a block's slots for the token before each (native/dflash.py).

Anchors are drawn from the answer; the block of each sees the context strictly before it and all of itself, as when it
drafts (SpecForge `algorithms/common/dflash_family_model.py`; deepseek-ai/DeepSpec `deepspec/modeling/dspark/loss.py`).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.native.head import Head, HeadSpec
from speedbench.native.publish import publish
from speedbench.native.training.parts import Frozen, Labels, Stack, Weights, labels, noise, published, trainable, wide
from speedbench.native.training.shards import Batch

GAMMA = 4.0
"""Slot k of a block weighs exp(-k/γ); 4 is the papers' for blocks of 7 and 8."""
L1, CE = 0.9, 0.1
"""DSpark's weights of the distance between distributions and of the cross-entropy."""


@dataclass(slots=True)
class Block:
    """A DFlash or DSpark head being trained."""

    spec: HeadSpec
    target: Frozen
    weights: Weights
    commonest: Tensor
    anchors: int = 32
    """Anchors of a sequence in a batch."""
    soft: bool = True
    frozen: Weights = field(default_factory=dict)

    @property
    def taps(self) -> tuple[int, ...]:
        return (*self.spec.taps, self.target.layers)

    @property
    def _first(self) -> int:
        """The first slot that predicts."""
        return 0 if self.spec.anchor_predicts else 1

    @property
    def _width(self) -> int:
        assert self.spec.block is not None, "a block drafter says how long its block is"
        return self.spec.block

    def fill(self, batch: Batch, anchors: Tensor) -> Tensor:
        """States [B, A, predicting slots, H] after the last norm, of the blocks whose anchors stand at [B, A]."""
        spec, width = self.spec, self._width
        rows, count = anchors.shape
        size = batch.ids.shape[1]
        stack = Stack(spec, self.weights, size + width)
        fused = stack.product("fc", torch.cat([batch.states[tap] for tap in spec.taps], -1))
        context, at = stack.norm("hidden_norm", fused), torch.arange(size).expand(rows, -1)
        slots = torch.full((rows, count, width), spec.mask_token or 0)
        slots[:, :, 0] = batch.ids.gather(1, anchors)
        x = F.embedding(slots.flatten(1), self.target.embedding)
        there = (anchors[:, :, None] + torch.arange(width)).flatten(1)
        mask = seen(anchors, width, size)
        for layer in range(spec.layers):
            z = stack.norm(f"layers.{layer}.input_layernorm", x)
            key, value = stack.key_value(layer, z, there)
            before_key, before_value = stack.key_value(layer, context, at)
            keys, values = torch.cat([before_key, key], 2), torch.cat([before_value, value], 2)
            query = stack.query(layer, z, there)
            mixed = F.scaled_dot_product_attention(query, keys, values.to(keys.dtype), attn_mask=mask)
            x = stack.finish(layer, x, mixed)
        return stack.norm("norm", x).view(rows, count, width, -1)[:, :, self._first :]

    def _draw(self, batch: Batch, dice: torch.Generator) -> Tensor:
        """[B, A] anchors of each answer, evenly likely; one token at least is left to predict."""
        first, last = (batch.answers - 1).clamp(min=0), batch.lengths - 2
        luck = torch.rand(len(first), self.anchors, generator=dice)
        return first[:, None] + (luck * (last - first + 1)[:, None]).long().clamp(min=0)

    def loss(self, batch: Batch, dice: torch.Generator) -> Tensor:
        anchors = self._draw(batch, dice)
        states = self.fill(batch, anchors)
        ids = wide(batch, self.commonest)
        said = labels(batch, self.target, ids, soft=self.soft or self.spec.mechanism == "dspark")
        ahead = torch.arange(states.shape[2])
        rows, valid = said.at(anchors[:, :, None] + 1 + ahead)
        valid = valid.long().cumprod(-1).bool()
        weight = torch.exp(-ahead / GAMMA).expand_as(rows)[valid]
        h, rows = states[valid], rows[valid]
        if self.spec.mechanism == "dflash":
            each = said.loss(h @ self.target.head[ids].T, rows)
        else:
            before = batch.ids.gather(1, (anchors[:, :, None] + ahead).clamp(max=batch.ids.shape[1] - 1).flatten(1))
            each = self._dspark(said, ids, h, rows, before.view_as(valid)[valid])
        return (each * weight).sum() / weight.sum().clamp(min=1e-6)

    def _dspark(self, said: Labels, ids: Tensor, h: Tensor, rows: Tensor, before: Tensor) -> Tensor:
        """0.1·CE + 0.9·‖draft - target‖₁ + BCE of the confidence against the chance to be accepted (paper §3.3)."""
        assert said.chances is not None, "DSpark is trained on distributions"
        e = F.embedding(before, self.weights["markov_w1.weight"])
        logits = (h @ self.target.head[ids].T + e @ self.weights["markov_w2.weight"][ids].T).float()
        apart = (logits.softmax(-1) - said.chances[rows]).abs().sum(-1)
        hard = F.cross_entropy(logits, said.best[rows], reduction="none")
        sure = self._confidence(h, e)
        accepted = (1 - 0.5 * apart).detach().clamp(0, 1)
        return CE * hard + L1 * apart + F.binary_cross_entropy_with_logits(sure.float(), accepted, reduction="none")

    def _confidence(self, h: Tensor, e: Tensor) -> Tensor:
        read = torch.cat([h, e], -1) if self.spec.confidence_reads_markov else h
        return F.linear(read, self.weights["confidence.weight"], self.weights["confidence.bias"])[..., 0]

    @torch.no_grad()
    def drafts(self, batch: Batch, count: int) -> Tensor:
        """[B, T, count]: what is drafted with the token at a position as the anchor, greedily over all ids."""
        size, found = batch.ids.shape[1], []
        for at in range(0, size, self.anchors):
            anchors = torch.arange(at, min(at + self.anchors, size)).expand(len(batch.ids), -1)
            states = self.fill(batch, anchors)[:, :, :count]
            found.append(self._picked(states, batch.ids.gather(1, anchors)))
        return torch.cat(found, 1)

    def _picked(self, states: Tensor, before: Tensor) -> Tensor:
        if self.spec.mechanism == "dflash":
            return (states @ self.target.head.T).argmax(-1)
        picks = []
        for slot in range(states.shape[2]):
            bias = F.embedding(before, self.weights["markov_w1.weight"]) @ self.weights["markov_w2.weight"].T
            before = (states[:, :, slot] @ self.target.head.T + bias).argmax(-1)
            picks.append(before)
        return torch.stack(picks, -1)

    def head(self, dtype: torch.dtype = torch.bfloat16) -> Head:
        return published(self.spec, self.weights, dtype)

    def save(self, folder: Path, target_name: str) -> None:
        publish(self.head(), folder, target_name)


def seen(anchors: Tensor, width: int, size: int) -> Tensor:
    """[B, 1, A·width, size + A·width]: a slot sees the context before its anchor, the anchor not among it, and the
    whole of its own block."""
    rows, count = anchors.shape
    own = torch.arange(count).repeat_interleave(width)
    context = torch.arange(size) < anchors.repeat_interleave(width, 1)[:, :, None]
    block = (own[:, None] == own).expand(rows, -1, -1)
    return torch.cat([context, block], -1)[:, None]


def dflash(
    target: Frozen,
    taps: tuple[int, ...],
    commonest: Tensor,
    mask_token: int,
    *,
    mechanism: str = "dflash",
    seed: int = 0,
    layers: int = 2,
    block: int = 8,
    anchors: int = 32,
    soft: bool = True,
    markov_rank: int = 64,
) -> Block:
    """Begins as the target's layers behind the highest tap, whose context they then read as the target's would."""
    dice, h = torch.Generator().manual_seed(seed), target.hidden
    low = min(taps[-1], target.layers - layers)
    tensors = {"fc.weight": noise((h, len(taps) * h), 0.02, dice), "norm.weight": target.norm}
    tensors["fc.weight"][:, -h:] += torch.eye(h)
    for index in range(layers):
        tensors |= {f"layers.{index}.{name}": weight for name, weight in target.layer(low + index).items()}
    tensors["hidden_norm.weight"] = tensors["layers.0.input_layernorm.weight"].clone()
    given = {"taps": taps, "layers": layers, "block": block, "mask_token": mask_token}
    if mechanism == "dflash":
        spec = target.spec("dflash", "z-lab", **given)
    else:
        given |= {"anchor_predicts": True, "markov": "vanilla", "markov_rank": markov_rank, "confidence": True}
        spec = target.spec("dspark", "specforge", **given, confidence_reads_markov=True)
        tensors |= {
            "markov_w1.weight": noise((target.vocab, markov_rank), 0.5, dice),
            "markov_w2.weight": torch.zeros(target.vocab, markov_rank),
            "confidence.weight": torch.zeros(1, h + markov_rank),
            "confidence.bias": torch.zeros(1),
        }
    for index in range(layers):
        for which in ("q", "k"):
            tensors.setdefault(f"layers.{index}.self_attn.{which}_norm.weight", torch.ones(spec.head_dim))
    return Block(spec, target, trainable(tensors), commonest, anchors=anchors, soft=soft)
