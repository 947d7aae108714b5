"""Rollback by forgetting: after any windows and any acceptance the cache answers as one built from scratch."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from speedbench.errors import UserError
from speedbench.native.lean import LeanTarget
from speedbench.native.target import Target, TransformersTarget, refuse_state

ROWS, LENGTH = 3, 40


@functools.cache
def made(kind: str = "llama") -> Any:
    return tiny.model(kind, vocab_size=32)


@functools.cache
def target(form: str) -> Target:
    return tiny.lean(made()) if form == "lean" else tiny.as_is(made("gpt_neox" if form == "gpt_neox" else "llama"))


def scratch(form: str, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = made("gpt_neox" if form == "gpt_neox" else "llama")(torch.tensor([ids])).logits[0]
    return logits


windows = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(0, 5), min_size=ROWS, max_size=ROWS), st.integers(0, 2**31)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=20, deadline=None)
@given(windows, st.booleans(), st.sampled_from(["lean", "transformers", "gpt_neox"]))
def test_any_windows_and_rollbacks_leave_the_logits_of_a_fresh_cache(
    passes: list[tuple[int, list[int], int]], static: bool, form: str
) -> None:
    """Rows keep between one and all tokens of each window; what they dropped is never seen again."""
    model = target(form)
    slots = model.slots(ROWS, LENGTH, static=static)
    rows = [tiny.prompt(n, 32) for n in (1, 4, 9)]
    for i, ids in enumerate(rows):
        model.forward(slots.rows(i, i + 1), torch.tensor([ids]), [0])
    for width, kept, seed in passes:
        dice = torch.Generator().manual_seed(seed)
        window = torch.randint(0, 32, (ROWS, width), generator=dice)
        logits = model.forward(slots, window, [len(ids) for ids in rows]).logits
        for i, ids in enumerate(rows):
            expected = scratch(form, ids + window[i].tolist())[len(ids) :]
            torch.testing.assert_close(logits[i], expected, atol=1e-5, rtol=1e-5)
            ids.extend(window[i, : max(1, min(kept[i], width))].tolist())


@pytest.mark.parametrize("form", ["lean", "transformers"])
def test_what_stands_in_a_cache_before_is_never_read(form: str) -> None:
    """Slots full of NaN but for what was written; a static forward reads them all, so zeros there."""
    model = target(form)
    slots = model.slots(2, LENGTH)
    for buffer in (*slots.keys, *slots.values):
        assert buffer is not None
        buffer.fill_(float("nan"))
    rows = [tiny.prompt(n, 32) for n in (7, 7)]
    logits = model.forward(slots, torch.tensor(rows), [0, 0]).logits
    assert bool(logits.isfinite().all())


def test_a_view_of_rows_shares_the_buffers_and_leaves_the_others() -> None:
    model = target("lean")
    slots = model.slots(3, LENGTH)
    model.forward(slots.rows(1, 2), torch.tensor([[1, 2, 3]]), [0])
    keys = slots.keys[0]
    assert keys is not None
    assert bool(keys[1, :, :3].any())
    assert not bool(keys[[0, 2]].any())
    assert not bool(keys[1, :, 3:].any())


def test_bytes_per_token_count_keys_and_values_of_every_layer() -> None:
    assert target("lean").slots(4, 16).bytes_per_token == 2 * 2 * 2 * 8 * 8  # K and V, layers, KV heads, width, float64
    assert made().config.num_key_value_heads == 2


# ---- what cannot be rolled back by length --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("mistral", {"sliding_window": 4}, "sliding window of 4"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}, "sliding_attention"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, "sliding_attention"),
        ("gemma2", {}, "sliding_attention"),
        ("gemma3_text", {}, "sliding_attention"),
        ("phi3", {"sliding_window": 8, "pad_token_id": 0}, "sliding window of 8"),
        ("llama4_text", {}, "chunked_attention"),
        ("qwen3_next", {}, "linear_attention"),
        ("jamba", {}, "linear_attention"),
        ("mamba", {}, "linear_attention"),
        ("t5", {}, "encoder-decoder"),
        ("bart", {}, "encoder-decoder"),
        ("gpt_neo", {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}, "local"),
    ],
)
def test_a_model_whose_state_cannot_be_forgotten_is_refused_by_name(kind: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        refuse_state(AutoConfig.for_model(kind, **more), f"my-{kind}")
    assert f"my-{kind}" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("mistral", {"sliding_window": None}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 4}),
        ("llama", {}),
        ("gpt_neox", {}),
        ("gpt_neo", {"num_layers": 2, "attention_types": [[["global"], 2]]}),
    ],
)
def test_a_model_with_full_attention_throughout_is_not_refused(kind: str, more: dict[str, Any]) -> None:
    refuse_state(AutoConfig.for_model(kind, **more), kind)


def test_both_forms_refuse_a_sliding_window() -> None:
    sliding = tiny.model("mistral", sliding_window=4)
    with pytest.raises(UserError, match="sliding window of 4"):
        LeanTarget(sliding.config, sliding.state_dict(), dtype=torch.float64, device=tiny.CPU)
    with pytest.raises(UserError, match="sliding window of 4"):
        TransformersTarget(sliding)


def test_a_stateful_model_is_refused_by_its_own_word() -> None:
    with pytest.raises(UserError, match="recurrent state"):
        refuse_state(tiny.config(), "x", stateful=True)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("falcon", {"alibi": True}), ("bloom", {"n_layer": 2, "n_head": 4}), ("mpt", {"d_model": 32, "n_layers": 2})],
)
def test_a_model_that_counts_its_positions_itself_is_refused(kind: str, more: dict[str, Any]) -> None:
    model = tiny.model(kind, **more)
    with pytest.raises(UserError, match=rf"{type(model).__name__}.*position_ids"):
        TransformersTarget(model)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
        ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32, "pad_token_id": 1}),
        ("gptj", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 4}),
        ("falcon", {"alibi": False}),
        ("phi", {}),
        ("gemma", {"head_dim": 8}),
        ("olmo2", {}),
        ("smollm3", {"pad_token_id": 0}),
    ],
)
@pytest.mark.parametrize("static", [False, True])
def test_other_families_answer_as_they_are(kind: str, more: dict[str, Any], static: bool) -> None:
    """Three rows of different lengths, a window of garbage forgotten, then four tokens each."""
    model = tiny.model(kind, **more)
    target = TransformersTarget(model)
    slots = target.slots(3, LENGTH, static=static)
    rows = [tiny.prompt(n) for n in (30, 12, 21)]
    starts = [len(ids) - 4 for ids in rows]
    for i, ids in enumerate(rows):
        target.forward(slots.rows(i, i + 1), torch.tensor([ids[:-4]]), [0])
    target.forward(slots, torch.full((3, 5), 7), starts)
    seen = target.forward(slots, torch.tensor([ids[-4:] for ids in rows]), starts).logits
    with torch.inference_mode():
        for i, ids in enumerate(rows):
            expected = model(torch.tensor([ids])).logits[0, -4:]
            torch.testing.assert_close(seen[i], expected, atol=1e-5, rtol=1e-5)
