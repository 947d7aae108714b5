"""A server that closes its connections without a word, though it says that it keeps them, breaks no call."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from time import perf_counter

import pytest
from scripted_server import DONE, chunk, last

from speedbench.errors import UserError
from speedbench.serving.client import Client
from speedbench.serving.exchange import Exchange
from speedbench.types import Sampling

STREAM = b"".join([chunk("word ", finish="stop"), last(5, 1), DONE])


@dataclass
class Forgetful:
    """Says that it keeps its connections, and hangs up on whoever writes to one again, as llama.cpp's server does."""

    answers: int = 1
    """Requests of a connection that are answered."""
    connections: int = 0
    read: list[bytes] = field(default_factory=list)
    """What it answered."""

    @contextmanager
    def open(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
            Thread(target=self._accept, args=(listening,), daemon=True).start()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                one, _ = listening.accept()
                self.connections += 1
                Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one, suppress(OSError):
            for _ in range(self.answers):
                head, _, body = self._request(one)
                self.read.append(head.split(b" ")[1])
                kind = b"text/event-stream" if b"messages" in body else b"text/plain"
                said = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nKeep-Alive: timeout=5\r\n\r\n"
                one.sendall(said % (kind, len(STREAM)) + STREAM)
            one.recv(1)  # the beginning of another request; the rest stays unread

    def _request(self, one: socket.socket) -> tuple[bytes, bytes, bytes]:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more(one)
        head, end, body = got.partition(b"\r\n\r\n")
        length = next((int(line.split()[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
        while len(body) < length:
            body += self._more(one)
        return head, end, body

    def _more(self, one: socket.socket) -> bytes:
        got = one.recv(65536)
        if not got:
            raise OSError("the client hung up")
        return got


def chat(client: Client) -> Exchange:
    return client.submit(client.chat([{"role": "user", "content": "hello"}], Sampling())).result(30)


def test_no_call_meets_a_connection_that_the_server_is_about_to_close() -> None:
    server = Forgetful()
    with server.open() as url, Client(url, "m") as client:
        begun = perf_counter()
        made = [chat(client) for _ in range(5)]
        assert [exchange.failure for exchange in made] == [None] * 5
        assert [exchange.text for exchange in made] == ["word "] * 5
    assert server.connections == 5
    assert server.read == [b"/v1/chat/completions"] * 5  # each once
    times = [(exchange.sent, exchange.first or 0.0) for exchange in made]
    assert all(begun < sent < first for sent, first in times)


def test_nor_does_one_that_is_not_streamed() -> None:
    server = Forgetful()
    with server.open() as url, Client(url, "m") as client:
        assert chat(client).failure is None
        assert client.post("/reset_prefix_cache").ok
        assert client.get("/metrics").ok
        assert chat(client).failure is None
    assert server.read == [b"/v1/chat/completions", b"/reset_prefix_cache", b"/metrics", b"/v1/chat/completions"]


def test_a_connection_that_is_closed_without_an_answer_is_a_failure() -> None:
    with Forgetful(answers=0).open() as url, Client(url, "m") as client:
        failure = chat(client).failure
        assert failure is not None
        assert failure.kind == "connection"
        with pytest.raises(UserError, match=r"POST http://.*/reset: no answer"):
            client.post("/reset")
