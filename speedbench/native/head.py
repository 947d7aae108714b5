"""What a learned drafter is once its checkpoint's dialect is gone: one spec, one set of tensor names, one layer.

Tensor names inside: `fc.weight`, `hidden_norm.weight`, `norm.weight`, `embed_tokens.weight`, `lm_head.weight`, `d2t`,
`layers.{i}.` + {input_layernorm, post_attention_layernorm, self_attn.{q,k,v,o}_proj, self_attn.{q,k}_norm,
mlp.{gate,up,down}_proj}, all `.weight` (and `.bias` of q, k, v where the family has them). EAGLE-3 adds `input_norm`
(norm_before_fc), `fc_norm.{k}`; MTP `enorm`, `hnorm`; DSpark `markov_w1`, `markov_w2`, `gate_proj`, `joint_proj`,
`confidence` (weight and bias). What is not in the tensors is the target's (embedding, head).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.packed import linear

Mechanism = Literal["eagle3", "mtp", "dflash", "dspark"]
Markov = Literal["none", "vanilla", "gated", "rnn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """A head's shape and habits, whichever dialect said so."""

    mechanism: Mechanism
    dialect: str
    """Who wrote it: eagle, specforge, speculators, modelopt, deepspec, z-lab, deepseek, qwen3-next, mimo, nemotron."""
    hidden: int
    target_hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    eps: float
    taps: tuple[int, ...]
    """Hidden states of the target it reads, by transformers' index (0: embeddings; its last: after the norm)."""
    vocab: int
    """Rows of its logits: the draft vocabulary, which d2t maps into the target's."""
    target_vocab: int | None = None
    """Rows of the target's; None: the same."""
    rope: Mapping[str, Any] = field(default_factory=lambda: {"rope_theta": 10000.0})
    """The draft's own, as transformers' `rope_parameters`."""
    context: int | None = None
    """Positions it was made for; None: no limit of its own."""
    zero_centred: bool = False
    """RMSNorm scales are 1 + weight (Qwen3-Next, Qwen3.5)."""
    # EAGLE-3 and MTP
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    recycle_normed: bool = False
    """Whether the next step reads the output after the last norm (MTP, EAGLE-3.1) or before it (EAGLE-3)."""
    embedding_first: bool = True
    """MTP's fusion: [embedding ; hidden], or the other way round (MiMo)."""
    zero_first_embedding: bool = False
    """DeepSeek and MiMo zero the embedding of the token at position 0's pair."""
    # DFlash and DSpark
    block: int | None = None
    """Slots of a block, the anchor's included."""
    anchor_predicts: bool = False
    """True: slot k predicts the token after its position, so D = block; False: slot 0 is thrown away, D = block - 1."""
    mask_token: int | None = None
    causal: bool = False
    """Whether a block's slots see only slots before them."""
    markov: Markov = "none"
    markov_rank: int = 0
    confidence: bool = False
    confidence_reads_markov: bool = False

    @property
    def longest(self) -> int | None:
        """The longest D it may be asked for; None: any."""
        if self.block is None:
            return None
        return self.block if self.anchor_predicts else self.block - 1


@dataclass(frozen=True, slots=True)
class Head:
    """A checkpoint as loaded: its spec, its tensors under the names above, and what the user should know."""

    spec: HeadSpec
    tensors: Mapping[str, Tensor]
    warnings: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        return sum(t.numel() for name, t in self.tensors.items() if name != "d2t")


def rms_norm(x: Tensor, weight: Tensor, spec: HeadSpec) -> Tensor:
    scale = 1 + weight.float() if spec.zero_centred else weight
    return F.rms_norm(x, weight.shape, scale.to(x.dtype), spec.eps)


class Rotary:
    """The draft's own rotary embedding, from its own base and scaling."""

    def __init__(self, spec: HeadSpec, length: int, dtype: torch.dtype, device: torch.device) -> None:
        from types import SimpleNamespace

        from speedbench.native.lean import inverse_frequencies

        kind = spec.rope.get("rope_type", "default")
        if kind not in ("default", "linear", "llama3"):
            raise UserError(f"the drafter's rope type '{kind}' is not supported; default, linear and llama3 are")
        config = SimpleNamespace(rope_parameters=dict(spec.rope))
        angles = torch.outer(torch.arange(length).float(), inverse_frequencies(config, spec.head_dim))
        self._cos = torch.cat([angles.cos()] * 2, -1).to(dtype).to(device)
        self._sin = torch.cat([-angles.sin(), angles.sin()], -1).to(dtype).to(device)

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [B, W, heads, head_dim] turned by positions [B, W]."""
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Layer:
    """One decoder layer of a head; attention itself is the caller's, who knows what may be seen."""

    def __init__(self, head: Head, index: int, dtype: torch.dtype, device: torch.device) -> None:
        self._spec = head.spec

        def get(name: str) -> Tensor:
            return head.tensors[f"layers.{index}.{name}"].to(device=device, dtype=dtype)

        def maybe(name: str) -> Tensor | None:
            return get(name) if f"layers.{index}.{name}" in head.tensors else None

        self.input_norm, self.mlp_norm = get("input_layernorm.weight"), get("post_attention_layernorm.weight")
        self._q_norm, self._k_norm = maybe("self_attn.q_norm.weight"), maybe("self_attn.k_norm.weight")
        self._q, self._k, self._v = (
            linear(get(f"self_attn.{x}_proj.weight"), maybe(f"self_attn.{x}_proj.bias")) for x in "qkv"
        )
        self._o = linear(get("self_attn.o_proj.weight"), maybe("self_attn.o_proj.bias"))
        self._gate_up = linear(torch.cat([get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")]))
        self._down = linear(get("mlp.down_proj.weight"))

    def query(self, z: Tensor) -> Tensor:
        """z [B, W, in] → [B, W, heads, head_dim], normed where the family norms it, not yet turned."""
        q = self._q(z.flatten(0, 1)).view(*z.shape[:2], self._spec.heads, self._spec.head_dim)
        return q if self._q_norm is None else rms_norm(q, self._q_norm, self._spec)

    def key_value(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z [B, W, in] → key and value [B, W, kv heads, head_dim], the key not yet turned."""
        shape = (*z.shape[:2], self._spec.kv_heads, self._spec.head_dim)
        k, v = self._k(z.flatten(0, 1)).view(shape), self._v(z.flatten(0, 1)).view(shape)
        return (k if self._k_norm is None else rms_norm(k, self._k_norm, self._spec)), v

    def finish(self, residual: Tensor, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of query [B, W, heads, d] over keys, values [B, kv heads, S, d] under an additive mask
        [B, 1, W, S], then output projection and MLP on top of residual [B, W, H]."""
        batch, width, heads, size = query.shape
        kv = keys.shape[1]
        grouped = query.transpose(1, 2).reshape(batch, kv, -1, size)
        seen = None if mask is None else mask.repeat(1, 1, heads // kv, 1)
        mixed = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen)
        mixed = mixed.view(batch, heads, width, size).transpose(1, 2).reshape(batch * width, heads * size)
        h = residual + self._o(mixed).view_as(residual)
        gate, up = self._gate_up(rms_norm(h, self.mlp_norm, self._spec).flatten(0, 1)).chunk(2, -1)
        return h + self._down(F.silu(gate) * up).view_as(h)
