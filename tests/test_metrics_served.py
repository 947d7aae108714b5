"""Numbers of engines that tell sums, or counters, or only the clock."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import MISSING, fields, replace

import pytest
from builders import measured, record, steps, timed, values

from speedbench.metrics import acceptance, server, speedup, step, throughput
from speedbench.types import Counted, Counts, Measured, Record
from speedbench.validate import problems


def summed(*, committed: int, steps: int, accepted: int, proposed: int, drafted: int, request: str = "r0") -> Record:
    """An answer of which the engine tells sums alone."""
    counts = Counts(steps=steps, committed=committed, accepted=accepted, proposed=proposed, drafted=drafted)
    return replace(
        record(request=request, first=1.0, last=3.0), output=(), tokens=committed + 1, counts=counts, told="derived"
    )


def counted(**known: object) -> Counted:
    nothing = {field.name: None for field in fields(Counted) if field.default is MISSING}
    return Counted(**{**nothing, **known})  # type: ignore[arg-type]


def test_sums_give_the_numbers_that_need_no_single_step() -> None:
    # 10 steps committed 25: 15 accepted of 30 proposed in 8 drafted steps, which committed 15 + 8
    found = values(
        acceptance.METRICS, measured(summed(committed=25, steps=10, accepted=15, proposed=30, drafted=8), d=4)
    )
    assert found["al"] == 25 / 10
    assert found["acceptance_rate"] == 15 / 30
    assert found["drafted_share"] == 8 / 10
    assert found["al_drafted"] == (15 + 8) / 8
    assert found["effective_d"] == 30 / 10
    assert found["al_complete"] is None
    assert found["accepted_at_marginal[1]"] is None


def test_sums_and_steps_pool_as_one() -> None:
    both = measured(
        summed(committed=25, steps=10, accepted=15, proposed=30, drafted=8), record(steps(1, 1), request="r1"), d=4
    )
    al = acceptance.al(both, None)["al"]
    assert al.value == (25 + 4) / (10 + 2)
    assert al.origin == "derived"  # the worse of derived and exact


def test_where_no_answer_tells_its_steps_the_counters_do() -> None:
    # two answers of 21 tokens: 40 decoded; 24 accepted, so 16 steps
    silent = [replace(record(request=f"r{i}"), output=(), tokens=21, told="unavailable") for i in range(2)]
    here = replace(measured(*silent, d=4), counted=(counted(accepted=10), counted(accepted=14)))
    al = acceptance.al(here, None)["al"]
    assert al.value == 40 / (40 - 24)
    assert (al.origin, al.low, al.n) == ("derived", None, 2)


@pytest.mark.parametrize("block", [counted(), counted(accepted=24, faults=("reset",))])
def test_counters_that_are_silent_or_were_reset_give_nothing(block: Counted) -> None:
    silent = replace(record(), output=(), tokens=21, told="unavailable")
    found = values(acceptance.METRICS, replace(measured(silent, d=4), counted=(block,)))
    assert found["al"] is None


def test_a_cell_that_tells_nothing_is_valid_and_unknown() -> None:
    silent = measured(replace(record(), output=(), tokens=21, told="unavailable"), d=4)
    assert problems(silent) == []
    assert values(acceptance.METRICS, silent)["al"] is None


def test_sums_that_do_not_add_up_to_the_output_are_caught() -> None:
    wrong = replace(summed(committed=25, steps=10, accepted=15, proposed=30, drafted=8), tokens=30)
    assert "steps committed 25, 26 with the prefill's token; the output has 30" in " ".join(problems(measured(wrong)))


def test_the_servers_own_acceptance_length_stands_beside() -> None:
    here: Measured = replace(
        measured(record(), d=4),
        counted=(
            counted(accepted=30, drafted=20, running=3.0, cached=10, prompted=100, preempted=0),
            counted(accepted=30, drafted=20, running=4.0, cached=0, prompted=100, preempted=2),
        ),
    )
    found = values(server.METRICS, here)
    assert found["al_server"] == 1 + 60 / 40
    assert found["observed_batch"] == 3.5
    assert found["prefix_cached"] == 10 / 200
    assert found["preempted"] == 2


def test_speedup_is_acceptance_length_over_the_cost_of_a_step() -> None:
    # 10 steps of 3 tokens in 2 s, against 30 plain steps in 3 s: 0.2 s a step for 0.1 s, so 2; 3 / 2 = 1.5 times faster
    ours = measured(replace(record(steps(*[2] * 10), first=1.0, last=3.0)), d=2)
    theirs = measured(timed(30, 3.0), d=0)
    assert step.t_step(ours, theirs)["t_step"].value == pytest.approx(0.2)
    assert step.step_cost(ours, theirs)["step_cost"].value == pytest.approx(2.0)


def test_the_formula_rests_on_what_an_engine_told_of_its_passes_where_it_shows_none() -> None:
    # steps of 3 tokens; the server says 0.2 s a step, and 0.1 s of the baseline: 3 · 0.1 / 0.2
    def told(seconds: float) -> Counted:
        return counted(raw={"passes": {"sglang": {"1": [seconds]}}})

    ours = replace(measured(record(steps(*[2] * 10)), d=2), counted=(told(0.2),))
    theirs = replace(measured(timed(30, 3.0), d=0), counted=(told(0.1),))
    found = speedup.speedup_formula(ours, theirs)["speedup_formula"]
    assert (found.value, found.low, found.origin) == (pytest.approx(1.5), None, "estimated")
    assert speedup.speedup_formula(ours, replace(theirs, counted=()))["speedup_formula"].value is None


def test_steps_of_the_first_event_are_not_in_the_time_after_it() -> None:
    # 31 tokens, the first event brought 16: half of the 10 steps came with it, 5 took the 2 s
    early = replace(record(steps(*[2] * 10), first=1.0, last=3.0), first_tokens=16)
    assert step.t_step(measured(early, d=2), None)["t_step"].value == pytest.approx(2.0 / 5)


@pytest.mark.parametrize(
    "answer",
    [
        summed(committed=20, steps=8, accepted=12, proposed=32, drafted=8),
        replace(record(steps(*[1] * 10), first=1.0, last=3.0), output=(), tokens=21),
        replace(record(first=1.0, last=3.0), output=(), tokens=21, told="unavailable"),
    ],
    ids=["sums", "steps without times", "nothing"],
)
def test_the_whole_cells_rate_has_all_tokens_of_an_answer_whose_steps_are_not_timed(answer: Record) -> None:
    # 21 tokens from 1 s to 3 s, sent at 0; the other is sent at 2, when 1 + 10 of them were there
    other = replace(answer, request="r1", sent=2.0, first=3.0, last=5.0)
    alone = throughput.output_tps(measured(answer), None)["output_tps"]
    assert (alone.value, alone.origin) == (21 / 3, "estimated")
    both = throughput.output_tps(measured(answer, other, b=2), None)["output_tps"]
    assert both.value == pytest.approx((10 + 1) / 1)  # from 2 s to 3 s, with the other's first
