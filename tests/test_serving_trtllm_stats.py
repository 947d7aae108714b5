"""TensorRT-LLM's iteration statistics: what they say of drafting, and what is missing of them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Any

import pytest
from test_serving_payloads import payload

from speedbench.serving.trtllm_stats import iterations


def rows(name: str = "iteration stats") -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = payload("trtllm", name)
    return made


def test_an_iteration_has_its_seconds_its_batch_and_its_drafts() -> None:
    row = iterations(rows()).rows[1]
    assert (row.number, row.seconds) == (5, 0.020)  # 20 ms
    assert (row.context, row.batch, row.active, row.queued, row.paused) == (0, 2, 2, 0, 0)
    assert (row.proposed, row.accepted, row.drafted) == (6, 4, 2)


def test_iterations_with_prefills_are_kept_apart() -> None:
    found = iterations(rows())
    assert [row.context for row in found.rows] == [2, 0, 0, 1, 0]
    assert [row.number for row in found.decode] == [5, 6, 10]
    idle = rows()[1]
    idle["inflightBatchingStats"]["numGenRequests"] = 0
    assert iterations([idle]).decode == ()


def test_context_tokens_make_a_prefill_even_where_no_request_is_counted() -> None:
    made = rows()
    made[1]["inflightBatchingStats"] |= {"numContextRequests": 0, "numCtxTokens": 64}
    assert [row.number for row in iterations(made).decode] == [6, 10]


def test_an_overhead_of_0_in_one_model_mode_is_unavailable() -> None:
    assert all(row["specDecodingStats"]["draftOverhead"] == 0.0 for row in rows())
    assert {(row.draft, row.verify) for row in iterations(rows()).rows} == {(None, None)}


def test_a_drafter_of_its_own_has_its_seconds() -> None:
    first, second = iterations(rows("iteration stats, two models")).rows
    assert (first.draft, first.verify) == (0.005, pytest.approx(0.025 - 0.005))
    assert second.draft is None  # nothing was drafted, and what looking for it cost is not told


def test_gaps_are_iterations_that_the_queue_dropped() -> None:
    found = iterations(rows())  # 4, 5, 6, 7, 10
    assert found.lost == 10 - 7 - 1
    assert iterations([*rows()[:2], *rows()[3:]]).lost == (7 - 5 - 1) + (10 - 7 - 1)
    assert found.faults == ()


def test_rows_read_twice_count_once_and_texts_are_read_too() -> None:
    made = rows()
    again = iterations([*made[:3], *made[1:]])
    assert again == iterations([json.dumps(row) for row in made]) == iterations(made)


def test_an_engine_that_began_anew_is_a_fault_and_its_rows_are_no_repeats() -> None:
    made = rows()
    later = [row | {"timestamp": "10-02-2026 10:00:00.000000"} for row in made[:2]]
    found = iterations([*made, *later])
    assert len(found.rows) == 5 + 2
    assert found.faults == ("iter went down: the engine began anew meanwhile",)
    assert found.lost == 2


def test_rows_of_other_attention_ranks_are_left_out() -> None:
    made = [row | {"attentionDpRank": rank} for row in rows() for rank in (0, 1)]
    found = iterations(made)
    assert len(found.rows) == 5
    assert found.faults == ("5 rows of attention-parallel ranks other than 0 left out",)


def test_rows_that_are_none_are_counted_and_left_out() -> None:
    found = iterations([*rows(), {"iter": 11}, "not json", "[1]"])
    assert len(found.rows) == 5
    assert found.faults == ("3 rows without iter or iterLatencyMS left out",)


def test_rows_without_speculation_say_nothing_of_drafts() -> None:
    made = rows()
    for row in made:
        del row["specDecodingStats"]
    found = iterations(made)
    assert {(row.proposed, row.accepted, row.drafted, row.draft) for row in found.rows} == {(None,) * 4}
    assert found.faults == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"numAcceptedTokens": 7, "acceptanceLength": 4.5}, "iteration 5: 7 accepted of 6 proposed drafts"),
        ({"acceptanceLength": 2.0}, "iteration 5: acceptanceLength 2; 1 + 4/2 is 3"),
        ({"iterLatencyMS": 21.0}, "iteration 5: 0.021 s of drafting in 0.02 s"),
    ],
)
def test_rows_that_contradict_themselves_are_named(changes: dict[str, Any], fault: str) -> None:
    made = rows()
    made[1]["specDecodingStats"] |= changes
    assert iterations(made).faults == (fault,)
