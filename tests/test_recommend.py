"""Recommendations rest on measured speed, and on nothing that looks like it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest
from builders import result

from speedbench.recommend import break_even_concurrency, recommendations, sentence
from speedbench.types import Measurement, Result

BASELINE = 37.7
RATES = (49.7, 56.4, 58.4, 59.1, 57.2, 48.4, 48.2, 47.6)
"""A published sweep, D = 1…8, in tokens per second."""


def sweep() -> list[Result]:
    drafted = [
        result(d=d, al=1 + d / 2, decode_tps=rate, speedup=rate / BASELINE) for d, rate in enumerate(RATES, start=1)
    ]
    return [result(d=0, al=1, decode_tps=BASELINE, speedup=1), *drafted]


def interval(value: float, low: float, high: float) -> Measurement:
    return Measurement(value=value, low=low, high=high, n=24, origin="derived")


def test_the_best_d_is_the_fastest_and_not_the_one_with_the_longest_acceptance() -> None:
    (found,) = recommendations(sweep())
    assert (found["verdict"], found["drafter"], found["draft_length"]) == ("speculate", "ngram", 4)
    assert found["speedup"] == pytest.approx(1.568, abs=5e-4)  # 59.1 / 37.7; D = 8 has the longest AL
    assert [each["draft_length"] for each in found["within_noise"]] == [3]  # 58.4 / 59.1 = 0.988; 57.2 is 3.2 % off
    assert sentence(found) == (
        "B=1: use ngram D=4: 1.57x, 59.1 tok/s; as good within noise: ngram D=3 (1.55x). "
        "Whether its outputs equal the baseline's was not checked"
    )


def test_a_longer_acceptance_with_a_slow_drafter_loses() -> None:
    slow = result(drafter="slow", al=3.9, speedup=0.99)
    cheap = result(drafter="cheap", al=1.8, speedup=1.25)
    (found,) = recommendations([slow, cheap])
    assert found["drafter"] == "cheap"


def test_concurrencies_are_judged_each_by_itself() -> None:
    found = recommendations([result(b=b, speedup=s) for b, s in ((32, 0.8), (1, 1.6), (8, 1.1))])
    assert [(each["concurrency"], each["verdict"]) for each in found] == [
        (1, "speculate"),
        (8, "speculate"),
        (32, "do_not_speculate"),
    ]
    assert sentence(found[2]).startswith("B=32: do not speculate: the fastest, ngram D=3, is at 0.8x")
    # on a line over log B from (8, 1.1) to (32, 0.8), 1 is a third of the way: 8 · 4^(1/3) = 12.7
    assert break_even_concurrency(found) == pytest.approx(12.7, abs=0.05)
    assert break_even_concurrency(found[:2]) is None


def test_a_gain_whose_interval_reaches_one_is_noise() -> None:
    (found,) = recommendations([result(speedup=interval(1.03, 0.97, 1.09), speedup_mde=0.084, lossless=1)])
    assert found["verdict"] == "within_noise"
    assert sentence(found) == (
        "B=1: no gain beyond noise: the fastest, ngram D=3, is at 1.03x [0.97, 1.09]; "
        "these prompts can show no change below 8.4%"
    )


def test_without_an_interval_a_gain_within_the_margin_is_noise_too() -> None:
    assert [recommendations([result(speedup=s)])[0]["verdict"] for s in (1.0, 1.019, 1.021)] == [
        "do_not_speculate",
        "within_noise",  # the margin is 2 %
        "speculate",
    ]


def test_a_noisy_machine_is_said_in_the_recommendation_itself() -> None:
    (found,) = recommendations([result(speedup=1.5, lossless=1)], noisy=True)
    assert sentence(found).endswith("1.5x. The machine was noisy: measure again before relying on this")


def test_with_intervals_those_that_overlap_are_as_good() -> None:
    found = recommendations(
        [
            result(d=2, speedup=interval(1.40, 1.35, 1.45)),
            result(d=3, speedup=interval(1.50, 1.44, 1.56)),
            result(d=4, speedup=interval(1.39, 1.34, 1.43)),
        ]
    )[0]
    assert found["draft_length"] == 3
    assert [each["draft_length"] for each in found["within_noise"]] == [2]


def test_a_fast_cell_that_is_not_lossless_or_that_failed_is_named_and_not_recommended() -> None:
    wrong = result(drafter="wrong", speedup=3.0, lossless=20 / 24, lossless_real=4)
    failed = result(drafter="failed", speedup=2.0, failed_requests=1)
    near = result(drafter="near", speedup=1.5, lossless=22 / 24, near_ties=2, lossless_real=0, failed_requests=0)
    (found,) = recommendations([wrong, failed, near])
    assert found["drafter"] == "near"
    assert found["notes"] == []
    assert [each["reason"] for each in found["excluded"]] == [
        "not lossless: 4 of 24 outputs differ",
        "1 of 24 requests failed",
    ]
    assert "Not recommended: wrong D=3 (not lossless: 4 of 24 outputs differ), failed D=3" in sentence(found)


def test_mismatches_that_the_engine_cannot_explain_are_said() -> None:
    (found,) = recommendations([result(speedup=1.5, lossless=21 / 24, near_ties=1, lossless_real=0)])
    assert found["notes"] == ["2 of 24 outputs differ from the baseline's, and the engine cannot say why"]


def test_nothing_to_go_by_is_said_and_not_guessed() -> None:
    for results in ([result(al=5.0)], [result(speedup=2.0, lossless_real=1)], [result(d=0, speedup=1)]):
        (found,) = recommendations(results)
        assert (found["verdict"], found["drafter"], found["speedup"]) == ("unknown", None, None)
        assert "nothing to recommend" in sentence(found)


def test_pooled_cells_are_judged_and_not_their_repeats() -> None:
    repeats = [result(d=d, repeat=r, speedup=s) for d, r, s in ((2, 0, 1.9), (2, 1, 1.0), (3, 0, 1.5), (3, 1, 1.5))]
    (found,) = recommendations([*repeats, result(d=2, speedup=1.45), result(d=3, speedup=1.5)])
    assert (found["draft_length"], found["speedup"]) == (3, 1.5)


def test_a_recommendation_is_plain_json() -> None:
    found = recommendations(sweep())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
