"""What a learned drafter is once its checkpoint's dialect is gone: one spec, one set of tensor names, one layer.

Tensor names inside: `fc.weight`, `hidden_norm.weight`, `norm.weight`, `embed_tokens.weight`, `lm_head.weight`, `d2t`,
`layers.{i}.` + {input_layernorm, post_attention_layernorm, self_attn.{q,k,v,o}_proj, self_attn.{q,k}_norm,
mlp.{gate,up,down}_proj}, all `.weight` (and `.bias` of q, k, v where the family has them). EAGLE-3 adds `input_norm`
(norm_before_fc), `fc_norm.{k}`; MTP `enorm`, `hnorm`; DSpark `markov_w1`, `markov_w2`, `gate_proj`, `joint_proj`,
`confidence` (weight and bias). What is not in the tensors is the target's (embedding, head).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    made_for: str | None = None
    """The fingerprint of the target it was trained for; None where nobody said."""

    @property
    def parameters(self) -> int:
        return sum(t.numel() for name, t in self.tensors.items() if name != "d2t")


def rms_norm(x: Tensor, weight: Tensor, spec: HeadSpec) -> Tensor:
    scale = 1 + weight.float() if spec.zero_centred else weight
    return F.rms_norm(x, weight.shape, scale.to(x.dtype), spec.eps)


def turning(spec: HeadSpec) -> tuple[Tensor, float]:
    """Inverse frequencies [head_dim / 2] float32, and the factor that cos and sin carry (1 but for YaRN): transformers'
    own rules. Raises for a type whose frequencies change with the length of the row."""
    from types import SimpleNamespace

    from speedbench.native.lean import inverse_frequencies

    kind = spec.rope.get("rope_type", "default")
    if kind == "default" or (kind == "dynamic" and spec.context is not None):
        # Dynamic NTK changes nothing up to max_position_embeddings, and a head does not draft beyond them.
        config: Any = SimpleNamespace(rope_parameters={"rope_theta": spec.rope["rope_theta"]})
        return inverse_frequencies(config, spec.head_dim), 1.0
    if kind not in ("linear", "llama3", "yarn"):
        known = "default, linear, llama3, yarn, and dynamic with its max_position_embeddings"
        raise UserError(f"the drafter's rope type '{kind}' is not supported; {known} are")
    return _stretched(spec, kind)


def _stretched(spec: HeadSpec, kind: str) -> tuple[Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {key: value for key, value in spec.rope.items() if key != "rope_theta"}
    given: dict[str, Any] = {
        "hidden_size": spec.hidden, "num_attention_heads": spec.heads, "head_dim": spec.head_dim,
        "rope_theta": spec.rope["rope_theta"], "rope_scaling": scaling,
    }  # fmt: skip
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if factor and original:  # then nothing is read off the longest sequence; one that fits them spares a log line
        given["max_position_embeddings"] = int(factor * original)
    elif spec.context is not None:
        given["max_position_embeddings"] = spec.context
    try:
        frequencies, length = ROPE_INIT_FUNCTIONS[kind](LlamaConfig(**given), torch.device("cpu"))
    except KeyError as error:
        raise UserError(f"the drafter's rope type '{kind}' lacks settings: {error.args[0]}") from None
    return frequencies, float(length)


class Rotary:
    """The draft's own rotary embedding, from its own base and scaling."""

    def __init__(self, spec: HeadSpec, length: int, dtype: torch.dtype, device: torch.device) -> None:
        frequencies, factor = turning(spec)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        cos, sin = angles.cos() * factor, angles.sin() * factor
        self._cos = torch.cat([cos, cos], -1).to(dtype).to(device)
        self._sin = torch.cat([-sin, sin], -1).to(dtype).to(device)

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

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Output projection of the attention's outcome [B·W, heads·d] and MLP, on top of residual [B, W, H]."""
        h = residual + self._o(mixed).view_as(residual)
        gate, up = self._gate_up(rms_norm(h, self.mlp_norm, self._spec).flatten(0, 1)).chunk(2, -1)
        return h + self._down(F.silu(gate) * up).view_as(h)


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""A layer's index, query [B, W, heads, d], key and value [B, W, kv heads, d], all turned → [B·W, heads·d]."""


def attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """query [B, W, heads, d] over keys, values [B, kv heads, S, d] under an additive mask [B, 1, W, S] →
    [B·W, heads·d]."""
    batch, width, heads, size = query.shape
    kv = keys.shape[1]
    grouped = query.transpose(1, 2).reshape(batch, kv, -1, size)
    seen = None if mask is None else mask.repeat(1, 1, heads // kv, 1)
    mixed = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen)
    return mixed.view(batch, heads, width, size).transpose(1, 2).reshape(batch * width, heads * size)
