"""The cost model: it finds what made the times, says how wrong it is, and refuses where it would have to guess."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from timings import dense, moe, timed

from speedbench.costs.linear import LIMIT, Place, Refused, fit
from speedbench.costs.nnls import nnls
from speedbench.costs.passes import Passes, distinct_experts, draft_terms, tiles

GRID = list(product((1, 8, 64), (0, 3, 15), (1024, 32768)))
"""The 18 points that suffice."""


def place(batch: float, draft_length: float, context: float = 1024) -> Place:
    return Place(batch=batch, draft_length=draft_length, context=context)


# ---- non-negative least squares ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 24), st.integers(1, 6))
def test_nnls_agrees_with_scipy(seed: int, rows: int, columns: int) -> None:
    dice = np.random.default_rng(seed)
    a, b = dice.normal(size=(rows, columns)), dice.normal(size=rows)
    ours, theirs = nnls(a, b), optimize.nnls(a, b)[0]
    assert (ours >= 0).all()
    assert np.linalg.norm(a @ ours - b) <= np.linalg.norm(a @ theirs - b) + 1e-8


def test_nnls_gives_nothing_to_a_column_that_would_have_to_be_negative() -> None:
    # b = 2·first − 1·second: without the second the best is Σ first·b / Σ first² = (2+1+0)/2 = 1.5
    a = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert nnls(a, a @ np.array([2.0, -1.0])) == pytest.approx([1.5, 0.0])


def test_nnls_takes_columns_of_very_different_sizes_and_of_zeros() -> None:
    a = np.array([[1.0, 1e9, 0.0], [1.0, 2e9, 0.0], [1.0, 4e9, 0.0]])
    assert nnls(a, a @ np.array([3e-3, 2e-12, 5.0])) == pytest.approx([3e-3, 2e-12, 0.0])


# ---- the counts that cost time -------------------------------------------------------------------------------------


def test_distinct_experts_are_those_of_the_coupon_collector() -> None:
    # E=256, k=8: 256·(1 − (248/256)^x)
    found = [round(distinct_experts(256, 8, x), 1) for x in (1, 2, 4, 8, 16, 32, 64)]
    assert found == [8.0, 15.8, 30.5, 57.4, 102.0, 163.3, 222.4]


def test_attention_pays_for_whole_tiles() -> None:
    assert [tiles(16, d) for d in (0, 7, 8, 15, 16)] == [1, 1, 2, 2, 3]
    assert tiles(6, 20) == 1  # 126 of 128
    assert tiles(16, 2.5) == 1  # a mean of proposals: 56 of 128


# ---- the fit -------------------------------------------------------------------------------------------------------


def test_a_dense_model_is_found_again_from_18_points() -> None:
    passes = Passes([timed(*at, dense(*at)) for at in GRID], dense.facts)
    assert passes.verifying.mean_error < 0.01
    found = passes.verify(place(16, 7, 8192))
    assert found.seconds == pytest.approx(dense(16, 7, 8192), rel=0.02)
    assert found.origin == "estimated"
    assert found.doubt is not None


def test_without_the_column_of_distinct_experts_a_mixture_is_missed_by_far() -> None:
    points = [timed(*at, moe(*at)) for at in GRID]
    with_column = Passes(points, moe.facts).verifying
    without = Passes(points, dense.facts).verifying
    assert with_column.mean_error < 0.03 < LIMIT < without.mean_error


def test_a_measured_place_is_answered_with_what_was_measured() -> None:
    points = [timed(*at, dense(*at) * (1.3 if at == (8, 3, 1024) else 1.0), spread=0.1, rounds=4) for at in GRID]
    found = Passes(points, dense.facts).verify(place(8, 3))
    assert found.origin == "exact"
    assert found.seconds == pytest.approx(1.3 * dense(8, 3, 1024))
    assert found.doubt == pytest.approx(found.seconds * 0.1 / 2)  # spread / √rounds


def test_between_two_lengths_at_a_measured_batch_and_context_the_times_lie_on_a_line() -> None:
    """A drafter that holds back proposes 2.5 of 3 on the mean; D = 0 and D = 3 were measured."""
    passes = Passes([timed(*at, dense(*at)) for at in GRID], dense.facts)
    found = passes.verify(place(8, 2.5, 32768))
    assert found.origin == "derived"
    assert found.seconds == pytest.approx(dense(8, 0, 32768) / 6 + dense(8, 3, 32768) * 5 / 6)


def test_between_two_contexts_at_a_measured_batch_too_whatever_the_fit_makes_of_it() -> None:
    """T grows with B·S, so the middle of two contexts is the mean of their times; at B=16 there is only the fit."""
    passes = Passes([timed(*at, dense(*at) * (1.2 if at[0] == 8 else 1.0)) for at in GRID], dense.facts)
    middle = (1024 + 32768) // 2
    found = passes.verify(place(8, 3, middle))
    assert found.origin == "derived"
    assert found.seconds == pytest.approx(1.2 * dense(8, 3, middle))
    assert passes.verify(place(16, 3, middle)).origin == "estimated"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ((128, 0, 1024), "B=128 is outside the measured 1 to 64"),
        ((64, 16, 1024), "D=16 is outside"),
        ((1, 0, 65536), "context=65536 is outside"),
        ((1, 0, 512), "context=512 is outside"),
    ],
)
def test_nothing_is_said_outside_the_measured_box(at: tuple[int, int, int], said: str) -> None:
    passes = Passes([timed(*at, dense(*at)) for at in GRID], dense.facts)
    with pytest.raises(Refused, match=said):
        passes.verify(place(*at))


def test_a_corner_of_the_box_that_was_never_measured_is_outside_too() -> None:
    """B up to 64 and D up to 15 were measured, but x = 64·16 = 1024 never was."""
    grid = [at for at in GRID if at[0] * (1 + at[1]) <= 256] + [(32, 1, 1024), (16, 3, 1024)]
    passes = Passes([timed(*at, dense(*at)) for at in grid], dense.facts)
    with pytest.raises(Refused, match=r"B·\(1\+D\)=1024"):
        passes.verify(place(64, 15))


def test_times_that_no_sum_explains_are_refused_between_the_points_but_told_at_them() -> None:
    dice = np.random.default_rng(0)
    passes = Passes([timed(*at, float(dice.uniform(1, 9))) for at in GRID], dense.facts)
    assert passes.verifying.mean_error > LIMIT
    with pytest.raises(Refused, match="off by"):
        passes.verify(place(16, 7, 8192))
    assert passes.verify(place(1, 0)).origin == "exact"


def test_too_few_points_are_refused() -> None:
    with pytest.raises(Refused, match="too few"):
        fit([place(1, d) for d in range(5)], [1.0] * 5, draft_terms, ("a", "b", "c", "d"))


def test_every_point_is_predicted_without_itself() -> None:
    """A point that is off by 30 % is missed by about as much, for its own time is not among those fitted."""
    seconds = [dense(*at) * (1.3 if i == 4 else 1.0) for i, at in enumerate(GRID)]
    found = Passes([timed(*at, t) for at, t in zip(GRID, seconds, strict=True)], dense.facts).verifying
    assert len(found.errors) == len(GRID)
    assert found.errors[4] == pytest.approx(1 / 1.3 - 1, abs=0.05)
    assert found.worst_error == pytest.approx(max(map(abs, found.errors)))


def test_a_knee_is_found_where_products_turn_compute_bound_and_only_there() -> None:
    batches, lengths = (1, 2, 4, 8, 16, 32, 64, 128, 256), (0, 1, 3)
    bent = [
        (b, d, 1024, 5e-3 + 1e-5 * b * (1 + d) + 4e-5 * max(0, b * (1 + d) - 200)) for b in batches for d in lengths
    ]
    straight = [(b, d, 1024, 5e-3 + 1e-5 * b * (1 + d)) for b in batches for d in lengths]
    knee = Passes([timed(*row) for row in bent], dense.facts).verifying.knee
    assert knee is not None
    assert 128 <= knee <= 300
    assert Passes([timed(*row) for row in straight], dense.facts).verifying.knee is None


def test_drafting_is_linear_in_rows_and_steps_and_its_error_a_share_of_the_pass() -> None:
    def drafting(b: int, d: int) -> float:
        return 1e-3 * d + 1e-5 * b * d

    plain = [timed(*at, dense(*at)) for at in GRID]
    drafted = [
        timed(b, d, 1024, dense(b, d, 1024), drafter="eagle3", draft=drafting(b, d))
        for b in (1, 8, 64)
        for d in (1, 3, 15)
    ]
    found = Passes([*plain, *drafted], dense.facts).draft("eagle3", place(16, 7, 32768))
    assert found.seconds == pytest.approx(drafting(16, 7), rel=0.02)
    with pytest.raises(Refused, match="has no 'mtp'; it has eagle3"):
        Passes([*plain, *drafted], dense.facts).draft("mtp", place(16, 7))


def test_microseconds_of_look_up_are_not_refused_for_being_noisy() -> None:
    """20 % of 50 µs are nothing beside passes of milliseconds."""
    plain = [timed(*at, dense(*at)) for at in GRID]
    dice = np.random.default_rng(1)
    drafted = [
        timed(b, d, 1024, dense(b, d, 1024), drafter="ngram", draft=5e-5 * float(dice.uniform(0.4, 1.6)))
        for b in (1, 8, 64)
        for d in (1, 3, 15)
    ]
    found = Passes([*plain, *drafted], dense.facts).draft("ngram", place(16, 7))
    assert 0 <= found.seconds < 2e-4


def test_attention_share_comes_from_the_terms_of_the_context() -> None:
    fitted = Passes([timed(*at, dense(*at)) for at in GRID], dense.facts).verifying
    shares = fitted.shares(place(64, 0, 32768))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["context"] + shares["attention tiles"] > 0.5 > fitted.shares(place(1, 0, 1024))["context"]
