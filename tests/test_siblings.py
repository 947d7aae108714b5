"""What cells of a run tell of each other's passes: a null drafter and forced acceptance, by arithmetic."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import measured, record, step, values

from speedbench.metrics import cost, speedup
from speedbench.pairing import pooled
from speedbench.pairing.siblings import costed, warnings
from speedbench.serving.prometheus import NOTHING
from speedbench.types import Drafting, Measured, Pass, Record

EAGLE = Drafting(label="eagle3", drafter="eagle3", settings={"checkpoint": "heads"})
NGRAM = Drafting(label="ngram", drafter="ngram")
FORCED = Drafting(
    label="synthetic", drafter="synthetic", settings={"base": "eagle3", "checkpoint": "heads", "acceptance_length": 2.0}
)


def clocked(drafting: Drafting | None, *seconds: float, d: int = 4, accepted: int = 0, **more: Any) -> Measured:
    """A cell of one sequence at a time: a conversation of ten steps for each of these seconds a step."""
    d = 0 if drafting is None else d
    made = (step(accepted, more.pop("proposed", d)),) * 10
    rows = [record(made, request=f"r{i}", first=1.0, last=1.0 + 10 * each) for i, each in enumerate(seconds)]
    return cell(drafting, *rows, d=d, **more)


def cell(drafting: Drafting | None, *rows: Record, d: int = 4, **more: Any) -> Measured:
    made = measured(*rows, d=d if drafting else 0, drafter=drafting.label if drafting else "none", **more)
    return replace(made, drafting=drafting)


def told(drafting: Drafting | None, d: int, seconds: Sequence[float], b: int = 8) -> Measured:
    """A cell whose SGLang told these step times of a full batch, and proposed nobody knows how many."""
    raw = {"passes": {"sglang": {str(b): list(seconds)}}}
    made = cell(drafting, record([step(1, None)] * 3), d=d, b=b)
    return replace(made, counted=(replace(NOTHING, raw=raw),))


def named(cells: Sequence[Measured]) -> dict[str, Measured]:
    return {each.cell.drafter: each for each in costed(cells)}


PLAIN = clocked(None, 0.020, 0.020, 0.020)
REAL = clocked(EAGLE, 0.030, 0.031, 0.032, accepted=1)
NULL = clocked(NGRAM, 0.024, 0.025, 0.026)


# ---- a null drafter ----


def test_what_a_drafter_takes_is_what_its_step_is_longer_by_than_one_of_a_drafter_that_takes_nothing() -> None:
    found = named([PLAIN, REAL, NULL])
    numbers = values(cost.METRICS, found["eagle3"], found["none"])
    assert numbers["t_verify"] == pytest.approx(0.025)  # 3 answers of 10 steps in 0.24, 0.25 and 0.26 s
    assert numbers["t_draft"] == pytest.approx(0.031 - 0.025)
    assert numbers["t_pass"] == pytest.approx(0.031)
    assert numbers["t_baseline"] == pytest.approx(0.020)
    assert numbers["verify_overhead"] == pytest.approx(0.025 / 0.020)
    assert numbers["draft_overhead"] == pytest.approx(0.006 / 0.020)
    assert numbers["break_even_al"] == pytest.approx(0.031 / 0.020)
    t_draft = cost.t_draft(found["eagle3"], found["none"])["t_draft"]
    assert (t_draft.origin, t_draft.n) == ("estimated", 30)
    assert found["ngram"].cost is found["none"].cost is None


def test_the_formula_is_not_made_of_the_speedup_that_it_explains() -> None:
    found = named([PLAIN, REAL, NULL])
    numbers = values(speedup.METRICS, found["eagle3"], found["none"])
    assert numbers["speedup"] == pytest.approx(2 * 0.020 / 0.031)  # two tokens a step
    assert numbers["speedup_formula"] is numbers["residual"] is None


@pytest.mark.parametrize("proposed", [0, 3, None])
def test_a_null_drafter_whose_steps_had_not_d_drafts_tells_nothing(proposed: int | None) -> None:
    few = clocked(NGRAM, 0.024, 0.025, 0.026, proposed=proposed)
    assert named([PLAIN, REAL, few])["eagle3"].cost is None
    assert values(cost.METRICS, *costed([REAL, PLAIN, few])[:2])["t_verify"] is None


def test_by_the_clock_a_turn_whose_steps_had_d_drafts_tells_beside_one_whose_had_not() -> None:
    few = clocked(NGRAM, 0.021, 0.021, 0.021, proposed=2)
    found = named([PLAIN, REAL, replace(NULL, records=(few.records[0], *NULL.records[1:]))])["eagle3"].cost
    assert found is not None
    assert found.t_verify == pytest.approx((0.025 + 0.026) / 2)


def test_a_drafter_that_proposed_fewer_than_d_was_not_at_these_positions() -> None:
    assert named([PLAIN, clocked(EAGLE, 0.030, 0.031, proposed=2), NULL])["eagle3"].cost is None


def test_other_lengths_concurrencies_repeats_and_runs_without_a_baseline_tell_nothing() -> None:
    assert named([PLAIN, REAL, clocked(NGRAM, 0.024, 0.025, d=3)])["eagle3"].cost is None
    assert named([PLAIN, REAL, clocked(NGRAM, 0.024, 0.025, repeat=1)])["eagle3"].cost is None
    assert named([PLAIN, REAL, clocked(NGRAM, 0.024, 0.025, b=2)])["eagle3"].cost is None
    assert named([REAL, NULL])["eagle3"].cost is None


def test_a_null_drafter_that_takes_longer_is_none_and_a_difference_within_noise_is_no_drafting() -> None:
    assert named([PLAIN, REAL, clocked(NGRAM, 0.032, 0.033, 0.034)])["eagle3"].cost is None
    # 0.001 s more on average, and in one of three conversations less
    noisy = clocked(NGRAM, 0.026, 0.036, 0.028)
    found = named([PLAIN, REAL, noisy])["eagle3"].cost
    assert found is not None
    assert (found.t_verify, found.t_draft) == (pytest.approx(0.030), None)


def test_the_clock_tells_of_one_sequence_at_a_time_and_of_more_than_one_conversation() -> None:
    many = [replace(each, cell=replace(each.cell, concurrency=2)) for each in (PLAIN, REAL, NULL)]
    assert named(many)["eagle3"].cost is None  # others' prefills are in the steps
    one = [replace(each, records=each.records[:1]) for each in (PLAIN, REAL, NULL)]
    assert named(one)["eagle3"].cost is None


def test_by_the_clock_the_turns_are_those_that_one_process_answered_in_every_cell() -> None:
    elsewhere = replace(NULL.records[0], process=1)
    null = replace(NULL, records=(elsewhere, *NULL.records[1:]))
    found = named([PLAIN, REAL, null])["eagle3"].cost
    assert found is not None
    assert found.t_verify == pytest.approx((0.025 + 0.026) / 2)
    assert found.t_step == pytest.approx((0.031 + 0.032) / 2)


def test_step_times_that_an_engine_told_count_at_any_batch_and_sglang_fills_every_window() -> None:
    cells = [told(None, 0, [0.020]), told(EAGLE, 4, [0.030, 0.030]), told(NGRAM, 4, [0.024, 0.024, 0.9])]
    found = named(cells)
    numbers = values(cost.METRICS, found["eagle3"], found["none"])
    assert (numbers["t_verify"], numbers["t_draft"]) == (pytest.approx(0.024), pytest.approx(0.006))
    assert numbers["break_even_al"] == pytest.approx(0.030 / 0.020)
    formula = values(speedup.METRICS, found["eagle3"], found["none"])["speedup_formula"]
    assert formula == pytest.approx(2 * 0.020 / 0.030)  # these are not the client's times, so it may be made


def test_whole_passes_count_where_each_sequence_had_d_drafts() -> None:
    def passes(seconds: float, drafts: int, d: int) -> list[Pass]:
        return [
            Pass(at=float(i), batch=2, width=1 + d, proposed=drafts, draft=None, verify=None, other=None, whole=seconds)
            for i in range(4)
        ]

    plain = cell(None, record(), b=2, passes=passes(0.020, 0, 0))
    real = cell(EAGLE, record(), b=2, passes=passes(0.030, 8, 4))
    null = cell(NGRAM, record(), b=2, passes=[*passes(0.024, 8, 4), *passes(0.021, 3, 4)])
    found = named([plain, real, null])
    numbers = values(cost.METRICS, found["eagle3"], found["none"])
    assert (numbers["t_verify"], numbers["t_draft"]) == (pytest.approx(0.024), pytest.approx(0.006))
    assert numbers["verify_overhead"] == pytest.approx(0.024 / 0.020)
    assert numbers["t_pass"] == pytest.approx(0.030)


# ---- forced acceptance ----


def test_forced_acceptance_prices_a_step_apart_from_the_cells_own_speed() -> None:
    forced = clocked(FORCED, 0.0300, 0.0300, 0.0300, accepted=1)
    found = named([PLAIN, REAL, forced])
    numbers = values((*cost.METRICS, *speedup.METRICS), found["eagle3"], found["none"])
    assert numbers["t_pass"] == pytest.approx(0.030)
    assert numbers["t_verify"] is numbers["t_draft"] is None
    assert numbers["speedup_formula"] == pytest.approx(2 * 0.020 / 0.030)
    assert numbers["residual"] == pytest.approx((2 * 0.020 / 0.031) / (2 * 0.020 / 0.030) - 1)
    both = named([PLAIN, REAL, NULL, forced])["eagle3"].cost
    assert both is not None
    assert (both.t_verify, both.t_draft) == (pytest.approx(0.025), pytest.approx(0.005))


@pytest.mark.parametrize("other", [{"base": "mtp", "checkpoint": "heads"}, {"base": "eagle3", "checkpoint": "others"}])
def test_forced_acceptance_of_another_drafter_tells_nothing(other: dict[str, str]) -> None:
    forced = clocked(replace(FORCED, settings=other), 0.030, 0.030)
    assert named([PLAIN, REAL, forced])["eagle3"].cost is None


# ---- in a run ----


def test_repeats_put_together_have_it_too_and_what_it_leaves_out_is_said() -> None:
    runs = [replace(each, cell=replace(each.cell, repeat=repeat)) for each in (PLAIN, REAL, NULL) for repeat in (0, 1)]
    found = named(pooled(runs))["eagle3"].cost
    assert found is not None
    assert found.t_verify == pytest.approx(0.025)
    assert warnings([PLAIN, REAL, NULL]) == [
        "eagle3-d4-b1-r0: T_verif is a step of ngram, T_draft what a step is longer by; its look-up, and what else the "
        "engine does otherwise for it, are left out; by the clock, so that the host and the way to the client are in "
        "T_verif"
    ]


def test_an_engine_that_splits_its_passes_is_asked_itself() -> None:
    split = Pass(at=0.0, batch=1, width=5, proposed=4, draft=0.001, verify=0.02, other=0.0)
    assert named([PLAIN, replace(REAL, passes=(split,)), NULL])["eagle3"].cost is None
