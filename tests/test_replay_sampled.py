"""Sampled: the expected acceptance over the target's own answers is what sampled runs come to, at every D."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import scripted_target as st
import test_replay_native as greedy
import tiny

from speedbench import walk
from speedbench.types import Answer, Chances, Counts, Sampling, Tables

DRAFTERS = greedy.DRAFTERS | {
    "external": (greedy.two, lambda target, shape: tiny.external(tiny.lean(tiny.noisy(tiny.model(), 0.3)), shape))
}
CAP, RUNS, ROWS = 9, 2000, 200
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


def expected(name: str, lengths: Sequence[int], answers: int) -> dict[int, list[Counts]]:
    """By D, what a replay makes of so many answers of the target alone."""
    target, build = DRAFTERS[name]
    asked = [made(answer.tokens) for answer in decoded(name, 0, answers, seed=1)]
    tables = st.labelled((), target(), build, asked, lengths, ROWS, **SAMPLING)
    return {d: [walk.expected(*pair, d) for pair in zip(asked, of(tables, d), strict=True)] for d in lengths}


def of(tables: Sequence[Tables], d: int) -> Iterator[Chances]:
    for each in tables:
        table = each.get(d) or each[None]
        assert isinstance(table, Chances)
        yield table


def made(output: Sequence[int]) -> Answer:
    return Answer(
        request="r", category="c", turn=0, prompt=tuple(PROMPT), prompt_tokens=len(PROMPT), prompt_sha="s",
        output=tuple(output), cap=CAP, finish="length",
    )  # fmt: skip


def ratio(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Σ tokens / Σ steps, and its standard error by the delta method."""
    tokens, steps = np.array(parts).T
    value = tokens.sum() / steps.sum()
    return float(value), float(np.std(tokens - value * steps, ddof=1) / steps.mean() / len(parts) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["external", "eagle3, reduced, two layers", "mtp", "dflash", "dspark, cut"])
def test_the_expected_acceptance_is_that_of_two_thousand_sampled_runs(name: str) -> None:
    found = expected(name, [1, 4], RUNS)
    for d in found:
        runs = decoded(name, d, RUNS, seed=2)
        ran = [(sum(answer.commits), len(answer.steps)) for answer in runs]
        real, within = agree(ran, [(each.committed, each.steps) for each in found[d]])
        assert real > 1.05, "next to nothing was accepted"
        assert within < 0.25 * (real - 1), "three standard errors would let anything pass"
        if name == "dspark, cut":
            continue  # how many drafts a step proposed is known along the answer alone
        for i in range(1, d + 1):  # P(at least i drafts accepted), over all steps
            agree(
                [(sum((s.accepted or 0) >= i for s in answer.steps), len(answer.steps)) for answer in runs],
                [(sum(n for _, a, _, n in each.outcomes or () if a >= i), each.steps) for each in found[d]],
            )
        for k in (0, 3):  # the share of runs in which a step begins behind k + 1 tokens: 1 where k = 0
            begins = [(float(k in accumulate(answer.commits, initial=0)), 1) for answer in runs]
            agree(begins, [((each.begun or ())[k][0], 1) for each in found[d]])


def agree(ran: Sequence[tuple[float, float]], replayed: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The ratio that ran, and three standard errors of its difference to the replayed one, which it must be within."""
    (real, error), (expected, own) = ratio(ran), ratio(replayed)
    within = 3 * (error**2 + own**2) ** 0.5
    assert abs(real - expected) <= within + 1e-12
    return real, within


RIGHT = walk._accepted
RULES: dict[str, tuple[Callable[[float, float], float], bool]] = {
    "min(1, q/p)": (RIGHT, True),
    "min(1, p/q)": (lambda log_p, log_q: RIGHT(log_q, log_p), False),
    "q alone": (lambda log_p, log_q: math.exp(log_q), False),
    "certain or not at all": (lambda log_p, log_q: float(log_q >= log_p), False),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_acceptance_rule_would_be_seen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison on a tenth of the runs."""
    accepted, right = RULES[rule]
    monkeypatch.setattr(walk, "_accepted", accepted)
    found = [(each.committed, each.steps) for each in expected("external", [4], RUNS // 10)[4]]
    ran = [(sum(answer.commits), len(answer.steps)) for answer in decoded("external", 4, RUNS // 10, seed=2)]
    with nullcontext() if right else pytest.raises(AssertionError):
        agree(ran, found)
