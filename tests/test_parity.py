"""Ours against other packages' own classes: what they said of tiny heads that they built and saved themselves.

The cases are kept as `parity/run.py --freeze` made them. The figures of that run, in float32 (a target of 4 layers,
hidden size 32, 24 tokens, 9 tokens of prompt; Δ is the largest difference between two logits, which go up to 10):

| package | head | numbers | Δ |
|---|---|---|---|
| dflash 0.1.0 | DFlash, 2 layers, block 6: plain | 600 | 3.1e-6 |
| | causal inside the block | 600 | 3.3e-6 |
| | YaRN | 600 | 5.0e-6 |
| speculators 0.9.0 | DFlash, 2 layers, block 5: whole vocabulary | 96 | 3.3e-6 |
| | 10 of 24 tokens | 40 | 3.1e-6 |
| | DSpark, rank 4, logits and confidences: vanilla | 125 | 3.3e-6 |
| | 10 of 24 tokens | 55 | 3.1e-6 |
| | gated, a confidence that reads no Markov state | 125 | 3.8e-6 |
| | rnn, 10 of 24 tokens | 55 | 3.7e-6 |
| | rnn, the anchor predicts nothing | 100 | 3.8e-6 |
| | EAGLE-3, 3 taps, 4 drafts: plain, 10 of 24 tokens | 280 | 3.3e-6 |
| | norm_before_residual, norm_before_fc, norm_output | 280 | 3.3e-6 |
| | fc_norm | 280 | 3.6e-6 |
| | q and k norms, whole vocabulary, norm_before_residual | 672 | 5.6e-6 |
| | YaRN | 280 | 3.1e-6 |
| | MTP | 312 | 3.4e-6 |
| transformers 5.24.0 | MTP, in DeepSeek's names, first embedding not zeroed | 312 | 4.8e-6 |

The best logit is the same in every place, and so are all drafts, and dflash's whole loop: its answer of 40 tokens and
what it accepted of each block, 1, 3, 6, 2, 4, … tokens, some drafts being made right on both sides.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parity.compare import compare, thawed

CASES = sorted((Path(__file__).parent / "parity" / "cases").glob("*.json"))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "parity" / "cases" / f"{name}.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", [path.stem for path in CASES])
def test_a_head_saved_by_another_package_says_here_what_it_says_there(name: str, tmp_path: Path) -> None:
    """dflash 0.1.0 and speculators 0.9.0 with torch 2.13.0 and transformers 5.15.0; transformers 5.24.0: at most
    5.6e-6 apart. The bound leaves room for another machine's rounding."""
    case = read(name)
    found = compare(case, thawed(case, tmp_path))
    assert found.furthest < 5e-5
    assert found.agreeing == 1
    assert found.same_drafts


def test_all_mechanisms_have_cases() -> None:
    assert {read(path.stem)["mechanism"] for path in CASES} == {"dflash", "dspark", "eagle3", "mtp"}
    assert len(CASES) == 17


def test_a_tap_one_layer_off_is_far_from_what_the_package_says(tmp_path: Path) -> None:
    """So that the cases above can fail: layers 0 and 1 read where the head was saved with 0 and 2."""
    case = read("dflash-plain")
    case["config"]["dflash_config"]["target_layer_ids"] = [0, 1]
    found = compare(case, thawed(case, tmp_path))
    assert found.furthest > 0.1
    assert found.agreeing < 1


def test_deepseeks_first_embedding_is_zeroed_here_as_vllm_does_and_transformers_does_not(tmp_path: Path) -> None:
    """vLLM `deepseek_mtp.py` zeroes the embedding of position 0's pair; transformers' MtpModel keeps it."""
    case = read("transformers-mtp")
    assert case.pop("unlike") == {"zero_first_embedding": False}
    assert compare(case, thawed(case, tmp_path)).furthest > 0.1
