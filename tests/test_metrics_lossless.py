"""Outputs identical to the baseline's, and requests answered."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from builders import measured, mismatch, record, steps, values

from speedbench.metrics.lossless import METRICS


def test_a_near_tie_is_told_from_a_real_mismatch() -> None:
    requests = [f"r{i}" for i in range(10)]
    here = measured(
        *(record(steps(1), request=name) for name in requests),
        mismatches=[mismatch("r1", "near_tie", gap=1e-7), mismatch("r2", "real", gap=2.0)],
    )
    found = values(METRICS, here, measured(*(record(request=name) for name in requests), d=0))
    assert (found["lossless"], found["lossless_real"], found["near_ties"]) == (8 / 10, 1.0, 1.0)


def test_only_equal_prompts_that_were_answered_in_both_arms_are_compared() -> None:
    here = measured(
        record(request="same"),
        record(request="later turn", prompt_sha="after another answer"),
        record(request="failed", finish="error"),
        mismatches=[],
    )
    baseline = measured(record(request="same"), record(request="later turn"), record(request="failed"), d=0)
    found = METRICS[0].of(here, baseline)["lossless"]
    assert (found.value, found.n) == (1.0, 1)


def test_what_was_not_compared_is_unknown_and_not_lossless() -> None:
    baseline = measured(record(), d=0)
    for here, other in ((measured(record()), baseline), (measured(record(), mismatches=[]), None)):
        found = values(METRICS, here, other)
        assert found["lossless"] is found["lossless_real"] is found["near_ties"] is None


def test_failures_are_counted() -> None:
    good = [record(request=f"g{i}") for i in range(6)]
    bad = [record(request=f"b{i}", finish="error") for i in range(4)]
    found = values(METRICS, measured(*good, *bad))
    assert (found["failed_requests"], found["failed_share"]) == (4.0, 4 / 10)
    assert values(METRICS, measured(*good))["failed_requests"] == 0.0
    assert values(METRICS, measured())["failed_requests"] is None
