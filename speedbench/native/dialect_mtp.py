"""MTP heads: those inside a target's own checkpoint, and speculators' of their own.

transformers drops a target's MTP tensors on loading (`_keys_to_ignore_on_load_unexpected`), so they are read from its
safetensors. Names after vLLM's `deepseek_mtp.py`, `glm4_moe_mtp.py`, `qwen3_next_mtp.py`, `mimo_mtp.py`,
`nemotron_h_mtp.py` and vllm-project/speculators `convert/mtp/converter.py`. All recycle the state after the last norm.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speedbench.errors import UserError
from speedbench.native.dialect import (
    Names,
    Source,
    dimensions,
    head,
    refuse_layers,
    rope_warnings,
    same_target,
    speculators_body,
)
from speedbench.native.head import Head, HeadSpec
from speedbench.native.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one family names its MTP tensors, and what it does with them."""

    dialect: str
    prefix: str
    """What its tensors begin with."""
    names: Names
    embedding_first: bool = True
    zero_first_embedding: bool = False


def _mimo(dialect: str, prefix: str, **habits: bool) -> Layout:
    """MiMo's names, which speculators took over."""
    parts = [("input_proj.", "fc."), ("token_layernorm.", "enorm."), ("hidden_layernorm.", "hnorm.")]
    parts += [("final_layernorm.", "norm."), ("", "layers.0.")]
    return Layout(dialect=dialect, prefix=prefix, names=tuple((prefix + old, new) for old, new in parts), **habits)


SPECULATORS = _mimo("speculators", "mtp_layers.0.")
"""[embedding ; hidden] in every release (0.6.0 to 0.9.0 `models/mtp/model_definitions.py`), as in Qwen3-Next, whose
`mtp.fc` its converter copies as it is; only commits before the first release had them the other way round."""

_MIMO = _mimo("mimo", "model.mtp_layers.0.", embedding_first=False, zero_first_embedding=True)
_QWEN = Layout(
    dialect="qwen3-next",
    prefix="mtp.",
    names=(
        ("mtp.fc.", "fc."),
        ("mtp.pre_fc_norm_embedding.", "enorm."),
        ("mtp.pre_fc_norm_hidden.", "hnorm."),
        ("mtp.norm.", "norm."),
        ("mtp.layers.0.", "layers.0."),
    ),
)


def _deepseek(layers: int) -> Layout:
    """DeepSeek's and GLM's: one decoder layer more than the config counts. Its embedding and head are the target's
    again (transformers `modeling_layers.py` MtpModel ignores them)."""
    at = f"model.layers.{layers}."
    parts = [("enorm.", "enorm."), ("hnorm.", "hnorm."), ("eh_proj.", "fc."), ("shared_head.norm.", "norm.")]
    parts += [("embed_tokens.", "embed_tokens."), ("shared_head.head.", "lm_head."), ("", "layers.0.")]
    names = [(at + old, new) for old, new in parts]
    return Layout(dialect="deepseek", prefix=at, names=names, zero_first_embedding=True)


def _nemotron(source: Source, config: Mapping[str, Any]) -> Layout:
    """One physical layer a character of the pattern: '*' attention, '-' MLP, 'E' experts, 'M' Mamba."""
    pattern = config.get("mtp_hybrid_override_pattern", "*-")
    if pattern != "*-":
        raise source.refuse(
            f"its MTP layers are '{pattern}' ('mtp_hybrid_override_pattern'; E is a mixture of experts, M Mamba); "
            "speedbench drafts with '*-', attention and a dense MLP"
        )
    if "mtp.layers.1.mixer.gate_proj.weight" not in source.tensors:
        raise source.refuse("its MTP layer's MLP has no gate (tensor 'mtp.layers.1.mixer.gate_proj.weight')")
    first, last = "mtp.layers.0.", "mtp.layers.1."
    parts = [(first + "eh_proj.", "fc."), (first + "enorm.", "enorm."), (first + "hnorm.", "hnorm.")]
    parts += [(first + "norm.", "layers.0.input_layernorm."), (first + "mixer.", "layers.0.self_attn.")]
    parts += [(last + "norm.", "layers.0.post_attention_layernorm."), (last + "mixer.", "layers.0.mlp.")]
    parts += [(last + "final_layernorm.", "norm.")]
    return Layout(dialect="nemotron", prefix="mtp.layers.", names=parts)


def _layout(source: Source, config: Mapping[str, Any], layers: int) -> Layout | None:
    """The family whose tensors are there."""
    deepseek = _deepseek(layers)
    if any(name.startswith(deepseek.prefix) for name in source.tensors):
        return deepseek
    if any(name.startswith("mtp.layers.") and ".mixer." in name for name in source.tensors):
        return _nemotron(source, config)
    for layout in (_QWEN, _MIMO, SPECULATORS):
        if any(name.startswith(layout.prefix) for name in source.tensors):
            return layout
    return None


def has_mtp(source: Source) -> bool:
    """Whether a checkpoint holds an MTP head beside its target."""
    config = source.config.get("text_config") or source.config
    marks = (f"model.layers.{config.get('num_hidden_layers')}.", "mtp.", "model.mtp_layers.", "mtp_layers.")
    return any(name.startswith(marks) for name in source.tensors)


def built_in(source: Source, target: Target) -> Head:
    """The MTP head inside a target's own checkpoint; its layers are those of the target's family."""
    config = source.config.get("text_config") or source.config
    layers = config.get("num_hidden_layers", target.layers)
    layout = _layout(source, config, layers)
    if layout is None:
        raise UserError(f"'{source.name}' holds no MTP tensors; models with an MTP head have 'mtp.*' or a layer more")
    same_target(source, "num_hidden_layers", layers, target.layers)
    names = [name for name in source.tensors if name.startswith(layout.prefix) and not _OTHER_MODULE.match(name)]
    refuse_layers(source, names)
    part = Source(name=source.name, config=source.config, tensors={name: source.tensors[name] for name in names})
    return _head(part, target, {**config, "layer_types": None}, layout, _several(config))


def speculators(source: Source, target: Target) -> Head:
    """A checkpoint that is an MTP head and nothing else."""
    if source.config.get("num_nextn_predict_layers", 1) != 1:
        raise source.refuse("it has more than one MTP module ('num_nextn_predict_layers')")
    return _head(source, target, speculators_body(source), SPECULATORS)


_OTHER_MODULE = re.compile(r"mtp\.layers\.[1-9]\d*\.(?!mixer|norm|final_layernorm)")
"""A further module of Qwen3-Next's layout, whose every module is one layer; Nemotron's second layer is of the first."""


def _several(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Engines use the first module again and again when D asks for more (vLLM `config/speculative.py`)."""
    count = config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers") or 1
    return (f"the target has {count} MTP modules; the first drafts every token",) if count > 1 else ()


def _head(
    source: Source, target: Target, config: Mapping[str, Any], layout: Layout, warnings: tuple[str, ...] = ()
) -> Head:
    family = str(config.get("model_type", ""))
    sizes = dimensions(source, config)
    spec = HeadSpec(
        mechanism="mtp",
        dialect=layout.dialect,
        target_hidden=sizes["hidden"],
        layers=1,
        taps=(target.layers,),
        vocab=target.vocab,
        target_vocab=target.vocab,
        zero_centred=family.startswith(("qwen3_next", "qwen3_5")),
        recycle_normed=True,
        embedding_first=layout.embedding_first,
        zero_first_embedding=layout.zero_first_embedding,
        **sizes,
    )
    needs = {"qk_norm"} if family.startswith("qwen3") or config.get("use_qk_norm") else set()
    if config.get("attention_bias") or family in ("qwen2", "mimo"):
        needs.add("bias")
    drop = () if layout is SPECULATORS else ("embed_tokens.weight", "lm_head.weight")
    told = (*warnings, *rope_warnings(source, spec, sizes["context"], target))
    return head(source, target, spec, layout.names, needs=needs, warnings=told, drop=drop)
