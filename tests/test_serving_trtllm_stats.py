"""TensorRT-LLM's iteration statistics: what they say of drafting, and what is missing of them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Any

import pytest
from test_serving_payloads import payload

from speedbench.serving.trtllm_stats import iterations, passes


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


def stamped(*begun: float) -> list[dict[str, Any]]:
    """Decode rows one after the other, begun at these seconds."""
    row = rows()[1]
    return [row | {"iter": i, "timestamp": f"10-01-2026 10:00:{at:09.6f}"} for i, at in enumerate(begun)]


def seconds(made: list[dict[str, Any]]) -> list[float | None]:
    return [each.whole for each in passes(iterations(made).rows, 7.0)]


def test_a_pass_takes_from_its_beginning_to_that_of_the_next_however_long_its_iteration_was() -> None:
    made = stamped(1.0, 1.011, 1.023)  # each row says 20 ms, for with the overlap scheduler two of them overlap
    assert seconds(made) == [pytest.approx(0.011), pytest.approx(0.012)]
    first = next(passes(iterations(made).rows, 7.0))
    assert (first.at, first.batch, first.proposed, first.width) == (7.0, 2, 6, None)
    assert first.verify is first.other is first.draft is None


def test_no_pass_is_told_where_the_next_is_a_prefill_or_was_dropped_or_nothing_ran_meanwhile() -> None:
    made = stamped(1.0, 1.02, 1.04, 9.0, 9.02)
    made[1]["inflightBatchingStats"] = made[1]["inflightBatchingStats"] | {"numContextRequests": 1}
    assert seconds(made) == [pytest.approx(0.02)]  # 9.00 to 9.02; 1.04 to 9.00 is idle
    gap = stamped(1.0, 1.02, 1.04)
    assert seconds([gap[0], gap[2]]) == []
    assert seconds(stamped(2.0, 1.0)) == []  # the clock was set


def test_rows_without_a_stamp_are_taken_at_their_own_seconds() -> None:
    made = [{key: value for key, value in row.items() if key != "timestamp"} for row in stamped(0, 0, 0)]
    assert seconds(made) == [0.020, 0.020]


def test_a_pass_has_its_drafting_where_the_drafter_is_an_engine_of_its_own() -> None:
    first, second = rows("iteration stats, two models")
    made = [{**first, "timestamp": None}, {**second, "timestamp": None}]
    (found,) = passes(iterations(made).rows, 0.0)
    assert (found.draft, found.whole, found.verify) == (0.005, 0.025, None)


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
