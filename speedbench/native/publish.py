"""A head written as others read it: EAGLE-3 and DSpark as SpecForge has them, MTP as speculators, DFlash as z-lab.

What the public dialect cannot say is refused, so that what is read back is what was written.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.dialect import OWN_KEY
from speedbench.native.fingerprint import fingerprint, text_config
from speedbench.native.head import Head, HeadSpec


def publish(head: Head, folder: Path, target_name: str, *, context: int | None = None) -> None:
    """Write `config.json` and `model.safetensors` for a head of the target called `target_name`.

    `context`: the target's longest sequence, for a head that has no limit of its own. speculators' MTP has to say one:
    there a number left out means the default of its layers' type.
    """
    if head.spec.context is None and context is not None:
        head = replace(head, spec=replace(head.spec, context=context))
    writers = {"eagle3": _eagle3, "mtp": _mtp, "dflash": _block, "dspark": _block}
    config, tensors = writers[head.spec.mechanism](head, target_name)
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / "model.safetensors.tmp"
    save_file(
        {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, scratch, metadata={"format": "pt"}
    )
    os.replace(scratch, folder / "model.safetensors")
    _write(folder, config)


def stamp(folder: Path, target: Path) -> None:
    """Note in a published head's config what it was trained for, the model in the folder `target`: its weights, so that
    a run with others says so, and for a block head its layers, which z-lab's own reader asks for."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    told: dict[str, Any] = {OWN_KEY: {"target_fingerprint": fingerprint(target)}}
    layers = text_config(target).get("num_hidden_layers")
    if "dflash_config" in config and layers is not None:
        told["num_target_layers"] = layers
    _write(folder, {**config, **told})


def _write(folder: Path, config: Mapping[str, Any]) -> None:
    text = folder / "config.json.tmp"
    text.write_text(json.dumps(config, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(text, folder / "config.json")


def _refuse(spec: HeadSpec, dialect: str, **unsaid: bool) -> None:
    for what, is_so in unsaid.items():
        if is_so:
            raise UserError(f"a {spec.mechanism} head with {what.replace('_', ' ')} cannot be written for {dialect}")


def _body(spec: HeadSpec, model_type: str) -> dict[str, Any]:
    """The transformers part of a config, its rotary settings under the names that every version reads."""
    scaling = {key: value for key, value in spec.rope.items() if key != "rope_theta"}
    body: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "num_hidden_layers": spec.layers,
        "hidden_act": "silu",
        "rms_norm_eps": spec.eps,
        "vocab_size": spec.target_vocab or spec.vocab,
        "rope_theta": spec.rope["rope_theta"],
        "rope_scaling": None if scaling.get("rope_type", "default") == "default" else scaling,
        "tie_word_embeddings": False,
    }
    return body if spec.context is None else {**body, "max_position_embeddings": spec.context}


def _has(head: Head, ending: str) -> bool:
    return any(name.endswith(ending) for name in head.tensors)


def _eagle3(head: Head, target_name: str) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """sgl-project/SpecForge `specforge/modeling/draft/llama3_eagle.py` and `configs/qwen3-30B-A3B-eagle3.1.json`."""
    spec = head.spec
    _refuse(
        spec,
        "SpecForge",
        norm_before_residual=spec.norm_before_residual,
        q_and_k_norms=_has(head, "q_norm.weight"),
        embeddings_tapped=0 in spec.taps,
    )
    vocab = spec.target_vocab or spec.vocab
    d2t = head.tensors.get("d2t", torch.zeros(spec.vocab, dtype=torch.int64))
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[torch.arange(spec.vocab) + d2t.cpu()] = True
    tensors = {
        ("midlayer." + name if name.startswith("hidden_norm.") else name.replace("layers.0.", "midlayer.", 1)): tensor
        for name, tensor in head.tensors.items()
    }
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_body(spec, "llama"),
        "attention_bias": _has(head, "q_proj.bias"),
        "draft_vocab_size": spec.vocab,
        "target_hidden_size": spec.target_hidden,
        "target_model_name_or_path": target_name,
        "norm_before_fc": spec.norm_before_fc,
        "fc_norm": spec.fc_norm,
        "norm_output": spec.recycle_normed,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in spec.taps],
            "use_aux_hidden_state": True,
        },
    }
    return config, {**tensors, "d2t": d2t, "t2d": t2d}


def _mtp(head: Head, target_name: str) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """vllm-project/speculators 0.9.0 `models/mtp/`, whose fusion is [embedding ; hidden]."""
    spec = head.spec
    _refuse(
        spec,
        "speculators",
        zero_centred_norms=spec.zero_centred,
        a_zeroed_first_embedding=spec.zero_first_embedding,
        its_output_recycled_before_the_norm=not spec.recycle_normed,
        no_longest_sequence=spec.context is None,
    )
    parts = {"fc.": "input_proj.", "enorm.": "token_layernorm.", "hnorm.": "hidden_layernorm."}
    parts |= {"norm.": "final_layernorm.", "layers.0.": ""}
    tensors = {}
    for name, tensor in head.tensors.items():
        old = next((old for old in parts if name.startswith(old)), None)
        tensors[name if old is None else f"mtp_layers.0.{parts[old]}{name[len(old) :]}"] = tensor
    if not spec.embedding_first:
        hidden, embedding = tensors["mtp_layers.0.input_proj.weight"].chunk(2, 1)
        tensors["mtp_layers.0.input_proj.weight"] = torch.cat([embedding, hidden], 1)
    config = {
        "architectures": ["MTPDraftModel"],
        "speculators_model_type": "mtp",
        "num_nextn_predict_layers": 1,
        "speculators_config": {
            "algorithm": "mtp",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": target_name, "architectures": []},
        },
        "transformer_layer_config": {
            **_body(spec, "qwen3" if _has(head, "q_norm.weight") else "llama"),
            "attention_bias": _has(head, "q_proj.bias"),
        },
    }
    return config, tensors


def _block(head: Head, target_name: str) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """sgl-project/SpecForge `configs/qwen3-8b-dflash.json` (z-lab/dflash has the same) and `qwen3-8b-dspark.json`."""
    spec = head.spec
    dspark = spec.mechanism == "dspark"
    dialect = "SpecForge" if dspark else "z-lab"
    _refuse(spec, dialect, embeddings_tapped=0 in spec.taps, a_reduced_vocabulary="d2t" in head.tensors)
    inner: dict[str, Any] = {
        "mask_token_id": spec.mask_token,
        "target_layer_ids": [tap - 1 for tap in spec.taps],
    }
    if spec.anchor_predicts != dspark:
        inner["shift_label"] = spec.anchor_predicts
    if dspark:
        inner |= {
            "projector_type": "dspark",
            "markov_rank": spec.markov_rank,
            "markov_head_type": "vanilla" if spec.markov == "none" else spec.markov,
            "enable_confidence_head": spec.confidence,
            "confidence_head_with_markov": spec.confidence_reads_markov,
        }
    config = {
        "architectures": ["DSparkDraftModel" if dspark else "DFlashDraftModel"],
        **_body(spec, "qwen3"),
        "attention_bias": _has(head, "q_proj.bias"),
        "layer_types": ["full_attention"] * spec.layers,
        "is_causal": spec.causal,
        "block_size": spec.block,
        "dflash_config": inner,
        "target_model_name_or_path": target_name,
    }
    containers = {"markov_": "markov_head.", "gate_proj.": "markov_head.", "joint_proj.": "markov_head."}
    tensors = {}
    for name, tensor in head.tensors.items():
        container = next((c for start, c in containers.items() if name.startswith(start)), "")
        own = name.replace("confidence.", "confidence_head.proj.", 1) if name.startswith("confidence.") else name
        tensors[container + own] = tensor
    return config, tensors
