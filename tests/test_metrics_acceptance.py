"""Acceptance length and its relatives, by hand-made steps."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from builders import measured, record, step, steps, values
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.metrics.acceptance import METRICS
from speedbench.types import Measured, Step


def numbers(here: Measured) -> dict[str, float | None]:
    return values(METRICS, here)


def test_acceptance_length_includes_the_targets_own_token() -> None:
    found = numbers(measured(record(steps(3, 0, 2, 1))))
    assert found["al"] == (3 + 0 + 2 + 1 + 4) / 4 == 2.5
    assert found["acceptance_rate"] == 6 / 12


def test_drafts_that_were_not_proposed_are_in_no_denominator() -> None:
    found = numbers(measured(record([step(2, 2)]), d=4))  # D = 4, and the drafter found 2
    assert (found["acceptance_rate"], found["al"], found["effective_d"]) == (1.0, 3.0, 2.0)


def test_a_short_last_step_counts_what_was_proposed_and_not_d() -> None:
    # 12 tokens: 1 from prefill, 9 from the first step, 2 from the last, which had room for one draft
    found = numbers(measured(record([step(8, 8), step(1, 1)]), d=8))
    assert found["acceptance_rate"] == (8 + 1) / (8 + 1)
    assert found["effective_d"] == (8 + 1) / 2
    assert found["al"] == (9 + 2) / 2


def test_the_token_that_prefill_yields_belongs_to_no_step() -> None:
    here = measured(record(steps(2, 2, 2, 2)))
    assert len(here.records[0].output) == 13
    assert numbers(here)["al"] == 12 / 4 == 3.0  # and not 13 / 4 = 3.25


def test_positions_have_a_marginal_and_a_conditional_rate() -> None:
    accepted = [0] * 20 + [1] * 30 + [2] * 10 + [3] * 40
    found = numbers(measured(record(steps(*accepted))))
    assert [found[f"accepted_at_marginal[{i}]"] for i in (1, 2, 3)] == pytest.approx([80 / 100, 50 / 100, 40 / 100])
    assert [found[f"accepted_at_conditional[{i}]"] for i in (1, 2, 3)] == pytest.approx([80 / 100, 50 / 80, 40 / 50])
    assert found["al"] == pytest.approx(1 + 0.8 + 0.5 + 0.4)
    assert [found[f"accepted_histogram[{j}]"] for j in range(4)] == pytest.approx([0.2, 0.3, 0.1, 0.4])


def test_a_position_never_reached_has_no_conditional_rate() -> None:
    found = numbers(measured(record(steps(0, 1, 0, 0))))
    assert [found[f"accepted_at_conditional[{i}]"] for i in (1, 2, 3)] == [1 / 4, 0 / 1, None]
    assert [found[f"accepted_at_marginal[{i}]"] for i in (1, 2, 3)] == [1 / 4, 0.0, 0.0]


def test_a_draft_that_was_not_proposed_was_not_refused() -> None:
    # draft 2 was proposed after an accepted draft 1 twice, and accepted once; the step of one draft did not try it
    found = numbers(measured(record([step(1, 1), step(2, 2), step(1, 2)]), d=2))
    assert found["accepted_at_conditional[2]"] == 1 / 2


def test_the_published_histogram_gives_the_published_numbers() -> None:
    counts = {1: 57385, 2: 36968, 3: 24441, 4: 61182}  # tokens of a step → steps
    made = tuple(one for tokens, n in counts.items() for one in [step(tokens - 1)] * n)
    found = numbers(measured(record(made)))
    assert found["al"] == pytest.approx(2.496844, abs=5e-7)
    conditional = [found[f"accepted_at_conditional[{i}]"] for i in (1, 2, 3)]
    assert conditional == pytest.approx([0.681152, 0.698444, 0.714551], abs=5e-7)


def test_a_step_cut_short_counts_in_al_and_not_in_al_complete() -> None:
    found = numbers(measured(record([step(3), step(1), step(3, cut=2)])))  # 4 + 2 + 2 tokens
    assert found["al"] == 8 / 3
    assert found["al_complete"] == (4 + 2) / 2
    assert found["al_complete"] == 1 + sum(found[f"accepted_at_marginal[{i}]"] or 0 for i in (1, 2, 3))


def test_a_step_without_a_draft_is_still_a_step() -> None:
    found = numbers(measured(record([step(0, 0), step(0, 0), step(2, 3), step(1, 2)])))
    assert found["al"] == (1 + 1 + 3 + 2) / 4
    assert found["al_drafted"] == (3 + 2) / 2
    assert found["drafted_share"] == 2 / 4


def test_the_means_weigh_steps_requests_or_categories() -> None:
    here = measured(
        record(steps(3, 3, 3, 3), request="a", category="code"),  # 16 / 4 = 4
        record(steps(0, 0), request="b", category="chat"),  # 2 / 2 = 1
        record(steps(1), request="c", category="chat"),  # 2 / 1 = 2
    )
    found = numbers(here)
    assert found["al"] == (16 + 2 + 2) / (4 + 2 + 1)
    assert found["al_per_request"] == pytest.approx((4 + 1 + 2) / 3)
    assert found["al_macro"] == pytest.approx((4 + (1 + 2) / 2) / 2)


def test_turns_are_as_many_as_there_are_and_one_without_steps_breaks_nothing() -> None:
    here = measured(
        record(steps(1), request="one"),
        *(record(steps(2), request="three", turn=turn) for turn in range(3)),
        record((), request="empty"),
        record(steps(0, 0, 0), request="failed", finish="error"),
    )
    found = {name: m for metric in METRICS for name, m in metric.of(here, None).items()}
    assert found["al"].value == (2 + 3 * 3) / (1 + 3)
    assert found["al"].n == 2  # `empty` has no step, and a failed turn enters nothing
    assert found["al_per_request"].value == pytest.approx((2 + 3) / 2)


def test_no_steps_at_all_make_every_number_unknown() -> None:
    assert set(numbers(measured(record(()))).values()) == {None}


def test_what_the_engine_does_not_say_is_unavailable_and_never_zero() -> None:
    made = [Step(at=None, proposed=None, accepted=None, committed=c) for c in (4, 2)]
    found = {name: m for metric in METRICS for name, m in metric.of(measured(record(made)), None).items()}
    assert (found["al"].value, found["al"].origin) == (3.0, "estimated")
    silent = set(found) - {"al", "al_per_request", "al_macro"}
    assert {(found[name].value, found[name].origin) for name in silent} == {(None, "unavailable")}
    assert "accepted_at_marginal[3]" in silent


def test_the_baseline_has_a_length_of_exactly_one_and_no_rate() -> None:
    here = measured(record([step(0, 0)] * 5), record([step(0, 0)] * 7, request="r1"), d=0)
    found = {name: m for metric in METRICS for name, m in metric.of(here, here).items()}
    assert (found["al"].value, found["al"].low, found["al"].high, found["al"].origin) == (1.0, 1.0, 1.0, "exact")
    assert found["acceptance_rate"].value is None
    assert found["effective_d"].value == 0.0  # measured zero, not unknown


@st.composite
def cells(draw: st.DrawFn) -> Measured:
    """Any cell whose steps keep the rules; the last step of a record may be cut short."""
    d = draw(st.integers(1, 8))
    records = []
    for index in range(draw(st.integers(1, 5))):
        proposed = draw(st.lists(st.integers(0, d), min_size=1, max_size=12))
        made = [step(draw(st.integers(0, p)), p) for p in proposed]
        last = made[-1]
        made[-1] = step(last.accepted, last.proposed, cut=draw(st.integers(0, last.accepted or 0)))
        records.append(record(made, request=f"r{index}", category=draw(st.sampled_from(["code", "chat"]))))
    return measured(*records, d=d)


@settings(max_examples=60, deadline=None)
@given(cells())
def test_rates_and_lengths_keep_their_bounds(here: Measured) -> None:
    found = numbers(here)
    d = here.cell.draft_length
    for name, value in found.items():
        if value is not None and name.startswith("al"):
            assert 1 <= value <= d + 1 + 1e-12, name
        elif value is not None and name != "effective_d":
            assert 0 <= value <= 1, name
    every = [one for each in here.records for one in each.steps]
    total = sum(one.accepted or 0 for one in every)
    histogram = [found[f"accepted_histogram[{j}]"] or 0.0 for j in range(d + 1)]
    assert sum(histogram) == pytest.approx(1)
    assert sum(j * share for j, share in enumerate(histogram)) == pytest.approx(total / len(every))
    if all(one.committed == (one.accepted or 0) + 1 for one in every):
        assert found["al"] == pytest.approx((total + len(every)) / len(every))


@settings(max_examples=60, deadline=None)
@given(cells())
def test_the_marginal_rates_add_up_to_al_complete(here: Measured) -> None:
    found = numbers(here)
    if found["al_complete"] is not None:
        marginal = [found[f"accepted_at_marginal[{i}]"] or 0.0 for i in range(1, here.cell.draft_length + 1)]
        assert found["al_complete"] == pytest.approx(1 + sum(marginal))
        assert marginal == sorted(marginal, reverse=True)
