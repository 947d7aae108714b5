"""What engines tell about acceptance in their responses, by the shapes they send (`fixtures/engines/README.md`)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from speedbench.serving.acceptance import acceptance
from speedbench.serving.payloads import not_found, told
from speedbench.serving.payloads.told import Told

ENGINES = Path(__file__).parent / "fixtures" / "engines"


def payload(engine: str, name: str) -> Any:
    """A payload by hand; a copy, so that a test may spoil it."""
    document = json.loads((ENGINES / f"{engine}.json").read_text(encoding="utf-8"))
    return copy.deepcopy(document["payloads"][name])


def turns(session: str) -> list[dict[str, Any]]:
    """The calls of a recorded llama.cpp session."""
    made: list[dict[str, Any]] = json.loads((ENGINES / f"llamacpp-{session}.json").read_text(encoding="utf-8"))["turns"]
    return made


def read(made: Any) -> Told:
    found = told(made)
    assert found is not None
    return found


# ---- vLLM ----------------------------------------------------------------------------------------------------------


def test_what_vllm_really_sent_is_read_step_by_step_and_adds_up() -> None:
    recorded = json.loads((ENGINES / "vllm-0.32-ngram.json").read_text(encoding="utf-8"))
    for sent in recorded:
        found, stats = read(sent), sent["metrics"]["speculative_decoding"]
        assert (found.source, found.faults) == ("vllm per step", ())
        assert found.steps == tuple(zip(stats["per_step_drafted"], stats["per_step_accepted"], strict=True))
        assert len(found.ids or ()) == sent["usage"]["completion_tokens"]
        assert len(found.prompt_ids or ()) == sent["usage"]["prompt_tokens"]
        made = acceptance(found, tokens=len(found.ids or ()), draft_length=3, finish="length")
        assert sum(step.committed for step in made.steps) + 1 == sent["usage"]["completion_tokens"]


def test_vllm_detailed_tells_every_drafted_step_in_order() -> None:
    found = read(payload("vllm", "detailed"))
    assert found.source == "vllm per step"
    assert found.steps == ((3, 3), (3, 0), (2, 1), (3, 2))
    assert (found.drafted, found.proposed, found.accepted) == (4, 3 + 3 + 2 + 3, 3 + 0 + 1 + 2)
    assert (found.reported_al, found.configured) == (1 + 6 / 4, 3)
    assert found.ids == tuple(range(100, 112))
    assert found.prompt_ids == (1, 2, 3, 4, 5, 6, 7)
    assert (found.prefill, found.decode) == (0.0415, 0.23)  # 41.5 ms to the first token, 230 ms on to the last


@pytest.mark.parametrize("name", ["summary", "summary stream", "old place"])
def test_vllm_tells_the_same_in_its_new_place_in_its_old_place_and_in_a_stream(name: str) -> None:
    found = read(payload("vllm", name))
    assert found.source == "vllm histogram"
    assert found.histogram == (39, 1, 0, 3)  # a list, and of old a map by position
    assert (found.drafted, found.proposed, found.accepted) == (39 + 1 + 3, 43 * 3, 1 * 1 + 3 * 3)
    assert found.reported_al == pytest.approx(1 + 10 / 43)
    assert found.tokens == 54


def test_a_stream_gives_its_ids_piece_by_piece() -> None:
    found = read(payload("vllm", "summary stream"))
    assert found.ids == tuple(range(54))
    assert found.prompt_ids == (1, 2, 3)  # in the first event only


def test_a_null_of_a_later_event_takes_nothing_back() -> None:
    stream = payload("vllm", "summary stream")
    assert read([*stream, {"choices": [], "usage": None, "metrics": None}]) == read(stream)


def test_stats_in_an_unknown_place_are_missed_with_the_keys_seen() -> None:
    made = payload("vllm", "unknown place")
    assert told(made) is None
    said = not_found(made)
    assert "acceptance stats requested but not found; the response has choices, created, extras" in said
    assert "it may have moved to extras.speculation" in said


def test_a_baseline_tells_ids_and_times_and_nothing_of_drafts() -> None:
    found = read(payload("vllm", "baseline"))
    assert (found.source, found.accepted, found.faults) == (None, None, ())
    assert len(found.ids or ()) == 12
    assert found.decode == 0.23


def spoiled(**changes: Any) -> Told:
    made = payload("vllm", "detailed")
    made["metrics"]["speculative_decoding"].update(changes)
    return read(made)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"acceptance_histogram": [1, 1, 1, 2]}, "the histogram holds 5 steps; 4 are told"),
        ({"acceptance_histogram": [0, 1, 1, 1, 1]}, "the histogram holds 10 accepted drafts; 6 are told"),  # case 8
        ({"acceptance_histogram": [2, 0, 0, 2]}, "the steps accepted {0: 1, 1: 1, 2: 1, 3: 1}; the histogram is"),
        ({"num_draft_tokens": 5}, "6 accepted of 5 proposed"),  # case 7: more than 100 %
        ({"num_draft_tokens": 12}, "the steps hold 11 proposed drafts; 12 are told"),
        ({"per_step_accepted": [3, 0, 1]}, "4 proposals and 3 acceptances; one each a step"),
        ({"per_step_drafted": [3, 3, 0, 5]}, "step 2: 1 accepted of 0 proposed"),
        ({"mean_acceptance_length": 1.5}, "a mean of 1.5; 1 + 6/4 is 2.5"),  # case 1: without the target's own token
        ({"num_accepted_draft_tokens": -1}, "accepted -1 is negative"),
        ({"num_accepted_draft_tokens": "6", "acceptance_histogram": None}, "no whole number of accepted drafts"),
    ],
)
def test_numbers_that_contradict_each_other_are_named_and_not_used(changes: dict[str, Any], fault: str) -> None:
    found = spoiled(**changes)
    assert any(fault in each for each in found.faults), found.faults
    assert {found.steps, found.histogram, found.drafted, found.proposed, found.accepted} == {None}
    assert found.ids is not None  # the rest stands


def test_predicted_outputs_are_another_thing() -> None:
    details = {"accepted_prediction_tokens": 9, "rejected_prediction_tokens": 3}
    made = {"choices": [{"index": 0}], "usage": {"completion_tokens": 20, "completion_tokens_details": details}}
    assert told(made) is None


def test_ids_that_are_not_all_there_are_not_used() -> None:
    made = payload("vllm", "detailed")
    made["choices"][0]["token_ids"].pop()
    found = read(made)
    assert found.ids is None
    assert found.faults == ("fewer or more ids than output tokens told; ids not used",)
    assert found.accepted == 6  # that stands


@pytest.mark.parametrize("made", [None, [], {}, "text", {"choices": []}, {"choices": [{"index": 0}], "usage": None}])
def test_a_response_that_tells_nothing_is_none(made: Any) -> None:
    assert told(made) is None
    assert "not found" in not_found(made)


# ---- SGLang --------------------------------------------------------------------------------------------------------


def test_sglang_tells_a_histogram_and_a_mean_of_its_own_definition() -> None:
    found = read(payload("sglang", "chat"))
    assert found.source == "sglang histogram"
    assert found.histogram == (11, 14, 11, 4, 0, 3)
    assert (found.drafted, found.accepted) == (43, 14 + 2 * 11 + 3 * 4 + 5 * 3) == (43, 63)
    assert found.reported_al == pytest.approx(106 / 43)  # and not 1 + 63/43: the prefill's token is in it
    assert (found.proposed, found.most_proposed) == (None, 43 * 5)  # steps × width, whatever was proposed


@pytest.mark.parametrize("name", ["generate", "older names"])
def test_sglang_tells_it_on_its_own_endpoint_too_by_either_name(name: str) -> None:
    found = read(payload("sglang", name))
    assert (found.histogram, found.drafted, found.accepted) == ((0, 1, 2, 1), 4, 1 + 2 * 2 + 3)
    assert (found.tokens, found.ids) == (13, tuple(range(13)))


def test_sglang_without_speculation_tells_nothing_of_drafts() -> None:
    assert read(payload("sglang", "baseline")).source is None


# ---- TensorRT-LLM --------------------------------------------------------------------------------------------------


def test_trtllm_is_not_taken_for_vllm_although_it_has_a_histogram_too() -> None:
    found = read(payload("trtllm", "choice"))
    assert found.source == "trtllm choice"
    assert (found.histogram, found.drafted) == ((8, 0, 6, 6), 20)
    assert (found.proposed, found.accepted) == (60, 2 * 6 + 3 * 6)
    assert found.forwards == 51 / (51 / 21) - 1 == 20  # 51 tokens at 2.43 are 21 iterations, one of them the prefill's


def test_trtllm_iterations_give_the_passes_without_the_prefills() -> None:
    found = read(payload("trtllm", "iterations only"))
    assert (found.source, found.forwards) == ("trtllm iterations", 27 / 2.7 - 1)
    assert (found.drafted, found.proposed, found.accepted) == (None, None, None)


def test_trtllm_zeros_beside_several_tokens_an_iteration_are_unavailable() -> None:
    found = read(payload("trtllm", "zeros"))  # case 12
    assert (found.proposed, found.accepted, found.forwards) == (None, None, 9)
    assert found.faults == (
        "trtllm iterations: 0 proposed and 0 accepted drafts, but 2.7 tokens per iteration; the iterations are used",
    )


def test_trtllm_zeros_with_nothing_to_confirm_them_are_unavailable() -> None:
    made = payload("trtllm", "zeros")
    del made["decoding_iter"], made["avg_decoded_tokens_per_iter"]
    found = read(made)
    assert (found.proposed, found.accepted, found.forwards) == (None, None, None)
    assert "no iterations to confirm it" in found.faults[0]


def test_trtllm_zeros_with_one_token_an_iteration_are_no_fault() -> None:
    made = payload("trtllm", "zeros") | {"decoding_iter": 27, "avg_decoded_tokens_per_iter": 1.0}
    assert (read(made).forwards, read(made).faults) == (26, ())


def test_trtllm_in_process_tells_counts() -> None:
    found = read(payload("trtllm", "counts"))
    assert (found.source, found.proposed, found.accepted, found.forwards) == ("trtllm choice", 27, 17, 9)
    assert len(found.ids or ()) == found.tokens == 27


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"avg_decoded_tokens_per_iter": 2.55}, "27 tokens at 2.55 per iteration are 10.59 iterations; a whole number"),
        ({"decoding_iter": 12}, "decoding_iter 12; 27 tokens at 2.7 make 10"),
    ],
)
def test_trtllm_iterations_that_contradict_are_named_and_not_used(changes: dict[str, Any], fault: str) -> None:
    found = read(payload("trtllm", "counts") | changes)
    assert any(fault in each for each in found.faults)
    assert found.forwards is None


def test_trtllm_more_drafted_steps_than_passes_is_a_fault() -> None:
    made = payload("trtllm", "choice")
    made["choices"][0]["avg_decoded_tokens_per_iter"] = 51 / 17
    found = read(made)
    assert found.forwards is None
    assert "20 steps with drafts in 16 decode iterations" in found.faults[0]


# ---- llama.cpp and mlx-vlm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["none", "self", "forced", "ngram", "other"])
def test_llamacpp_tells_what_its_counters_say(session: str) -> None:
    for turn in turns(session):
        found = read(turn["payload"])
        assert found.source == "llamacpp timings"
        assert (found.proposed, found.accepted) == (turn["counted"]["proposed"], turn["counted"]["accepted"])
        assert found.prefill is not None
        assert found.faults == ()


def test_llamacpp_leaves_the_fields_out_where_nothing_was_drafted_which_is_0() -> None:
    first = turns("ngram")[0]
    assert "draft_n" not in first["payload"]["timings"]
    found = read(first["payload"])
    assert (found.proposed, found.accepted, found.drafted) == (0, 0, 0)


def test_llamacpp_streams_ids_beside_each_piece() -> None:
    stream = turns("forced")[2]["payload"]
    found = read(stream)
    assert len(stream) == 24 + 1  # each accepted token comes as its own event: events are no steps (G3)
    assert len(found.ids or ()) == found.tokens == 24


def test_mlx_vlm_adds_its_rounds_and_may_accept_more_than_it_sends() -> None:
    found = read(payload("mlx-vlm", "past the end"))
    assert found.source == "mlx-vlm timings"
    assert (found.tokens, found.drafted, found.proposed, found.accepted) == (2, 1, 7, 6)
