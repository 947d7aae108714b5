"""What drafters read of any transformers model: its states by transformers' index, and logits of its last state."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest
import serial_heads as heads
import tiny
import torch
from torch import nn

from speedbench.errors import UserError

PLAIN = {"layer_types": ["full_attention"] * 2, "head_dim": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt_neox": {},
    "gpt2": {"n_inner": 48},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    "gptj": {"rotary_dim": 8},
    "phi": {"partial_rotary_factor": 0.5},
    "gpt_bigcode": {"n_inner": 48},
    "llama": {},
    "gemma2": {**PLAIN, "final_logit_softcapping": 5.0},
    "gemma3_text": {**PLAIN, "final_logit_softcapping": 5.0},
    "granite": {"logits_scaling": 3.0, "embedding_multiplier": 2.0},
    "cohere": {"logit_scale": 0.25},
    "nanochat": {},
}
NO_KV = ("gpt2", "opt", "gptj", "gpt_bigcode")
"""Whose configs take no key and value heads, and name the MLP otherwise."""


def made(kind: str, **more: Any) -> Any:
    given = {**FAMILIES[kind], **more}
    if kind in NO_KV:
        return _of(tiny.config(kind, **given), drop=("num_key_value_heads", "intermediate_size"))
    return _of(tiny.config(kind, **given))


def _of(config: Any, drop: tuple[str, ...] = ()) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    if drop:
        kept = {key: value for key, value in config.to_diff_dict().items() if key not in (*drop, "model_type")}
        config = AutoConfig.for_model(config.model_type, **kept)
    torch.manual_seed(0)
    found = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if weight.dim() > 1:
                weight.mul_(8 if "embed" in name else 5)
            else:
                weight.add_(0.2 * torch.randn_like(weight))
    return found.double()


@pytest.mark.parametrize("kind", FAMILIES)
@torch.inference_mode()
def test_taps_are_transformers_own_hidden_states_and_the_head_gives_its_logits(kind: str) -> None:
    """Over two forwards of four and three tokens; the last state is that after the last norm."""
    model = made(kind)
    target = tiny.as_is(model)
    ids = torch.tensor([tiny.prompt(7)])
    theirs = model(ids, output_hidden_states=True)
    slots, taps = target.slots(1, 64), (0, 1, 2)
    seen = [target.forward(slots, ids[:, a:b], [a], taps=taps) for a, b in ((0, 4), (4, 7))]
    for tap in taps:
        ours = torch.cat([part.features[tap] for part in seen], 1)
        assert torch.allclose(ours, theirs.hidden_states[tap], atol=1e-6, rtol=1e-6)
    assert torch.allclose(target.head(theirs.hidden_states[-1]), theirs.logits, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("kind", "key"), [("gemma2", "cap"), ("granite", "divisor"), ("cohere", "factor")])
@torch.inference_mode()
def test_a_scaled_head_is_not_the_bare_product(kind: str, key: str) -> None:
    """Gemma's cap of 5, Granite's divisor of 3, Cohere's factor of 1/4."""
    model = made(kind)
    target, state = tiny.as_is(model), torch.linspace(-1, 1, 32, dtype=torch.float64)[None]
    product = model.get_output_embeddings()(state)
    right = {"cap": 5 * torch.tanh(product / 5), "divisor": product / 3, "factor": product / 4}[key]
    assert torch.allclose(target.head(state), right)
    assert not torch.allclose(product, right)


@torch.inference_mode()
def test_embeddings_are_rows_of_the_table_also_where_the_model_scales_them() -> None:
    """Gemma 3's embedding multiplies by the root of its hidden size; drafters read the rows (dflash `model.py`
    _raw_input_embeddings)."""
    model, ids = made("gemma3_text"), torch.tensor([3, 5])
    rows = model.get_input_embeddings().weight[ids]
    assert tiny.as_is(model).embed(ids).equal(rows)
    assert torch.allclose(model.get_input_embeddings()(ids), 32**0.5 * rows)


@pytest.mark.parametrize(("kind", "mechanism"), [("gpt_neox", "eagle3"), ("gpt_neox", "mtp"), ("gemma2", "mtp")])
def test_heads_draft_for_other_families_as_from_scratch(kind: str, mechanism: str) -> None:
    """In a ragged batch, the answers checked against plain greedy; Gemma's MTP head shares the target's capped one."""
    model = made(kind)
    head, target = heads.random(heads.spec(mechanism)), tiny.as_is(model)
    assert heads.furthest(head, target, heads.forced_rounds(head, model, target)) < 1e-4


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_logits_made_in_an_unknown_way_are_refused_by_the_models_name() -> None:
    """Its states can still be read, by a drafter with a head of its own."""
    model = made("llama")
    plain = model.forward

    def doubled(*args: Any, **more: Any) -> Any:
        out = plain(*args, **more)
        out.logits = 2 * out.logits
        return out

    model.forward = doubled
    target = tiny.as_is(model)
    with pytest.raises(
        UserError, match=r"the logits of LlamaForCausalLM are not .* only drafters with a head of their"
    ):
        target.head(torch.zeros(1, 32, dtype=torch.float64))
    seen = target.forward(target.slots(1, 64), torch.zeros(1, 2, dtype=torch.int64), [0], taps=(0, 2))
    assert set(seen.features) == {0, 2}


def test_a_model_without_a_list_of_layers_is_refused_by_its_name() -> None:
    model = made("llama")
    target = tiny.as_is(model)
    model.model.layers = nn.Sequential(*model.model.layers)
    ids = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(UserError, match="LlamaForCausalLM has no list of 2 layers"):
        target.forward(target.slots(1, 64), ids, [0], taps=(1,))


def test_a_model_whose_last_state_no_part_gives_is_refused_by_its_name() -> None:
    class Unnormed(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x,)

    model = made("llama")
    target = tiny.as_is(model)
    model.model.norm = Unnormed()
    plain = model.model.forward

    def unpacked(*args: Any, **more: Any) -> Any:
        out = plain(*args, **more)
        out.last_hidden_state = out.last_hidden_state[0]
        if out.hidden_states:
            out.hidden_states = (*out.hidden_states[:-1], out.last_hidden_state)
        return out

    model.model.forward = unpacked
    with pytest.raises(UserError, match="no part of LlamaForCausalLM gives its last hidden state"):
        target.anatomy  # noqa: B018
