"""From a call to a record: whose tokens, which steps, what is warned of; and every record can be true."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest
from builders import cell
from scripted_server import DONE, chunk, last, measured, usage

from speedbench.serving.exchange import Exchange, Failure
from speedbench.serving.load import Held
from speedbench.serving.records import Reading, read
from speedbench.types import Conversation, Measured, Record, Request, Step
from speedbench.validate import problems

REQUEST = Request(id="r0", category="chat", turns=("say it",))
CHUNKED = ("a ", "b c d ", "e f ", "g ")
"""Seven tokens in four chunks: with D = 3 steps of 3, 2 and 1 after the prefill's."""


def reading(d: int = 3, **more: Any) -> Reading:
    return Reading(draft_length=d, **{"fixed": True, **more})


def made(exchange: Exchange, how: Reading) -> tuple[Record, list[str]]:
    """The record, which must be possible, and the notes."""
    conversation = Conversation(request=REQUEST)
    record, notes = read(Held(conversation, 0, ({"role": "user", "content": "say it"},), exchange), how)
    d = how.draft_length
    assert problems(Measured(cell=cell("x", d), records=(record,), passes=(), mismatches=None)) == []
    return record, notes


def stats(*accepted: int, d: int = 3, **changes: Any) -> dict[str, Any]:
    """vLLM's, per step."""
    told = {
        "num_spec_steps": len(accepted), "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": d * len(accepted), "num_spec_tokens": d, "per_step_accepted": list(accepted),
        "per_step_drafted": [d] * len(accepted),
    }  # fmt: skip
    return {"metrics": {"speculative_decoding": {**told, **changes}}}


def answered(*texts: str, tokens: int | None = None, ids: bool = True, running: bool = False, **root: Any) -> Exchange:
    """A stream of these chunks, a tenth of a second apart; a token is a word."""
    events = [(0.1, chunk("", role="assistant"))]
    so_far = 0
    for n, text in enumerate(texts):
        words = text.split()
        so_far += len(words)
        choice = {"token_ids": list(range(so_far - len(words), so_far))} if ids else {}
        more = {"usage": usage(2, so_far)} if running else {}
        events.append((0.2 + n / 10, chunk(text, choice=choice, **more)))
    at = 0.2 + len(texts) / 10
    events.append((at, chunk(finish="length") + last(2, so_far if tokens is None else tokens, **root) + DONE))
    return measured(*events)


# ---- tokens and text ----


def test_a_record_holds_ids_steps_text_times_and_the_raw_payload() -> None:
    record, notes = made(answered(*CHUNKED, **stats(2, 1, 0)), reading())
    assert record.output == tuple(range(7))
    assert (record.tokens, record.size, record.text) == (None, 7, "a b c d e f g ")
    assert record.steps == tuple(Step(at=None, proposed=3, accepted=a, committed=a + 1) for a in (2, 1, 0))
    assert (record.told, record.finish, record.prompt_tokens, record.first_tokens) == ("exact", "length", 2, 1)
    assert (record.sent, record.first, record.last) == (0.0, pytest.approx(0.2), pytest.approx(0.5))
    assert record.raw["metrics"]["speculative_decoding"]["per_step_accepted"] == [2, 1, 0]
    assert notes == []


def test_case_26_where_an_id_was_held_back_the_usage_counts_in_both_arms() -> None:
    for how, root in ((reading(), stats(2, 2, 0)), (reading(0), {})):
        record, _ = made(answered(*CHUNKED, tokens=8, **root), how)
        assert (record.output, record.tokens, record.size) == ((), 8, 8)
        assert record.text == "a b c d e f g "


def test_case_23_without_usage_or_ids_nothing_is_counted_and_the_turn_has_failed() -> None:
    silent = measured((0.1, chunk("words")), (0.2, chunk(finish="stop") + DONE))
    record, notes = made(silent, reading())
    assert record.finish == "error"
    assert record.error == "malformed: the server told neither usage nor token ids, so its tokens cannot be counted"
    assert (record.steps, record.size, notes) == ((), 0, [])


def test_case_30_a_failure_is_a_record_of_its_own_kind() -> None:
    failure = Failure(kind="http", message="HTTP 503: busy", status=503)
    record, notes = made(measured((0.1, b""), failure=failure), reading())
    assert (record.finish, record.error, record.told) == ("error", "http: HTTP 503: busy", "unavailable")
    assert (record.first, record.raw, notes) == (None, None, [])


@pytest.mark.parametrize("d", [0, 3])
@pytest.mark.parametrize("tokens", [0, 1])
def test_case_29_answers_of_no_token_and_of_one_are_records_without_steps(d: int, tokens: int) -> None:
    exchange = answered(*["x "] * tokens, ids=False)
    record, notes = made(exchange, reading(d))
    assert (record.size, record.steps, record.first_tokens) == (tokens, (), tokens)
    assert record.told == ("exact" if tokens and not d else "unavailable")
    assert (record.first is None, notes) == (tokens == 0, [])


def test_what_the_first_event_held_belongs_to_no_time() -> None:
    record, _ = made(answered("a b c ", "d e ", ids=False, running=True), reading(0))
    assert (record.size, record.first_tokens, len(record.steps)) == (5, 3, 4)


def test_equal_prompts_are_known_by_their_ids_else_by_their_messages() -> None:
    plain, _ = made(answered("x "), reading(0))
    again, _ = made(answered("y "), reading(0))
    known = measured((0.1, chunk("x", prompt_token_ids=[1, 2, 3])), (0.2, chunk(finish="stop") + last(3, 1) + DONE))
    by_ids, _ = made(known, reading(0))
    assert plain.prompt_sha == again.prompt_sha != by_ids.prompt_sha
    assert by_ids.prompt_tokens == 3


def test_of_the_payload_the_ids_are_kept_once() -> None:
    known = measured(
        (0.1, chunk("x ", choice={"token_ids": [7]}, prompt_token_ids=[1, 2, 3])),
        (0.2, chunk(finish="stop") + last(3, 1, metrics={"mean": 2.0}) + DONE),
    )
    record, _ = made(known, reading(0))
    assert record.output == (7,)
    assert record.raw == {
        "id": "c", "model": "m", "usage": usage(3, 1), "metrics": {"mean": 2.0},
        "choices": [{"finish_reason": "stop"}],
    }  # fmt: skip
    short, _ = made(answered("a ", "b ", tokens=3), reading(0))
    assert short.raw["choices"][0]["token_ids"] == [0, 1]  # one is missing, so the record could not have them


# ---- acceptance ----


def test_a_baseline_is_one_token_a_step() -> None:
    record, notes = made(answered(*CHUNKED), reading(0))
    assert record.steps == (Step(at=None, proposed=0, accepted=0, committed=1),) * 6
    assert (record.told, notes) == ("exact", [])


def test_i1_where_sums_are_told_the_passes_are_what_the_tokens_leave() -> None:
    timings = {"predicted_n": 7, "draft_n": 9, "draft_n_accepted": 3, "prompt_ms": 5.0, "predicted_ms": 30.0}
    record, notes = made(answered(*CHUNKED, ids=False, timings=timings), reading())
    assert record.counts is not None
    assert (record.counts.steps, record.counts.committed) == (7 - 1 - 3, 6)
    assert (record.counts.accepted, record.counts.proposed, record.told) == (3, 9, "derived")
    assert (record.prefill, notes) == (0.005, [])


def test_a_server_that_tells_nothing_is_noted_with_what_it_did_tell() -> None:
    record, notes = made(answered(*CHUNKED, ids=False), reading())
    assert (record.told, record.steps, record.counts, record.size) == ("unavailable", (), None, 7)
    assert notes == [
        "acceptance stats requested but not found; "
        "the response has choices, id, model, usage; its choice: finish_reason"
    ]


def test_a_contradiction_is_noted_as_such_and_not_as_missing() -> None:
    record, notes = made(answered(*CHUNKED, **stats(3, 3, 3)), reading())  # 12 tokens committed; there are 6
    assert (record.told, record.steps) == ("unavailable", ())
    assert notes == ["vllm per step: 3 steps with drafts commit 12 tokens; the answer has 6 after the first"]


def test_a_server_set_to_another_d_is_named() -> None:
    told = stats(2, 1, 0, d=4)
    told["metrics"]["speculative_decoding"]["per_step_drafted"] = [3, 3, 3]
    told["metrics"]["speculative_decoding"]["num_draft_tokens"] = 9
    record, notes = made(answered(*CHUNKED, **told), reading())
    assert notes == ["vllm per step: the server is set to 4 drafts a step; D = 3"]
    assert record.told == "exact"


def test_drafts_in_a_baseline_are_no_baseline() -> None:
    record, notes = made(answered(*CHUNKED, **stats(2, 1, 0)), reading(0, by_chunks=True))
    assert (record.told, record.steps) == ("unavailable", ())
    assert notes == ["vllm per step: drafts in a baseline (9 told)"]


# ---- chunks, for the asking ----


@pytest.mark.parametrize(
    ("texts", "known", "committed"),
    [
        (CHUNKED, True, [3, 2, 1]),
        (("a b c ", "d e "), True, [2, 2]),  # the prefill's token and a step of 2, merged
        (CHUNKED, False, [2, 2, 2]),  # 7 tokens over 4 chunks: 1, 2, 2, 2
        (("a b c d ",), True, [3]),
        (("a ",), True, []),
    ],
)
def test_g3_chunks_are_steps_only_when_asked_and_estimated(
    texts: tuple[str, ...], known: bool, committed: list[int]
) -> None:
    record, notes = made(answered(*texts, ids=False, running=known), reading(by_chunks=True))
    assert [step.committed for step in record.steps] == committed
    assert record.told == ("estimated" if committed else "exact" if record.size == 0 else "unavailable")
    assert {step.accepted for step in record.steps} <= {None}
    assert notes == []


def test_g3_chunks_that_no_step_could_have_made_are_named() -> None:
    record, notes = made(answered("a ", "b c d e f g h ", ids=False, running=True), reading(by_chunks=True))
    assert [step.committed for step in record.steps] == [7]
    assert notes == ["chunks: up to 7 tokens in one with D = 3; the server merged steps"]


def test_more_chunks_than_tokens_are_no_matter() -> None:
    record, _ = made(answered("a ", "b ", "c ", "d ", tokens=2, ids=False), reading(by_chunks=True))
    assert [step.committed for step in record.steps] == [1]


def test_what_the_server_tells_is_believed_before_its_chunks() -> None:
    record, _ = made(answered("a b c d e f g ", **stats(2, 1, 0)), reading(by_chunks=True))
    assert [step.accepted for step in record.steps] == [2, 1, 0]
    assert record.told == "exact"


# ---- too long ----


def test_an_answer_that_ends_before_its_cap_met_the_servers_limit() -> None:
    assert made(answered(*CHUNKED), reading(0, most=7))[1] == []
    assert made(answered(*CHUNKED), reading(0, most=8))[1] == [
        "answers end at the server's limit, before the 8 tokens asked for"
    ]
