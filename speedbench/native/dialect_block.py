"""DFlash and DSpark heads: z-lab (and SpecForge and ModelOpt, who write the same), speculators and DeepSpec.

The block is the same in all: which slot predicts which token (`shift_label`, `sample_from_anchor`), where the settings
stand and what the Markov tensors are called is not. DeepSpec's "dflash" is its DSpark without a Markov head: its slots
predict the token after theirs (`deepspec/modeling/dspark/qwen3/modeling.py`).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
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
    taps,
    whole,
)
from speedbench.native.dialect_eagle3 import draft_vocabulary
from speedbench.native.head import Head, HeadSpec
from speedbench.native.target import Target

_MARKOV = ("markov_w1.", "markov_w2.", "gate_proj.", "joint_proj.")
NAMES: Names = (
    *((f"{container}{name}", name) for container in ("logit_head.markov_head.", "markov_head.") for name in _MARKOV),
    ("logit_head.confidence_head.proj.", "confidence."),
    ("confidence_head.proj.", "confidence."),
    ("confidence_proj.", "confidence."),
)
"""`markov_head.` is DeepSpec's, SpecForge's and speculators', no prefix ModelOpt's
(`modelopt/torch/speculative/plugins/modeling_dspark.py`), `logit_head.` an early SpecForge
(`specforge/modeling/draft/dflash.py`, normalize_draft_head_checkpoint_keys)."""

_KNOWN = {
    *("target_layer_ids", "mask_token_id", "block_size", "projector_type", "causal", "shift_label", "attention_mode"),
    *("markov_rank", "markov_head_type", "enable_confidence_head", "use_confidence_head"),
    *("confidence_head_with_markov", "use_swa", "swa_window_size", "attention_sink_bias"),
    *("confidence_head_alpha", "num_anchors", "loss_decay_gamma"),  # of training alone
}
"""Keys of `dflash_config` that mean something here."""

_NOT_SERVED = {
    "use_swa": "sliding-window attention",
    "attention_sink_bias": "attention sinks",
    "attention_value_scale": "scaled attention values",
    "input_embedding_scale": "scaled embeddings",
    "output_multiplier": "scaled outputs",
    "final_logit_softcapping": "capped logits",
}
"""Of a config or its `dflash_config`: what newer z-lab heads and Gemma targets have (vLLM `qwen3_dflash.py`)."""


def block(source: Source, target: Target, dialect: str) -> Head:
    """A DFlash or DSpark head; which of the two, its Markov and confidence heads say."""
    body = speculators_body(source) if dialect == "speculators" else source.config
    inner: Mapping[str, Any] = source.config.get("dflash_config") or {}
    _refuse(source, inner)
    same_target(source, "num_target_layers", source.config.get("num_target_layers"), target.layers)
    sizes = dimensions(source, body)
    marks = _speculators(source) if dialect == "speculators" else _others(source, inner, dialect)
    rank, confident = marks["markov_rank"], marks["confidence"]
    layers = whole(source, body, "num_hidden_layers")
    spec = HeadSpec(
        mechanism="dspark" if rank or confident else "dflash",
        dialect=dialect,
        target_hidden=source.config.get("target_hidden_size") or sizes["hidden"],
        layers=layers,
        taps=_taps(source, inner, target, dialect, layers),
        vocab=draft_vocabulary(source, target, 32000 if dialect == "speculators" else None),
        target_vocab=target.vocab,
        **sizes,
        **marks,
        **_block(source, inner, dialect, target),
    )
    needs = {"qk_norm", "bias"} if body.get("attention_bias") else {"qk_norm"}
    names = _names(source, dialect)
    warnings = rope_warnings(source, spec, sizes["context"], target)
    return head(source, target, spec, names, needs=needs, warnings=warnings)


def _names(source: Source, dialect: str) -> Names:
    """The renamings that this checkpoint needs; where a name is missing, the dialect's own is said."""
    used = [pair for pair in NAMES if any(name.removeprefix("model.").startswith(pair[0]) for name in source.tensors)]
    if dialect == "modelopt":
        return [*used, ("confidence_proj.", "confidence.")]
    return [*used, *((f"markov_head.{name}", name) for name in _MARKOV), ("confidence_head.proj.", "confidence.")]


def _refuse(source: Source, inner: Mapping[str, Any]) -> None:
    unknown = sorted(set(inner) - _KNOWN - set(_NOT_SERVED))
    if unknown:
        known = ", ".join(sorted(_KNOWN))
        raise source.refuse(
            f"its 'dflash_config' has a key '{unknown[0]}' that speedbench does not know; it knows {known}"
        )
    for key, what in _NOT_SERVED.items():
        value = inner.get(key) or source.config.get(key)
        if value and (value is True or value != 1.0):
            raise source.refuse(f"it has {what} ('{key}'), which speedbench does not run")
    if inner.get("attention_mode", "gqa") not in ("gqa", "mha"):
        raise source.refuse(f"its attention is '{inner['attention_mode']}' ('dflash_config.attention_mode')")
    masks = next((name for name in source.tensors if "mask_embedding" in name), None)
    if masks:
        raise source.refuse(f"it has a mask embedding of its own (tensor '{masks}')")
    refuse_layers(source, source.tensors)


def _taps(source: Source, inner: Mapping[str, Any], target: Target, dialect: str, layers: int) -> tuple[int, ...]:
    if dialect == "speculators":
        key, ids, shift, lowest = "aux_hidden_state_layer_ids", source.config.get("aux_hidden_state_layer_ids"), 0, 0
    elif dialect == "deepspec":
        key, ids, shift, lowest = "target_layer_ids", source.config.get("target_layer_ids"), 1, -1
    else:
        key, ids, shift, lowest = "dflash_config.target_layer_ids", inner.get("target_layer_ids"), 1, 0
        if ids is None:
            ids = default_ids(target.layers, layers)
    if ids is None:
        raise UserError(f"the config of '{source.name}' lacks '{key}'")
    return taps(source, key, ids, shift, target, lowest)


def default_ids(target_layers: int, draft_layers: int) -> list[int]:
    """z-lab/dflash `dflash/model.py` build_target_layer_ids: evenly from layer 1 to the fourth from the end."""
    if draft_layers == 1:
        return [target_layers // 2]
    return [round(1 + i * (target_layers - 4) / (draft_layers - 1)) for i in range(draft_layers)]


def _block(source: Source, inner: Mapping[str, Any], dialect: str, target: Target) -> dict[str, Any]:
    config = source.config
    size = {"block_size": config.get("block_size", inner.get("block_size", 8 if dialect == "speculators" else None))}
    mask = {"mask_token_id": inner.get("mask_token_id", config.get("mask_token_id"))}
    token = whole(source, mask, "mask_token_id", least=0)
    if token >= target.vocab:
        raise UserError(f"'mask_token_id' of '{source.name}' is {token}; its target has tokens 0 … {target.vocab - 1}")
    # speculators' `sliding_window_non_causal` is about windowed layers alone (0.9.0 `models/dflash/attention.py`)
    causal = bool(inner.get("causal", config.get("is_causal", False)))
    return {"block": whole(source, size, "block_size", least=2), "mask_token": token, "causal": causal}


def _speculators(source: Source) -> dict[str, Any]:
    """vllm-project/speculators 0.9.0 `models/dspark/config.py`, whose defaults these are; a class of its own means it,
    although vLLM's converter (`algos.py` update_dspark) takes a missing `sample_from_anchor` for False."""
    config, dspark = source.config, source.config["speculators_model_type"] == "dspark"
    rank = config.get("markov_rank", 256) if dspark else 0
    confident = dspark and bool(config.get("enable_confidence_head", True))
    return {
        "anchor_predicts": bool(config.get("sample_from_anchor", config.get("shift_label", dspark))),
        **_markov(source, rank, config.get("markov_head_type", "vanilla")),
        "confidence": confident,
        "confidence_reads_markov": confident and bool(rank) and bool(config.get("confidence_head_with_markov", True)),
    }


def _others(source: Source, inner: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    """DeepSpec says everything at the top level, the others in `dflash_config`."""
    config: Mapping[str, Any] = {**source.config, **inner}
    dspark = dialect in ("deepspec", "modelopt", "specforge")
    rank = whole(source, config, "markov_rank", least=0) if dspark else 0
    confident = dspark and bool(config.get("enable_confidence_head", config.get("use_confidence_head", False)))
    with_markov = dialect == "modelopt" or bool(config.get("confidence_head_with_markov", True))
    anchor = True if dialect == "deepspec" else bool(config.get("shift_label", dspark))
    return {
        "anchor_predicts": anchor,
        **_markov(source, rank, config.get("markov_head_type", "vanilla")),
        "confidence": confident,
        "confidence_reads_markov": confident and with_markov and bool(rank),
    }


def _markov(source: Source, rank: int, kind: Any) -> dict[str, Any]:
    kind = str(kind).lower()
    if rank and kind not in ("vanilla", "gated", "rnn"):
        raise source.refuse(f"its Markov head is '{kind}' ('markov_head_type'); vanilla, gated and rnn are served")
    return {"markov": kind if rank else "none", "markov_rank": rank}
