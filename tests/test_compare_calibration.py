"""A small run of benchmarks/calibrate_compare.py: the default gate is quiet on reruns, and sees a real loss."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from speedbench import plugins
from speedbench.compare.gates import DEFAULT, parse
from speedbench.stats import tallied

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import calibrate_compare as calibration

TRACE = calibration.read_trace()
GATE = parse(DEFAULT, plugins.load("metrics", "acceptance"))


def al(measured: object) -> float:
    sums = [tallied(record) for record in measured.records]  # type: ignore[attr-defined]
    return sum(tokens for tokens, _ in sums) / sum(steps for _, steps in sums)


def test_the_trace_is_of_a_real_run() -> None:
    assert len(TRACE) >= 40
    assert len({category for category, _ in TRACE}) >= 8
    assert {int(n) for _, steps in TRACE for n in steps} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("loss", [0.05, 0.1, 0.2])
def test_a_loss_is_as_large_as_it_says(loss: float) -> None:
    q = calibration.survival(TRACE, loss)
    rng = np.random.default_rng(0)
    whole = [TRACE[i % len(TRACE)] for i in range(2000)]
    before, after = al(calibration.rerun(whole, 1.0, rng)), al(calibration.rerun(whole, q, rng))
    # 90,000 steps of standard deviation about 0.9: ±0.2 %
    assert after / before == pytest.approx(1 - loss, abs=0.01)


def test_reruns_raise_no_alarm_and_ten_percent_less_on_eighty_prompts_is_caught() -> None:
    same, worse = (calibration.rates(TRACE, GATE, 80, loss, reruns=60) for loss in (0.0, 0.1))
    assert same.shares["regression"] == 0
    assert worse.shares["regression"] >= 0.95
