"""The walk: from offers and matches behind every token to the steps of every D, and its expectation."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.metrics import acceptance, buckets
from speedbench.replay import steps as told
from speedbench.types import Answer, Cell, Chances, Matches, Measured, Record
from speedbench.walk import expected, plain, record, steps


def answer(size: int, *, cap: int | None = None, stops: bool = False) -> Answer:
    return Answer(
        request="r", category="c", turn=0, prompt=(), prompt_tokens=5, prompt_sha="s", output=tuple(range(size)),
        cap=size if cap is None and not stops else cap, finish="stop" if stops else "length",
    )  # fmt: skip


def of_hits(hits: Sequence[bool], most: int = 64) -> Matches:
    """A drafter whose rightness depends on the position alone; hits of the tokens behind the first."""
    runs, run = list[int](), 0
    for hit in reversed(hits):
        run = run + 1 if hit else 0
        runs.append(min(run, most))
    return Matches(offered=(most,) * len(hits), matched=tuple(runs[::-1]))


def shown(asked: Answer, table: Matches, d: int) -> list[tuple[int | None, int | None, int]]:
    return [(step.proposed, step.accepted, step.committed) for step in steps(asked, table, d)]


def acceptance_length(asked: Answer, table: Matches, d: int) -> float:
    found = list(steps(asked, table, d))
    return sum(step.committed for step in found) / len(found)


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_a_step_commits_its_hits_and_one_token_of_the_targets() -> None:
    """Tokens 1 … 8 behind the prefill's: hits at 1, 2, 4, 5, 6. D = 2: (1 2 | 3), (4 5 | 6), then 7 misses and is the
    target's own, and the last has no room for a draft."""
    hits = [True, True, False, True, True, True, False, False]
    assert shown(answer(9), of_hits(hits), 2) == [(2, 2, 3), (2, 2, 3), (1, 0, 1), (0, 0, 1)]
    assert shown(answer(9), of_hits(hits), 3) == [(3, 2, 3), (3, 3, 4), (0, 0, 1)]


def test_no_draft_is_a_step_of_one_token() -> None:
    assert shown(answer(4), plain(answer(4)), 0) == [(0, 0, 1)] * 3
    some = Matches(offered=(0, 2, 0), matched=(0, 2, 0))
    assert shown(answer(4, stops=True), some, 5) == [(0, 0, 1), (2, 2, 2)]


def test_the_cap_leaves_room_for_the_targets_own_token() -> None:
    """12 tokens, 11 behind the prefill's: 8 + 1, then of 2 left one is drafted."""
    assert shown(answer(12), of_hits([True] * 11), 8) == [(8, 8, 9), (1, 1, 2)]


def test_what_is_accepted_behind_a_stop_token_counts_and_is_not_committed() -> None:
    """3 tokens, the last a stop; the drafter knows 4 more of what the target would say."""
    table = Matches(offered=(6, 6), matched=(6, 5))
    assert shown(answer(3, stops=True), table, 6) == [(6, 6, 2)]
    assert shown(answer(3, stops=True), table, 1) == [(1, 1, 2)]


def test_an_answer_of_one_token_has_no_step() -> None:
    assert record(answer(1), plain(answer(1)), 4).steps == ()
    assert expected(answer(1), Chances(offered=(), target=(), drafter=()), 4).steps == 0


def test_a_record_is_the_answers_without_times() -> None:
    found = record(answer(3), of_hits([True, False]), 1)
    assert (found.output, found.size, found.told, found.finish) == ((0, 1, 2), 3, "exact", "length")
    assert (found.first, found.last, found.steps[0].at) == (None, None, None)


# ---- properties -----------------------------------------------------------------------------------------------------

HITS = st.lists(st.booleans(), min_size=1, max_size=80)


@settings(deadline=None)
@given(HITS)
def test_acceptance_never_falls_with_d_where_hits_do_not_depend_on_the_start(hits: list[bool]) -> None:
    asked, table = answer(len(hits) + 1), of_hits(hits)
    found = [acceptance_length(asked, table, d) for d in range(20)]
    assert found == sorted(found)
    assert found[0] == 1
    assert all(1 <= al <= d + 1 for d, al in enumerate(found))


@settings(deadline=None)
@given(HITS, st.integers(1, 12), st.booleans())
def test_steps_cover_the_answer_once(hits: list[bool], d: int, stops: bool) -> None:
    asked = answer(len(hits) + 1, stops=stops)
    found = list(steps(asked, of_hits(hits), d))
    assert 1 + sum(step.committed for step in found) == len(asked.output)
    for step in found[:-1]:
        assert step.accepted is not None
        assert step.committed == step.accepted + 1


@settings(deadline=None)
@given(st.data(), st.integers(1, 9))
def test_whatever_a_proposal_depends_on_a_longer_one_gets_no_less_far(data: st.DataObject, d: int) -> None:
    """Not monotone in AL: where matches depend on the start, a longer step may land where the next matches less. But
    no first step commits less."""
    size = data.draw(st.integers(2, 30))
    matched = tuple(data.draw(st.integers(0, 9)) for _ in range(size - 1))
    table = Matches(offered=(9,) * (size - 1), matched=matched)
    asked = answer(size)
    assert next(steps(asked, table, d + 1)).committed >= next(steps(asked, table, d)).committed


# ---- drawn drafts ---------------------------------------------------------------------------------------------------


def backward(asked: Answer, chance: Sequence[Sequence[float]], d: int) -> float:
    """Expected steps by the recursion from the end: V(g) = 1 + Σ s_n (1 - a_n) V(g+n+1) + s_p V(g+p+1)."""
    size = len(asked.output)
    value = [0.0] * (size + d + 2)
    for g in range(size - 1, 0, -1):
        p = max(0, min(d, size - g - 1))
        survives, value[g] = 1.0, 1.0
        for n in range(p):
            value[g] += survives * (1 - chance[g - 1][n]) * value[min(g + n + 1, size)]
            survives *= chance[g - 1][n]
        value[g] += survives * value[min(g + p + 1, size)]
    return value[1]


@settings(deadline=None)
@given(st.data(), st.integers(1, 6))
def test_expected_steps_are_those_of_the_backward_recursion(data: st.DataObject, d: int) -> None:
    size = data.draw(st.integers(2, 14))
    pairs = st.tuples(st.floats(0.01, 1), st.floats(0.01, 1))
    drawn = [[data.draw(pairs) for _ in range(d)] for _ in range(size - 1)]
    table = Chances(
        offered=(d,) * (size - 1),
        target=tuple(tuple(math.log(p) for p, _ in row) for row in drawn),
        drafter=tuple(tuple(math.log(q) for _, q in row) for row in drawn),
    )
    found = expected(answer(size), table, d)
    chance = [[min(1.0, q / p) for p, q in row] for row in drawn]
    assert found.steps == pytest.approx(backward(answer(size), chance, d))
    assert found.accepted is not None
    assert found.steps + found.accepted == pytest.approx(size - 1)


@settings(deadline=None)
@given(HITS, st.integers(1, 9))
def test_chances_of_nought_and_one_are_the_walk(hits: list[bool], d: int) -> None:
    asked, never = answer(len(hits) + 1), -math.inf
    rows = [[0.0 if hit else never for hit in hits[k : k + 9]] for k in range(len(hits))]
    table = Chances(
        offered=(9,) * len(hits), target=tuple((0.0,) * len(row) for row in rows), drafter=tuple(map(tuple, rows))
    )
    counted, walked = expected(asked, table, d), list(steps(asked, of_hits(hits, 9), d))
    assert counted.steps == len(walked)
    assert counted.accepted == sum(step.accepted or 0 for step in walked)
    assert counted.proposed == sum(step.proposed or 0 for step in walked)
    assert counted.drafted == sum(bool(step.proposed) for step in walked)


@settings(deadline=None, max_examples=30)
@given(HITS, st.integers(1, 6), st.booleans())
def test_by_position_and_in_buckets_they_measure_what_the_walk_does(hits: list[bool], d: int, stops: bool) -> None:
    """Every acceptance metric of the expectation is that of the steps, to the digits that are kept."""
    asked, never = answer(len(hits) + 1, stops=stops), -math.inf
    rows = [[0.0 if hit else never for hit in hits[k : k + d]] for k in range(len(hits))]
    drawn = Chances(
        offered=tuple(map(len, rows)), target=tuple((0.0,) * len(row) for row in rows), drafter=tuple(map(tuple, rows))
    )
    walked = Matches(
        offered=drawn.offered, matched=tuple(map(min, of_hits(hits).matched, drawn.offered))
    )  # what lies behind a stop token nobody knows
    cell = Cell(task="t", runner="r", drafter="x", draft_length=d, concurrency=1, repeat=0)
    ways = [
        Measured(cell=cell, records=(record(asked, table, d),), passes=(), mismatches=None) for table in (drawn, walked)
    ]
    assert ways[0].records[0].counts is not None
    for metric in (*acceptance.METRICS, *buckets.METRICS):
        expectation, steps_ = (metric.of(way, None) for way in ways)
        assert expectation.keys() == steps_.keys()
        for name in steps_:
            told, right = expectation[name].value, steps_[name].value
            assert (told is None) == (right is None), name
            assert told is None or told == pytest.approx(right, abs=1e-7), name


def test_a_token_that_rounding_left_without_a_chance_makes_no_nan() -> None:
    never = -math.inf
    table = Chances(offered=(1, 1, 1), target=((never,), (never,), (0.0,)), drafter=((never,), (0.0,), (never,)))
    assert expected(answer(5, stops=True), Chances(
        offered=(*table.offered, 0), target=(*table.target, ()), drafter=(*table.drafter, ())
    ), 1).steps == 4 - 1  # fmt: skip


# ---- out of a run's steps -------------------------------------------------------------------------------------------


def run(hits: Sequence[bool], d: int) -> Record:
    return record(answer(len(hits) + 1), of_hits(hits), d)


@settings(deadline=None)
@given(HITS, st.sampled_from([2, 3, 5, 7, 11]))
def test_the_steps_of_one_run_give_every_d_that_divides_and_bound_the_others(hits: list[bool], longest: int) -> None:
    asked, made = answer(len(hits) + 1), run(hits, longest)
    least, most = (told.table(made, longest, unknown=unknown) for unknown in (False, True))
    for d in range(1, longest + 1):
        right = shown(asked, of_hits(hits), d)
        if told.divides(d, longest):
            assert shown(asked, least, d) == shown(asked, most, d) == right
        else:
            low, high = (len(shown(asked, table, d)) for table in (most, least))
            assert low <= len(right) <= high


def test_twelve_divides_for_one_two_three_and_five() -> None:
    assert [d for d in range(1, 12) if told.divides(d, 11)] == [1, 2, 3, 5, 11]
