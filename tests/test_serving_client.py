"""Calls to a server that misbehaves as told: what is a result, what is a failure, and what nobody may read."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from scripted_server import (
    CUT,
    DONE,
    HANG,
    Paced,
    Refuse,
    Script,
    ScriptedServer,
    answer,
    chunk,
    event,
    last,
    text_chunk,
)

from speedbench.errors import UserError
from speedbench.serving.client import Client, Timeouts
from speedbench.serving.exchange import Exchange
from speedbench.types import Sampling

HELLO = [{"role": "user", "content": "hello"}]


@contextmanager
def served(
    *scripts: Script, server: dict[str, Any] | None = None, **client: Any
) -> Iterator[tuple[ScriptedServer, Client]]:
    with ScriptedServer(scripts, **(server or {})) as here, Client(here.url, "m", **client) as caller:
        yield here, caller


def said(*scripts: Script, **client: Any) -> Exchange:
    """The exchange of one chat call."""
    with served(*scripts, **client) as (_, caller):
        return chat(caller)


def chat(client: Client, sampling: Sampling | None = None, **extra: Any) -> Exchange:
    return client.submit(client.chat(HELLO, sampling or Sampling(), extra)).result(30)


# ---- a call that goes well ----


def test_an_answer_comes_back_with_its_words_counts_and_times() -> None:
    begun = time.perf_counter()
    found = said(
        [chunk("", role="assistant"), 0.05, chunk("one "), 0.05, chunk("two"), chunk(finish="stop"), last(5, 2), DONE]
    )
    assert (found.failure, found.text, found.finish, found.tokens) == (None, "one two", "stop", 2)
    assert found.first is not None
    assert found.last is not None
    assert begun < found.sent < found.first < found.last <= found.ended < time.perf_counter()
    assert found.first - found.sent >= 0.05
    assert found.last - found.first == pytest.approx(0.05, abs=0.25)


def test_the_body_says_what_was_asked_for_and_nothing_that_was_not() -> None:
    with served(answer("a")) as (server, client):
        chat(client, Sampling(temperature=0.5, top_k=7, top_p=0.9, max_tokens=9, seed=3))
        chat(client, top_k=None, max_tokens=None, max_completion_tokens=8, cache_prompt=False)
        assert server.asked[0].body == {
            "model": "m", "messages": HELLO, "temperature": 0.5, "top_k": 7, "top_p": 0.9, "seed": 3, "max_tokens": 9,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        assert server.asked[1].body == {
            "model": "m", "messages": HELLO, "temperature": 0.0, "seed": 0, "stream": True, "max_completion_tokens": 8,
            "stream_options": {"include_usage": True}, "cache_prompt": False,
        }  # fmt: skip
        assert server.paths() == ["/v1/chat/completions"] * 2


def test_a_prompt_of_ids_goes_to_completions_as_ids() -> None:
    with served([text_chunk("ab", finish="length"), last(3, 2), DONE]) as (server, client):
        found = client.submit(client.complete((1, 2, 3), Sampling())).result(30)
        assert (found.text, found.tokens) == ("ab", 2)
        assert (server.asked[0].path, server.asked[0].body["prompt"]) == ("/v1/completions", [1, 2, 3])
        client.submit(client.complete("words", Sampling())).result(30)
        assert server.asked[1].body["prompt"] == "words"


def test_top_k_is_an_error_where_the_server_does_not_know_it() -> None:
    with served(answer("a"), takes_top_k=False) as (server, client):
        with pytest.raises(UserError, match="takes no top_k"):
            chat(client, Sampling(top_k=1))
        assert chat(client).failure is None
        assert len(server.asked) == 1


def test_paced_events_are_stamped_as_they_come() -> None:
    found = said([Paced(events=11, interval=0.03)][0])
    stamps = found.payload["stamps"]
    assert found.first is not None
    assert found.last is not None
    assert 0 <= found.first - stamps["first"] < 0.25
    assert found.last - found.first == pytest.approx(stamps["last"] - stamps["first"], abs=0.25)
    assert all(after.at >= before.at for before, after in pairwise(found.deltas))
    assert (len(found.deltas), found.tokens) == (11, 44)  # chunks of 4 tokens


def test_events_in_one_write_and_an_event_in_many_writes_say_the_same() -> None:
    whole = b"".join(each for each in answer("some ", "wörds") if isinstance(each, bytes))
    bits = [whole[i : i + 7] for i in range(0, len(whole), 7)]
    together, apart = said([whole]), said(bits)
    assert together.text == apart.text == "some wörds"
    assert together.payload == apart.payload
    assert together.first == together.last  # they came together: there is no window to divide by


def test_a_server_that_does_not_close_the_stream_after_its_end_marker_is_not_waited_for() -> None:
    begun = time.perf_counter()
    found = said([*answer("a"), HANG], timeouts=Timeouts(total=20))
    assert (found.failure, found.text) == (None, "a")
    assert time.perf_counter() - begun < 5


# ---- case 27: the option that asks for the usage ----


def picky(status: int, message: str) -> Callable[[Any, int], Script]:
    """Refuses whoever sends the option."""
    return lambda body, _: Refuse(status, {"detail": message}) if "stream_options" in body else answer("a")


@pytest.mark.parametrize(
    ("status", "message"), [(422, "extra fields"), (400, "bad request"), (403, "stream_options is not allowed")]
)
def test_case_27_a_refused_option_is_left_out_from_then_on_and_noted_once(status: int, message: str) -> None:
    with ScriptedServer(picky(status, message)) as server, Client(server.url, "m") as client:
        calls = together([client.chat(HELLO, Sampling()) for _ in range(8)])
        found = [*client.submit(calls).result(30), chat(client), chat(client)]
        assert [each.failure for each in found] == [None] * 10
        assert client.notes == ["the server refuses stream_options, so it is not asked for its token counts"]
        assert len(server.asked) <= 8 * 2 + 2
        assert "stream_options" not in server.asked[-1].body


def test_case_27_a_call_refused_while_another_found_the_reason_is_tried_again_too() -> None:
    def script(body: Any, number: int) -> Script:
        if "stream_options" in body and number == 1:
            time.sleep(0.3)  # the first call is through with its second try before this one is refused
        return Refuse(422) if "stream_options" in body else answer("a")

    with ScriptedServer(script) as server, Client(server.url, "m") as client:
        calls = together([client.chat(HELLO, Sampling()), client.chat(HELLO, Sampling())])
        assert [each.failure for each in client.submit(calls).result(30)] == [None, None]
        assert len(client.notes) == 1


async def together(calls: Sequence[Coroutine[Any, Any, Exchange]]) -> list[Exchange]:
    return await asyncio.gather(*calls)


def test_case_27_the_time_of_the_refused_try_is_not_in_the_call() -> None:
    def script(body: Any, _: int) -> Script:
        if "stream_options" in body:
            time.sleep(0.6)
            return Refuse(422)
        return answer("a")

    with ScriptedServer(script) as server, Client(server.url, "m") as client:
        found = chat(client)
    assert found.first is not None
    assert found.first - found.sent < 0.5


def test_case_27_a_call_that_is_refused_either_way_tells_the_first_reason_and_the_option_stays() -> None:
    too_long = Refuse(400, {"error": {"message": "the prompt has 9000 tokens, the context is 4096"}})
    with served(too_long, too_long, answer("a")) as (server, client):
        found = chat(client)
        assert found.failure is not None
        assert (found.failure.kind, found.failure.status) == ("http", 400)
        assert "9000 tokens" in found.failure.message
        assert chat(client).failure is None
        assert client.notes == []
        assert ["stream_options" in each.body for each in server.asked] == [True, False, True]


# ---- case 30: what is no result ----


def test_case_30_six_of_ten_are_results_and_the_other_four_say_why() -> None:
    half: list[bytes | float | str] = [chunk("", role="assistant"), chunk("half of ")]
    bad: list[Script] = [Refuse(503, "overloaded"), [*half, HANG], [*half, 0.05, CUT],
                         [*half, event({"error": {"message": "out of memory"}}), DONE]]  # fmt: skip
    with served(*[answer("good")] * 6, *bad, timeouts=Timeouts(total=1.5)) as (_, client):
        found = [chat(client) for _ in range(10)]
    assert [each.failure is None for each in found] == [True] * 6 + [False] * 4
    assert Counter(each.failure.kind for each in found if each.failure) == Counter(
        ["http", "timeout", "cut", "error event"]
    )
    assert next(str(each.failure) for each in found if each.failure) == "http: HTTP 503: overloaded"
    assert found[7].text == "half of "  # kept, but not a result


def failure(*scripts: Script, **client: Any) -> tuple[str, str]:
    found = said(*scripts, **client).failure
    assert found is not None
    return found.kind, found.message


def test_silence_and_slowness_are_told_apart() -> None:
    quick = Timeouts(first=0.5, total=1.0)
    assert failure([HANG], timeouts=quick) == ("timeout", "nothing came within 0.5 s")
    assert failure([chunk("a"), HANG], timeouts=quick) == ("timeout", "not over within 1 s")
    assert failure([b": still here\n\n", HANG], timeouts=quick) == ("timeout", "not over within 1 s")


def test_a_stream_that_ends_in_peace_but_unfinished_is_cut() -> None:
    assert failure([chunk("half of it")])[0] == "cut"
    assert failure([chunk("half of it"), b'data: {"choices": [{"ind'])[0] == "cut"


def test_what_is_no_stream_of_events_is_malformed() -> None:
    assert failure([b'{"choices": [{"message": {"content": "not streamed"}}]}'])[0] == "malformed"
    assert failure([chunk("a"), b"data: {oops}\n\n", DONE])[0] == "malformed"


def test_a_refusal_is_told_in_the_servers_words_on_one_line() -> None:
    assert failure(Refuse(503, "over\nloaded")) == ("http", "HTTP 503: over loaded")
    assert failure(Refuse(404, {"detail": "no such model"})) == ("http", "HTTP 404: no such model")
    assert failure(Refuse(500, "")) == ("http", "HTTP 500: no reason given")
    kind, message = failure(Refuse(500, "x" * 5000))
    assert (kind, len(message) < 400) == ("http", True)


def test_nobody_there_is_a_failed_connection() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
    with Client(url, "m") as client:
        found = chat(client)
        assert found.failure is not None
        assert (found.failure.kind, found.first) == ("connection", None)
        with pytest.raises(UserError, match="no answer"):
            client.get("/health")


# ---- calls that are not streamed ----


def test_the_servers_other_pages_come_as_json_and_text() -> None:
    with served(answer("a"), server={"metrics": ["a_total 1", "a_total 2"]}) as (server, client):
        assert client.get("/health").ok
        assert client.get("/v1/models").document["data"][0]["id"] == "m"
        assert client.post("/tokenize", {"model": "m", "prompt": "one two"}).document["count"] == 2
        assert client.post("/reset_prefix_cache").ok
        assert server.asked[-1].body is None
        assert [client.get("/metrics").text for _ in range(3)] == ["a_total 1", "a_total 2", "a_total 2"]
        missing = client.get("/nowhere")
        assert (missing.ok, missing.status, missing.document) == (False, 404, {"detail": "Not Found"})


def test_case_16_a_server_without_the_series_still_answers_its_metrics() -> None:
    text = '# HELP x y\nother_total{engine="0"} 1.23e+02 1700000000\n'
    with served(answer("a"), server={"metrics": [text]}) as (_, client):
        found = client.get("/metrics")
        assert (found.text, found.document) == (text, None)


def test_leaving_ends_what_is_under_way() -> None:
    with ScriptedServer([[chunk("a"), HANG]]) as server:
        with Client(server.url, "m") as client:
            pending = client.submit(client.chat(HELLO, Sampling()))
            while not server.asked:
                time.sleep(0.01)
        assert pending.cancelled()
        assert not client.loop.is_running()


def test_without_aiohttp_the_fix_is_named() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; import speedbench.serving.client"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert 'Missing: calling a server needs aiohttp; run: pip install "speedbench[serve]"' in told
