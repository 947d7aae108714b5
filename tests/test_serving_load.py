"""Conversations held with live answers: how many at once, in which order, with what said before, and how they end."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import _thread
import asyncio
import gc
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_server import CUT, DONE, HANG, Paced, Refuse, Script, ScriptedServer, answer, chunk, last, text_chunk

from speedbench.errors import UserError
from speedbench.serving.client import Client
from speedbench.serving.exchange import Exchange
from speedbench.serving.load import Asked, Held, arrivals, by_chat, hold
from speedbench.types import Conversation, Request, Sampling


def talk(name: str, *turns: str, said: tuple[str, ...] = (), system: str | None = None) -> Conversation:
    request = Request(id=name, category="c", turns=turns or ("hello",), system=system)
    return Conversation(request=request, said=said)


def echo(body: Mapping[str, Any], _: int) -> Script:
    """Answers with the user's words in capitals."""
    return answer(body["messages"][-1]["content"].upper())


@contextmanager
def at(scripts: Any) -> Iterator[tuple[ScriptedServer, Client]]:
    with ScriptedServer(scripts) as server, Client(server.url, "m") as client:
        yield server, client


def held(scripts: Any, *work: Conversation, concurrency: int = 1, **options: Any) -> list[Held]:
    with at(scripts) as (_, client):
        return list(hold(client, work, by_chat(client, Sampling()), concurrency=concurrency, **options))


def asked_words(server: ScriptedServer) -> list[str]:
    return [each.body["messages"][-1]["content"] for each in server.asked]


# ---- one conversation ----


def test_each_turn_quotes_the_models_own_answers() -> None:
    made = held(echo, talk("a", "one", "two", "three", system="be brief"))
    assert [(each.turn, each.exchange.text) for each in made] == [(0, "ONE"), (1, "TWO"), (2, "THREE")]
    assert [(m["role"], m["content"]) for m in made[2].messages] == [
        ("system", "be brief"), ("user", "one"), ("assistant", "ONE"), ("user", "two"), ("assistant", "TWO"),
        ("user", "three"),
    ]  # fmt: skip


def test_reasoning_is_not_quoted() -> None:
    thinking = [chunk(delta={"reasoning_content": "hm"}), chunk("42", finish="stop"), last(5, 2), DONE]
    made = held([thinking], talk("a", "one", "two"))
    assert made[1].messages[1] == {"role": "assistant", "content": "42"}


def test_a_resumed_conversation_goes_on_where_it_was() -> None:
    made = held(echo, talk("a", "one", "two", said=("Uno.",)))
    assert [each.turn for each in made] == [1]
    assert [m["content"] for m in made[0].messages] == ["one", "Uno.", "two"]
    assert held(echo, talk("a", "one", said=("Uno.",))) == []


def test_a_failed_turn_is_the_last_of_its_conversation_and_of_no_other() -> None:
    def script(body: Mapping[str, Any], number: int) -> Script:
        return Refuse(503) if body["messages"][-1]["content"] == "fail" else echo(body, number)

    made = held(script, talk("a", "one", "fail", "three"), talk("b", "one", "two"))
    assert [(e.conversation.request.id, e.turn, e.exchange.failure is None) for e in made] == [
        ("a", 0, True), ("a", 1, False), ("b", 0, True), ("b", 1, True),
    ]  # fmt: skip


def test_a_call_may_be_made_another_way_and_knows_the_calls_before_it() -> None:
    script = [text_chunk("x", choice={"token_ids": [7]}, finish="length"), last(3, 1), DONE]
    with at([script]) as (server, client):

        async def by_ids(asked: Asked) -> Exchange:
            earlier = [token for each in asked.earlier for token in each.token_ids or ()]
            return await client.complete([1, 2, asked.turn, *earlier], Sampling())

        made = list(hold(client, [talk("a", "one", "two")], by_ids, concurrency=1))
        assert [each.body["prompt"] for each in server.asked] == [[1, 2, 0], [1, 2, 1, 7]]
        assert [each.exchange.text for each in made] == ["x", "x"]


# ---- many ----


def test_conversations_are_begun_in_order_and_never_more_than_c_are_under_way() -> None:
    live, most, lock = 0, 0, threading.Lock()

    with at([Paced(events=2, interval=0.02)]) as (server, client):

        async def counting(asked: Asked) -> Exchange:
            nonlocal live, most
            with lock:
                live += 1
                most = max(most, live)
            try:
                return await client.chat(asked.messages, Sampling())
            finally:
                live -= 1

        work = [talk(str(n), f"turn {n}") for n in range(20)]
        made = list(hold(client, work, counting, concurrency=4))
        assert (len(made), most) == (20, 4)
        begun = [int(words.split()[1]) for words in asked_words(server)]
        assert all(abs(number - place) < 4 for place, number in enumerate(begun))


def test_with_one_at_a_time_the_order_is_exactly_as_given() -> None:
    with at(echo) as (server, client):
        list(hold(client, [talk(n, n) for n in "dacb"], by_chat(client, Sampling()), concurrency=1))
        assert asked_words(server) == list("dacb")


def test_poisson_arrivals_are_seeded_and_as_many_as_asked_for() -> None:
    due = arrivals(4000, 20.0, seed=1)
    assert due == arrivals(4000, 20.0, seed=1) != arrivals(4000, 20.0, seed=2)
    assert due == sorted(due)
    # 4000 gaps of mean 1/20 s sum up to 200 s; their spread is 0.05 s · √4000 = 3.2 s
    assert due[-1] == pytest.approx(200, abs=4 * 3.2)
    assert arrivals(3, None, seed=1) == [0.0] * 3


def test_conversations_arrive_when_they_are_due() -> None:
    begun = time.perf_counter()
    with at(echo) as (server, client):
        work = [talk(str(n)) for n in range(6)]
        list(hold(client, work, by_chat(client, Sampling()), concurrency=6, rate=20.0, seed=3))
        due = arrivals(6, 20.0, seed=3)
        came = [each.at - begun for each in server.asked]
        assert all(0 <= came - due < 2 for came, due in zip(came, due, strict=True))


def test_concurrency_and_rate_must_make_sense() -> None:
    with at(echo) as (_, client):
        for wrong in ({"concurrency": 0}, {"concurrency": 1, "rate": 0.0}):
            with pytest.raises(UserError, match="concurrency should be 1 or more and rate above 0"):
                hold(client, [talk("a")], by_chat(client, Sampling()), **wrong)  # type: ignore[arg-type]
        assert list(hold(client, [], by_chat(client, Sampling()), concurrency=4)) == []


def test_case_30_six_of_ten_concurrent_calls_are_results() -> None:
    half: list[Any] = [chunk("half")]
    bad = {"503": Refuse(503), "cut": [*half, CUT], "unfinished": half, "garbled": [*half, b"data: {\n\n"]}

    def script(body: Mapping[str, Any], number: int) -> Script:
        return bad.get(body["messages"][-1]["content"], answer("good"))

    made = held(script, *[talk(str(n), "good") for n in range(6)], *[talk(n, n) for n in bad], concurrency=10)
    good = [each for each in made if each.exchange.failure is None]
    assert (len(made), len(good)) == (10, 6)
    why = {each.conversation.request.id: each.exchange.failure.kind for each in made if each.exchange.failure}
    assert why == {"503": "http", "cut": "cut", "unfinished": "cut", "garbled": "malformed"}


# ---- whoever takes the turns ----


def test_a_slow_taker_changes_no_time_and_loses_nothing_at_concurrency_512() -> None:
    with at([Paced(events=3, interval=0.05, first=0.1)]) as (_, client):
        work = [talk(str(n)) for n in range(1024)]
        found = []
        for each in hold(client, work, by_chat(client, Sampling()), concurrency=512):
            if len(found) < 20:
                time.sleep(0.05)
            found.append(each)
    assert {each.conversation.request.id for each in found} == {str(n) for n in range(1024)}
    assert all(each.exchange.failure is None and each.exchange.tokens == 12 for each in found)
    late = [each.exchange.first - each.exchange.payload["stamps"]["first"] for each in found if each.exchange.first]
    assert len(late) == 1024
    assert sorted(late)[512] < 0.5


def test_no_further_call_is_sent_while_too_many_wait_to_be_taken() -> None:
    with at(echo) as (server, client):
        made = hold(client, [talk(str(n)) for n in range(20)], by_chat(client, Sampling()), concurrency=2, room=3)
        next(made)
        while len(server.asked) < 4:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(server.asked) == 1 + 3  # the one taken, and three that wait
        assert len(list(made)) == 19


def test_closing_the_iterator_cancels_what_is_under_way() -> None:
    def script(body: Mapping[str, Any], number: int) -> Script:
        return answer("a") if number == 0 else [chunk("a"), HANG]

    with at(script) as (server, client):
        made = hold(client, [talk(str(n)) for n in range(9)], by_chat(client, Sampling()), concurrency=3)
        next(made)
        while len(server.asked) < 4:
            time.sleep(0.01)
        made.close()  # type: ignore[attr-defined]
        for _ in range(200):
            if server.gone == 3:
                break
            time.sleep(0.01)
        assert (server.gone, len(server.asked)) == (3, 4)
        server.scripts = echo
        assert [
            e.exchange.text for e in hold(client, [talk("z", "on")], by_chat(client, Sampling()), concurrency=1)
        ] == ["ON"]


def test_an_iterator_that_is_never_begun_asks_nothing() -> None:
    with at(echo) as (server, client):
        hold(client, [talk("a")], by_chat(client, Sampling()), concurrency=1)
        assert server.asked == []


def test_ctrl_c_while_waiting_ends_the_calls_and_gets_through() -> None:
    with at([[chunk("a"), HANG]]) as (server, client):
        made = hold(client, [talk("a")], by_chat(client, Sampling()), concurrency=1)
        timer = threading.Timer(0.3, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(made)
        for _ in range(200):
            if server.gone:
                break
            time.sleep(0.01)
        assert server.gone == 1


def test_what_a_call_raises_is_raised_to_the_taker_and_ends_the_others() -> None:
    with at([[chunk("a"), HANG]]) as (server, client):

        async def broken(asked: Asked) -> Exchange:
            if asked.conversation.request.id == "1":
                while not server.asked:
                    await asyncio.sleep(0.01)
                raise UserError("nothing to ask")
            return await client.chat(asked.messages, Sampling())

        with pytest.raises(UserError, match="nothing to ask"):
            list(hold(client, [talk("0"), talk("1")], broken, concurrency=2))


def test_a_client_that_is_gone_ends_the_turns() -> None:
    with ScriptedServer([[chunk("a"), HANG]]) as server:
        client = Client(server.url, "m").__enter__()
        made = hold(client, [talk("a"), talk("b")], by_chat(client, Sampling()), concurrency=1)
        threading.Timer(0.3, lambda: client.__exit__(None, None, None)).start()
        with pytest.raises(CancelledError):
            list(made)


def test_garbage_collection_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold()
    with at(echo) as (_, client):
        made = hold(client, [talk("a"), talk("b")], by_chat(client, Sampling()), concurrency=1)
        next(made)
        assert gc.get_threshold()[2] > before[2] or gc.get_threshold() != before
        list(made)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
