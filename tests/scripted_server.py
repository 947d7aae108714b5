"""A server that says what it was told to say: streams cut, paced, refused and broken off as a test needs it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Thread
from typing import Any

from aiohttp import web

from speedbench.serving.exchange import Exchange, Failure, account
from speedbench.serving.sse import Parser

# ---- what can be said ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refuse:
    """An answer that is no stream: a status and a body (JSON, or text as it stands)."""

    status: int
    body: Any = None


@dataclass(frozen=True)
class Paced:
    """Events at a fixed pace: `first` seconds, one event, then one every `interval` seconds; then the end.

    With `together`, all streams emit on the same ticks, as an engine does whose passes end for the whole batch. The
    last event holds the server's own stamps: `{"stamps": {"received", "first", "last"}}`, perf_counter seconds.
    """

    events: int
    interval: float
    first: float = 0.0
    together: bool = False
    text: str = "four more tokens here "


CUT = "cut"
"""Drop the connection."""
HANG = "hang"
"""Say nothing more."""

Script = Refuse | Paced | Sequence[bytes | float | str]
"""Bytes are written at once (each its own write), a number is a pause in seconds, and CUT and HANG end it."""


def event(body: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode() + b"\n\n"


DONE = event("[DONE]")


def chunk(
    content: str | None = None, *, role: str | None = None, finish: str | None = None, delta: Mapping[str, Any] = {},
    choice: Mapping[str, Any] = {}, **root: Any,
) -> bytes:  # fmt: skip
    """A chat chunk: `delta`, `choice` and `root` are added where they say."""
    told: dict[str, Any] = dict(delta)
    if role is not None:
        told["role"] = role
    if content is not None:
        told["content"] = content
    one = {"index": 0, "delta": told, "finish_reason": finish, **choice}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [one], **root})


def text_chunk(text: str, *, finish: str | None = None, choice: Mapping[str, Any] = {}, **root: Any) -> bytes:
    """A chunk of `/v1/completions`."""
    return event(
        {
            "object": "text_completion",
            "choices": [{"index": 0, "text": text, "finish_reason": finish, **choice}],
            **root,
        }
    )


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """Token counts as the protocol writes them."""
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more,
    }  # fmt: skip


def last(prompt: int, completion: int, **root: Any) -> bytes:
    """The final event of `include_usage`: no choices."""
    return event({"choices": [], "usage": usage(prompt, completion), **root})


def answer(*words: str, prompt: int = 5) -> list[bytes | float | str]:
    """A well-behaved stream: a role, a word an event, a finish reason, the usage, the end marker."""
    said = [chunk("", role="assistant"), *(chunk(word) for word in words), chunk(finish="stop")]
    return [*said, last(prompt, len(words)), DONE]


def measured(*arrivals: tuple[float, bytes], failure: Failure | None = None) -> Exchange:
    """What these raw chunks, each with its time in seconds, amount to when the request was sent at 0."""
    parser = Parser()
    events = [(at, each) for at, raw in arrivals for each in parser.feed(raw)]
    return account(0.0, events, ended=arrivals[-1][0] if arrivals else 0.0, failure=failure)


# ---- the server ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    body: Any
    headers: Mapping[str, str]
    at: float
    """perf_counter seconds."""


@dataclass
class ScriptedServer:
    """A context manager: runs in a thread of its own on a free port, and keeps what it was asked.

    `scripts` are said in order, the last again and again; a function is given the request's body and its number.
    `metrics` likewise are the texts of `/metrics`. `resets` are the paths of POSTs answered 200.
    """

    scripts: Sequence[Script] | Callable[[Any, int], Script] = ()
    metrics: Sequence[str] = ("",)
    key: str | None = None
    """Whoever does not send it is answered 401, quoting what was sent."""
    tokenizes: bool = True
    """Whether it counts the tokens of a text, a word each, at `/tokenize`."""
    asked: list[Asked] = field(default_factory=list)
    gone: int = 0
    """Streams whose client went away before their end."""

    def __enter__(self) -> ScriptedServer:
        started = Flag()
        self._scrapes = deque(self.metrics)
        self._thread = Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self, started: Flag) -> None:
        asyncio.run(self.serve(0, lambda port: (setattr(self, "port", port), started.set())))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    port: int = 0

    def paths(self) -> list[str]:
        return [each.path for each in self.asked]

    async def serve(self, port: int, ready: Callable[[int], object]) -> None:
        """Serve on this loop until stopped; `ready` is told the port."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, backlog=1024)
        await site.start()
        ready(runner.addresses[0][1])
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        received = time.perf_counter()
        body = json.loads(await request.read() or b"null")
        number = sum(each.path.endswith("completions") for each in self.asked)
        self.asked.append(Asked(request.path, body, dict(request.headers), received))
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            told = {"error": {"message": f"bad key {request.headers.get('Authorization')}"}}
            return web.json_response(told, status=401)
        if request.path.endswith("completions"):
            return await self._say(request, self._script(body, number), received)
        return self._plain(request.path, body)

    def _plain(self, path: str, body: Any) -> web.Response:
        if path == "/metrics":
            return web.Response(text=self._scrapes.popleft() if len(self._scrapes) > 1 else self._scrapes[0])
        if path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m", "max_model_len": 4096}]})
        if path == "/tokenize" and self.tokenizes:
            words = str(body.get("prompt", "")).split()
            return web.json_response({"tokens": list(range(len(words))), "count": len(words)})
        if path in ("/health", "/reset_prefix_cache", "/flush_cache"):
            return web.Response()
        return web.json_response({"detail": "Not Found"}, status=404)

    def _script(self, body: Any, number: int) -> Script:
        if callable(self.scripts):
            return self.scripts(body, number)
        return self.scripts[min(number, len(self.scripts) - 1)]

    async def _say(self, request: web.Request, script: Script, received: float) -> web.StreamResponse:
        if isinstance(script, Refuse):
            if isinstance(script.body, str):
                return web.Response(status=script.status, text=script.body)
            return web.json_response(script.body, status=script.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            if isinstance(script, Paced):
                await _pace(response, script, received)
            else:
                await self._follow(request, response, script)
        except (ConnectionResetError, asyncio.CancelledError):
            self.gone += 1
            raise
        return response

    async def _follow(self, request: web.Request, response: web.StreamResponse, script: Iterable[Any]) -> None:
        for item in script:
            if item == CUT:
                assert request.transport is not None
                request.transport.abort()
                return
            if item == HANG:
                while request.transport is not None and not request.transport.is_closing():
                    await asyncio.sleep(0.02)
                raise ConnectionResetError
            if isinstance(item, bytes):
                await response.write(item)
            else:
                await asyncio.sleep(item)
        with suppress(ConnectionResetError):
            await response.write_eof()


async def _pace(response: web.StreamResponse, script: Paced, received: float) -> None:
    piece, first, start = chunk(script.text), 0.0, received + script.first
    if script.together:
        start = (start // script.interval + 1) * script.interval
    for number in range(script.events):
        await asyncio.sleep(max(0.0, start + number * script.interval - time.perf_counter()))
        now = time.perf_counter()
        first = first or now
        if number < script.events - 1:
            await response.write(piece)
    stamps = {"received": received, "first": first, "last": now}
    await response.write(chunk(script.text, finish="stop", stamps=stamps) + last(8, 4 * script.events) + DONE)
    await response.write_eof()
