"""By how much two cells differ: conversations for what is counted, blocks for what is timed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from builders import measured, record, steps, timed
from hypothesis import given
from hypothesis import strategies as st

from speedbench import plugins
from speedbench.compare.estimate import RATES, Arm, blocks, change, unpaired
from speedbench.metrics.acceptance import al
from speedbench.stats import UNAVAILABLE, jackknife
from speedbench.stats.estimates import _t_quantile
from speedbench.types import Measured, Measurement, Metric, Record


def metric(name: str) -> Metric:
    every = [each for family in plugins.names("metrics") for each in plugins.load("metrics", family)]
    return next(each for each in every if each.name == name)


def arm(*records: Record, baseline: Measured | None = None, block: int = 1) -> Arm:
    """Each conversation a block, or so many neighbours."""
    names = list(dict.fromkeys(each.request for each in records))
    return Arm(measured(*records), baseline, {(name, 0): i // block for i, name in enumerate(names)})


def conversations(*accepted: Sequence[int], category: str = "chat") -> list[Record]:
    return [record(steps(*each), request=f"r{i}", category=category) for i, each in enumerate(accepted)]


# ---- acceptance, by conversation -----------------------------------------------------------------------------------


def test_the_change_of_al_is_the_ratio_of_the_two_als() -> None:
    base, cand = conversations((3, 3), (1, 1)), conversations((1, 1), (1, 1))
    found = change(metric("al"), arm(*base), arm(*cand))
    # base (4 + 4 + 2 + 2) / 4 = 3; cand (2 + 2 + 2 + 2) / 4 = 2; 2 / 3 − 1
    assert (found.base.value, found.cand.value) == (3.0, 2.0)
    assert found.change.value == pytest.approx(-1 / 3)
    assert (found.change.n, found.unit) == (2, "conversations")


def test_equal_runs_differ_by_nothing_and_surely() -> None:
    same = conversations((3, 0), (1, 2), (0, 0), (2, 2))
    found = change(metric("al"), arm(*same), arm(*same))
    assert (found.change.value, found.change.low, found.change.high, found.detectable) == (0.0, 0.0, 0.0, 0.0)


def test_pairing_sees_what_the_spread_between_conversations_hides() -> None:
    base = conversations(*[(i % 4, i % 4, 3, 1) for i in range(20)])
    cand = conversations(*[(i % 4, i % 4, 3, 0) for i in range(20)])
    paired = change(metric("al"), arm(*base), arm(*cand))
    alone = unpaired("al", None, paired.base, paired.cand)
    assert paired.change.high is not None
    assert alone.change.high is not None
    assert paired.change.high < 0 < alone.change.high
    assert alone.change.value == pytest.approx(paired.change.value)


def test_only_turns_that_both_sides_answered_count() -> None:
    base = [*conversations((3, 3), (1, 1)), record(steps(0, 0, 0, 0), request="r9")]
    cand = [*conversations((3, 3), (1, 1)), record(steps(3, 3, 3, 3), request="r8")]
    found = change(metric("al"), arm(*base), arm(*cand))
    assert (found.base.value, found.cand.value, found.change.value, found.change.n) == (3.0, 3.0, 0.0, 2)


def test_a_failed_turn_is_no_turn() -> None:
    base = conversations((3, 3), (1, 1))
    cand = [base[0], replace(base[1], finish="error", error="HTTP 503")]
    assert change(metric("al"), arm(*base), arm(*cand)).change.n == 1


def test_one_category_alone() -> None:
    base = [*conversations((3, 3)), record(steps(1, 1), request="b0", category="code")]
    cand = [*conversations((3, 3)), record(steps(0, 0), request="b0", category="code")]
    found = change(metric("al"), arm(*base), arm(*cand), "code")
    assert (found.category, found.change.value, found.change.low) == ("code", -0.5, None)


def test_repeats_of_a_conversation_are_one_unit() -> None:
    base = conversations((3, 3), (1, 1))
    again = [replace(each, process=1000) for each in base]
    once, twice = (change(metric("al"), arm(*base), arm(*records)) for records in (base, [*base, *again]))
    assert twice.change == once.change


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=2, max_size=8),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=2, max_size=8),
)
def test_the_change_is_that_of_the_numbers_shown_whatever_was_accepted(
    base: list[list[int]], cand: list[list[int]]
) -> None:
    both = min(len(base), len(cand))
    mine, theirs = arm(*conversations(*base)), arm(*conversations(*cand))
    found = change(metric("al"), mine, theirs)
    assert found.base == al(arm(*conversations(*base[:both])).measured, None)["al"]
    assert found.base.value is not None
    assert found.cand.value is not None
    assert found.change.value is not None
    assert found.change.value == pytest.approx(found.cand.value / found.base.value - 1)
    if found.change.low is not None and found.change.high is not None:
        assert -1 < found.change.low <= found.change.high


# ---- times, by block -----------------------------------------------------------------------------------------------


def side(seconds: Sequence[float], plain: Sequence[float]) -> Arm:
    """Ten tokens a conversation in so many seconds, and in so many by the baseline."""
    baseline = measured(*[timed(10, s, request=f"r{i}") for i, s in enumerate(plain)], d=0)
    return arm(*[timed(10, s, d=3, request=f"r{i}") for i, s in enumerate(seconds)], baseline=baseline)


def test_a_machine_that_slowed_down_as_a_whole_changes_no_speedup() -> None:
    base, cand = side([1.0, 1.2, 1.1], [2.0, 2.4, 2.2]), side([2.0, 2.4, 2.2], [4.0, 4.8, 4.4])
    assert change(metric("speedup"), base, cand).change.value == pytest.approx(0.0)
    slower = change(metric("decode_tps"), base, cand)
    assert slower.change.value == pytest.approx(-0.5)
    assert (slower.unit, slower.change.n) == ("blocks", 3)


def test_speed_is_acceptance_over_the_cost_of_a_step() -> None:
    base, cand = side([1.0, 1.2], [2.0, 2.0]), side([0.9, 1.3], [2.0, 2.1])
    speed, cost, tokens = (change(metric(name), base, cand).change.value for name in ("speedup", "step_cost", "al"))
    assert speed is not None
    assert cost is not None
    assert tokens is not None
    assert 1 + speed == pytest.approx((1 + tokens) / (1 + cost))


def test_without_a_baseline_there_is_no_change_of_speedup() -> None:
    found = change(metric("speedup"), arm(timed(10, 1.0, d=3)), arm(timed(10, 1.0, d=3)))
    assert (found.change.value, found.unit) == (None, "")


def test_neighbours_of_a_block_go_together() -> None:
    base = side([1.0] * 6, [2.0] * 6)
    cand = side([1.0, 1.0, 1.0, 1.2, 1.2, 1.2], [2.0] * 6)
    three = cand._replace(block={key: at // 3 for key, at in cand.block.items()})
    assert change(metric("speedup"), base, three).change.n == 2
    assert change(metric("speedup"), base, cand).change.n == 6


def test_blocks_are_those_of_the_run() -> None:
    requests = [f"r{i}" for i in range(44)]
    # four conversations per row of the batch: 16, 16 and 12 at B = 4
    four = blocks(requests, 4, {0: 3})
    assert [sum(at == n for at in four.values()) for n in range(3)] == [16, 16, 12]
    # an engine that was started for each block had two only
    assert max(blocks(requests, 4, {0: 2}).values()) == 1
    assert set(blocks(requests, 1, {0: 0, 1: 0})) == {(name, repeat) for name in requests for repeat in (0, 1)}


def test_the_quantiles_of_t_are_those_of_scipy() -> None:
    for freedom in (1, 2, 3, 10, 100):
        assert _t_quantile(0.975, freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=1e-6)


def test_the_interval_of_few_blocks_is_that_of_a_t_test_on_their_logarithms() -> None:
    # equal denominators make the leave-one-out ratios those of means; small differences make them linear
    logs = np.array([0.010, 0.012, 0.007, 0.011])
    units = [(math.exp(each), 1.0) for each in logs]
    found = jackknife(units, lambda sums: sums[0] / sums[1])
    right = scipy.stats.t.interval(0.95, 3, loc=logs.mean(), scale=scipy.stats.sem(logs))
    assert (math.log(found.low or 1), math.log(found.high or 1)) == pytest.approx(right, abs=2e-5)


def test_one_block_has_no_interval_and_none_no_number() -> None:
    one = jackknife([(2.0, 1.0)], lambda sums: sums[0] / sums[1])
    assert (one.value, one.low, one.n) == (2.0, None, 1)
    assert jackknife([], lambda sums: sums[0] / sums[1]) == UNAVAILABLE


# ---- numbers alone -------------------------------------------------------------------------------------------------


def test_two_intervals_alone_make_a_wider_one() -> None:
    base, cand = Measurement(value=2.0, low=1.8, high=2.2, n=80), Measurement(value=2.0, low=1.8, high=2.2, n=80)
    found = unpaired("al", None, base, cand).change
    half = math.sqrt(2) * math.log(2.2 / 1.8) / 2
    assert found.low == pytest.approx(math.exp(-half) - 1)
    assert found.origin == "estimated"


def test_what_is_unknown_has_no_change() -> None:
    assert unpaired("al", None, UNAVAILABLE, Measurement(value=2.0, n=3)).change.value is None


def test_every_rate_is_a_metric() -> None:
    for name in RATES:
        assert metric(name).better in ("higher", "lower")
