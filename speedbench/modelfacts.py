"""A model's shapes out of its config: what its weights and its cache weigh, and how many query heads share an entry."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speedbench.content import folder
from speedbench.errors import Missing, UnknownName, UserError, first_line
from speedbench.types import Mixture, ModelFacts

if TYPE_CHECKING:
    from importlib.abc import Traversable

_PATTERN = {"*": "full_attention", "M": "mamba", "E": "moe", "-": "mlp"}
"""Nemotron-H's letters; there a layer is a mixer or an MLP, never both."""

_STRANGE = ("compress_ratios", "index_topk", "hybrid_layer_pattern")
"""Keys of attention that reads a chosen part of its context: counted as full, it would be priced far too high."""

_FULL = {"full_attention", "attention"}
_WINDOWED = {"sliding_attention", "chunked_attention"}
_RECURRENT = {"linear_attention", "mamba"}
_MLP = {"moe", "mlp"}

_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625}
"""Of a weight; four-bit formats carry a scale of a byte for every sixteen."""

DTYPES = tuple(_BYTES)


def shipped() -> tuple[str, ...]:
    """The models whose shapes come with speedbench."""
    return tuple(sorted(x.name.removesuffix(".json") for x in folder("models").iterdir() if x.name.endswith(".json")))


def load(name: str) -> ModelFacts:
    """A shipped model, a JSON file, a folder with a config.json, or a model of the hub.

    Raises `UserError` for one that is none of these, or whose config does not say what is needed.
    """
    return of(config(name), Path(name).stem if name.endswith(".json") else Path(name).name)


def config(name: str) -> dict[str, Any]:
    """The config that a name stands for, as it is."""
    if name in shipped():
        return _read(folder("models") / f"{name}.json", name)
    path = Path(name)
    if path.is_dir():
        return _read(path / "config.json", str(path / "config.json"))
    if path.suffix == ".json":
        return _read(path, name)
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _read(_of_the_hub(name), name)
    raise UnknownName("model", name, shipped(), "; or a folder with config.json, a JSON file, a hub id as OWNER/NAME")


def _read(file: Traversable, shown: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no file '{shown}'") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{shown} does not read as JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{shown}: should hold one object (got {type(found).__name__})")
    return found


def _of_the_hub(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ModuleNotFoundError:
        raise Missing('a hub id needs huggingface-hub; run: pip install "speedbench[data]"') from None
    try:
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:  # many classes, by version; all mean that it is not to be had
        raise UserError(f"no config.json of '{name}' from the hub or its cache: {first_line(error)}") from None


# ---- counting -------------------------------------------------------------------------------------------------------


def of(config: Mapping[str, Any], name: str = "") -> ModelFacts:
    """The shapes that a transformers config stands for; raises `UserError` naming the key that is missing."""
    text = {**config, **config.get("text_config", {})} if "text_config" in config else dict(config)
    read = _Reader(text, name or str(text.get("model_type", "the model")))
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    kv_heads = read.maybe("num_key_value_heads") or heads
    if heads % kv_heads:
        raise UserError(f"{read.name}: {heads} query heads do not divide among {kv_heads} KV heads")
    mixers, mixtures, dense = _layers(read)
    latent = read.maybe("kv_lora_rank")
    mixture = _mixture(read, hidden) if mixtures else None
    full, windowed = _count(mixers, _FULL), _count(mixers, _WINDOWED)
    recurrent, gates = _count(mixers, _RECURRENT), 2 if read.text.get("mlp_hidden_act") == "relu2" else 3
    shared = gates * hidden * mixture.shared if mixture else 0
    return ModelFacts(
        name=read.name, hidden=hidden, vocab=read.whole("vocab_size"), heads=heads, kv_heads=kv_heads,
        head_dim=read.maybe("head_dim") or hidden // heads, full=full, windowed=windowed,
        window=read.maybe("sliding_window"), recurrent=recurrent,
        latent=(latent, read.whole("qk_rope_head_dim")) if latent else None, dense=dense, mixtures=mixtures,
        mixture=mixture, mixer_weights=(full + windowed) * _attention(read) + recurrent * _recurrent(read)[0],
        mlp_weights=dense * (gates * hidden * read.whole("intermediate_size") if dense else 0)
        + mixtures * (shared + _latent_ends(mixture, hidden)),
        expert_weights=gates * mixture.hidden * mixture.inner if mixture else 0.0,
        head_weights=float(read.whole("vocab_size") * hidden), tied=bool(text.get("tie_word_embeddings", False)),
        state=recurrent * _recurrent(read)[1], weight_bytes=_weight_bytes(text),
        drafting=read.maybe("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules") or 0,
    )  # fmt: skip


def weight_bytes(dtype: str) -> float:
    """Bytes of a weight in a format by name."""
    if dtype not in _BYTES:
        raise UnknownName("number format", dtype, DTYPES)
    return _BYTES[dtype]


class _Reader:
    """The whole numbers of a config, by any of their names."""

    def __init__(self, text: Mapping[str, Any], name: str) -> None:
        self.text, self.name = text, name

    def maybe(self, *names: str) -> int | None:
        """The first that is there; None where none is, or it is null. 0 counts as not there."""
        for name in names:
            got = self.text.get(name)
            if got is None or isinstance(got, (list, tuple)):
                continue
            if isinstance(got, bool) or not isinstance(got, int) or got < 0:
                raise UserError(f"{self.name}: {name}: should be a whole number (got {got!r})")
            if got:
                return got
        return None

    def whole(self, *names: str) -> int:
        found = self.maybe(*names)
        if found is None:
            raise UserError(f"{self.name}: its config does not say {' or '.join(names)}")
        return found


def _layers(read: _Reader) -> tuple[list[str], int, int]:
    """The kind of each mixer, how many layers have experts, and how many a plain MLP."""
    text = read.text
    blocks = text.get("layers_block_type") or [_PATTERN.get(x, x) for x in text.get("hybrid_override_pattern") or ()]
    if blocks:
        _refuse_unknown(blocks, _FULL | _WINDOWED | _RECURRENT | _MLP, read.name)
        return [x for x in blocks if x not in _MLP], blocks.count("moe"), blocks.count("mlp")
    count = read.whole("num_hidden_layers")
    mixers = _mixers(read, count)
    experts = read.maybe("num_experts", "n_routed_experts", "num_local_experts")
    mixtures = sum(_has_experts(text, index) for index in range(count)) if experts else 0
    return mixers, mixtures, count - mixtures


def _mixers(read: _Reader, count: int) -> list[str]:
    text = read.text
    strange = [key for key in _STRANGE if text.get(key)]
    if strange:
        raise UserError(f"{read.name}: its attention reads a part of the context ({strange[0]}); that is not modelled")
    every = read.maybe("full_attention_interval")
    if text.get("layer_types"):
        kinds = [str(kind) for kind in text["layer_types"]]
    elif every:
        kinds = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(count)]
    elif text.get("attn_type_list"):
        kinds = ["full_attention" if kind == 1 else "linear_attention" for kind in text["attn_type_list"]]
    else:
        windowed = text.get("sliding_window") and text.get("use_sliding_window", True)
        kinds = ["sliding_attention" if windowed else "full_attention"] * count
    _refuse_unknown(kinds, _FULL | _WINDOWED | _RECURRENT, read.name)
    if len(kinds) != count:
        raise UserError(f"{read.name}: {len(kinds)} kinds of layers for {count} layers")
    return kinds


def _refuse_unknown(kinds: Sequence[str], known: set[str], name: str) -> None:
    strange = sorted(set(kinds) - known)
    if strange:
        raise UserError(f"{name}: layers of kind {', '.join(strange)} are not known; known: {', '.join(sorted(known))}")


def _has_experts(text: Mapping[str, Any], index: int) -> bool:
    step = text.get("decoder_sparse_step") or text.get("moe_layer_freq") or text.get("interleave_moe_layer_step") or 1
    if index < (text.get("first_k_dense_replace") or 0) or index in (text.get("mlp_only_layers") or ()):
        return False
    if isinstance(step, (list, tuple)):
        return bool(step[index])
    return (index + 1) % step == 0


def _mixture(read: _Reader, hidden: int) -> Mixture:
    inner = read.whole("moe_intermediate_size", "intermediate_size")
    shared = read.maybe("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                        "shared_intermediate_size")  # fmt: skip
    return Mixture(
        experts=read.whole("num_experts", "n_routed_experts", "num_local_experts"),
        active=read.whole("num_experts_per_tok", "experts_per_token", "moe_top_k"),
        hidden=read.maybe("moe_latent_size") or hidden,
        inner=inner,
        shared=shared or (read.maybe("n_shared_experts") or 0) * inner,
    )


def _latent_ends(mixture: Mixture | None, hidden: int) -> float:
    """Down to the width that experts work in and up again, and the router."""
    if mixture is None:
        return 0.0
    narrow = 2 * hidden * mixture.hidden if mixture.hidden != hidden else 0
    return narrow + hidden * mixture.experts


def _attention(read: _Reader) -> float:
    """Parameters of one layer's attention."""
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    rank = read.maybe("kv_lora_rank")
    if rank:
        rotary, plain, out = (read.whole(x) for x in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
        asked = read.maybe("q_lora_rank")
        query = asked * (hidden + heads * (plain + rotary)) if asked else hidden * heads * (plain + rotary)
        return float(query + hidden * (rank + rotary) + rank * heads * (plain + out) + heads * out * hidden)
    kv, width = read.maybe("num_key_value_heads") or heads, read.maybe("head_dim") or hidden // heads
    queries = heads * width * (2 if read.text.get("attn_output_gate") else 1)
    return float(hidden * (queries + 2 * kv * width + heads * width))


def _recurrent(read: _Reader) -> tuple[float, float]:
    """Parameters of one recurrent layer, and bytes of its state for one sequence; zeros where the config is silent."""
    hidden, wide = read.whole("hidden_size"), 4.0 if read.text.get("mamba_ssm_dtype", "float32") == "float32" else 2.0
    values = read.maybe("linear_num_value_heads")
    if values:
        keys = read.whole("linear_num_key_heads") * read.whole("linear_key_head_dim")
        out = values * read.whole("linear_value_head_dim")
        return float(hidden * (2 * keys + 2 * out + 2 * values) + out * hidden), wide * read.whole(
            "linear_key_head_dim"
        ) * out
    heads = read.maybe("mamba_num_heads")
    if heads:
        inner, size = heads * read.whole("mamba_head_dim"), read.whole("ssm_state_size")
        groups = read.maybe("n_groups", "mamba_n_groups") or 1
        return float(hidden * (2 * inner + 2 * groups * size + heads) + inner * hidden), wide * inner * size
    return 0.0, 0.0


def _weight_bytes(text: Mapping[str, Any]) -> float:
    """Bytes of a weight inside the layers, by the quantisation that the config declares, else its dtype."""
    how = text.get("quantization_config") or {}
    method, bits = str(how.get("quant_method", "")), how.get("bits")
    if method == "fp8":
        return 1.0
    if bits in (4, 8):
        return _BYTES["int4"] if bits == 4 else 1.0
    if "fp4" in str(how).lower():
        return _BYTES["fp4"]
    return _BYTES.get(str(text.get("dtype") or text.get("torch_dtype") or "bfloat16"), 2.0)


def _count(kinds: Sequence[str], which: set[str]) -> int:
    return sum(kind in which for kind in kinds)
