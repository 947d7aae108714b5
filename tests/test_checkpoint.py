"""Every dialect of one head loads as that head, and what is not a head that runs here is refused by its name."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import heads
import pytest
import torch
from heads import KEPT, H, L, Made, V, noise
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native import checkpoint, publish
from speedbench.native.dialect_block import default_ids
from speedbench.native.head import Head, HeadSpec

EAGLE3 = ("eagle", "specforge", "speculators", "modelopt")
DFLASH = ("z-lab", "speculators", "deepspec")
DSPARK = ("deepspec", "specforge", "modelopt", "speculators")
MTP = ("deepseek", "qwen3-next", "mimo", "nemotron", "speculators")


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def loaded(made: Made, target: Any = None, **more: Any) -> Head:
        return checkpoint.load(str(made.write(tmp_path / "head")), target or heads.target(), **more)

    return loaded


def same(got: Head, wanted: dict[str, Tensor]) -> None:
    assert sorted(got.tensors) == sorted(wanted)
    for name, tensor in wanted.items():
        assert torch.equal(got.tensors[name], tensor), name


def shape(spec: HeadSpec) -> HeadSpec:
    """A spec without who wrote it, and without the limit that EAGLE's own configs do not mean."""
    return replace(spec, dialect="", context=None)


# ---- dialects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", EAGLE3)
def test_an_eagle3_head_is_the_same_in_every_dialect(load: Any, dialect: str) -> None:
    made = heads.eagle3(dialect)
    got = load(made, mechanism="eagle3")
    same(got, made.inside)
    assert got.spec.dialect == dialect
    assert got.spec.taps == (2, 4, 5)
    assert (got.spec.vocab, got.spec.target_vocab, got.spec.longest) == (len(KEPT), V, None)
    assert shape(got.spec) == shape(load(heads.eagle3("specforge")).spec)


@pytest.mark.parametrize("dialect", ["deepspec", "speculators"])
def test_an_eagle3_head_of_qwen_layers_keeps_norms_and_copies(load: Any, dialect: str) -> None:
    made = heads.eagle3(dialect, whole=True)
    got = load(made)
    same(got, made.inside)
    assert (got.spec.dialect, got.spec.taps, got.spec.vocab) == (dialect, (2, 4, 5), V)
    assert "layers.0.self_attn.q_norm.weight" in got.tensors


@pytest.mark.parametrize("dialect", DFLASH)
def test_a_dflash_head_is_the_same_in_every_dialect(load: Any, dialect: str) -> None:
    made = heads.dflash(dialect)
    got = load(made, mechanism="dflash")
    same(got, made.inside)
    assert got.spec.dialect == dialect
    assert (got.spec.taps, got.spec.block, got.spec.mask_token, got.spec.causal) == ((2, 5), 6, 7, False)
    assert (got.spec.anchor_predicts, got.spec.longest) == ((True, 6) if dialect == "deepspec" else (False, 5))
    plain = load(heads.dflash("z-lab")).spec
    assert shape(replace(got.spec, anchor_predicts=False)) == shape(plain)


@pytest.mark.parametrize("markov", ["vanilla", "gated", "rnn"])
@pytest.mark.parametrize("dialect", DSPARK)
def test_a_dspark_head_is_the_same_in_every_dialect(load: Any, dialect: str, markov: str) -> None:
    made = heads.dspark(dialect, markov)
    got = load(made, mechanism="dspark")
    same(got, made.inside)
    assert (got.spec.dialect, got.spec.markov, got.spec.longest) == (dialect, markov, 6)
    assert got.spec.confidence
    assert got.spec.confidence_reads_markov
    assert shape(got.spec) == shape(load(heads.dspark("specforge", markov)).spec)


def test_a_reduced_dspark_head_maps_its_words(load: Any) -> None:
    made = heads.dspark("speculators", reduced=True)
    same(load(made), made.inside)


@pytest.mark.parametrize("dialect", MTP)
def test_an_mtp_head_is_the_same_in_every_layout(load: Any, tmp_path: Path, dialect: str) -> None:
    made = heads.mtp(dialect)
    got = load(made, mechanism="mtp")
    same(got, made.inside)
    assert (got.spec.dialect, got.spec.taps, got.spec.vocab) == (dialect, (L,), V)
    assert got.spec.embedding_first == (dialect != "mimo")
    assert got.spec.zero_first_embedding == (dialect in ("deepseek", "mimo"))
    assert got.spec.recycle_normed
    assert got.warnings == ()
    same(load(made), made.inside)  # found without being asked for, too
    if dialect != "speculators":
        same(checkpoint.load_mtp(tmp_path / "head", heads.target()), made.inside)


def test_old_spellings_are_read(load: Any) -> None:
    made = heads.eagle3("specforge").set("use_aux_norm", True)
    extra = {f"aux_norm_{at}__weight": noise(at, H) for at in ("low", "mid", "high")}
    got = load(made.put(**extra))
    assert got.spec.fc_norm
    assert torch.equal(got.tensors["fc_norm.2.weight"], extra["aux_norm_high__weight"])
    named = {
        ("model." + name if "layers" in name or name == "fc.weight" else name): t for name, t in _modelopt().items()
    }
    same(load(Made(heads.eagle3("modelopt").config, named)), heads.eagle3("modelopt").inside)
    early = {
        ("logit_head." + name if name.startswith(("markov", "confidence")) else name): tensor
        for name, tensor in heads.dspark("specforge").tensors.items()
    }
    same(load(Made(heads.dspark("specforge").config, early)), heads.dspark("specforge").inside)


def _modelopt() -> dict[str, Tensor]:
    return heads.eagle3("modelopt").tensors


def test_habits_are_read(load: Any) -> None:
    made = heads.eagle3("speculators").set("norm_before_residual", True).set("norm_output", True)
    spec = load(made.set("norm_before_fc", True).put(input_norm__weight=noise("in", 3 * H))).spec
    assert spec.norm_before_residual
    assert spec.norm_before_fc
    assert spec.recycle_normed
    assert load(heads.dflash("z-lab").set("is_causal", True)).spec.causal
    assert load(heads.dflash("z-lab").set("dflash_config.causal", True)).spec.causal
    anchored = load(heads.dflash("speculators").set("sample_from_anchor", True)).spec
    assert (anchored.anchor_predicts, anchored.longest) == (True, 6)
    assert load(heads.dspark("speculators").set("sample_from_anchor", None)).spec.anchor_predicts
    assert not load(heads.dspark("speculators").set("sample_from_anchor", False)).spec.anchor_predicts


def test_layers_a_speculators_config_leaves_out_are_its_model_types_own(load: Any) -> None:
    made = heads.eagle3("speculators").set("transformer_layer_config.rms_norm_eps", None)
    assert load(made).spec.eps == 1e-6  # LlamaConfig's


def test_zero_centred_norms_are_the_familys(load: Any) -> None:
    assert not load(heads.mtp("qwen3-next")).spec.zero_centred
    qwen = heads.mtp("qwen3-next", model_type="qwen3_next")
    norms = {f"mtp__layers__0__self_attn__{x}_norm__weight": noise(x, 8) for x in "qk"}
    assert load(qwen.put(**norms)).spec.zero_centred


# ---- off by one ----------------------------------------------------------------------------------------------------


def test_ids_mean_outputs_in_one_dialect_and_hidden_states_in_another(load: Any) -> None:
    ids = "eagle_aux_hidden_state_layer_ids"
    assert load(heads.eagle3("specforge").set(f"eagle_config.{ids}", [1, 3, 6])).spec.taps == (2, 4, 7)
    assert load(heads.eagle3("speculators").set(ids, [1, 3, 6])).spec.taps == (1, 3, 6)
    assert load(heads.eagle3("deepspec", whole=True).set("target_layer_ids", [-1, 3, 6])).spec.taps == (0, 4, 7)
    assert load(heads.dflash("z-lab").set("dflash_config.target_layer_ids", [0, 6])).spec.taps == (1, 7)
    assert load(heads.dflash("speculators").set("aux_hidden_state_layer_ids", [0, 6])).spec.taps == (0, 6)


@pytest.mark.parametrize("dialect", EAGLE3)
def test_without_ids_the_usual_three_are_tapped(load: Any, dialect: str) -> None:
    ids = "eagle_aux_hidden_state_layer_ids"
    made = heads.eagle3(dialect)
    assert load(made.set(ids, None).set(f"eagle_config.{ids}", None)).spec.taps == (2, L // 2, L - 3)


def test_without_ids_dflash_taps_are_spread(load: Any) -> None:
    assert default_ids(36, 5) == [1, 9, 17, 25, 33]  # Qwen3-8B's, as z-lab publishes them
    assert default_ids(30, 5) == [1, 8, 14, 20, 27]
    assert default_ids(30, 1) == [15]
    assert load(heads.dflash("z-lab").set("dflash_config.target_layer_ids", None)).spec.taps == (2, 6)


def test_offsets_give_the_kept_ids(load: Any) -> None:
    d2t = load(heads.eagle3("eagle")).tensors["d2t"]
    assert (torch.arange(len(KEPT)) + d2t).tolist() == KEPT
    assert d2t[:4].tolist() == [1, 2, 4, 6]


def test_zero_offsets_mean_the_same_ids(load: Any) -> None:
    zeros = torch.zeros(len(KEPT), dtype=torch.int64)
    got = load(heads.eagle3("eagle").put(d2t=zeros, t2d=torch.arange(V) < len(KEPT)))
    assert any("all zeros" in warning for warning in got.warnings)
    whole = heads.eagle3("eagle").put(lm_head__weight=noise("head", V, H), d2t=torch.zeros(V, dtype=torch.int64))
    got = load(whole.put(t2d=torch.ones(V, dtype=torch.bool)).set("draft_vocab_size", V))
    assert (got.spec.vocab, "d2t" in got.tensors) == (V, False)


# ---- refused by name -----------------------------------------------------------------------------------------------


def eagle3(**more: Tensor | None) -> Made:
    return heads.eagle3("specforge").put(**more)


ONE = torch.ones(1)
REFUSED: dict[str, tuple[Made, str]] = {
    "EAGLE-1": (
        Made({"architectures": ["LlamaForCausalLM"]}, {"fc.weight": ONE, "layers.0.mlp.up_proj.weight": ONE}),
        "EAGLE-1 or EAGLE-2",
    ),
    "EAGLE-1 of speculators": (heads.eagle3("speculators").set("speculators_model_type", "eagle"), "EAGLE-1"),
    "EAGLE-1 of ModelOpt": (heads.eagle3("modelopt").set("eagle_config.use_aux_hidden_state", False), "EAGLE-1"),
    "P-EAGLE": (eagle3(mask_hidden=ONE), "P-EAGLE.*mask_hidden"),
    "P-EAGLE of speculators": (heads.eagle3("speculators").set("speculators_model_type", "peagle"), "P-EAGLE"),
    "Medusa": (eagle3(parallel_draft_heads__0__medusa_layers__0__linear__weight=ONE), "Medusa"),
    "parallel heads": (heads.eagle3("modelopt").set("eagle_config.parallel_draft_step", 4), "Medusa-like"),
    "Domino": (heads.dflash("z-lab").set("dflash_config.projector_type", "domino"), "Domino"),
    "Domino by tensor": (heads.dflash("z-lab").put(prefix_gru__weight_ih_l0=ONE), "Domino"),
    "DFlash2": (heads.dflash("z-lab").set("architectures", ["DFlash2DraftModel"]), "DFlash2"),
    "another projector": (heads.dflash("z-lab").set("dflash_config.projector_type", "lilicorr"), "lilicorr"),
    "xPress": (heads.dflash("speculators").set("speculators_model_type", "xpress"), "xPress"),
    "another speculator": (heads.dflash("speculators").set("speculators_model_type", "hydra"), "hydra"),
    "trees": (heads.eagle3("speculators").set("speculators_config.default_proposal_method", "tree"), "trees"),
    "two layers": (eagle3(layers__1__mlp__up_proj__weight=ONE), "more than one EAGLE-3 layer.*layers.1"),
    "two layers in the config": (eagle3().set("num_hidden_layers", 2), "more than one EAGLE-3 layer"),
    "MLA": (eagle3(midlayer__self_attn__kv_b_proj__weight=ONE), "MLA.*kv_b_proj"),
    "MoE": (eagle3(midlayer__mlp__experts__0__up_proj__weight=ONE), "mixture of experts"),
    "quantised": (eagle3().set("quantization_config", {"quant_method": "fp8"}), "quantised"),
    "eight bits": (eagle3(fc__weight=torch.zeros(H, 3 * H, dtype=torch.int8)), "fc.weight.*int8"),
    "GELU": (eagle3().set("hidden_act", "gelu"), "hidden_act"),
    "half turned": (eagle3().set("partial_rotary_factor", 0.5), "partial_rotary_factor"),
    "windows": (heads.dflash("z-lab").set("layer_types", ["sliding_attention"] * 2), "sliding_attention"),
    "windows for all": (heads.dflash("z-lab").set("dflash_config.use_swa", True), "use_swa"),
    "an unknown key": (heads.dflash("z-lab").set("dflash_config.warp", 1), "dflash_config.*'warp'"),
    "capped logits": (heads.dflash("z-lab").set("final_logit_softcapping", 30.0), "final_logit_softcapping"),
    "a mask embedding": (heads.dflash("z-lab").put(mask_embedding=ONE), "mask_embedding"),
    "an odd attention": (heads.dspark("specforge").set("dflash_config.attention_mode", "mla"), "mla"),
    "an odd Markov head": (heads.dspark("specforge").set("dflash_config.markov_head_type", "lstm"), "lstm"),
    "DeepSeek-V4": (heads.dspark("deepspec").set("dspark_block_size", 5), "DeepSeek-V4"),
    "Gemma": (heads.dspark("deepspec").set("architectures", ["Gemma4DSparkModel"]), "Gemma"),
    "a whole model": (
        Made(
            {},
            {"model.embed_tokens.weight": ONE, "model.norm.weight": ONE, "model.layers.0.input_layernorm.weight": ONE},
        ),
        "whole language model.*external",
    ),
    "nothing known": (Made({}, {"weight": ONE}), "nothing in its config or tensors"),
    "experts in MTP": (heads.mtp("qwen3-next").put(mtp__layers__0__mlp__gate__weight=ONE), "mixture of experts"),
    "MLA in MTP": (heads.mtp("deepseek").put(**{f"model__layers__{L}__self_attn__q_a_proj__weight": ONE}), "MLA"),
    "a gate in MTP": (
        heads.mtp("qwen3-next").put(mtp__layers__0__self_attn__q_proj__weight=torch.ones(64, H)),
        "output gate.*q_proj",
    ),
    "experts in Nemotron": (heads.mtp("nemotron").set("mtp_hybrid_override_pattern", "*E"), r"\*E.*experts"),
    "Nemotron's MLP": (heads.mtp("nemotron").put(mtp__layers__1__mixer__gate_proj__weight=None), "has no gate"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_run_is_refused_by_name(load: Any, what: str) -> None:
    made, words = REFUSED[what]
    with pytest.raises(UserError, match=words):
        load(made)


# ---- what does not fit ---------------------------------------------------------------------------------------------

OFFSETS = heads.eagle3("eagle").inside["d2t"]


def offsets(at: int, by: int) -> Tensor:
    changed = OFFSETS.clone()
    changed[at] += by
    return changed


def mask(*ids: int) -> Tensor:
    return torch.isin(torch.arange(V), torch.tensor(ids))


WRONG: dict[str, tuple[Made, str]] = {
    "no map": (eagle3(d2t=None), f"vocabulary of {len(KEPT)} of its target's {V} tokens but no tensor 'd2t'"),
    "no map and no word of it": (eagle3(d2t=None).set("draft_vocab_size", None), f"{len(KEPT)}.*no tensor 'd2t'"),
    "a short map": (eagle3(d2t=OFFSETS[:-1].clone()), rf"'d2t'.*int64 \[{len(KEPT) - 1}\].*int64 \[{len(KEPT)}\]"),
    "a map of other numbers": (eagle3(d2t=OFFSETS.int()), "'d2t'.*int32.*int64"),
    "ids for offsets": (eagle3(d2t=torch.tensor(KEPT)), r"draft token 9 to 9 \+ 63 = 72.*ids instead of offsets"),
    "below zero": (eagle3(d2t=offsets(0, -2)), r"draft token 0 to 0 \+ -1 = -1"),
    "one id twice": (eagle3(d2t=offsets(4, -1)), "draft token 4 to 9, not above the 9"),
    "a word that t2d leaves out": (eagle3(t2d=mask(*KEPT[:3], *KEPT[4:])), "draft token 3 to 9.*'t2d' leaves out"),
    "a word that d2t leaves out": (eagle3(t2d=mask(*KEPT, 50)), "target token 50"),
    "a short mask": (eagle3(t2d=mask(*KEPT)[:-1].clone()), rf"'t2d'.*\[{V - 1}\].*\[{V}\]"),
    "too many words": (eagle3().set("draft_vocab_size", V + 1), f"draft_vocab_size.*at most the {V}.*got {V + 1}"),
    "words that are no number": (eagle3().set("draft_vocab_size", "32k"), "draft_vocab_size.*'32k'"),
    "another hidden size": (eagle3().set("target_hidden_size", 4096), f"target_hidden_size.*4096.*{H}"),
    "another depth": (heads.dflash("z-lab").set("num_target_layers", 36), f"num_target_layers.*36.*{L}"),
    "another depth in MTP": (heads.mtp("qwen3-next").set("num_hidden_layers", 9), f"num_hidden_layers.*9.*{L}"),
    "a layer too high": (
        eagle3().set("eagle_config.eagle_aux_hidden_state_layer_ids", [1, 3, 7]),
        "eagle_config.eagle_aux_hidden_state_layer_ids.*layer 7.*8 layers.*0 … 6",
    ),
    "the last state": (heads.dflash("speculators").set("aux_hidden_state_layer_ids", [2, L]), f"names layer {L}"),
    "layers the wrong way": (heads.dflash("z-lab").set("dflash_config.target_layer_ids", [4, 1]), "should go up"),
    "layers that are no list": (heads.dflash("z-lab").set("dflash_config.target_layer_ids", "1,4"), "'1,4'"),
    "no layers": (heads.dspark("deepspec").set("target_layer_ids", None), "lacks 'target_layer_ids'"),
    "no mask token": (heads.dflash("z-lab").set("dflash_config.mask_token_id", None), "lacks 'mask_token_id'"),
    "a mask beyond the words": (heads.dflash("z-lab").set("dflash_config.mask_token_id", V), f"mask_token_id.*{V}"),
    "no block": (heads.dflash("z-lab").set("block_size", None), "lacks 'block_size'"),
    "no rank": (heads.dspark("modelopt").set("dflash_config.markov_rank", None), "lacks 'markov_rank'"),
    "no hidden size": (eagle3().set("hidden_size", None), "lacks 'hidden_size'"),
    "a size that is no number": (eagle3().set("hidden_size", "big"), "'hidden_size'.*'big'"),
    "no layer config": (heads.dflash("speculators").set("transformer_layer_config", None), "transformer_layer_config"),
    "one tensor too many": (
        eagle3(midlayer__extra__weight=ONE),
        "'midlayer.extra.weight' that a specforge head has not",
    ),
    "one half of the norms": (
        eagle3(midlayer__self_attn__q_norm__weight=noise("q", 8)),
        "lacks .*midlayer.self_attn.k_norm",
    ),
    "one bias": (eagle3(midlayer__self_attn__q_proj__bias=noise("q", 32)), "lacks .*midlayer.self_attn.k_proj.bias"),
    "one name twice": (eagle3(layers__0__mlp__up_proj__weight=noise("up", 48, H)), "two names of one"),
    "another fc": (eagle3(fc__weight=noise("fc", H, 2 * H)), rf"'fc.weight'.*\[{H}, {2 * H}\].*\[{H}, {3 * H}\]"),
    "Markov rows": (
        heads.dspark("deepspec").put(markov_head__markov_w1__weight=noise("w1", V - 1, 4)),
        rf"markov_head.markov_w1.weight.*\[{V - 1}, 4\].*\[{V}, 4\]",
    ),
    "an MTP head of another width": (
        heads.mtp("speculators").set("transformer_layer_config.hidden_size", 64),
        "64.*32",
    ),
    "no MTP head": (heads.mtp("qwen3-next").put(**{"mtp__fc__weight": None}), "lacks tensor 'mtp.fc.weight'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named_with_both_values(load: Any, what: str) -> None:
    made, words = WRONG[what]
    with pytest.raises(UserError, match=words):
        load(made)


ALL = {
    **{f"eagle3 {d}": heads.eagle3(d) for d in EAGLE3},
    "eagle3 deepspec": heads.eagle3("deepspec", whole=True),
    **{f"dflash {d}": heads.dflash(d) for d in DFLASH},
    **{f"dspark {d} {m}": heads.dspark(d, m) for d in DSPARK for m in ("gated", "rnn")},
    **{f"mtp {d}": heads.mtp(d) for d in MTP},
}
SPARED = ("t2d", "embed_tokens.weight", "shared_head.head.weight", "model.norm.weight")
"""Of training, or the target's own again."""


@pytest.mark.parametrize("what", ALL)
def test_each_tensor_that_is_taken_out_is_missed_by_its_own_name(what: str) -> None:
    """Without the disk: only what the dialect itself needs, the target's tensors beside an MTP head left out."""
    made = ALL[what]
    copies = ("lm_head.weight",) if what in ("dflash deepspec", "dspark deepspec gated", "dspark deepspec rnn") else ()
    copies += ("lm_head.weight",) if what == "eagle3 modelopt" else ()
    for name in made.tensors:
        beside = what.startswith("mtp") and name.startswith("model.layers.0.")
        if name.endswith((*SPARED, *copies)) or beside or name == "mtp.layers.1.mixer.gate_proj.weight":
            continue
        rest = {other: tensor for other, tensor in made.tensors.items() if other != name}
        source = checkpoint.Source(name="x", config=made.config, tensors=rest)
        with pytest.raises(UserError) as caught:
            checkpoint._loaded(source, heads.target())
        assert f"'{name}'" in str(caught.value), (name, str(caught.value))


def test_a_head_of_another_mechanism_than_asked_is_refused(load: Any) -> None:
    with pytest.raises(UserError, match="is a dflash head; 'dspark' was asked for"):
        load(heads.dflash("deepspec"), mechanism="dspark")
    with pytest.raises(UserError, match="holds no MTP tensors"):
        load(eagle3(), mechanism="mtp")


def test_a_target_too_shallow_for_the_usual_taps_says_so(load: Any) -> None:
    shallow = heads.target()
    shallow.layers = 4
    with pytest.raises(UserError, match="names no layers"):
        load(heads.eagle3("eagle"), shallow)


# ---- warnings ------------------------------------------------------------------------------------------------------

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = {**LLAMA3, "original_max_position_embeddings": 256}


def test_a_head_that_turns_as_its_target_is_silent(load: Any) -> None:
    assert load(eagle3()).warnings == ()
    made = eagle3().set("rope_scaling", LLAMA3).set("rope_theta", 5e5)
    assert load(made, heads.target(rope_parameters={**LLAMA3, "rope_theta": 5e5})).warnings == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope_theta", 5e5), ("rope_scaling", {"rope_theta": 5e5}), ("rope_parameters", {"rope_theta": 5e5})],
)
def test_the_rotary_base_is_the_heads_own_under_any_name(load: Any, key: str, value: Any) -> None:
    got = load(eagle3().set("rope_theta", None).set(key, value))
    assert got.spec.rope["rope_theta"] == 5e5
    (warning,) = got.warnings
    assert "rope_theta" in warning
    assert "500000.0" in warning
    assert "10000.0" in warning


def test_a_head_without_a_base_has_ten_thousand_whatever_its_target_has(load: Any) -> None:
    got = load(heads.eagle3("eagle"), heads.target(rope_parameters={**LLAMA3, "rope_theta": 5e5}))
    assert got.spec.rope == {"rope_theta": 10000.0, "rope_type": "default"}
    base, scaling = got.warnings
    assert "10000.0, its target 500000.0" in base
    assert "default, its target llama3 factor=8.0" in scaling


def test_fewer_positions_than_the_targets_are_told(load: Any) -> None:
    got = load(heads.eagle3("specforge").set("max_position_embeddings", 128))
    assert got.spec.context == 128
    assert "max_position_embeddings) 128, its target 512" in got.warnings[0]
    got = load(heads.eagle3("eagle").set("max_position_embeddings", 128))
    assert got.spec.context is None  # a cache's length in the EAGLE repo's configs, not a limit
    assert len(got.warnings) == 1


def test_several_mtp_modules_are_told(load: Any) -> None:
    made = heads.mtp("qwen3-next").set("num_nextn_predict_layers", 2)
    got = load(made.put(mtp__layers__1__input_layernorm__weight=noise("second", H)))
    assert got.warnings == ("the target has 2 MTP modules; the first drafts every token",)
    same(got, made.inside)


# ---- files ---------------------------------------------------------------------------------------------------------


def pickled(folder: Path, tensors: Any) -> str:
    heads.eagle3("eagle").write(folder)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    return str(folder)


def test_pickled_weights_need_leave(tmp_path: Path) -> None:
    made = heads.eagle3("eagle")
    where = pickled(tmp_path, made.tensors)
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*allow_bin"):
        checkpoint.load(where, heads.target())
    same(checkpoint.load(where, heads.target(), allow_bin=True), made.inside)


def test_pickled_code_is_never_run(tmp_path: Path) -> None:
    where = pickled(tmp_path, {"fc.weight": Path("code")})
    with pytest.raises(UserError, match="more than tensors"):
        checkpoint.load(where, heads.target(), allow_bin=True)


def test_a_config_that_does_not_read_is_named(tmp_path: Path) -> None:
    made = eagle3().write(tmp_path)
    for text in ("{", "[]"):
        (made / "config.json").write_text(text, "utf-8")
        with pytest.raises(UserError, match=r"config\.json"):
            checkpoint.load(str(made), heads.target())


# ---- written -------------------------------------------------------------------------------------------------------

WRITTEN = {
    "eagle3": (heads.eagle3("speculators"), "specforge", {"midlayer.hidden_norm.weight", "d2t", "t2d"}),
    "whole eagle3": (heads.eagle3("modelopt"), "specforge", {"midlayer.mlp.up_proj.weight"}),
    "mtp": (heads.mtp("qwen3-next"), "speculators", {"mtp_layers.0.input_proj.weight"}),
    "dflash": (heads.dflash("speculators"), "z-lab", {"layers.1.self_attn.k_norm.weight"}),
    "anchored dflash": (heads.dflash("deepspec"), "z-lab", {"layers.1.self_attn.k_norm.weight"}),
    "dspark": (heads.dspark("modelopt"), "specforge", {"markov_head.markov_w1.weight", "confidence_head.proj.bias"}),
    "gated dspark": (heads.dspark("speculators", "gated"), "specforge", {"markov_head.gate_proj.bias"}),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_written_is_read_back(load: Any, tmp_path: Path, what: str) -> None:
    made, dialect, names = WRITTEN[what]
    head = load(made)
    out = tmp_path / "out"
    publish.publish(head, out, "some/target")
    again = checkpoint.load(str(out), heads.target(), mechanism=head.spec.mechanism)
    same(again, dict(head.tensors))
    assert again.spec == replace(head.spec, dialect=dialect)
    assert names <= set(checkpoint._opened(out, "out", False).tensors)
    assert "some/target" in (out / "config.json").read_text("utf-8")
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]


def test_a_head_without_a_limit_of_its_own_is_written_with_its_targets(load: Any, tmp_path: Path) -> None:
    """speculators leaves out what its layers' type has by default, so a number left out would be read as Llama's 2048;
    the other dialects leave it out and read None again."""
    head = load(heads.mtp("qwen3-next").set("max_position_embeddings", None))
    assert head.spec.context is None
    with pytest.raises(UserError, match="mtp head with no longest sequence cannot be written for speculators"):
        publish.publish(head, tmp_path / "out", "t")
    publish.publish(head, tmp_path / "out", "t", context=512)
    assert checkpoint.load(str(tmp_path / "out"), heads.target()).spec.context == 512
    publish.publish(load(heads.mtp("qwen3-next")), tmp_path / "own", "t", context=99)
    assert checkpoint.load(str(tmp_path / "own"), heads.target()).spec.context == 512
    eagle = load(heads.eagle3("eagle"))
    for context, read in ((None, None), (512, 512)):
        publish.publish(eagle, tmp_path / "eagle", "t", context=context)
        assert checkpoint.load(str(tmp_path / "eagle"), heads.target()).spec.context == read


@pytest.mark.parametrize("scaling", [
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
])  # fmt: skip
@pytest.mark.parametrize("what", ["eagle3", "mtp", "dflash"])
def test_a_rotary_scaling_is_written_and_read_back(
    load: Any, tmp_path: Path, what: str, scaling: dict[str, Any]
) -> None:
    where = "transformer_layer_config" if what != "mtp" else ""
    made = WRITTEN[what][0].set(f"{where}.rope_scaling".lstrip("."), scaling)
    head = load(made)
    assert head.spec.rope["rope_type"] == scaling["rope_type"]
    publish.publish(head, tmp_path / "out", "t")
    again = checkpoint.load(str(tmp_path / "out"), heads.target(), mechanism=what)
    assert again.spec.rope == head.spec.rope


def test_mimos_fusion_is_written_the_other_way_round(load: Any, tmp_path: Path) -> None:
    head = load(heads.mtp("mimo"))
    with pytest.raises(UserError, match="zeroed first embedding"):
        publish.publish(head, tmp_path / "out", "t")
    head = replace(head, spec=replace(head.spec, zero_first_embedding=False))
    publish.publish(head, tmp_path / "out", "t")
    again = checkpoint.load(str(tmp_path / "out"), heads.target())
    assert again.spec.embedding_first
    assert torch.equal(again.tensors["fc.weight"][:, :H], head.tensors["fc.weight"][:, H:])
    assert torch.equal(again.tensors["fc.weight"][:, H:], head.tensors["fc.weight"][:, :H])


def test_what_a_dialect_cannot_say_is_not_written(load: Any, tmp_path: Path) -> None:
    head = load(heads.eagle3("speculators").set("norm_before_residual", True))
    with pytest.raises(UserError, match="norm before residual cannot be written for SpecForge"):
        publish.publish(head, tmp_path / "out", "t")
    with pytest.raises(UserError, match="reduced vocabulary"):
        publish.publish(load(heads.dspark("speculators", reduced=True)), tmp_path / "out", "t")


# ---- the line before a run -----------------------------------------------------------------------------------------


def test_a_head_is_described_in_a_line(load: Any) -> None:
    line = checkpoint.describe(load(heads.dspark("deepspec")))
    for part in ("dspark (deepspec)", "hidden states 2, 5", "block 6", "rank 4", "confidence", "D up to 6", "2 layers"):
        assert part in line
    head = load(eagle3())
    line = checkpoint.describe(head)
    assert f"draft vocabulary {len(KEPT)} of {V}" in line
    assert f"{sum(t.numel() for n, t in head.tensors.items() if n != 'd2t'):,} parameters" in line
    assert "D any" in line
