"""What cannot be is found, and named."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from builders import measured, mismatch, passed, record, step, steps

from speedbench.metrics import acceptance, cost, latency, lossless, speedup, throughput
from speedbench.summarise import results, to_json
from speedbench.types import Record, Step
from speedbench.validate import problems, summary_problems

FAMILIES = (acceptance, latency, throughput, cost, speedup, lossless)
METRICS = tuple(metric for family in FAMILIES for metric in family.METRICS)


def only(here: Record, *, d: int = 3) -> str:
    (found,) = problems(measured(here, d=d))
    return found


def test_a_good_cell_has_no_problem() -> None:
    here = measured(
        record([step(3, at=1.1), step(0, 0, at=1.1), step(3, at=1.9, cut=2)]),
        record((), request="stopped at once"),
        record((), request="failed", finish="error", first=None, last=None, first_tokens=0),
        passes=[passed(verify=1.0, draft=0.1, d=3)],
        mismatches=[mismatch("r0", "near_tie")],
    )
    assert problems(here) == []


def test_more_accepted_than_proposed_is_named_with_record_and_step() -> None:
    right = "ngram-d3-b1-r0: r0 turn 0: step 1: accepted 3; 2 proposed, so 0 to 2"
    assert only(record([step(1), step(3, 2), step(0)])) == right


@pytest.mark.parametrize(
    ("made", "right"),
    [
        ([step(2, 4)], "step 0: proposed 4; D = 3 allows 0 to 3"),
        ([step(2, cut=1), step(0)], "step 0: committed 2; accepted 2, so 3"),
        ([step(3), step(2, cut=3)], "step 1: committed 0 in the last step; accepted 2, so 1 to 3"),
        ([step(0), step(1, cut=-1)], "step 1: committed 3 in the last step; accepted 1, so 1 to 2"),
        ([step(0, at=1.5), step(0, at=1.4)], "step 1: at 1.4 after a step at 1.5; times do not run backwards"),
        ([Step(at=None, proposed=None, accepted=None, committed=0)], "step 0: committed 0; a step commits at least 1"),
    ],
)
def test_a_step_that_cannot_be_is_named(made: list[Step], right: str) -> None:
    assert only(record(made)) == f"ngram-d3-b1-r0: r0 turn 0: {right}"


def test_an_output_longer_than_its_steps_is_named_with_the_sums() -> None:
    here = record(steps(3, 0))  # 1 + 4 + 1 tokens
    found = only(replace(here, output=(*here.output, 9)))
    assert "steps committed 5, 6 with the prefill's token; the output has 7" in found


def test_a_placeholder_id_in_the_output_is_named() -> None:
    assert "token id -1 in the output" in only(replace(record(steps(0)), output=(5, -1)))


def test_times_out_of_order_are_named() -> None:
    assert "first 0.5 is before sent 1.0; sent ≤ first ≤ last" in only(record(sent=1.0, first=0.5))
    assert "last 1.0 is before first 2.0" in only(record(first=2.0, last=1.0))
    assert "first nan; times are finite" in only(record(first=float("nan")))


def test_a_baseline_that_drafts_is_named() -> None:
    found = problems(measured(record([step(1, 2), step(0, 0)]), d=0, passes=[passed(verify=1.0, d=2)]))
    assert found == [
        "none-d0-b1-r0: r0 turn 0: step 0: proposed 2; D = 0 allows 0 to 0",
        "none-d0-b1-r0: r0 turn 0: acceptance length 1.5; with D = 0 from 1 to 1",
        "none-d0-b1-r0: pass 0: proposed 2; D = 0 for 1 sequences allows 0 to 0",
    ]


def test_a_pass_that_cannot_be_is_named() -> None:
    bad = [passed(verify=-1.0), passed(verify=1.0, batch=3), passed(verify=1.0, d=9), passed(verify=float("inf"))]
    found = problems(measured(b=2, passes=bad))
    assert [each.partition(": ")[2].partition(";")[0] for each in found] == [
        "pass 0: verify -1.0",
        "pass 1: batch 3",
        "pass 2: proposed 9",
        "pass 3: verify inf",
    ]


def test_a_turn_recorded_twice_is_named_but_not_where_repeats_are_pooled() -> None:
    twice = (record(steps(1)), record(steps(1)))
    assert problems(measured(*twice)) == ["ngram-d3-b1-r0: r0 turn 0: recorded 2 times; once"]
    assert problems(measured(*twice, repeat=None)) == []


# ---- a stored summary ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    baseline = measured(*(record([step(0, 0)] * 9, request=f"r{i}") for i in range(3)), d=0)
    here = measured(*(record(steps(3, 0, i, 1), request=f"r{i}") for i in range(3)), mismatches=[])
    return {"cells": [to_json(each) for each in results([baseline, here], METRICS)]}


def broken(summary: dict[str, Any], name: str, value: float | None, field: str = "value") -> list[str]:
    stored = copy.deepcopy(summary)
    stored["cells"][1]["metrics"][name][field] = value
    return summary_problems(stored, summary)


def test_a_summary_read_back_has_no_problem(summary: dict[str, Any]) -> None:
    assert summary_problems(json.loads(json.dumps(summary)), summary) == []
    assert broken(summary, "al", summary["cells"][1]["metrics"]["al"]["value"] * (1 + 1e-12)) == []


def test_a_histogram_shifted_by_one_is_caught_even_without_the_raw_files(summary: dict[str, Any]) -> None:
    shifted = copy.deepcopy(summary)
    metrics = shifted["cells"][1]["metrics"]
    shares = [metrics[f"accepted_histogram[{j}]"]["value"] for j in range(4)]
    for j, share in enumerate([*shares[1:], shares[0]]):
        metrics[f"accepted_histogram[{j}]"]["value"] = share
    found = summary_problems(shifted, shifted)
    # accepted 3 + 0 + i + 1 for i = 0, 1, 2: 15 in 12 steps, 1.25 a step
    assert len(found) == 1
    assert found[0].startswith("ngram-d3-b1-r0: accepted_histogram has a mean of ")
    assert "is 1.25 accepted per step" in found[0]


def test_a_histogram_that_does_not_sum_to_one_is_caught(summary: dict[str, Any]) -> None:
    assert any("accepted_histogram sums to " in each for each in broken(summary, "accepted_histogram[0]", 0.9))


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("al", 4.5, "al 4.5; with D = 3 from 1 to 4"),
        ("acceptance_rate", 1.12, "acceptance_rate 1.12; a share is from 0 to 1"),
        ("al_complete", 2.0, "al_complete is 2.0"),
        ("speedup", 3.0, "speedup value is 3.0; the raw files give 1.0"),  # 27 tokens in 3 s in either arm
        ("speedup", None, "speedup is None and its origin derived; null and unavailable go together"),
        ("al", float("nan"), "summary: cells.1.metrics.al.value is nan; a file holds finite numbers or null"),
    ],
)
def test_a_number_that_cannot_be_is_named(summary: dict[str, Any], name: str, value: float | None, right: str) -> None:
    assert any(right in each for each in broken(summary, name, value))


def test_a_changed_count_or_a_missing_metric_or_cell_is_named(summary: dict[str, Any]) -> None:
    assert broken(summary, "al", 4, field="n") == ["ngram-d3-b1-r0: al n is 4; the raw files give 3"]
    stored = copy.deepcopy(summary)
    del stored["cells"][1]["metrics"]["ttft_p50"]
    assert summary_problems(stored, summary) == ["ngram-d3-b1-r0: ttft_p50 is not in the summary"]
    less = {"cells": summary["cells"][:1]}
    assert summary_problems(less, summary) == ["ngram-d3-b1-r0: in the raw files, but not in the summary"]
    assert summary_problems(summary, less) == ["ngram-d3-b1-r0: in the summary, but not in the raw files"]
