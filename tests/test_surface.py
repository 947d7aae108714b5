"""Names by version: the nearest is used and said, a stale one is named with its successor."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from translated import plan, speculation

from speedbench.errors import UserError
from speedbench.serving.surface import TITLES, check, surface, versions

EVERY = [(engine, version) for engine in TITLES for version in versions(engine)]


@pytest.mark.parametrize(("engine", "version"), EVERY)
def test_every_file_of_names_reads_and_says_nothing_twice(engine: str, version: str) -> None:
    names = surface(engine, version)
    assert names.sections
    assert not names.warnings
    for about in names.sections.values():
        assert len(set(about["keys"])) == len(about["keys"])
    for section, words in names.renamed.items():
        place, _, key = section.partition(".")
        if key:
            assert set(words.values()) <= set(names.choices[section])
        else:
            assert set(words.values()) <= set(names.sections[place]["keys"])
            assert not set(words) & set(names.sections[place]["keys"])


@pytest.mark.parametrize(
    ("engine", "asked", "used", "exact"),
    [
        ("vllm", "0.33.0", "0.33", True),
        ("vllm", "0.32.0+cpu", "0.32", True),
        ("vllm", "0.40.1", "0.33", False),
        ("vllm", "0.20", "0.32", False),
        ("sglang", "0.5.23", "0.5.23", True),
        ("sglang", "0.5.30", "0.5.23", False),
        ("trtllm", "1.2.1", "1.2", True),
        ("trtllm", "1.3.0rc7", "1.3", True),
        ("trtllm", "2.0", "1.4", False),
        ("llamacpp", "b11549", "b11549", True),
        ("llamacpp", "2026.10.11549", "b11549", True),
        ("llamacpp", "b12000", "b11549", False),
    ],
)
def test_the_nearest_version_is_used_and_said(engine: str, asked: str, used: str, exact: bool) -> None:
    names = surface(engine, asked)
    assert names.version == used
    said = f"names of {TITLES[engine]} {asked} are not known; those of {used} are used"
    assert names.warnings == (() if exact else (said,))


def test_a_version_that_nobody_told_is_taken_for_the_newest_and_said() -> None:
    assert surface("vllm", None).warnings == ("the version of vLLM is not known; taken for 0.33",)
    assert plan("vllm", "mtp", 2, version=None).notes[0].startswith("the version of vLLM is not known")
    assert plan("vllm", "mtp", 2, told={"version": "0.32.0"}, version=None).version == "0.32"
    with pytest.raises(UserError, match="'newest' is no version of vLLM"):
        surface("vllm", "newest")
    with pytest.raises(UserError, match="no engine named 'vlm'"):
        versions("vlm")


@pytest.mark.parametrize(
    ("engine", "version", "section", "stale", "said"),
    [
        ("sglang", "0.5.23", "serve", {"cuda_graph_max_bs": 8}, "it is called 'cuda_graph_max_bs_decode' there"),
        (
            "sglang", "0.5.23", "serve", {"speculative_dflash_draft_window_size": 8},
            "it is called 'speculative_draft_window_size' there",
        ),
        ("sglang", "0.5.23", "serve", {"mamba_scheduler_strategy": "x"}, "called 'mamba_radix_cache_strategy' there"),
        ("sglang", "0.5.23", "serve", {"speculative_algorithm": "LOOKAHEAD"}, "it is called 'NGRAM' there"),
        ("vllm", "0.33", "speculative_config", {"disable_by_batch_size": 8}, "'num_speculative_tokens_per_batch_size'"),
        ("vllm", "0.33", "speculative_config", {"parallel_draft_block_sizes": 8}, "vLLM 0.33 has no 'parallel_draft"),
        ("vllm", "0.32", "speculative_config", {"fly_window_size": 8}, "; 0.33 has it"),
        ("vllm", "0.33", "speculative_config", {"method": "medusa"}, "no speculative_config.method 'medusa'; it takes"),
        ("vllm", "0.32", "serve", {"max-num-seq": 8}, "did you mean 'max-num-seqs'?"),
        ("llamacpp", "b11549", "server", {"draft-max": 8}, "it is called 'spec-draft-n-max' there"),
        ("trtllm", "1.4", "MTP", {"num_nextn_predict_layers": 3}, "it is called 'max_draft_len' there"),
        ("trtllm", "1.4", "NGram", {"acceptance_window": 3}, "it is called 'acceptance_rate_window_size' there"),
        ("trtllm", "1.2", "NGram", {"acceptance_rate_threshold": 3}, "called 'acceptance_length_threshold' there"),
        ("trtllm", "1.3", "DSpark", {}, "TensorRT-LLM 1.3 has no DSpark; 1.4 has it; it has: AUTO, DFlash"),
    ],
)  # fmt: skip
def test_a_stale_or_foreign_name_is_refused_with_what_it_is_called_there(
    engine: str, version: str, section: str, stale: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        check(surface(engine, version), {section: stale})
    assert said in str(caught.value)


def test_a_name_that_nobody_can_vouch_for_is_warned_of() -> None:
    assert check(surface("vllm", "0.33"), {"serve": {"brand-new": 1}}) == (
        "'brand-new' in serve is not among the names known of vLLM 0.33",
    )
    assert "brand_new" in check(surface("sglang", "0.6"), {"serve": {"brand_new": 1}})[-1]


def test_names_follow_the_version_of_tensorrt_llm() -> None:
    def told(drafter: str, version: str) -> dict[str, object]:
        return speculation(plan("trtllm", drafter, 3, version=version))

    assert told("eagle3", "1.2.1") == {
        "decoding_type": "Eagle",
        "max_draft_len": 3,
        "speculative_model_dir": "org/head",
    }
    assert told("eagle3", "1.3.0") == {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "org/head"}
    assert told("mtp", "1.2.1") == told("mtp", "1.3.0") == {"decoding_type": "MTP", "num_nextn_predict_layers": 3}
    assert told("mtp", "1.4.0rc4") == {"decoding_type": "MTP", "max_draft_len": 3}
    assert "--extra_llm_api_options" in plan("trtllm", "mtp", 3, version="1.2.1").argv
    assert "--config" in plan("trtllm", "mtp", 3, version="1.4.0").argv
