"""A head's rotary embedding under every scaling of transformers' that does not change with the row's length."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import serial_heads as heads
import tiny
import torch

from speedbench.errors import UserError
from speedbench.native.head import HeadSpec, Rotary, turning

ORIGINAL = 32
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "yarn with its own numbers": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL,
        "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.7,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
}  # fmt: skip


def spec(settings: dict[str, Any], context: int | None = 128) -> HeadSpec:
    return replace(heads.spec("eagle3"), rope={"rope_theta": 5000.0, **settings}, context=context, head_dim=12)


@pytest.mark.parametrize("kind", KINDS)
def test_it_turns_as_transformers_llama_does(kind: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    own = spec(KINDS[kind])
    config = LlamaConfig(
        hidden_size=48, num_attention_heads=4, head_dim=12, max_position_embeddings=128,
        rope_theta=5000.0, rope_scaling=KINDS[kind],
    )  # fmt: skip
    x, at = torch.randn(1, 128, 4, 12, generator=torch.Generator().manual_seed(0)), torch.arange(128)[None]
    cos, sin = LlamaRotaryEmbedding(config)(x, at)
    theirs, _ = apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2), cos, sin)
    ours = Rotary(own, 128, torch.float32, tiny.CPU)(x, at)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=2e-5)


def test_yarn_lengthens_every_query_and_key_by_its_factor() -> None:
    """0.1 ln 4 + 1 = 1.1386: scores are sharper by its square, 1.296; the fastest frequency, 1 a token, is kept, and
    the slowest, 5000^(-10/12), is divided by 4."""
    frequencies, factor = turning(spec(KINDS["yarn"]))
    assert factor == pytest.approx(0.1 * math.log(4) + 1)
    assert frequencies[0] == 1
    assert frequencies[-1] == pytest.approx(5000 ** (-10 / 12) / 4)
    x = torch.randn(1, 3, 2, 12)
    turned = Rotary(spec(KINDS["yarn"]), 8, torch.float32, tiny.CPU)(x, torch.tensor([[0, 3, 7]]))
    assert torch.allclose(turned.norm(dim=-1), factor * x.norm(dim=-1))


def test_a_head_with_yarn_drafts_as_from_scratch_only_with_yarn() -> None:
    """A random head's logits with the scaling and without it differ: the settings are not lost on the way."""
    target = tiny.lean(tiny.exact(tiny.model()))
    logits = []
    for settings in (KINDS["yarn"], KINDS["default"]):
        head = heads.random(replace(heads.spec("eagle3"), rope={"rope_theta": 500.0, **settings}))
        body = heads.serial(head, target, tiny.plan(2)).body
        g, ids = torch.linspace(-1, 1, 6 * 32, dtype=torch.float64).view(1, 6, 32), torch.arange(6)[None]
        logits.append(body.logits(body.run(body.slots(1, 64, static=False), ids, g, [0])[:, -1]))
    assert float((logits[0] - logits[1]).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("settings", "context", "said"),
    [
        ({"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}, 128, "'longrope'"),
        (KINDS["dynamic"], None, "'dynamic' .* dynamic with its max_position_embeddings are"),
        ({"rope_type": "yarn", "original_max_position_embeddings": 32}, 128, "'yarn' lacks .*factor"),
        (
            {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32},
            128,
            "'llama3' lacks .*low_freq",
        ),
    ],
)
def test_what_changes_with_the_length_or_says_too_little_is_refused(
    settings: dict[str, Any], context: int | None, said: str
) -> None:
    with pytest.raises(UserError, match=f"the drafter's rope type {said}"):
        turning(spec(settings, context))
