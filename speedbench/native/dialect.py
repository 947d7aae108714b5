"""What every dialect of a drafter's checkpoint needs: its config read with care, its tensors renamed and checked.

A dialect's file says what a checkpoint claims to be (a `HeadSpec`) and how its tensors are named; `head` holds the
claim against the tensors and the target, and no drafter is made of a checkpoint that lacks or adds anything.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.head import Head, HeadSpec
from speedbench.native.shapes import needed, shapes_of
from speedbench.native.target import Target
from speedbench.native.vocabulary import vocabulary_map

Names = Sequence[tuple[str, str]]
"""Beginnings of a dialect's tensor names and what they are called inside; the first that fits counts."""

LLAMA_BASE = 10000.0
"""The rotary base of a config that names none: transformers' LlamaConfig and Qwen3Config."""

_MOE = ("mlp.experts.", "mlp.gate.", "shared_expert", "mixer.experts.", "mixer.gate.")
_MLA = ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")
_SCALES = ("weight_scale", "weight_scale_inv", "input_scale", "qweight", "weight_packed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkpoint as found: what the user calls it, its config, and its tensors under their own names."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def refuse(self, why: str) -> UserError:
        return UserError(f"drafter '{self.name}' is refused: {why}")


# ---- the config ----------------------------------------------------------------------------------------------------


def whole(source: Source, config: Mapping[str, Any], key: str, least: int = 1) -> int:
    """A whole number that must be there."""
    value = config.get(key)
    if value is None:
        raise UserError(f"the config of '{source.name}' lacks '{key}'")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"'{key}' of '{source.name}' should be a whole number from {least} up (got {value!r})")
    return value


def dimensions(source: Source, body: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a spec that a transformers config says; plain SwiGLU layers only."""
    act = body.get("hidden_act", "silu")
    if act not in ("silu", "swish"):
        raise source.refuse(f"its MLP is gated by '{act}' ('hidden_act'); speedbench drafts with silu")
    if source.config.get("quantization_config"):
        raise source.refuse("its weights are quantised ('quantization_config'); speedbench reads plain ones")
    windowed = [kind for kind in body.get("layer_types") or () if kind != "full_attention"]
    if body.get("use_sliding_window") and body.get("sliding_window") and not body.get("layer_types"):
        windowed = ["use_sliding_window"]
    if windowed:
        raise source.refuse(f"its layers have '{windowed[0]}'; speedbench drafts with full attention only")
    hidden, heads = whole(source, body, "hidden_size"), whole(source, body, "num_attention_heads")
    return {
        "hidden": hidden,
        "intermediate": whole(source, body, "intermediate_size"),
        "heads": heads,
        "kv_heads": body.get("num_key_value_heads") or heads,
        "head_dim": body.get("head_dim") or hidden // heads,
        "eps": float(body.get("rms_norm_eps", 1e-6)),
        "rope": rope(source, body),
        "context": body.get("max_position_embeddings"),
    }


def speculators_body(source: Source) -> dict[str, Any]:
    """The layer config of a speculators checkpoint, which leaves out whatever equals its model type's default
    (`to_diff_dict`; Qwen3 where no type is named): vllm-project/speculators 0.9.0 `models/eagle3/config.py`."""
    from transformers import AutoConfig

    raw = source.config.get("transformer_layer_config")
    if not isinstance(raw, dict):
        raise UserError(f"the config of '{source.name}' lacks 'transformer_layer_config'")
    kind = raw.get("model_type", "qwen3")
    try:
        filled = AutoConfig.for_model(kind, **{k: v for k, v in raw.items() if k != "model_type"}).to_dict()
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"transformers knows no layers of type '{kind}', which '{source.name}' has: {error}") from None
    return {**filled, **raw}


def rope(source: Source, body: Mapping[str, Any]) -> dict[str, Any]:
    """The drafter's own rotary settings, whatever its target's."""
    found = _rope(body)
    partial = found.pop("partial_rotary_factor", None) or body.get("partial_rotary_factor") or 1.0
    if partial != 1.0:
        raise source.refuse(f"it turns only a part of each head ('partial_rotary_factor' {partial})")
    return found


def _rope(body: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under any of transformers' names; where two say a base, `rope_parameters` means it (ModelOpt
    `hf_spec_export.py` _get_rope_theta); a config with none has base 10000."""
    parts = body.get("rope_parameters") or {}
    parts = parts.get("full_attention", parts)
    found = {"rope_theta": body.get("rope_theta"), **(body.get("rope_scaling") or {}), **parts}
    found = {key: value for key, value in found.items() if value is not None}
    kind = found.pop("type", None)
    found.setdefault("rope_type", kind or "default")
    found["rope_theta"] = float(found.get("rope_theta", LLAMA_BASE))
    return found


def rope_warnings(source: Source, spec: HeadSpec, positions: int | None, target: Target) -> tuple[str, ...]:
    """What the drafter's positions have other than the target's; it may be meant so, and then nothing is wrong."""
    theirs = _rope(target.config.to_dict())
    pairs = [
        ("rotary base (rope_theta)", spec.rope["rope_theta"], theirs["rope_theta"]),
        ("rotary scaling", _scaling(spec.rope), _scaling(theirs)),
        ("longest sequence (max_position_embeddings)", positions, target.context),
    ]
    return tuple(
        f"the drafter '{source.name}' has {what} {own}, its target {other}: right only if it was trained so"
        for what, own, other in pairs
        if own != other and None not in (own, other)
    )


def _scaling(settings: Mapping[str, Any]) -> str:
    """Type and numbers of a rotary scaling, in one order: 'default', 'llama3 factor=8.0 …'."""
    rest = (f"{key}={settings[key]}" for key in sorted(settings) if key not in ("rope_theta", "rope_type"))
    return " ".join([str(settings["rope_type"]), *rest])


def taps(source: Source, key: str, ids: Any, shift: int, target: Target, lowest: int = 0) -> tuple[int, ...]:
    """Layer ids → transformers' hidden_states index. `shift` 1: id i is the output of layer i, hidden_states[i+1]."""
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise UserError(f"'{key}' of '{source.name}' should be a list of layer numbers (got {ids!r})")
    top = target.layers - 1 - shift
    for i in ids:
        if not lowest <= i <= top:
            raise UserError(
                f"'{key}' of '{source.name}' names layer {i}; of this target's {target.layers} layers a drafter may "
                f"read {lowest} … {top}: another target's drafter?"
            )
    if ids != sorted(set(ids)):
        raise UserError(f"'{key}' of '{source.name}' should go up, each layer once (got {ids})")
    return tuple(i + shift for i in ids)


def same_target(source: Source, key: str, got: int | None, wanted: int) -> None:
    if got is not None and got != wanted:
        raise UserError(
            f"the drafter '{source.name}' was made for another target: its '{key}' is {got}, this target's {wanted}"
        )


# ---- the tensors ---------------------------------------------------------------------------------------------------


def renamed(source: Source, names: Names) -> dict[str, str]:
    """Internal name → the checkpoint's own, without what only training needs. A leading `model.` counts for nothing."""
    found: dict[str, str] = {}
    for own in source.tensors:
        bare = own.removeprefix("model.")
        if bare == "t2d" or "rotary_emb." in bare or bare.startswith("verifier_"):
            continue
        fits = ((old, new, name) for old, new in names for name in (own, bare) if name.startswith(old))
        inside = next((new + name[len(old) :] for old, new, name in fits), bare)
        if inside in found:
            raise UserError(f"'{source.name}' holds tensors '{found[inside]}' and '{own}', two names of one")
        found[inside] = own
    return found


def outside(inside: str, names: Names) -> str:
    """What a dialect calls an internal name."""
    return next((old + inside[len(new) :] for old, new in names if inside.startswith(new)), inside)


def refuse_layers(source: Source, names: Collection[str]) -> None:
    """Raise for layers that are no plain attention and MLP."""
    for marks, what in (
        (_MOE, "its MLP is a mixture of experts"),
        (_MLA, "its attention is latent (MLA)"),
        (_SCALES, "its weights are quantised"),
    ):
        found = next((name for name in names if any(mark in name for mark in marks)), None)
        if found:
            raise source.refuse(f"{what} (tensor '{found}'); speedbench drafts with plain dense layers")


def head(
    source: Source,
    target: Target,
    spec: HeadSpec,
    names: Names,
    *,
    needs: Collection[str] = (),
    warnings: Sequence[str] = (),
    drop: Collection[str] = (),
) -> Head:
    """The head, if the checkpoint holds what its spec says and nothing else.

    `needs` names optional parts that this dialect always has: `qk_norm`, `bias`, `lm_head`; `drop` internal names that
    are the target's own.
    """
    same_target(source, "target_hidden_size", spec.target_hidden, target.hidden)
    found = {inside: own for inside, own in renamed(source, names).items() if inside not in drop}
    refuse_layers(source, found.values())
    shapes = shapes_of(spec, target.vocab)
    for inside in sorted(needed(spec, found, needs, target)):
        if inside not in found:
            raise UserError(f"the drafter '{source.name}' lacks tensor '{outside(inside, names)}'")
    for inside, own in found.items():
        if inside not in shapes and inside != "d2t":
            raise UserError(f"the drafter '{source.name}' has a tensor '{own}' that a {spec.dialect} head has not")
    tensors = {inside: _checked(source, own, shapes[inside], spec) for inside, own in found.items() if inside in shapes}
    t2d = source.tensors.get("t2d")
    d2t = source.tensors[found["d2t"]] if "d2t" in found else None
    offsets, told = vocabulary_map(source.name, d2t, t2d, spec.vocab, target.vocab)
    if offsets is not None:
        tensors["d2t"] = offsets
    return Head(spec, tensors, (*warnings, *told), _made_for(source))


OWN_KEY = "speedbench"
"""Of a config: what only this program reads. Other readers keep keys that they do not know."""


def _made_for(source: Source) -> str | None:
    """What publish.py's stamp wrote, if it did."""
    own = source.config.get(OWN_KEY)
    found = own.get("target_fingerprint") if isinstance(own, dict) else None
    return found if isinstance(found, str) else None


def _checked(source: Source, own: str, shape: tuple[int, ...], spec: HeadSpec) -> Tensor:
    tensor = source.tensors[own]
    got = tuple(tensor.shape)
    if own.endswith("q_proj.weight") and got[0] == 2 * shape[0]:
        raise source.refuse(f"its attention has an output gate ('{own}' has twice the rows); speedbench has none")
    if got != shape:
        raise UserError(f"tensor '{own}' of the drafter '{source.name}' is {list(got)}; it should be {list(shape)}")
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        raise source.refuse(f"tensor '{own}' is {tensor.dtype}: quantised weights; speedbench reads plain ones")
    return tensor
