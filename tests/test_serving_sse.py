"""Server-sent events come out the same however the bytes were cut on their way."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.serving.sse import Event, Parser


def events(*chunks: bytes) -> list[Event]:
    """All events of a stream that arrived in these chunks."""
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


def plain(*data: str) -> list[Event]:
    return [Event("", each) for each in data]


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    parser = Parser()
    assert parser.feed(b'data: {"a"') == []
    assert parser.feed(b": 1}\n") == []
    assert parser.feed(b"\ndata: two") == plain('{"a": 1}')
    assert parser.feed(b"\n\n") == plain("two")


def test_events_that_arrive_together_come_out_one_by_one() -> None:
    assert events(b"data: one\n\ndata: two\n\ndata: [DONE]\n\n") == plain("one", "two", "[DONE]")


def test_lines_may_end_in_lf_crlf_or_cr() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        assert events(b"data: one" + end + end + b"data: two" + end + end) == plain("one", "two")


def test_a_crlf_cut_in_the_middle_is_one_line_end() -> None:
    assert events(b"data: one\r", b"\n", b"data: more\r", b"\n\r", b"\n") == plain("one\nmore")


def test_a_letter_cut_in_the_middle_of_its_bytes_is_whole() -> None:
    word = "日本".encode()
    assert events(b"data: " + word[:1], word[1:4], word[4:] + b"\n\n") == plain("日本")


def test_bytes_that_are_no_utf8_become_a_replacement_character() -> None:
    assert events(b"data: a\xffb\n\n") == plain("a\ufffdb")


def test_several_data_lines_are_one_event() -> None:
    assert events(b"data: one\ndata:two\ndata\ndata:  three\n\n") == plain("one\ntwo\n\n three")


def test_comments_ids_retry_times_and_empty_events_are_skipped() -> None:
    stream = b": keep-alive\n\nid: 7\nretry: 10\nevent: ping\n\ndata: one\nsomething: else\n\n\n\n"
    assert events(stream) == plain("one")


def test_an_event_has_its_name_and_the_next_does_not_inherit_it() -> None:
    assert events(b"event: error\ndata: bad\n\ndata: good\n\n") == [Event("error", "bad"), Event("", "good")]


def test_an_error_line_as_llama_cpp_sends_it_is_an_event_named_error() -> None:
    assert events(b'error: {"code": 500}\n\n') == [Event("error", '{"code": 500}')]


def test_a_byte_order_mark_at_the_beginning_is_skipped_even_if_cut() -> None:
    assert events(b"\xef\xbb\xbfdata: one\n\n") == events(b"\xef", b"\xbb", b"\xbfdata: one\n\n") == plain("one")


def test_an_end_without_a_blank_line_still_gives_the_last_event() -> None:
    assert events(b"data: one\n\ndata: [DONE]") == events(b"data: one\n\ndata: [DONE]\r") == plain("one", "[DONE]")
    assert events(b"") == events() == []


LINES = (b"data: a", b"data:", b"data", b": x", b"event: error", b"id: 3", b'data: {"k": 1}', b"error: e")
PIECES = st.sampled_from([*LINES, "data: é日".encode(), b"\n", b"\r\n", b"\r", b"\n\n", b"\xef\xbb\xbf"])


@settings(deadline=None)
@given(st.lists(PIECES, max_size=30).map(b"".join), st.data())
def test_any_way_of_cutting_a_stream_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*pieces) == events(stream) == events(*(stream[i : i + 1] for i in range(len(stream))))
