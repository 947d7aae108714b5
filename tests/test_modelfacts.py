"""A model's shapes from its config: every shipped one comes to the size in its name, and odd ones are refused."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speedbench import catalog, modelfacts
from speedbench.advise.roofline import Deployment
from speedbench.errors import UserError

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "total", "active", "group", "full", "layers"),
    [
        ("llama-3.1-8b", 8.03, 7.5, 4, 32, 32),
        ("qwen3-32b", 32.8, 32.0, 8, 64, 64),
        ("qwen3.5-122b-a10b", 122, 9, 16, 12, 48),
        ("qwen3.5-397b-a17b", 396, 16.3, 16, 15, 60),
        ("deepseek-v3", 671, 36.6, 128, 61, 61),
    ],
)
def test_a_shipped_model_comes_to_the_parameters_it_is_known_for(
    name: str, total: float, active: float, group: int, full: int, layers: int
) -> None:
    facts = modelfacts.load(name)
    assert facts.parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert facts.active_parameters / 1e9 == pytest.approx(active, rel=0.01)
    assert (facts.group, facts.full, facts.layers) == (group, full, layers)


def test_weights_of_a_llama_add_up_by_hand() -> None:
    facts = modelfacts.of(LLAMA)
    attention = 4096 * (4096 + 2 * 1024 + 4096)
    assert facts.mixer_weights == 32 * attention
    assert facts.mlp_weights == 32 * 3 * 4096 * 14336
    assert facts.parameters == 32 * (attention + 3 * 4096 * 14336) + 2 * 128256 * 4096


def test_missing_kv_heads_are_as_many_as_heads_and_a_missing_width_is_the_quotient() -> None:
    facts = modelfacts.of({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"})
    assert (facts.kv_heads, facts.group, facts.head_dim) == (32, 1, 128)


def test_the_text_part_of_a_multimodal_config_is_what_counts() -> None:
    facts = modelfacts.of({"model_type": "vl", "hidden_size": 1, "text_config": LLAMA})
    assert facts.hidden == 4096


def test_latent_attention_keeps_one_narrow_entry_a_token_on_every_device() -> None:
    facts = modelfacts.load("deepseek-v3")
    for gpus in (1, 8):
        on = Deployment(facts=facts, hardware=catalog.hardware("h200"), gpus=gpus, kv_bytes=2.0)
        assert on.cache_bytes(1) == 61 * (512 + 64) * 2 * gpus
        assert on.local_group == 128 // gpus


def test_only_full_layers_of_a_windowed_model_grow_with_the_context() -> None:
    facts = modelfacts.of({**LLAMA, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16})
    on = Deployment(facts=facts, hardware=catalog.hardware("h200"))
    entry = 2 * 8 * 128 * 2
    assert on.cache_bytes(1000) == entry * (16 * 1000 + 16 * 128)
    assert on.cache_bytes(100) == entry * 32 * 100


def test_nemotron_letters_and_words_mean_the_same_layers() -> None:
    base = {k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}
    more = {"mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "moe_intermediate_size": 512, "mlp_hidden_act": "relu2"}  # fmt: skip
    words = ["mamba", "moe", "mamba", "attention", "mlp"]
    a = modelfacts.of({**base, **more, "layers_block_type": words}, "x")
    b = modelfacts.of({**base, **more, "hybrid_override_pattern": "MEM*-"}, "x")
    assert a == b
    assert (a.recurrent, a.full, a.mixtures, a.dense, a.layers) == (2, 1, 1, 1, 3)
    assert a.state == 2 * 4 * 64 * 64 * 128
    assert a.mlp_weights == 2 * 4096 * 14336 + 4096 * 8  # no gate, and the router


@pytest.mark.parametrize(
    ("quantised", "bytes_"),
    [
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "gptq", "bits": 4}, 0.5625),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        ({}, 2.0),
    ],
)
def test_a_config_that_declares_its_quantisation_is_weighed_by_it(quantised: dict[str, Any], bytes_: float) -> None:
    assert modelfacts.of({**LLAMA, "quantization_config": quantised}).weight_bytes == bytes_


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "does not say hidden_size"),
        ({"num_attention_heads": "32"}, "num_attention_heads: should be a whole number"),
        ({"num_key_value_heads": 5}, "do not divide among 5 KV heads"),
        ({"layer_types": ["full_attention"]}, "1 kinds of layers for 32"),
        ({"layer_types": ["retention"] * 32}, "retention are not known"),
        ({"index_topk": 2048}, "reads a part of the context"),
        ({"num_experts": 8}, "num_experts_per_tok"),
    ],
)
def test_a_config_that_cannot_be_counted_is_refused_by_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        modelfacts.of({**LLAMA, **change})


def test_names_folders_and_files_are_found_and_what_is_none_of_them_is_not(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    assert modelfacts.load(str(tmp_path)).hidden == modelfacts.load(str(tmp_path / "config.json")).hidden == 4096
    with pytest.raises(UserError, match=r"Did you mean 'qwen3.5-397b-a17b'"):
        modelfacts.load("qwen3.5-397b")
    (tmp_path / "bad.json").write_text("[1", "utf-8")
    with pytest.raises(UserError, match="does not read as JSON"):
        modelfacts.load(str(tmp_path / "bad.json"))
    with pytest.raises(UserError, match="no file"):
        modelfacts.load(str(tmp_path / "none.json"))


def test_every_shipped_device_and_curve_reads() -> None:
    devices = [catalog.hardware(name) for name in catalog.names("hardware")]
    assert {"h200", "gb300", "rtx-4090"} <= {device.name for device in devices}
    assert all(device.source and device.bandwidth > 1e11 for device in devices)
    assert catalog.hardware("h200").flops["bfloat16"] == 989e12
    assert len(catalog.names("golden")) >= 7


def test_a_device_of_ones_own_is_a_yaml_and_a_wrong_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: mine\nbandwidth_tbs: 1\ntflops: {bfloat16: 100}\nsource: measured\n", "utf-8")
    assert catalog.hardware(str(path)).flops == {"bfloat16": 1e14}
    path.write_text("title: mine\nbandwith_tbs: 1\nsource: measured\n", "utf-8")
    with pytest.raises(UserError, match="Did you mean 'bandwidth_tbs'"):
        catalog.hardware(str(path))
    with pytest.raises(UserError, match=r"no hardware named 'h20'\. Did you mean 'h200'"):
        catalog.hardware("h20")
