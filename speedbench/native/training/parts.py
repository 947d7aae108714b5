"""What learners are made of: the target's frozen weights, decoder layers that can be differentiated, and labels.

The layers compute what `native/head.py` computes, from tensors of the same names; there the weights are packed.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native import weights
from speedbench.native.head import Head, HeadSpec, Mechanism, Rotary
from speedbench.native.lean import fits, rope
from speedbench.native.training.shards import Batch

Weights = dict[str, Tensor]


class Frozen:
    """A Llama-like target as a learner needs it, in float32: embedding, head, last norm, and layers to start from."""

    def __init__(self, config: Any, tensors: Mapping[str, Tensor]) -> None:
        why = fits(config)
        if why:
            raise UserError(f"heads are trained for targets of the Llama family only: {why}")
        self.config, self._tensors = config, tensors
        self.layers, self.hidden, self.vocab = config.num_hidden_layers, config.hidden_size, config.vocab_size
        self.embedding = tensors["model.embed_tokens.weight"].float()
        self.head = self.embedding if config.tie_word_embeddings else tensors["lm_head.weight"].float()
        self.norm = tensors["model.norm.weight"].float()

    def layer(self, index: int) -> Weights:
        """A copy of a decoder layer, its tensors named as in a head: `input_layernorm.weight`, …"""
        prefix = f"model.layers.{index}."
        names = [name for name in self._tensors if name.startswith(prefix) and name.endswith((".weight", ".bias"))]
        return {name.removeprefix(prefix): self._tensors[name].float().clone() for name in names}

    def spec(self, mechanism: Mechanism, dialect: str, **given: Any) -> HeadSpec:
        """A head of the target's own shape."""
        config = self.config
        heads = config.num_attention_heads
        shape: dict[str, Any] = {
            "hidden": self.hidden, "target_hidden": self.hidden, "intermediate": config.intermediate_size,
            "heads": heads, "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or self.hidden // heads, "layers": 1,
            "eps": config.rms_norm_eps, "vocab": self.vocab, "target_vocab": self.vocab, "rope": rope(config),
            "context": config.max_position_embeddings,
        }  # fmt: skip
        return HeadSpec(mechanism=mechanism, dialect=dialect, **{**shape, **given})


def frozen(home: Path) -> Frozen:
    from transformers import AutoConfig

    return Frozen(AutoConfig.from_pretrained(home), weights.Tensors(home))


def noise(shape: tuple[int, ...], scale: float, dice: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=dice) * scale


def trainable(tensors: Mapping[str, Tensor]) -> Weights:
    return {name: tensor.clone().contiguous().requires_grad_() for name, tensor in tensors.items()}


def published(spec: HeadSpec, tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> Head:
    """A head as it is shipped; the map of a reduced vocabulary stays integers."""
    kept = {name: t.detach().to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
    return Head(spec, kept)


class Stack:
    """The decoder layers of a learner, over tensors [B, T, …]; attention is the caller's."""

    def __init__(self, spec: HeadSpec, tensors: Weights, length: int) -> None:
        self._spec, self.weights = spec, tensors
        self._rotary = Rotary(spec, length, torch.float32, torch.device("cpu"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.rms_norm(x.float(), weight.shape, weight, self._spec.eps)

    def product(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def query(self, index: int, z: Tensor, positions: Tensor) -> Tensor:
        """[B, T, in] → [B, heads, T, head_dim], turned."""
        return self._turned(index, "q", z, self._spec.heads, positions)

    def key_value(self, index: int, z: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T, in] → two of [B, heads, T, head_dim], each key head repeated for the query heads that read it."""
        spec = self._spec
        group = spec.heads // spec.kv_heads
        value = self.product(f"layers.{index}.self_attn.v_proj", z).view(*z.shape[:2], spec.kv_heads, spec.head_dim)
        key = self._turned(index, "k", z, spec.kv_heads, positions)
        return key.repeat_interleave(group, 1), value.transpose(1, 2).repeat_interleave(group, 1)

    def _turned(self, index: int, which: str, z: Tensor, heads: int, positions: Tensor) -> Tensor:
        name = f"layers.{index}.self_attn.{which}"
        x = self.product(f"{name}_proj", z).view(*z.shape[:2], heads, self._spec.head_dim)
        if f"{name}_norm.weight" in self.weights:
            x = self.norm(f"{name}_norm", x)
        return self._rotary(x.float(), positions).transpose(1, 2)

    def finish(self, index: int, residual: Tensor, mixed: Tensor) -> Tensor:
        """mixed [B, heads, T, head_dim] through the output projection and the MLP on top of residual [B, T, H]."""
        name = f"layers.{index}."
        flat = mixed.transpose(1, 2).flatten(2)
        h = residual + self.product(f"{name}self_attn.o_proj", flat)
        z = self.norm(f"{name}post_attention_layernorm", h)
        gate, up = self.product(f"{name}mlp.gate_proj", z), self.product(f"{name}mlp.up_proj", z)
        return h + self.product(f"{name}mlp.down_proj", F.silu(gate) * up)


@dataclass(slots=True)
class Labels:
    """The target's say about every answer token of a batch, over some of its ids."""

    rows: Tensor
    """[B, T] int64: the row that judges the token at a position; -1 where it is no answer's."""
    best: Tensor
    """[M] int64: the target's argmax as an index into the ids; -1 where it is none of them."""
    chances: Tensor | None
    """[M, ids]: the target's probabilities, made to sum to 1 over the ids; None with hard labels."""

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [B, …] → rows of the same shape, and whether each is a label that the ids can say."""
        last = self.rows.shape[1] - 1
        found = self.rows.gather(1, positions.clamp(0, last).flatten(1)).view_as(positions)
        found = found.masked_fill((positions < 0) | (positions > last), -1)
        return found, (found >= 0) & (self.best[found.clamp(min=0)] >= 0)

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """[N] cross-entropy of logits [N, ids] against the labels of rows [N]."""
        scores = logits.float().log_softmax(-1)
        if self.chances is None:
            return F.nll_loss(scores, self.best[rows], reduction="none")
        return -(self.chances[rows] * scores).sum(-1)


@torch.no_grad()
def labels(batch: Batch, target: Frozen, ids: Tensor, *, soft: bool) -> Labels:
    """The token at position p is judged by the target's last state at p - 1."""
    at = torch.arange(batch.ids.shape[1])
    is_answer = (at >= batch.answers[:, None]) & (at < batch.lengths[:, None])
    rows = torch.full_like(batch.ids, -1)
    rows[is_answer] = torch.arange(int(is_answer.sum()))
    before = is_answer.roll(-1, 1)
    index = torch.full((target.vocab,), -1, dtype=torch.int64)
    index[ids] = torch.arange(len(ids))
    chances = (batch.states[target.layers][before] @ target.head[ids].T).softmax(-1) if soft else None
    return Labels(rows, index[batch.best[before]], chances)


def wide(batch: Batch, commonest: Tensor) -> Tensor:
    """The ids a loss is computed over where the head has all: the commonest and those of this batch."""
    found: Tensor = torch.unique(torch.cat([commonest, batch.ids.flatten(), batch.best.flatten()]))
    return found
