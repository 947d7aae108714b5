"""EAGLE-3 heads as the EAGLE repo, SpecForge, speculators, ModelOpt and DeepSpec write them.

Layer ids: speculators stores transformers' hidden_states index, as vLLM's `set_aux_hidden_state_layers` takes it;
SpecForge, ModelOpt and DeepSpec store i for the output of layer i (SGLang `srt/models/llama.py` adds one); the EAGLE
repo stores none and taps the inputs of layers 2, L//2 and L-3 (`eagle/model/modeling_llama_kv.py`).
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
    renamed,
    rope_warnings,
    speculators_body,
    taps,
)
from speedbench.native.head import Head, HeadSpec
from speedbench.native.target import Target

_MIDLAYER: Names = (("midlayer.hidden_norm.", "hidden_norm."), ("midlayer.", "layers.0."))
"""The EAGLE repo's and SpecForge's."""
_LAYERS: Names = (("layers.0.hidden_norm.", "hidden_norm."),)
"""The others'."""
_AUX: Names = (("aux_norm_low.", "fc_norm.0."), ("aux_norm_mid.", "fc_norm.1."), ("aux_norm_high.", "fc_norm.2."))
"""An early SpecForge's."""

_TRAINED_OTHERWISE = {
    "use_aux_hidden_state": (True, "it reads the last hidden state only, as EAGLE-1 does"),
    "use_input_layernorm_in_first_layer": (True, "its first layer has no input norm"),
    "use_last_layernorm": (True, "it has no last norm"),
    "use_mtp_layernorm": (False, "it has the norms of an MTP head"),
    "eh_proj_before_attn": (False, "it projects before attention"),
    "parallel_draft_step": (1, "it drafts several tokens in parallel with Medusa-like heads"),
}
"""Keys of ModelOpt's `eagle_config` (`modelopt/torch/export/plugins/hf_spec_export.py`) and what is served."""


def eagle3(source: Source, target: Target, dialect: str) -> Head:
    config = source.config
    body = speculators_body(source) if dialect == "speculators" else config
    inner: Mapping[str, Any] = config.get("eagle_config") or {}
    _refuse(source, body, inner)

    def flag(*keys: str) -> bool:
        return any(bool(config.get(key, inner.get(key, False))) for key in keys)

    sizes = dimensions(source, body)
    positions = sizes["context"]
    if dialect == "eagle":
        sizes["context"] = None  # 2048 in every config of theirs is the length of a cache, not a limit
    spec = HeadSpec(
        mechanism="eagle3",
        dialect=dialect,
        target_hidden=config.get("target_hidden_size") or sizes["hidden"],
        layers=1,
        taps=_taps(source, inner, target, dialect),
        vocab=draft_vocabulary(source, target, 32000 if dialect == "speculators" else None),
        target_vocab=target.vocab,
        norm_before_residual=flag("norm_before_residual"),
        norm_before_fc=flag("norm_before_fc"),
        fc_norm=flag("fc_norm", "use_aux_norm"),
        recycle_normed=flag("norm_output", "return_hidden_post_norm"),
        **sizes,
    )
    needs = {"lm_head"} if dialect != "modelopt" else set()
    if dialect == "deepspec" or (dialect == "speculators" and body.get("model_type") == "qwen3"):
        needs.add("qk_norm")
    if body.get("attention_bias"):
        needs.add("bias")
    warnings = rope_warnings(source, spec, positions, target)
    return head(source, target, spec, _names(source), needs=needs, warnings=warnings)


def _names(source: Source) -> Names:
    """The renamings of this checkpoint, so that a name it lacks is said as it would have it."""
    present = [name.removeprefix("model.") for name in source.tensors]
    midlayer = any(name.startswith("midlayer.") for name in present)
    kept = _MIDLAYER if midlayer else _LAYERS
    return (*kept, *(pair for pair in _AUX if any(name.startswith(pair[0]) for name in present)))


def draft_vocabulary(source: Source, target: Target, missing: int | None = None) -> int:
    """Rows of the head's logits: as the config says, else its own head, else the target's. `missing` is what a dialect
    means by saying nothing."""
    stated = source.config.get("draft_vocab_size", missing)
    if stated is None:
        own = renamed(source, ()).get("lm_head.weight")
        return int(source.tensors[own].shape[0]) if own else target.vocab
    if not isinstance(stated, int) or not 1 <= stated <= target.vocab:
        raise UserError(
            f"'draft_vocab_size' of '{source.name}' should be a number of tokens, at most the {target.vocab} of its "
            f"target (got {stated!r})"
        )
    return stated


def _refuse(source: Source, body: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
    for key, (served, why) in _TRAINED_OTHERWISE.items():
        if inner.get(key, served) not in (served, None):
            raise source.refuse(f"{why} ('eagle_config.{key}' is {inner[key]})")
    second = next((name for name in source.tensors if "layers.1." in name), None)
    if body.get("num_hidden_layers", 1) != 1 or second:
        what = f"tensor '{second}'" if second else f"'num_hidden_layers' is {body['num_hidden_layers']}"
        raise source.refuse(f"it has more than one EAGLE-3 layer ({what}); speedbench drafts with one")
    refuse_layers(source, source.tensors)


def _taps(source: Source, inner: Mapping[str, Any], target: Target, dialect: str) -> tuple[int, ...]:
    if dialect == "deepspec":
        ids = source.config.get("target_layer_ids")
        if ids is None:
            raise UserError(f"the config of '{source.name}' lacks 'target_layer_ids'")
        return taps(source, "target_layer_ids", ids, 1, target, lowest=-1)
    key = "eagle_aux_hidden_state_layer_ids"
    if dialect == "speculators":
        found, shift, where = source.config.get(key), 0, key
    else:
        found, shift, where = inner.get(key), 1, f"eagle_config.{key}"
    if found:
        return taps(source, where, found, shift, target)
    layers = target.layers
    default = [2, layers // 2, layers - 3]
    if layers < 7:
        raise UserError(f"'{source.name}' names no layers; the usual {default} of {layers} layers are not three")
    return tuple(default)
