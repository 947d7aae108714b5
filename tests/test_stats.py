"""Ratios of sums, and intervals that resample conversations."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from builders import measured, passed, record
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.stats import (
    UNAVAILABLE,
    Share,
    answered,
    block_shares,
    estimate,
    full_passes,
    minimum_detectable_effect,
    paired,
    percentile,
    ratio_of_ratios,
    ratio_of_sums,
)
from speedbench.stats.estimates import _quantile


def made(n: int, *, seed: int = 1, strata: int = 4) -> list[Share]:
    """Clusters with 10 to 40 steps each and one to four tokens a step."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(10, 40, n)
    tokens = counts * rng.uniform(1, 4, n)
    return [Share(f"r{i}", f"c{i % strata}", (float(tokens[i]), float(counts[i]))) for i in range(n)]


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    parts = [Share("a", "c", (30.0, 10.0)), Share("b", "c", (1.0, 1.0))]
    assert ratio_of_sums(parts).value == pytest.approx(31 / 11)  # and not (3 + 1) / 2


def test_turns_and_repeats_of_one_conversation_are_one_cluster() -> None:
    parts = [Share("a", "c", (3.0, 1.0)), Share("a", "c", (5.0, 3.0)), Share("b", "c", (2.0, 1.0))]
    found = ratio_of_sums(parts)
    assert (found.value, found.n) == (10 / 5, 2)
    assert (found.low, found.high) == (2.0, 2.0)  # a: 8 / 4 = 2, b: 2 / 1 = 2: resampling them changes nothing


def test_one_conversation_has_a_value_and_no_interval() -> None:
    found = ratio_of_sums([Share("a", "c", (6.0, 3.0))] * 5)
    assert (found.value, found.low, found.high, found.n) == (2.0, None, None, 1)


@pytest.mark.parametrize("parts", [[], [Share("a", "c", (0.0, 0.0))], [Share("a", "c", (1.0, 0.0))]])
def test_an_undefined_ratio_is_unavailable_and_never_nan(parts: list[Share]) -> None:
    assert ratio_of_sums(parts) == UNAVAILABLE


def test_a_cluster_that_adds_nothing_is_not_counted() -> None:
    assert ratio_of_sums([Share("a", "c", (2.0, 1.0)), Share("b", "c", (0.0, 0.0))]).n == 1


def test_the_interval_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    parts = made(60, strata=1)
    tokens, counts = (np.array([part.sums[i] for part in parts]) for i in (0, 1))
    theirs = stats.bootstrap(
        (tokens, counts),
        lambda a, b, axis=-1: a.sum(axis=axis) / b.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=4000,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    ours = ratio_of_sums(parts)
    assert ours.low == pytest.approx(theirs.low, abs=0.1 * (theirs.high - theirs.low))
    assert ours.high == pytest.approx(theirs.high, abs=0.1 * (theirs.high - theirs.low))


def test_the_interval_depends_neither_on_the_order_of_records_nor_on_the_run() -> None:
    parts = made(30)
    assert ratio_of_sums(parts) == ratio_of_sums(parts)
    other = ratio_of_sums(parts[::-1])
    assert other.low == pytest.approx(ratio_of_sums(parts).low, rel=1e-12)


def test_an_interval_is_as_wide_where_each_category_has_two_conversations_only() -> None:
    # 60 categories of two, apart by 1: each has variance 0.5, its mean 0.25, and the mean over all 0.25 / 60, so the
    # half width is 1.96 · 0.0645 = 0.127; resampling two of two would give 0.127 / √2
    parts = [Share(f"{c}-{i}", f"{c:02d}", (10.0 + c % 7 + i, 1.0)) for c in range(60) for i in (0, 1)]
    found = ratio_of_sums(parts)
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(0.127, rel=0.05)


def test_the_draws_are_pinned_so_that_a_stored_interval_can_be_recomputed() -> None:
    found = ratio_of_sums([Share(str(i), "ab"[i % 2], (i**1.5, 1.0 + i % 3)) for i in range(1, 12)])
    assert found.low == pytest.approx(4.180759499007706, rel=1e-12)
    assert found.high == pytest.approx(11.960957783879762, rel=1e-12)


def test_strata_are_resampled_each_by_itself() -> None:
    parts = [Share(f"{c}{i}", c, (v, 1.0)) for c, v in (("low", 1.0), ("high", 9.0)) for i in range(5)]
    found = ratio_of_sums(parts)
    assert (found.low, found.value, found.high) == (5.0, 5.0, 5.0)  # always five ones and five nines


def test_categories_of_one_conversation_each_still_give_an_interval_of_some_width() -> None:
    found = ratio_of_sums([Share(f"r{i}", f"c{i}", (float(i), 1.0)) for i in range(8)])
    assert found.low is not None
    assert found.high is not None
    assert found.low < 3.5 < found.high


def test_one_lone_category_joins_the_largest_and_all_clusters_stay() -> None:
    parts = [*(Share(f"a{i}", "a", (1.0, 1.0)) for i in range(3)), Share("b0", "b", (5.0, 1.0))]
    assert ratio_of_sums(parts).value == pytest.approx((3 + 5) / 4)
    assert ratio_of_sums(parts).n == 4


def test_two_arms_with_one_block_each_have_no_interval() -> None:
    parts = [Share("a", "ours", (2.0, 1.0, 0.0, 0.0)), Share("b", "theirs", (0.0, 0.0, 1.0, 1.0))]
    found = ratio_of_ratios(parts)
    assert (found.value, found.low, found.high) == (2.0, None, None)


def test_pairing_takes_out_what_both_arms_share() -> None:
    rng = np.random.default_rng(3)
    speeds = rng.uniform(10, 100, 40)  # prompts differ tenfold, the gain on each is 1.5
    parts = [Share(str(i), "c", (1.5 * v, 1.0, v, 1.0)) for i, v in enumerate(speeds.tolist())]
    found = ratio_of_ratios(parts)
    assert found.value == pytest.approx(1.5)
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5)


def test_a_hundred_clusters_take_a_few_milliseconds() -> None:
    parts = made(100)
    start = time.perf_counter()
    estimate(parts, lambda s: s[0] / s[1], origin="exact", seed=99)
    assert time.perf_counter() - start < 0.2  # about 10 ms; the rest is room for a busy machine


def test_the_minimum_detectable_effect_is_2_8_standard_errors() -> None:
    # sd of (0.1, 0.3) is √0.02 = 0.1414; 2.8 · 0.1414 / √2 = 0.28
    assert minimum_detectable_effect([0.1, 0.3]) == pytest.approx(0.28)
    assert minimum_detectable_effect([0.1]) is None


def test_percentiles_interpolate_and_nothing_has_none() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([], 50) is None


def test_neighbouring_passes_make_at_most_twenty_blocks_and_lose_nothing() -> None:
    blocks = block_shares("cell", [(float(i), 1.0) for i in range(101)])
    assert len(blocks) == 20
    assert [sum(block.sums[i] for block in blocks) for i in (0, 1)] == [101 * 100 / 2, 101]
    assert len(block_shares("cell", [(1.0, 1.0)] * 3)) == 3
    assert block_shares("cell", []) == []


def test_failed_records_and_partial_batches_are_left_out() -> None:
    here = measured(
        record(request="a"),
        record(request="b", finish="error"),
        b=2,
        passes=[passed(verify=1.0, batch=2), passed(verify=9.0, batch=1)],
    )
    assert [each.request for each in answered(here)] == ["a"]
    assert [each.verify for each in full_passes(here)] == [1.0]


def test_pairs_are_the_same_turn_of_the_same_request_answered_in_both_arms() -> None:
    ours = measured(record(request="a"), record(request="a", turn=1), record(request="b"))
    theirs = measured(record(request="b", finish="error"), record(request="a", turn=1), record(request="c"), d=0)
    assert [(one.request, one.turn) for one, _ in paired(ours, theirs)] == [("a", 1)]


def test_nothing_that_comes_out_is_infinite() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        parts = [Share(str(i), "c", tuple(rng.integers(0, 2, 4).astype(float).tolist())) for i in range(4)]
        found = ratio_of_ratios(parts)
        assert all(value is None or math.isfinite(value) for value in (found.value, found.low, found.high))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_the_ends_of_an_interval_are_numpys_percentiles_to_the_last_bit(draws: list[float]) -> None:
    ordered = np.sort(draws)
    expected = np.percentile(draws, (2.5, 97.5)).tolist()
    assert [_quantile(ordered, q) for q in (0.025, 0.975)] == expected
