"""The tensors of a head by internal name: which there may be, of what shape, and which there must be."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection

from speedbench.native.head import HeadSpec
from speedbench.native.target import Target


def shapes_of(spec: HeadSpec, vocab: int) -> dict[str, tuple[int, ...]]:
    """Every tensor that a head of this spec may have."""
    h, fed = spec.hidden, len(spec.taps) * spec.target_hidden
    shapes: dict[str, tuple[int, ...]] = {
        "norm.weight": (h,),
        "embed_tokens.weight": (vocab, h),
        "lm_head.weight": (spec.vocab, h),
    }
    if spec.mechanism == "mtp":
        shapes |= {"fc.weight": (h, 2 * h), "enorm.weight": (h,), "hnorm.weight": (h,)}
    else:
        shapes |= {"fc.weight": (h, fed), "hidden_norm.weight": (h,)}
    if spec.norm_before_fc:
        shapes["input_norm.weight"] = (fed,)
    if spec.fc_norm:
        shapes |= {f"fc_norm.{k}.weight": (spec.target_hidden,) for k in range(len(spec.taps))}
    for index in range(spec.layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in _layer_shapes(spec).items()}
    return shapes | _markov_shapes(spec, vocab)


def _layer_shapes(spec: HeadSpec) -> dict[str, tuple[int, ...]]:
    h, d = spec.hidden, spec.head_dim
    fed = 2 * h if spec.mechanism == "eagle3" else h
    q, kv = spec.heads * d, spec.kv_heads * d
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (h,),
        "post_attention_layernorm.weight": (h,),
        "self_attn.o_proj.weight": (h, q),
        "self_attn.o_proj.bias": (h,),
        "self_attn.q_norm.weight": (d,),
        "self_attn.k_norm.weight": (d,),
        "mlp.gate_proj.weight": (spec.intermediate, h),
        "mlp.up_proj.weight": (spec.intermediate, h),
        "mlp.down_proj.weight": (h, spec.intermediate),
    }
    for x, rows in (("q", q), ("k", kv), ("v", kv)):
        shapes |= {f"self_attn.{x}_proj.weight": (rows, fed), f"self_attn.{x}_proj.bias": (rows,)}
    return shapes


def _markov_shapes(spec: HeadSpec, vocab: int) -> dict[str, tuple[int, ...]]:
    """DeepSpec `modeling/dspark/markov_head.py` and `common.py`."""
    h, r = spec.hidden, spec.markov_rank
    shapes: dict[str, tuple[int, ...]] = {}
    if spec.markov != "none":
        shapes = {"markov_w1.weight": (vocab, r), "markov_w2.weight": (spec.vocab, r)}
    if spec.markov == "gated":
        shapes |= {"gate_proj.weight": (r, h + r), "gate_proj.bias": (r,)}
    if spec.markov == "rnn":
        shapes |= {"joint_proj.weight": (3 * r, 2 * r + h), "joint_proj.bias": (3 * r,)}
    if spec.confidence:
        shapes |= {"confidence.weight": (1, h + (r if spec.confidence_reads_markov else 0)), "confidence.bias": (1,)}
    return shapes


def needed(spec: HeadSpec, found: Collection[str], needs: Collection[str], target: Target) -> set[str]:
    """The tensors that must be there: a part that one layer has, all have."""
    parts = {"qk_norm": ("q_norm.weight", "k_norm.weight"), "o_bias": ("o_proj.bias",)}
    parts["bias"] = ("q_proj.bias", "k_proj.bias", "v_proj.bias")
    absent = [
        endings
        for part, endings in parts.items()
        if part not in needs and not any(name.endswith(endings) for name in found)
    ]
    wanted = {name for name in shapes_of(spec, target.vocab) if not any(name.endswith(e) for e in absent)}
    reshaped = spec.hidden != target.hidden
    if not reshaped and spec.vocab == target.vocab and "lm_head" not in needs:
        wanted.discard("lm_head.weight")
    if not reshaped:
        wanted.discard("embed_tokens.weight")
    return wanted
