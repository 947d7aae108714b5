"""Sampled: the expected acceptance over the target's own answers is what sampled runs come to, at every D."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scripted_target as st
import test_replay_native as greedy
import tiny

from speedbench.types import Answer, Sampling

DRAFTERS = greedy.DRAFTERS | {
    "external": (greedy.two, lambda target, shape: tiny.external(tiny.lean(tiny.noisy(tiny.model(), 0.3)), shape))
}
CAP, RUNS, ANSWERS, ROWS = 9, 2000, 300, 100
SAMPLING: dict[str, Any] = {"temperature": 5.0, "top_k": 24, "top_p": 0.95}
PROMPT = greedy.PROMPT


def decoded(name: str, d: int, runs: int, seed: int) -> list[tiny.Answer]:
    """So many sampled runs of one prompt, side by side; D = 0: the target alone."""
    target, build = DRAFTERS[name]
    shape = tiny.plan(d, rows=ROWS, length=64, sampling=Sampling(**SAMPLING))
    return [
        answer
        for at in range(0, runs, ROWS)
        for answer in tiny.decoded(
            target(), build(target(), shape) if d else None, shape, [PROMPT] * ROWS, CAP, seed=seed,
            keys=range(at, at + ROWS),
        )
    ]  # fmt: skip


def ratio(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Σ tokens / Σ steps, and its standard error by the delta method."""
    tokens, steps = np.array(parts).T
    value = tokens.sum() / steps.sum()
    return float(value), float(np.std(tokens - value * steps, ddof=1) / steps.mean() / len(parts) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["external", "eagle3, reduced, two layers", "mtp", "dflash", "dspark, cut"])
def test_the_expected_acceptance_is_that_of_two_thousand_sampled_runs(name: str) -> None:
    target, build = DRAFTERS[name]
    outputs = [answer.tokens for answer in decoded(name, 0, ANSWERS, seed=1)]
    lengths = [1, 4]
    found: dict[int, list[tuple[float, float]]] = {d: [] for d in lengths}
    for output in outputs:
        asked = Answer(
            request="r", category="c", turn=0, prompt=tuple(PROMPT), prompt_tokens=len(PROMPT), prompt_sha="s",
            output=tuple(output), cap=CAP, finish="length",
        )  # fmt: skip
        for d, record in st.replayed((), target(), build, asked, lengths, **SAMPLING).items():
            assert record.counts is not None
            assert record.told == record.counts.origin == "estimated"
            found[d].append((record.counts.committed, record.counts.steps))
    for d in lengths:
        ran = [(sum(answer.commits), len(answer.steps)) for answer in decoded(name, d, RUNS, seed=2)]
        (real, error), (replayed, own) = ratio(ran), ratio(found[d])
        assert real > 1.02, "nothing was ever accepted"
        assert abs(real - replayed) < 3 * (error**2 + own**2) ** 0.5
