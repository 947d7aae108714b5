"""Tiny random heads in every public dialect's exact names, each with the internal tensors that must come out."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tiny
import torch
from safetensors.torch import save_file
from torch import Tensor

H, FED, HEADS, KV, D, MLP, V, L = 32, 32, 4, 2, 8, 48, 64, 8
"""Hidden size of head and target, heads and their width, MLP, the target's tokens and layers."""
KEPT = [1, 3, 6, 9, 10, 20, 21, 40, 41, 63]
"""The target's tokens that a reduced draft vocabulary has."""


def target(**given: Any) -> Any:
    """As much of a target as a checkpoint is held against."""
    config = tiny.config("llama", num_hidden_layers=L, **given)
    return SimpleNamespace(layers=L, hidden=H, vocab=V, context=config.max_position_embeddings, config=config)


@dataclass(frozen=True)
class Made:
    """A checkpoint in memory: its config and tensors by the dialect's names, and by the internal ones."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    inside: dict[str, Tensor] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), "utf-8")
        save_file({name: tensor.clone() for name, tensor in self.tensors.items()}, folder / "model.safetensors")
        return folder

    def set(self, path: str, value: Any) -> Made:
        """The config with one key changed, `a.b` for a key inside another; None takes it out."""
        config = json.loads(json.dumps(self.config))
        *outer, last = path.split(".")
        place = config
        for key in outer:
            place = place.setdefault(key, {})
        place.pop(last, None)
        if value is not None:
            place[last] = value
        return replace(self, config=config)

    def put(self, **tensors: Tensor | None) -> Made:
        """Tensors changed, added or (None) taken out; `__` stands for a dot."""
        changed = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
        kept = {**self.tensors, **changed}
        return replace(self, tensors={name: tensor for name, tensor in kept.items() if tensor is not None})


def noise(seed: str, *shape: int) -> Tensor:
    dice = torch.Generator().manual_seed(sum(map(ord, seed)) * 7919 + len(seed))
    return torch.randn(*shape, generator=dice)


def _layer(at: str, fed: int, norms: bool, bias: bool = False) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (H,),
        "post_attention_layernorm.weight": (H,),
        "self_attn.q_proj.weight": (HEADS * D, fed),
        "self_attn.k_proj.weight": (KV * D, fed),
        "self_attn.v_proj.weight": (KV * D, fed),
        "self_attn.o_proj.weight": (H, HEADS * D),
        "mlp.gate_proj.weight": (MLP, H),
        "mlp.up_proj.weight": (MLP, H),
        "mlp.down_proj.weight": (H, MLP),
    }
    if norms:
        shapes |= {"self_attn.q_norm.weight": (D,), "self_attn.k_norm.weight": (D,)}
    if bias:
        shapes |= {"self_attn.q_proj.bias": (HEADS * D,), "self_attn.k_proj.bias": (KV * D,)}
        shapes |= {"self_attn.v_proj.bias": (KV * D,)}
    return {at + name: noise(at + name, *shape) for name, shape in shapes.items()}


def _body(layers: int, model_type: str = "llama", **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": H, "intermediate_size": MLP, "num_attention_heads": HEADS, "num_key_value_heads": KV}
    return {
        **{"model_type": model_type, "head_dim": D, "num_hidden_layers": layers, "vocab_size": V},
        **{"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, **sizes, **more},
    }


def _swap(tensors: dict[str, Tensor], *pairs: tuple[str, str]) -> dict[str, Tensor]:
    """Beginnings of names exchanged, the first pair that fits."""
    out = {}
    for name, tensor in tensors.items():
        old, new = next(((o, n) for o, n in pairs if name.startswith(o)), ("", ""))
        out[new + name[len(old) :]] = tensor
    return out


# ---- EAGLE-3 -------------------------------------------------------------------------------------------------------


def eagle3(dialect: str, *, whole: bool = False) -> Made:
    """`whole`: DeepSpec's kind, with the whole vocabulary, q and k norms and its own embeddings; taps are 2, 4, 5."""
    inside = {
        "fc.weight": noise("fc", H, 3 * FED),
        "hidden_norm.weight": noise("hidden_norm", H),
        "norm.weight": noise("norm", H),
        "lm_head.weight": noise("lm_head", V if whole else len(KEPT), H),
        **_layer("layers.0.", 2 * H, whole),
    }
    maps: dict[str, Tensor] = {}
    if whole:
        inside["embed_tokens.weight"] = noise("embed", V, H)
    else:
        inside["d2t"] = torch.tensor(KEPT) - torch.arange(len(KEPT))
        maps = {"t2d": torch.isin(torch.arange(V), torch.tensor(KEPT))}
    vocab = {} if whole else {"draft_vocab_size": len(KEPT)}
    if dialect in ("eagle", "specforge"):
        named = _swap(inside, ("hidden_norm.", "midlayer.hidden_norm."), ("layers.0.", "midlayer."))
    else:
        named = _swap(inside, ("hidden_norm.", "layers.0.hidden_norm."))
    ids = "eagle_aux_hidden_state_layer_ids"
    if dialect == "eagle":  # theirs has no rope_theta and a cache's length
        config = {**_body(1), "architectures": ["LlamaForCausalLM"], **vocab}
        del config["rope_theta"]
    elif dialect == "specforge":
        config = {**_body(1), "architectures": ["LlamaForCausalLMEagle3"], **vocab, "eagle_config": {ids: [1, 3, 4]}}
    elif dialect == "modelopt":
        inner = {ids: [1, 3, 4], "use_aux_hidden_state": True, "use_last_layernorm": True, "parallel_draft_step": 1}
        config = {**_body(1), "architectures": ["LlamaForCausalLMEagle3"], **vocab, "eagle_config": inner}
        maps = {}
    elif dialect == "speculators":
        layer = {key: value for key, value in _body(1, "qwen3" if whole else "llama").items() if key != "rope_theta"}
        config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", ids: [2, 4, 5]}
        config |= {"draft_vocab_size": V if whole else len(KEPT), "norm_before_residual": False, "norm_output": False}
        config |= {"transformer_layer_config": layer, "speculators_config": {"algorithm": "eagle3"}}
    else:
        config = {**_body(1, "qwen3"), "architectures": ["Qwen3Eagle3Model"], "target_layer_ids": [1, 3, 4]}
        config["num_target_layers"] = L
    return Made(config, {**named, **maps}, inside)


# ---- DFlash and DSpark ---------------------------------------------------------------------------------------------


def _backbone() -> dict[str, Tensor]:
    return {
        "fc.weight": noise("fc", H, 2 * FED),
        "hidden_norm.weight": noise("hidden_norm", H),
        "norm.weight": noise("norm", H),
        **_layer("layers.0.", H, True),
        **_layer("layers.1.", H, True),
    }


def _copies() -> dict[str, Tensor]:
    return {"embed_tokens.weight": noise("embed", V, H), "lm_head.weight": noise("lm_head", V, H)}


def dflash(dialect: str) -> Made:
    """Two layers, taps 2 and 5, a block of 6; DeepSpec's with embeddings and head of its own."""
    inside = _backbone()
    if dialect == "deepspec":
        inside |= _copies()
    if dialect == "z-lab":
        inner = {"mask_token_id": 7, "target_layer_ids": [1, 4]}
        config = {**_body(2, "qwen3"), "architectures": ["DFlashDraftModel"], "block_size": 6, "dflash_config": inner}
        config["num_target_layers"] = L
    elif dialect == "speculators":
        config = {"architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash", "block_size": 6}
        config |= {"aux_hidden_state_layer_ids": [2, 5], "mask_token_id": 7, "draft_vocab_size": V}
        config |= {"transformer_layer_config": _body(2, "qwen3"), "sample_from_anchor": False}
    else:
        config = {**_body(2, "qwen3"), "architectures": ["Qwen3DSparkModel"], "block_size": 6, "mask_token_id": 7}
        config |= {"target_layer_ids": [1, 4], "markov_rank": 0, "enable_confidence_head": False}
        config |= {"num_target_layers": L, "num_anchors": 512}
    return Made(config, dict(inside), inside)


RANK = 4


def dspark(dialect: str, markov: str = "vanilla", *, reduced: bool = False) -> Made:
    """Two layers, taps 2 and 5, a block of 6, a confidence head that reads the Markov embedding."""
    size = len(KEPT) if reduced else V
    inside = {
        **_backbone(),
        "markov_w1.weight": noise("w1", V, RANK),
        "markov_w2.weight": noise("w2", size, RANK),
        "confidence.weight": noise("conf", 1, H + RANK),
        "confidence.bias": noise("conf bias", 1),
    }
    if markov == "gated":
        inside |= {"gate_proj.weight": noise("gate", RANK, H + RANK), "gate_proj.bias": noise("gate bias", RANK)}
    if markov == "rnn":
        inside["joint_proj.weight"] = noise("joint", 3 * RANK, 2 * RANK + H)
        inside["joint_proj.bias"] = noise("joint bias", 3 * RANK)
    if dialect == "deepspec":
        inside |= _copies()
    if reduced:
        inside["lm_head.weight"] = noise("lm_head", size, H)
        inside["d2t"] = torch.tensor(KEPT) - torch.arange(size)
    named = _swap(inside, ("confidence.", "confidence_proj."))
    if dialect != "modelopt":
        contained = [(part, f"markov_head.{part}") for part in ("markov_", "gate_proj.", "joint_proj.")]
        named = _swap(inside, *contained, ("confidence.", "confidence_head.proj."))
    return Made(_dspark_config(dialect, markov, size), named, inside)


def _dspark_config(dialect: str, markov: str, size: int) -> dict[str, Any]:
    marks: dict[str, Any] = {"markov_rank": RANK, "markov_head_type": markov}
    confidence = {"enable_confidence_head": True, "confidence_head_with_markov": True}
    block = {**_body(2, "qwen3"), "block_size": 6, "num_target_layers": L}
    if dialect == "deepspec":
        own = {"architectures": ["Qwen3DSparkModel"], "mask_token_id": 7, "target_layer_ids": [1, 4]}
        return {**block, **own, **marks, **confidence, "num_anchors": 512}
    if dialect == "speculators":
        own = {"architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", "block_size": 6}
        own |= {"aux_hidden_state_layer_ids": [2, 5], "mask_token_id": 7, "draft_vocab_size": size}
        return {**own, **marks, **confidence, "transformer_layer_config": _body(2, "qwen3"), "sample_from_anchor": True}
    inner = {"mask_token_id": 7, "target_layer_ids": [1, 4], "projector_type": "dspark", **marks}
    if dialect == "modelopt":
        inner |= {"shift_label": True, "use_confidence_head": True, "causal": False}
        return {**block, "architectures": ["DFlashDraftModel"], "dflash_config": inner}
    inner |= {**confidence, "attention_mode": "gqa", "confidence_head_alpha": 1.0}
    return {**block, "architectures": ["DSparkDraftModel"], "dflash_config": inner}


# ---- MTP -----------------------------------------------------------------------------------------------------------

MTP_NAMES: dict[str, dict[str, str]] = {
    "deepseek": {
        **{"fc.": f"model.layers.{L}.eh_proj.", "enorm.": f"model.layers.{L}.enorm."},
        **{"hnorm.": f"model.layers.{L}.hnorm.", "norm.": f"model.layers.{L}.shared_head.norm."},
        "layers.0.": f"model.layers.{L}.",
    },
    "qwen3-next": {
        **{"fc.": "mtp.fc.", "enorm.": "mtp.pre_fc_norm_embedding.", "hnorm.": "mtp.pre_fc_norm_hidden."},
        **{"norm.": "mtp.norm.", "layers.0.": "mtp.layers.0."},
    },
    "mimo": {
        **{"fc.": "model.mtp_layers.0.input_proj.", "enorm.": "model.mtp_layers.0.token_layernorm."},
        **{"hnorm.": "model.mtp_layers.0.hidden_layernorm.", "norm.": "model.mtp_layers.0.final_layernorm."},
        "layers.0.": "model.mtp_layers.0.",
    },
    "nemotron": {
        **{"fc.": "mtp.layers.0.eh_proj.", "enorm.": "mtp.layers.0.enorm.", "hnorm.": "mtp.layers.0.hnorm."},
        **{"norm.": "mtp.layers.1.final_layernorm.", "layers.0.input_layernorm.": "mtp.layers.0.norm."},
        **{"layers.0.self_attn.": "mtp.layers.0.mixer.", "layers.0.mlp.": "mtp.layers.1.mixer."},
        "layers.0.post_attention_layernorm.": "mtp.layers.1.norm.",
    },
    "speculators": {
        **{"fc.": "mtp_layers.0.input_proj.", "enorm.": "mtp_layers.0.token_layernorm."},
        **{"hnorm.": "mtp_layers.0.hidden_layernorm.", "norm.": "mtp_layers.0.final_layernorm."},
        "layers.0.": "mtp_layers.0.",
    },
}


def mtp(dialect: str, **config: Any) -> Made:
    """As part of a target's checkpoint, whose other tensors stand beside it; speculators' is one of its own."""
    bias = dialect == "mimo"
    inside = {
        "fc.weight": noise("fc", H, 2 * H),
        "enorm.weight": noise("enorm", H),
        "hnorm.weight": noise("hnorm", H),
        "norm.weight": noise("norm", H),
        **_layer("layers.0.", H, False, bias),
    }
    named = _swap(inside, *MTP_NAMES[dialect].items())
    if dialect == "speculators":
        own = {"architectures": ["MTPDraftModel"], "speculators_model_type": "mtp", "num_nextn_predict_layers": 1}
        return Made({**own, "transformer_layer_config": {**_body(1), **config}}, named, inside)
    rest = {"model.embed_tokens.weight": noise("embed", V, H), "model.norm.weight": noise("last norm", H)}
    rest |= {f"model.{name}": tensor for name, tensor in _layer("layers.0.", H, False).items()}
    if dialect == "deepseek":
        rest[f"model.layers.{L}.embed_tokens.weight"] = noise("embed", V, H)
        rest[f"model.layers.{L}.shared_head.head.weight"] = noise("head", V, H)
    own = {"architectures": ["LlamaForCausalLM"], "num_nextn_predict_layers": 1}
    if dialect == "nemotron":
        own["mtp_hybrid_override_pattern"] = "*-"
    return Made({**_body(L), **own, **config}, {**rest, **named}, inside)
