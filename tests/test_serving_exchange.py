"""What a stream amounts to: times, tokens and words, and never a chunk counted as a token. Case numbers as filed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import DONE, answer, chunk, event, last, measured, usage

from speedbench.serving.exchange import Delta, Exchange, Failure


def decode_rate(exchange: Exchange) -> float:
    """Tokens a second after the first event, as the design defines it."""
    assert exchange.tokens is not None
    assert exchange.first_tokens is not None
    assert exchange.first is not None
    assert exchange.last is not None
    return (exchange.tokens - exchange.first_tokens) / (exchange.last - exchange.first)


# ---- case 21: a chunk is no token ----


def test_case_21_ten_chunks_of_four_tokens_every_100_ms_are_40_tokens_a_second() -> None:
    pieces = [(1.0, chunk("a", usage=usage(5, 1)))]
    pieces += [(1.0 + n / 10, chunk("four of them ", usage=usage(5, 1 + 4 * n))) for n in range(1, 11)]
    found = measured(*pieces, (2.0, chunk(finish="stop", usage=usage(5, 41)) + DONE))
    assert (found.tokens, found.first_tokens, len(found.deltas)) == (41, 1, 11)
    assert decode_rate(found) == pytest.approx((41 - 1) / 1.0)
    gaps = [after.at - before.at for before, after in pairwise(found.deltas)]
    assert gaps == pytest.approx([0.1] * 10)  # between chunks; a token takes 1.0 s / 40 = 25 ms
    rates = [(n - m) / (b - a) for (a, m), (b, n) in pairwise(found.progress)]
    assert max(rates) >= decode_rate(found) - 1e-9


def test_case_21_token_ids_tell_what_the_first_event_held() -> None:
    found = measured(
        (1.0, chunk("ab", choice={"token_ids": [7, 8]})),
        (1.5, chunk("cde", choice={"token_ids": [9, 10, 11]}, finish="length")),
        (1.5, last(5, 5) + DONE),
    )
    assert (found.token_ids, found.first_tokens, found.tokens) == ((7, 8, 9, 10, 11), 2, 5)
    assert found.progress == ((1.0, 2), (1.5, 5))


def test_case_21_without_ids_or_running_usage_nobody_knows_what_the_first_event_held() -> None:
    found = measured((1.0, chunk("a lot of words")), (2.0, chunk("more", finish="stop") + last(5, 41) + DONE))
    assert (found.tokens, found.first_tokens, found.progress) == (41, None, ())


def test_events_that_arrived_together_count_as_one() -> None:
    together = chunk("a", usage=usage(5, 1)) + chunk("b", usage=usage(5, 4))
    found = measured((1.0, together), (2.0, chunk("c", finish="stop", usage=usage(5, 6)) + DONE))
    assert (found.first_tokens, found.progress) == (4, ((1.0, 4), (2.0, 6)))


def test_ids_that_do_not_add_up_to_the_usage_tell_nothing_of_the_times() -> None:
    # a reasoning parser swallowed the events of 6 tokens; a stop token that is kept back (5 of 6) is no contradiction
    def with_usage(tokens: int) -> Exchange:
        first = chunk("a", choice={"token_ids": [1, 2]})
        return measured(
            (1.0, first), (2.0, chunk("b", choice={"token_ids": [3, 4, 5]}, finish="stop") + last(9, tokens))
        )

    assert with_usage(11).progress == ()
    assert with_usage(6).progress == ((1.0, 2), (2.0, 5))


# ---- case 23: tokens without text ----


def test_case_23_tokens_that_show_no_text_are_counted_by_the_usage_and_invent_no_latency() -> None:
    found = measured(
        (1.0, chunk("a", usage=usage(5, 1))),
        (3.0, chunk(usage=usage(5, 17), finish="stop") + DONE),
    )
    assert (found.tokens, found.first_tokens, len(found.deltas)) == (17, 1, 1)
    assert (found.first, found.last) == (1.0, 3.0)  # they were there by then, though they showed nothing
    assert decode_rate(found) == (17 - 1) / 2.0


def test_case_23_text_only_at_the_end_leaves_no_window_to_divide_by() -> None:
    found = measured(
        (1.0, chunk("", usage=usage(5, 1))), (2.0, chunk("all of it", finish="stop", usage=usage(5, 17)) + DONE)
    )
    assert (found.tokens, found.first, found.last, found.first_tokens) == (17, 2.0, 2.0, 17)


def test_case_23_the_count_is_never_the_number_of_chunks_nor_what_was_asked_for() -> None:
    found = measured((1.0, chunk("a")), (2.0, chunk("b", finish="length") + DONE))
    assert (found.tokens, found.usage) == (None, None)


# ---- cases 24 and 25: the first token ----


@pytest.mark.parametrize("empty", [None, ""])
def test_case_24_a_role_is_no_token(empty: str | None) -> None:
    opening = chunk(empty, role="assistant", delta={"content": empty})
    found = measured((0.01, opening), (0.3, chunk("a")), (0.4, chunk("b", finish="stop") + DONE))
    assert (found.first, found.last, found.text) == (0.3, 0.4, "ab")


@pytest.mark.parametrize("names", [["reasoning_content"], ["reasoning"], ["reasoning_content", "reasoning"]])
def test_case_25_reasoning_starts_the_clock_and_is_counted_once(names: list[str]) -> None:
    def thought(text: str) -> bytes:
        return chunk(delta=dict.fromkeys(names, text))

    told = usage(5, 12, completion_tokens_details={"reasoning_tokens": 9})
    found = measured(
        (0.1, chunk("", role="assistant")), (0.5, thought("let me ")), (0.7, thought("see")),
        (0.9, chunk("42", finish="stop") + event({"choices": [], "usage": told}) + DONE),
    )  # fmt: skip
    assert (found.first, found.last) == (0.5, 0.9)
    assert (found.reasoning, found.text) == ("let me see", "42")
    assert found.deltas == (Delta(0.5, "reasoning", 7), Delta(0.7, "reasoning", 3), Delta(0.9, "content", 2))
    assert found.usage is not None
    assert (found.usage.completion_tokens, found.usage.reasoning_tokens) == (12, 9)


def test_case_25_reasoning_until_the_cap_is_an_answer() -> None:
    told = usage(5, 64, reasoning_tokens=64)  # as SGLang writes it
    found = measured((0.5, chunk(delta={"reasoning_content": "hm"})),
                     (2.5, chunk(delta={"reasoning_content": "mm"}, finish="length", usage=told) + DONE))  # fmt: skip
    assert (found.failure, found.finish, found.text, found.tokens) == (None, "length", "", 64)
    assert found.usage is not None
    assert found.usage.reasoning_tokens == 64


def test_a_tool_call_starts_the_clock_with_its_first_text() -> None:
    def tool(**function: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": function}]}

    found = measured((0.2, chunk(delta=tool())), (0.4, chunk(delta=tool(name="find", arguments=""))),
                     (0.6, chunk(delta=tool(arguments='{"q":1}'), finish="tool_calls") + DONE))  # fmt: skip
    assert (found.first, found.last, found.finish) == (0.4, 0.6, "tool_calls")
    assert found.deltas == (Delta(0.4, "tool", 4), Delta(0.6, "tool", 7))


# ---- case 26: both arms are counted alike ----


def test_case_26_a_hundred_spaces_are_a_hundred_tokens_however_they_came() -> None:
    one_by_one = measured(*[(1 + n / 100, chunk(" ")) for n in range(100)], (2.0, chunk(finish="stop") + last(5, 100)))
    in_fives = measured(*[(1 + n / 100, chunk(" " * 5)) for n in range(20)], (1.2, chunk(finish="stop") + last(5, 100)))
    assert one_by_one.tokens == in_fives.tokens == 100
    assert one_by_one.text == in_fives.text == " " * 100


# ---- case 27: where the usage stands ----


def test_case_27_the_usage_may_come_with_no_choices_with_the_last_choice_or_with_every_chunk() -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 3}}
    at_the_end = measured((1.0, chunk("a", finish="stop") + event({"choices": [], "usage": usage(5, 9, **cached)})))
    with_the_last = measured((1.0, chunk("a")), (2.0, chunk(finish="stop", usage=usage(5, 9, **cached)) + DONE))
    with_each = measured(
        (1.0, chunk("a", usage=usage(5, 4))), (2.0, chunk("b", finish="stop", usage=usage(5, 9, **cached)))
    )
    for found in (at_the_end, with_the_last, with_each):
        assert found.usage is not None
        assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.cached_tokens) == (5, 9, 3)
        assert found.failure is None
    assert with_each.first_tokens == 4


def test_case_27_a_usage_of_null_is_no_usage() -> None:
    found = measured((1.0, chunk("a", usage=None)), (2.0, chunk(finish="stop", usage=None) + DONE))
    assert (found.usage, found.tokens, found.failure) == (None, None, None)


def test_a_letter_whose_two_halves_came_apart_is_whole_and_half_a_letter_is_marked() -> None:
    halves = [b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % half for half in (b"\\ud83d", b"\\ude00")]
    assert measured((1.0, halves[0]), (2.0, halves[1] + DONE)).text == "\U0001f600"
    assert measured((1.0, halves[0] + DONE)).text == "\ufffd"


# ---- cases 28 and 29 ----


def test_case_28_the_decode_window_begins_at_the_first_token() -> None:
    pieces = [(2.0 + n / 100, chunk("x", usage=usage(4000, n + 1))) for n in range(101)]
    found = measured(*pieces, (3.0, chunk(finish="stop") + DONE))
    assert decode_rate(found) == pytest.approx(100 / 1.0)
    assert found.tokens is not None
    assert found.last is not None
    assert found.tokens / (found.last - found.sent) == pytest.approx(101 / 3, abs=0.01)


@pytest.mark.parametrize(
    ("stream", "tokens"),
    [
        (chunk("", role="assistant") + chunk(finish="stop") + last(5, 0) + DONE, 0),
        (chunk("", finish="stop", usage=usage(5, 1)) + DONE, 1),
        (event({"choices": []}) + DONE, None),
        (DONE, None),
    ],
)
def test_case_29_an_empty_answer_is_an_answer_without_times(stream: bytes, tokens: int | None) -> None:
    found = measured((0.0, stream))
    assert (found.failure, found.tokens, found.first, found.last, found.first_tokens) == (
        None,
        tokens,
        None,
        None,
        None,
    )
    assert (found.text, found.deltas) == ("", ())


# ---- case 30: what is no result ----


def test_case_30_a_stream_without_an_end_is_cut_whatever_it_said() -> None:
    found = measured((0.1, chunk("", role="assistant")), (0.5, chunk("half of it")))
    assert found.failure == Failure(kind="cut", message="the stream ended without a finish reason or [DONE]")
    assert (found.text, found.first) == ("half of it", 0.5)


def test_case_30_how_the_transport_ended_matters_only_before_the_end() -> None:
    late = Failure(kind="timeout", message="not over within 1 s")
    assert measured((0.5, chunk("half")), failure=late).failure == late
    assert measured((0.5, chunk("all", finish="stop")), failure=late).failure is None
    assert measured((0.5, chunk("all") + DONE), failure=late).failure is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (event({"error": {"message": "out of\nmemory", "code": 500}}), "out of memory"),
        (event({"object": "error", "message": "gone wrong", "code": 400}), "gone wrong"),
        (event({"error": "plain words"}), "plain words"),
        (b'event: error\ndata: {"detail": "told apart"}\n\n', "told apart"),
        (b'error: {"code": 500, "message": "as llama.cpp does"}\n\n', "as llama.cpp does"),
        (event({"error": {"code": 7}}), '{"code": 7}'),
    ],
)
def test_case_30_an_error_event_fails_the_call_in_its_own_words(raw: bytes, message: str) -> None:
    found = measured((0.5, chunk("half") + raw + DONE))
    assert found.failure == Failure(kind="error event", message=message)


@pytest.mark.parametrize(
    "raw",
    [b"data: {not json\n\n", event("17"), event("[1]"), event({"choices": 3}), chunk(delta={"content": ["a"]}),
     event({"choices": [], "usage": "x"}), chunk(choice={"index": 1}), event({"choices": [None]}),
     chunk(choice={"token_ids": 5})],
)  # fmt: skip
def test_case_30_what_cannot_be_read_is_malformed_and_quoted_shortly(raw: bytes) -> None:
    found = measured((0.5, chunk("half") + raw), (0.6, chunk("more", finish="stop") + DONE))
    assert found.failure is not None
    assert found.failure.kind == "malformed"
    assert len(found.failure.message) < 180
    assert found.text == "half"


def test_case_30_no_event_at_all_is_malformed() -> None:
    found = measured((0.5, b'{"choices": [{"message": {"content": "not streamed"}}]}'))
    assert found.failure is not None
    assert found.failure.kind == "malformed"


@pytest.mark.parametrize("reason", ["abort", "error", "cancelled", "timeout"])
def test_case_30_an_answer_that_the_server_gave_up_on_is_cut(reason: str) -> None:
    found = measured((0.5, chunk("half")), (0.6, chunk(finish=reason) + DONE))
    assert found.failure is not None
    assert (found.failure.kind, reason in found.failure.message) == ("cut", True)


@settings(deadline=None)
@given(st.data())
def test_any_way_of_cutting_a_stream_gives_the_same_answer(data: st.DataObject) -> None:
    stream = b"".join(each for each in answer("some ", "wörds ", "日本") if isinstance(each, bytes))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = measured(*((n / 8, piece) for n, piece in enumerate(pieces)))
    assert (found.text, found.tokens, found.finish, found.failure) == ("some wörds 日本", 3, "stop", None)
    assert found.payload == measured((0.0, stream)).payload
    assert found.first is not None
    assert found.last is not None
    assert 0 <= found.first <= found.last <= found.ended
