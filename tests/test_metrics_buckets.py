"""Acceptance length by what stands before a step, worked out by hand."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import measured, record, steps, values

from speedbench.cli import document
from speedbench.metrics import buckets
from speedbench.summarise import results
from speedbench.types import Counts, Record


def of(prompt: int, *accepted: int, request: str = "r0", **more: object) -> Record:
    return replace(record(steps(*accepted), request=request), prompt_tokens=prompt, **more)  # type: ignore[arg-type]


def test_acceptance_falls_with_the_context_and_the_overall_number_hides_it() -> None:
    # D = 3. 2k: 3 and 2 accepted, 4 + 3 = 7 tokens in 2 steps; 8k: 2 and 1, 5 in 2; 16k: 0 and 0, 2 in 2
    here = measured(of(2000, 3, 2), of(8000, 2, 1, request="r1"), of(16000, 0, 0, request="r2"))
    found = values(buckets.METRICS, here)
    assert [found[f"al_by_context[{low}]"] for low in buckets.CONTEXT] == [None, 3.5, 2.5, 1.0, None, None]
    assert found["al_by_position[1]"] == pytest.approx((7 + 5 + 2) / 6)


def test_a_step_counts_where_it_stands_and_not_where_its_prompt_ends() -> None:
    # the prompt of 1022 and its first token make 1023; the steps begin behind 1023, 1027 and 1028 tokens
    found = values(buckets.METRICS, measured(of(1022, 3, 0, 1)))
    assert (found["al_by_context[1]"], found["al_by_context[1025]"]) == (4.0, 1.5)


def test_a_step_begins_behind_the_tokens_committed_before_it() -> None:
    # prefill's token, then 16 steps of 4 behind 1, 5, …, 61 tokens; the next is behind 65
    found = values(buckets.METRICS, measured(of(10, *[3] * 16, 0, 0)))
    assert (found["al_by_position[1]"], found["al_by_position[65]"]) == (4.0, 1.0)
    assert found["al_by_position[257]"] is found["al_by_position[1025]"] is None


def test_the_classes_together_have_all_steps() -> None:
    here = measured(*(of(900 * i, *([3, 0, 1, 2] * 40), request=f"r{i}") for i in range(1, 6)))
    for metric in buckets.METRICS:
        found = metric.of(here, None)
        assert sum(each.n for each in found.values()) >= 5
        assert all((each.value is None) == (each.origin == "unavailable") for each in found.values())


def test_an_answer_told_in_sums_counts_where_its_prompt_ends_and_has_no_positions() -> None:
    sums = Counts(steps=10, committed=25, accepted=15, proposed=30, drafted=10)
    here = measured(replace(of(3000), counts=sums))
    found = {name: each for metric in buckets.METRICS for name, each in metric.of(here, None).items()}
    assert (found["al_by_context[2049]"].value, found["al_by_context[2049]"].origin) == (2.5, "derived")
    assert all(found[f"al_by_position[{low}]"].value is None for low in buckets.POSITION)


def test_an_engine_that_does_not_count_prompts_has_no_context() -> None:
    found = values(buckets.METRICS, measured(of(0, 3, 3)))
    assert all(found[f"al_by_context[{low}]"] is None for low in buckets.CONTEXT)
    assert found["al_by_position[1]"] == 4.0


def test_steps_guessed_from_chunks_are_estimated() -> None:
    here = measured(replace(of(500, 1, 1), told="estimated"))
    assert buckets.al_by_context(here, None)["al_by_context[1]"].origin == "estimated"


def test_failed_turns_count_nowhere() -> None:
    here = measured(of(500, 1, 1), of(0, finish="error", request="r1"))
    assert values(buckets.METRICS, here)["al_by_context[1]"] == 2.0


def test_a_fall_with_the_context_is_told_where_the_intervals_lie_apart() -> None:
    near = [of(500, 3, 3, 2, request=f"n{i}") for i in range(8)]  # 11 tokens in 3 steps, each request alike
    far = [of(9000, 1, 0, 0, request=f"f{i}") for i in range(8)]  # 4 in 3
    cell = measured(*near, *far)
    assert document._falls(results([cell], buckets.METRICS)[0]) == "3.67 below 8193 tokens, 1.33 from 8193 on"
    assert document._falls(results([measured(*near)], buckets.METRICS)[0]) == ""
