"""What makes each engine speculate: every mechanism at several D, by its own classes, and refused where it lacks it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from engine_fakes import SpeculativeConfig
from engine_fakes import trtllm as llmapi
from translated import SETTINGS, plan, speculation

from speedbench import plugins
from speedbench.backends import trtllm
from speedbench.errors import UnknownName, Unsupported, UserError
from speedbench.serving.engines.trtllm import classes
from speedbench.serving.surface import surface
from speedbench.serving.trtllm_worker import objects

ENGINES = ("vllm", "sglang", "llamacpp", "trtllm")
PAIRS = [
    (engine, drafter)
    for engine in ENGINES
    for drafter in SETTINGS
    if engine in plugins.load("drafters", drafter).backends and drafter != "none"
]

TOLD: dict[tuple[str, str], Any] = {
    ("vllm", "external"): lambda d: {"method": "draft_model", "model": "org/draft", "num_speculative_tokens": d},
    ("vllm", "mtp"): lambda d: {"method": "mtp", "num_speculative_tokens": d},
    ("vllm", "eagle3"): lambda d: {"method": "eagle3", "model": "org/head", "num_speculative_tokens": d},
    ("vllm", "dflash"): lambda d: {"method": "dflash", "model": "org/block", "num_speculative_tokens": d},
    ("vllm", "dspark"): lambda d: {"method": "dspark", "model": "org/block", "num_speculative_tokens": d},
    ("vllm", "ngram"): lambda d: {
        "method": "ngram", "num_speculative_tokens": d, "prompt_lookup_min": 2, "prompt_lookup_max": 4,
    },
    ("vllm", "suffix"): lambda d: {
        "method": "suffix", "num_speculative_tokens": d, "suffix_decoding_max_tree_depth": 64,
        "suffix_decoding_max_spec_factor": 1.0, "suffix_decoding_min_token_prob": 0.1,
        "suffix_decoding_max_cached_requests": 0,
    },
    ("vllm", "synthetic"): lambda d: {
        "method": "mtp", "num_speculative_tokens": d, "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.0,
    },
    ("sglang", "external"): lambda d: {
        "algorithm": "STANDALONE", "draft-model-path": "org/draft", "num-steps": d, "eagle-topk": 1,
        "num-draft-tokens": d + 1,
    },
    ("sglang", "mtp"): lambda d: {"algorithm": "NEXTN", "num-steps": d, "eagle-topk": 1, "num-draft-tokens": d + 1},
    ("sglang", "eagle3"): lambda d: {
        "algorithm": "EAGLE3", "draft-model-path": "org/head", "num-steps": d, "eagle-topk": 1,
        "num-draft-tokens": d + 1,
    },
    ("sglang", "dflash"): lambda d: {
        "algorithm": "DFLASH", "draft-model-path": "org/block", "dflash-block-size": d + 1,
    },
    ("sglang", "dspark"): lambda d: {"algorithm": "DSPARK", "draft-model-path": "org/block", "dspark-block-size": d},
    ("sglang", "ngram"): lambda d: {
        "algorithm": "NGRAM", "num-draft-tokens": d + 1, "ngram-max-bfs-breadth": 1, "ngram-max-trie-depth": 18,
    },
    ("sglang", "synthetic"): lambda d: TOLD["sglang", "mtp"](d),
    ("llamacpp", "external"): lambda d: {"type": "draft-simple", "draft-model": "org/draft", "draft-n-max": d},
    ("llamacpp", "mtp"): lambda d: {"type": "draft-mtp", "draft-n-max": d},
    ("llamacpp", "eagle3"): lambda d: {"type": "draft-eagle3", "draft-model": "org/head", "draft-n-max": d},
    ("llamacpp", "dflash"): lambda d: {"type": "draft-dflash", "draft-model": "org/block", "draft-n-max": d},
    ("llamacpp", "dspark"): lambda d: {"type": "draft-dspark", "draft-model": "org/block", "draft-n-max": d},
    ("llamacpp", "ngram"): lambda d: {"type": "ngram-simple", "ngram-simple-size-n": 4, "ngram-simple-size-m": d},
    ("llamacpp", "synthetic"): lambda d: {"type": "draft-mtp", "draft-n-max": d, "synth-len": "2.0"},
    ("trtllm", "external"): lambda d: {
        "decoding_type": "DraftTarget", "max_draft_len": d, "speculative_model": "org/draft",
    },
    ("trtllm", "mtp"): lambda d: {"decoding_type": "MTP", "max_draft_len": d},
    ("trtllm", "eagle3"): lambda d: {"decoding_type": "Eagle3", "max_draft_len": d, "speculative_model": "org/head"},
    ("trtllm", "dflash"): lambda d: {"decoding_type": "DFlash", "max_draft_len": d, "speculative_model": "org/block"},
    ("trtllm", "dspark"): lambda d: {
        "decoding_type": "DSpark", "max_draft_len": d, "block_size": d, "speculative_model": "org/block",
    },
    ("trtllm", "suffix"): lambda d: {
        "decoding_type": "SA", "max_draft_len": d, "max_matching_ngram_size": -1, "enable_global_pool": False,
    },
    ("trtllm", "ngram"): lambda d: {
        "decoding_type": "NGram", "max_draft_len": d, "max_matching_ngram_size": 2, "is_keep_all": True,
        "is_use_oldest": True, "is_public_pool": False,
    },
    ("trtllm", "synthetic"): lambda d: TOLD["trtllm", "mtp"](d),
}  # fmt: skip
"""Where D stands in each engine's words: the off-by-one table of the reference, a row each."""


@pytest.mark.parametrize(("engine", "drafter"), PAIRS)
@pytest.mark.parametrize("draft_length", [1, 4, 7])
def test_each_engine_is_told_this_drafter_with_this_draft_length(engine: str, drafter: str, draft_length: int) -> None:
    assert speculation(plan(engine, drafter, draft_length)) == TOLD[engine, drafter](draft_length)


def test_the_table_above_names_every_pair_that_there_is() -> None:
    assert set(PAIRS) == set(TOLD)


# ---- by the engines' own classes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("drafter", [drafter for engine, drafter in PAIRS if engine == "vllm"])
def test_vllms_own_class_takes_it(drafter: str, version: str) -> None:
    config = SpeculativeConfig(**speculation(plan("vllm", drafter, 5, version=version)))
    assert config.num_speculative_tokens == 5


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4"])
@pytest.mark.parametrize("drafter", ["external", "mtp", "eagle3", "ngram", "suffix", "dflash", "dspark"])
def test_tensorrt_llms_own_classes_take_it_or_the_version_is_refused(drafter: str, version: str) -> None:
    if (drafter, version) in {("suffix", "1.2"), ("dflash", "1.2"), ("dspark", "1.2"), ("dspark", "1.3")}:
        with pytest.raises(UserError, match=r"it has: AUTO"):
            plan("trtllm", drafter, 5, version=version)
        return
    made = plan("trtllm", drafter, 5, told={"api": True}, version=version)
    told = objects(made.kwargs, classes(made.kwargs, surface("trtllm", version)), llmapi(version))
    config = told["speculative_config"]
    assert getattr(config, "drafted", config.max_draft_len) == 5


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4"])
def test_tensorrt_llms_classes_are_asked_where_they_are_installed(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = SimpleNamespace(__version__=f"{version}.0", llmapi=llmapi(version))
    monkeypatch.setattr(trtllm, "_installed", lambda: installed)
    assert speculation(plan("trtllm", "mtp", 3, version=None)) == {
        "decoding_type": "MTP",
        "num_nextn_predict_layers" if version == "1.2" else "max_draft_len": 3,
    }
    head = speculation(plan("trtllm", "eagle3", 3, version=None))
    assert head["decoding_type"] == ("Eagle" if version == "1.2" else "Eagle3")
    with pytest.raises(UserError, match=r"no 'max_matching_ngram' in NGram; did you mean 'max_matching_ngram_size'"):
        plan("trtllm", "ngram", 3, {"engine_options": {"max_matching_ngram": 2}}, version=None)
    if version == "1.3":
        with pytest.raises(UserError, match=r"TensorRT-LLM 1.3 has no DSpark"):
            plan("trtllm", "dspark", 3, version=None)


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_what_an_engine_has_not_is_refused_with_what_has_it() -> None:
    with pytest.raises(Unsupported, match=r"'suffix' does not run on 'sglang'; it runs on: native, .*trtllm, vllm"):
        plan("sglang", "suffix", 4)
    with pytest.raises(Unsupported, match=r"'suffix' does not run on 'llamacpp'"):
        plan("llamacpp", "suffix", 4)
    with pytest.raises(Unsupported, match=r"'oracle' does not run on 'vllm'; it runs on: native, scripted"):
        plan("vllm", "oracle", 4, {})
    with pytest.raises(
        UserError, match=r"TensorRT-LLM 1.2 has no DFlash; 1.3 and 1.4 have it; it has: AUTO, DraftTarget, E"
    ):
        plan("trtllm", "dflash", 4, version="1.2.1")
    with pytest.raises(UserError, match=r"mtp.checkpoint: TensorRT-LLM 1.2 takes the MTP block from the target only"):
        plan("trtllm", "mtp", 4, {"checkpoint": "org/heads"}, version="1.2.1")


@pytest.mark.parametrize(("engine", "drafter"), [pair for pair in PAIRS if pair[1] != "synthetic"])
def test_an_unknown_setting_is_refused_by_name(engine: str, drafter: str) -> None:
    with pytest.raises(
        UnknownName, match=f"no setting of {drafter} named 'engine_option'. Did you mean 'engine_options'"
    ):
        plan(engine, drafter, 4, {**SETTINGS[drafter], "engine_option": {}})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("drafter", ["external", "eagle3", "dflash"])
def test_a_drafter_without_its_weights_says_which_setting_names_them(engine: str, drafter: str) -> None:
    key = "model" if drafter == "external" else "checkpoint"
    with pytest.raises(UserError, match=rf"{drafter}\.{key}: name the "):
        plan(engine, drafter, 4, {})


def test_settings_that_an_engines_own_rule_lacks_are_refused() -> None:
    with pytest.raises(UserError, match=r"llama.cpp looks for one size only, ngram.max_n = 4"):
        plan("llamacpp", "ngram", 4, {"min_n": 2})
    with pytest.raises(UserError, match=r"TensorRT-LLM always goes down to 1"):
        plan("trtllm", "ngram", 4, {"min_n": 2})
    with pytest.raises(UserError, match=r"at most ngram.max_n = 4"):
        plan("vllm", "ngram", 4, {"min_n": 5})
    with pytest.raises(UnknownName, match=r"no setting of suffix named 'offset'"):
        plan("vllm", "suffix", 4, {"offset": 1.0})
    with pytest.raises(UserError, match=r"max_cached_requests: at least 0"):
        plan("vllm", "suffix", 4, {"max_cached_requests": -1})


# ---- forced acceptance ----------------------------------------------------------------------------------------------


def test_forced_acceptance_counts_the_bonus_token_everywhere_but_in_tensorrt_llm() -> None:
    asked = {"base": "eagle3", "checkpoint": "org/head", "acceptance_length": 2.6}
    assert speculation(plan("vllm", "synthetic", 4, asked))["synthetic_acceptance_length"] == 2.6
    assert plan("sglang", "synthetic", 4, asked).env["SGLANG_SIMULATE_ACC_LEN"] == "2.6"
    assert speculation(plan("llamacpp", "synthetic", 4, asked))["synth-len"] == "2.6"
    env = plan("trtllm", "synthetic", 4, asked, version="1.4.0").env
    assert env == {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.6"}


def test_a_forced_rate_becomes_marginal_rates_or_is_refused() -> None:
    asked = {"base": "mtp", "rate": 0.5}
    assert speculation(plan("vllm", "synthetic", 3, asked))["synthetic_acceptance_rates"] == [0.5, 0.25, 0.125]
    assert speculation(plan("llamacpp", "synthetic", 3, asked))["synth-rates"] == "0.5,0.25,0.125"
    for engine in ("sglang", "trtllm"):
        with pytest.raises(UserError, match=r"this engine forces no rate"):
            plan(engine, "synthetic", 3, asked)


def test_what_tensorrt_llm_would_drop_in_silence_is_refused() -> None:
    with pytest.raises(UserError, match=r"cannot force 1; its count of 0 means not forced"):
        plan("trtllm", "synthetic", 4, {"base": "mtp", "acceptance_length": 1})
    for version, base in (("1.2.1", "mtp"), ("1.3.0", "mtp"), ("1.4.0", "ngram")):
        with pytest.raises(UserError, match=r"forces whole numbers with \w+ \(got 2.5\)"):
            plan("trtllm", "synthetic", 4, {"base": base, "acceptance_length": 2.5}, version=version)


def test_forced_acceptance_needs_a_drafter_that_can_draft_there() -> None:
    with pytest.raises(UserError, match=r"synthetic.base: name the drafter that drafts meanwhile"):
        plan("vllm", "synthetic", 4, {"acceptance_length": 2})
    with pytest.raises(UnknownName, match=r"no drafter named 'oracle'"):
        plan("vllm", "synthetic", 4, {"base": "oracle", "acceptance_length": 2})
    with pytest.raises(Unsupported, match=r"'suffix' does not run on 'sglang'"):
        plan("sglang", "synthetic", 4, {"base": "suffix", "acceptance_length": 2})
    with pytest.raises(UserError, match=r"acceptance_length: between 1 and D \+ 1 = 5 \(got 6\)"):
        plan("vllm", "synthetic", 4, {"base": "mtp", "acceptance_length": 6})
