"""From what an engine tells to steps and sums, by hand and from recorded answers."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import measured, record
from test_serving_payloads import payload, turns

from speedbench.serving.acceptance import Acceptance, acceptance, from_chunks
from speedbench.serving.payloads import Told, told
from speedbench.types import Counts
from speedbench.validate import problems


def taken(made: Any, *, d: int, tokens: int | None = None, fixed: bool = False) -> Acceptance:
    """What comes out of a payload, of an answer of its own length."""
    found = told(made)
    size = tokens if tokens is not None else (found.tokens if found else None)
    assert size is not None
    return acceptance(found, tokens=size, draft_length=d, finish="length", fixed=fixed)


def shown(found: Acceptance) -> list[tuple[int | None, int | None, int]]:
    return [(step.proposed, step.accepted, step.committed) for step in found.steps]


def length(found: Acceptance) -> float:
    """Σ committed / Σ steps."""
    if found.counts is not None:
        return found.counts.committed / found.counts.steps
    return sum(step.committed for step in found.steps) / len(found.steps)


def check(found: Acceptance, *, tokens: int, d: int) -> None:
    """What every record must satisfy, of steps by `validate` and of sums here."""
    if found.counts is not None:
        assert not found.steps
        counts = found.counts
        assert counts.committed == tokens - 1
        assert counts.committed <= counts.steps * (d + 1)
        assert counts.steps <= counts.committed
        if counts.accepted is not None:
            assert counts.committed <= counts.steps + counts.accepted <= counts.committed + d
        return
    if found.origin == "unavailable":
        assert not found.steps
        return
    made = record(found.steps)
    assert len(made.output) == tokens
    assert problems(measured(made, d=d)) == []


# ---- by hand -------------------------------------------------------------------------------------------------------


def test_a_baseline_takes_one_plain_step_a_token_after_the_prefills() -> None:
    found = taken(payload("vllm", "baseline"), d=0)
    assert shown(found) == [(0, 0, 1)] * (12 - 1)
    assert (found.origin, length(found)) == ("exact", 1.0)
    assert len(acceptance(None, tokens=5, draft_length=0, finish="stop").steps) == 5 - 1


def test_drafts_in_a_baseline_are_a_fault_and_nothing_is_used() -> None:
    found = taken(payload("vllm", "detailed"), d=0)
    assert (found.steps, found.counts, found.origin) == ((), None, "unavailable")
    assert found.faults == ("vllm per step: drafts in a baseline (11 told)",)


def test_a_baseline_that_took_fewer_passes_than_tokens_is_a_fault() -> None:
    found = taken(payload("trtllm", "iterations only"), d=0)
    assert found.origin == "unavailable"
    assert "9 passes for 26 tokens after the first in a baseline" in found.faults[0]


def test_steps_in_order_and_a_plain_one_for_what_they_leave() -> None:
    # 12 tokens: 1 of the prefill, 4 + 1 + 2 + 3 of the steps with drafts, so one pass had none
    found = taken(payload("vllm", "detailed"), d=3)
    assert shown(found) == [(0, 0, 1), (3, 3, 4), (3, 0, 1), (2, 1, 2), (3, 2, 3)]
    assert length(found) == 11 / 5
    assert found.origin == "derived"  # the plain step is by subtraction


def test_steps_are_exact_where_no_plain_one_can_hide_behind_a_cut() -> None:
    made = Told(source="vllm per step", steps=((2, 2), (2, 1)))  # 3 + 2 tokens and the prefill's
    for tokens, fixed, origin in [(6, True, "exact"), (6, False, "derived"), (7, True, "derived")]:
        found = acceptance(made, tokens=tokens, draft_length=2, finish="stop", fixed=fixed)
        assert found.origin == origin, (tokens, fixed)
    refused = Told(source="vllm per step", steps=((2, 2), (2, 0)))  # a last step of one token lost none
    assert acceptance(refused, tokens=8, draft_length=2, finish="stop").origin == "exact"


def test_the_last_step_is_cut_to_the_tokens_that_were_sent() -> None:
    made = payload("vllm", "detailed") | {"usage": {"completion_tokens": 10}}
    found = taken(made, d=3, fixed=True)
    # 10 tokens: 1 + 4 + 1 + 2 + 2, so the last step's 3 lost one to a stop (G2)
    assert shown(found) == [(3, 3, 4), (3, 0, 1), (2, 1, 2), (3, 2, 2)]
    assert (found.origin, length(found)) == ("exact", 9 / 4)


def test_the_events_of_a_stream_show_plain_steps_that_the_cut_of_the_last_one_hides() -> None:
    # 11 tokens: 1 of the prefill, plain steps, a drafted one of 4, more plain ones, and at the end one of 4 cut to 1.
    # By what was accepted alone 10 - 8 = 2 plain steps would do; 7 events after the first show 5, and a cut of 3
    made = Told(source="vllm per step", steps=((3, 3), (3, 3)), tokens=11)
    blind = acceptance(made, tokens=11, draft_length=3, finish="length")
    assert (len(blind.steps), length(blind)) == (4, 10 / 4)
    found = acceptance(made, tokens=11, draft_length=3, finish="length", events=7)
    assert shown(found) == [(0, 0, 1)] * 5 + [(3, 3, 4), (3, 3, 1)]
    merged = acceptance(made, tokens=11, draft_length=3, finish="length", events=3)
    assert shown(merged) == shown(blind)
    split = acceptance(made, tokens=11, draft_length=3, finish="length", events=9)  # no passes make that: not used
    assert shown(split) == shown(blind)
    check(found, tokens=11, d=3)


def test_steps_that_commit_more_than_the_last_one_can_have_lost_are_a_fault() -> None:
    found = taken(payload("vllm", "detailed"), d=3, tokens=8)
    assert (found.steps, found.origin) == ((), "unavailable")
    assert "4 steps with drafts commit 10 tokens; the answer has 7 after the first" in found.faults[0]


def test_a_step_wider_than_d_is_a_fault() -> None:
    found = taken(payload("vllm", "detailed"), d=2)
    assert found.origin == "unavailable"
    assert found.faults == (
        "vllm per step: the server is set to 3 drafts a step; D = 2",
        "vllm per step: a step of 3 drafts with D = 2",
    )


def test_a_histogram_gives_the_steps_in_no_order() -> None:
    found = taken(payload("vllm", "summary"), d=3)
    assert sorted(shown(found)) == [(3, 0, 1)] * 39 + [(3, 1, 2)] + [(3, 3, 4)] * 3
    assert length(found) == 53 / 43 == 1 + 10 / 43  # 54 tokens, 1 of the prefill
    assert found.origin == "derived"


def test_both_places_of_vllms_stats_give_the_same_length() -> None:
    assert length(taken(payload("vllm", "summary"), d=3)) == length(taken(payload("vllm", "old place"), d=3))


def test_a_histograms_surplus_is_cut_from_one_step_that_can_bear_it() -> None:
    # SGLang: 43 steps and 63 accepted commit 106; 106 tokens are 105 after the first, so one was cut
    found = taken(payload("sglang", "chat"), d=5)
    assert sum(step.committed for step in found.steps) == 105
    short = [step for step in found.steps if step.committed <= (step.accepted or 0)]
    assert [(step.accepted, step.committed) for step in short] == [(1, 1)]
    assert found.steps[-1] == short[0]  # only a last step may be short
    assert length(found) == 105 / 43  # and not the 106/43 that SGLang reports


def test_a_surplus_that_no_step_can_bear_is_a_fault() -> None:
    made = Told(source="sglang histogram", histogram=(5, 2), drafted=7, accepted=2)
    found = acceptance(made, tokens=7, draft_length=3, finish="stop")  # 5 + 4 = 9 committed, 6 sent: 3 too many
    assert (found.steps, found.origin) == ((), "unavailable")
    assert "7 steps with drafts commit 9 tokens; the answer has 6 after the first" in found.faults[0]


def test_what_each_step_proposed_is_known_only_where_all_proposed_d() -> None:
    made = Told(source="vllm histogram", histogram=(1, 1, 1), drafted=3, proposed=3 * 4, accepted=3)
    every = acceptance(made, tokens=7, draft_length=4, finish="length")
    assert {step.proposed for step in every.steps} == {4}
    some = acceptance(replace(made, proposed=11), tokens=7, draft_length=4, finish="length")
    assert {step.proposed for step in some.steps} == {None}
    bound = replace(made, proposed=None, most_proposed=12)  # SGLang's steps × width
    assert {s.proposed for s in acceptance(bound, tokens=7, draft_length=4, finish="length").steps} == {None}
    sure = acceptance(bound, tokens=7, draft_length=4, finish="length", fixed=True)
    assert {step.proposed for step in sure.steps} == {4}


def test_sums_give_the_passes_by_the_identity() -> None:
    # llama.cpp, 40 tokens of which 31 were accepted drafts: 40 − 1 − 31 = 8 passes (I1)
    found = taken(turns("self")[0]["payload"], d=4)
    assert found.counts == Counts(steps=8, committed=39, accepted=31, proposed=31, drafted=None, origin="derived")
    assert (found.steps, found.origin, length(found)) == ((), "derived", 39 / 8)


def test_passes_are_never_fewer_than_the_tokens_and_drafts_need() -> None:
    # llama.cpp, stopped by a word inside its 5th step: 22 tokens, 20 accepted. 22 − 1 − 20 = 1 pass, but 21 tokens
    # with D = 4 need ⌈21/5⌉ = 5, and 5 there were
    turn = turns("self")[4]
    found = taken(turn["payload"], d=4)
    assert found.counts is not None
    assert found.counts.steps == 5 == turn["counted"]["n_decode"] - 1


def test_proposals_show_passes_that_a_stop_hid() -> None:
    # 16 tokens, 14 accepted: 16 − 1 − 14 = 1 pass, ⌈15/5⌉ = 3 by D = 4, but 20 proposals take ⌈20/4⌉ = 5
    made = Told(source="llamacpp timings", proposed=20, accepted=14)
    found = acceptance(made, tokens=16, draft_length=4, finish="stop")
    assert found.counts is not None
    assert found.counts.steps == 5


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (Told(source="mlx-vlm timings", drafted=5, proposed=15, accepted=0), "in 5 passes do not make 3 tokens"),
        (
            Told(source="vllm histogram", histogram=(3,), proposed=10, accepted=0),
            "10 drafts proposed in 3 steps with D",
        ),
        (
            Told(source="vllm histogram", histogram=(2, 0, 0, 0, 1), accepted=4),
            "a step of 4 accepted drafts with D = 3",
        ),
    ],
)
def test_more_than_the_passes_and_d_allow_is_a_fault(made: Told, fault: str) -> None:
    found = acceptance(made, tokens=4, draft_length=3, finish="stop")
    assert (found.steps, found.counts, found.origin) == ((), None, "unavailable")
    assert fault in found.faults[0]


def test_accepted_drafts_beyond_the_answers_end_are_cut() -> None:
    # mlx-vlm: 2 tokens, 1 round, 6 of 7 accepted; the round committed 1 of its 7
    found = taken(payload("mlx-vlm", "past the end"), d=7)
    assert found.counts == Counts(steps=1, committed=1, accepted=6, proposed=7, drafted=1, origin="derived")


def test_passes_that_are_told_stand_for_the_length_and_nothing_else() -> None:
    # TensorRT-LLM, 27 tokens in 10 iterations, the prefill's among them: 26 / 9
    found = taken(payload("trtllm", "zeros"), d=3)
    assert found.counts == Counts(steps=9, committed=26, accepted=None, proposed=None, drafted=None, origin="derived")
    assert any("2.7 tokens per iteration" in fault for fault in found.faults)  # case 12: never AL 1.0


def test_passes_and_accepted_drafts_that_cannot_both_be_are_a_fault() -> None:
    made = Told(source="trtllm choice", proposed=27, accepted=20, forwards=13)
    found = acceptance(made, tokens=27, draft_length=3, finish="length")  # 13 + 20 = 33; 26 and at most D = 3 more
    assert (found.counts, found.origin) == (None, "unavailable")
    assert "do not make 26 tokens after the first" in found.faults[0]


def test_told_passes_show_how_many_plain_steps_there_were() -> None:
    made = Told(source="trtllm choice", histogram=(0, 0, 0, 2), drafted=2, proposed=6, accepted=6, forwards=4)
    found = acceptance(made, tokens=10, draft_length=3, finish="stop")  # 1 + 2·4 + 2·1 = 11: one was cut
    assert shown(found) == [(0, 0, 1)] * 2 + [(3, 3, 4), (3, 3, 3)]


def test_an_answer_of_one_token_has_no_steps_and_that_is_all_of_it() -> None:
    found = taken(turns("self")[3]["payload"], d=4)
    assert (found.steps, found.counts, found.origin) == ((), None, "exact")


@pytest.mark.parametrize("found", [None, Told(source=None, tokens=9, ids=(1,) * 9), Told(source="x", faults=("why",))])
def test_nothing_told_is_unavailable_and_never_a_length_of_one(found: Told | None) -> None:
    got = acceptance(found, tokens=9, draft_length=3, finish="stop")
    assert (got.steps, got.counts, got.origin) == ((), None, "unavailable")
    assert got.faults == (found.faults if found else ())


def test_an_answer_that_ended_in_an_error_is_not_counted() -> None:
    got = acceptance(told(payload("vllm", "detailed")), tokens=12, draft_length=3, finish="error")
    assert (got.steps, got.origin) == ((), "unavailable")


def test_chunks_are_an_estimate_and_say_when_the_server_merged_them() -> None:
    found = from_chunks([1, 4, 2, 0, 3], draft_length=3)
    assert shown(found) == [(None, None, 4), (None, None, 2), (None, None, 3)]
    assert (found.origin, found.faults) == ("estimated", ())
    merged = from_chunks([1, 9], draft_length=3)
    assert merged.faults == ("chunks: up to 9 tokens in one with D = 3; the server merged steps",)
    assert from_chunks([7], draft_length=3).origin == "unavailable"


@pytest.mark.parametrize("session", ["self", "forced", "ngram", "other"])
def test_recorded_answers_took_as_many_passes_as_the_server_counted(session: str) -> None:
    for turn in turns(session):
        found = taken(turn["payload"], d=4)
        passes = found.counts.steps if found.counts else 0
        assert passes == turn["counted"]["n_decode"] - 1  # one decode of the prompt
        tokens = told(turn["payload"]).tokens  # type: ignore[union-attr]
        assert tokens is not None
        check(found, tokens=tokens, d=4)
