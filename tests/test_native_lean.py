"""The lean form against transformers' own: the same logits and hidden states, in every family and shape of window."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from speedbench.errors import UserError
from speedbench.native import weights
from speedbench.native.lean import LeanTarget, fits, inverse_frequencies
from speedbench.native.target import TransformersTarget, prefill

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, one head a group": ("llama", {"num_key_value_heads": 4}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, own head width": ("llama", {"head_dim": 16}),
    "llama, attention bias": ("llama", {"attention_bias": True}),
    "llama 3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "linear rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "another rope base": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "mistral": ("mistral", {}),
    "mistral, own head width": ("mistral", {"head_dim": 16}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3, attention bias": ("qwen3", {"attention_bias": True}),
}
ROWS = [tiny.prompt(n) for n in (21, 12, 33)]


@functools.cache
def made(kind: str, dtype: torch.dtype = torch.float64) -> Any:
    family, more = KINDS[kind]
    return tiny.model(family, dtype=dtype, **more)


@functools.cache
def truth(kind: str) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """Each row from scratch through transformers, its norms in float64: logits and hidden states."""
    model = tiny.exact(made(kind))
    with torch.inference_mode():
        seen = [model(torch.tensor([ids]), output_hidden_states=True) for ids in ROWS]
    return [(s.logits[0], tuple(h[0] for h in s.hidden_states)) for s in seen]


# ---- equality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_lean_equals_transformers_in_float64(kind: str, static: bool) -> None:
    """Prefill, then windows of 1 to 5 tokens over three rows of different lengths."""
    target = tiny.lean(made(kind))
    expected = truth(kind)
    for width in range(1, 6):
        slots = target.slots(3, 48, static=static)
        for i, ids in enumerate(ROWS):
            logits, features = prefill(target, slots.rows(i, i + 1), ids[:-width], (0, 1, 2))
            torch.testing.assert_close(logits[0, 0], expected[i][0][-width - 1], atol=1e-9, rtol=0)
            for tap in (0, 1, 2):
                torch.testing.assert_close(features[tap][0], expected[i][1][tap][:-width], atol=1e-9, rtol=0)
        window = torch.tensor([ids[-width:] for ids in ROWS])
        seen = target.forward(slots, window, [len(ids) - width for ids in ROWS], taps=(0, 1, 2))
        for i in range(3):
            torch.testing.assert_close(seen.logits[i], expected[i][0][-width:], atol=1e-9, rtol=0)
            for tap in (0, 1, 2):
                torch.testing.assert_close(seen.features[tap][i], expected[i][1][tap][-width:], atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", ["llama", "llama 3 rope", "qwen2", "qwen3", "mistral", "tied"])
def test_lean_equals_transformers_in_float32_packed_and_plain(kind: str) -> None:
    model = made(kind, torch.float32)
    with torch.inference_mode():
        expected = model(torch.tensor(ROWS[:1])).logits
    for pack in (True, False):
        target = LeanTarget(model.config, model.state_dict(), dtype=torch.float32, device=tiny.CPU, pack=pack)
        seen = target.forward(target.slots(1, 32), torch.tensor(ROWS[:1]), [0])
        assert float((seen.logits - expected).abs().max()) < 2e-4 * float(expected.abs().max())


@pytest.mark.parametrize("kind", ["llama", "qwen3", "tied"])
def test_lean_counts_the_parameters_transformers_counts(kind: str) -> None:
    theirs, ours = TransformersTarget(made(kind)), tiny.lean(made(kind))
    assert (ours.parameters, ours.bytes) == (theirs.parameters, theirs.bytes)
    assert (ours.vocab, ours.context, ours.layers) == (theirs.vocab, theirs.context, theirs.layers)
    assert ours.slots(2, 8).bytes_per_token == theirs.slots(2, 8).bytes_per_token


def test_a_prompt_longer_than_a_chunk_is_the_same_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speedbench.native.target.PREFILL_CHUNK", 8)
    for target in (tiny.lean(made("llama")), tiny.as_is(tiny.exact(made("llama")))):
        logits, features = prefill(target, target.slots(1, 48), ROWS[2], (1,))
        torch.testing.assert_close(logits[0, 0], truth("llama")[2][0][-1], atol=1e-9, rtol=0)
        torch.testing.assert_close(features[1][0], truth("llama")[2][1][1], atol=1e-9, rtol=0)


def test_only_the_last_tokens_logits_when_asked() -> None:
    for target in (tiny.lean(made("llama")), tiny.as_is(tiny.exact(made("llama")))):
        seen = target.forward(target.slots(1, 48), torch.tensor(ROWS[:1]), [0], last_only=True, taps=(2,))
        assert seen.logits.shape == (1, 1, 64)
        assert seen.features[2].shape == (1, 21, 32)
        torch.testing.assert_close(seen.logits[0, 0], truth("llama")[0][0][-1], atol=1e-9, rtol=0)


def test_llama_3_frequencies_are_those_of_transformers() -> None:
    config = made("llama 3 rope").config
    theirs = made("llama 3 rope").model.rotary_emb.inv_freq.float()
    torch.testing.assert_close(inverse_frequencies(config, 8), theirs, atol=1e-7, rtol=1e-6)


# ---- which form serves what ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("gpt_neox", {}, "gpt_neox"),
        ("llama", {"mlp_bias": True}, "MLP"),
        ("llama", {"hidden_act": "gelu"}, "MLP"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0,
                                 "original_max_position_embeddings": 256}},
            "yarn",
        ),
    ],
)  # fmt: skip
def test_what_the_lean_form_does_not_serve_it_says(kind: str, more: dict[str, Any], why: str, tmp_path: Path) -> None:
    model = tiny.model(kind, dtype=torch.float32, **more)
    assert why in (fits(model.config) or "")
    home = tiny.folder(tmp_path / "model", model)
    load = functools.partial(weights.target, home, dtype=torch.float32, device=tiny.CPU)
    assert load().form == "transformers"
    with pytest.raises(UserError, match=why):
        load(form="lean")


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_the_lean_form_is_chosen_where_it_fits(kind: str, tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(kind, dtype=torch.float32))
    load = functools.partial(weights.target, home, dtype=torch.float64, device=tiny.CPU)
    assert load().form == "lean"
    assert load(form="transformers").form == "transformers"
    ids = torch.tensor(ROWS[:1])
    own, theirs = (t.forward(t.slots(1, 32), ids, [0]).logits for t in (load(), load(form="transformers")))
    torch.testing.assert_close(own, theirs, atol=1e-5, rtol=1e-5)
