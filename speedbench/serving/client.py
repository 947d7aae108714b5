"""The HTTP client: calls to an OpenAI-compatible server, timed as raw bytes arrive and before anything is parsed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace, TracebackType
from typing import Any, TypeVar

from speedbench.errors import Missing, UserError
from speedbench.serving import address
from speedbench.serving.exchange import Account, Exchange, Failure
from speedbench.serving.sse import Parser
from speedbench.serving.words import one_line, said
from speedbench.types import Sampling

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise Missing(f'calling a server needs {error.name}; run: pip install "speedbench[serve]"') from None

Message = Mapping[str, Any]
"""`{"role": …, "content": …}`."""

Value = TypeVar("Value")

_OPTION = "stream_options"
_GRACE = 1.0
"""Seconds to wait, after the end marker, for the end of the body."""
_QUICK = 30.0
"""Seconds that a call which is not streamed may take, unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds: to connect, from sending to the first byte of the answer, and for the whole call."""

    connect: float = 10.0
    first: float = 300.0
    total: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A call that was not streamed. `text` is its body; `document` that body as JSON, None where it is none."""

    status: int
    text: str
    document: Any = None

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Client:
    """Calls to one server, made on an event loop of its own in a background thread. A context manager.

    `url` is the server's root (`http://127.0.0.1:8000`). The key comes from the environment variable `key_env` or the
    file `key_file`, goes into the Authorization header, and stands in no repr and no message.
    """

    def __init__(
        self, url: str, model: str, *, key_env: str | None = None, key_file: str | Path | None = None,
        timeouts: Timeouts | None = None, takes_top_k: bool = True, chat_path: str = "/v1/chat/completions",
        complete_path: str = "/v1/completions",
    ) -> None:  # fmt: skip
        """`takes_top_k`: whether the server knows `top_k`; asking for it where it does not is a `UserError`.

        Raises `UserError` for a URL that is none or holds a password, and for a key that is not there.
        """
        self.url, self.model, self.timeouts = address.root(url), model, timeouts or Timeouts()
        self.notes: list[str] = []
        """What a reader of the run should know, each once."""
        self._takes_top_k, self._chat_path, self._complete_path = takes_top_k, chat_path, complete_path
        self._key = address.key(key_env, key_file)
        self._asks_usage = True
        self._session: aiohttp.ClientSession | None = None

    def __enter__(self) -> Client:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="speedbench-client", daemon=True)
        self._thread.start()
        self._session = self.submit(self._open_session()).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels every call under way and stops the thread."""
        self.submit(self._close()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Run a coroutine on `loop`, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    # ---- streamed ----

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, extra: Mapping[str, Any] | None = None
    ) -> Exchange:
        """One streamed chat completion; to be awaited on `loop`. Whatever goes wrong is the exchange's `failure`.

        `extra` goes into the body as it stands, over what is there; a value of None takes the key out.
        """
        return await self._call(self._chat_path, self._body({"messages": list(messages)}, sampling, extra))

    async def complete(
        self, prompt: str | Sequence[int], sampling: Sampling, extra: Mapping[str, Any] | None = None
    ) -> Exchange:
        """The same by `/v1/completions`, of a text or of token ids."""
        text = prompt if isinstance(prompt, str) else list(prompt)
        return await self._call(self._complete_path, self._body({"prompt": text}, sampling, extra))

    def _body(self, asked: Mapping[str, Any], sampling: Sampling, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        if sampling.top_k is not None and not self._takes_top_k:
            raise UserError(f"this server takes no top_k (got {sampling.top_k}); leave it out")
        body = {
            "model": self.model, **asked, "temperature": sampling.temperature, "top_k": sampling.top_k,
            "top_p": sampling.top_p, "seed": sampling.seed, "max_tokens": sampling.max_tokens, "stream": True,
            _OPTION: {"include_usage": True}, **(extra or {}),
        }  # fmt: skip
        return {key: value for key, value in body.items() if value is not None}

    async def _call(self, path: str, body: dict[str, Any]) -> Exchange:
        """One call; a second where the first may have been refused for the option that asks for the usage."""
        bare = {key: value for key, value in body.items() if key != _OPTION}
        asking = self._asks_usage and _OPTION in body  # many calls are under way, and any of them may turn it off
        exchange, refusal = await self._once(path, body if asking else bare)
        if asking and refusal is not None and _may_be_the_option(exchange, refusal):
            second, _ = await self._once(path, bare)
            if second.failure is None or second.failure.kind != "http":
                if self._asks_usage:
                    self._asks_usage = False
                    self.notes.append(f"the server refuses {_OPTION}, so it is not asked for its token counts")
                return second
        return exchange

    async def _once(self, path: str, body: Mapping[str, Any]) -> tuple[Exchange, str | None]:
        """(exchange, the body of a refusal or None)."""
        stamp, book, parser = _Sent(), Account(), Parser()
        refusal: str | None = None
        failure: Failure | None = None
        try:
            opening = self._open(path, json.dumps(body, ensure_ascii=False).encode(), stamp)
            response, chunk, at = await asyncio.wait_for(opening, self.timeouts.first)
            stamp.answered = True
            async with response:
                if 200 <= response.status < 300:
                    await _read(response, chunk, at, parser, book)
                else:
                    refusal = (chunk + await response.content.read()).decode("utf-8", "replace")
                    failure = _refused(response.status, refusal)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            failure = self._failed(error, stamp.answered)
        exchange = book.close(stamp.at, time.perf_counter(), failure, parser.close())
        return self._hidden(exchange), refusal

    async def _open(self, path: str, data: bytes, stamp: _Sent) -> tuple[aiohttp.ClientResponse, bytes, float]:
        """(answer, its first bytes, when they came)."""
        response = await self._at_hand.post(
            self.url + path, data=data, headers={"Content-Type": "application/json"}, trace_request_ctx=stamp,
            allow_redirects=False,
        )  # fmt: skip
        try:
            return response, await response.content.readany(), time.perf_counter()
        except BaseException:
            response.close()
            raise

    def _failed(self, error: Exception, answered: bool) -> Failure:
        """What an exception of the transport means for the call."""
        limits = self.timeouts
        if isinstance(error, aiohttp.ServerTimeoutError):  # no timeout but the socket's is set on the session
            return Failure(kind="timeout", message=f"no connection within {limits.connect:g} s")
        if isinstance(error, asyncio.TimeoutError):
            what = f"not over within {limits.total:g} s" if answered else f"nothing came within {limits.first:g} s"
            return Failure(kind="timeout", message=what)
        told = one_line(f"{type(error).__name__}: {error}")
        return Failure(kind="cut" if answered else "connection", message=told)

    def _hidden(self, exchange: Exchange) -> Exchange:
        """A server may quote the key it was given in its error."""
        if self._key is None or exchange.failure is None:
            return exchange
        message = exchange.failure.message.replace(self._key, "***")
        return replace(exchange, failure=replace(exchange.failure, message=message))

    # ---- not streamed ----

    def get(self, path: str, *, timeout: float = _QUICK) -> Answer:
        """GET, from any thread but the loop's. Raises `UserError` where no answer comes within `timeout` seconds."""
        return self.submit(self._plain("GET", path, None, timeout)).result()

    def post(self, path: str, body: Any = None, *, timeout: float = _QUICK) -> Answer:
        """POST of JSON (None: an empty body), otherwise as `get`."""
        return self.submit(self._plain("POST", path, body, timeout)).result()

    async def _plain(self, method: str, path: str, body: Any, timeout: float) -> Answer:
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=self.timeouts.connect)
        try:
            async with self._at_hand.request(method, self.url + path, json=body, timeout=limit) as response:
                text, status = await response.text("utf-8", "replace"), response.status
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            why = one_line(f"{type(error).__name__}: {error}").replace(self._key or "\0", "***")
            raise UserError(f"{method} {self.url}{path}: no answer ({why})") from None
        document = None
        with suppress(ValueError):
            document = json.loads(text)
        return Answer(status=status, text=text, document=document)

    # ---- the session ----

    @property
    def _at_hand(self) -> aiohttp.ClientSession:
        assert self._session is not None, "a client is used within its `with`"
        return self._session

    async def _open_session(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_stamp)
        trace.on_request_chunk_sent.append(_stamp)
        headers = {"Accept-Encoding": "identity"}  # a packer would hold events back
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # A connection for each call: some servers drop one that was used (llama.cpp's did, in half of quick runs), and
        # connecting is not in a call's times.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True), headers=headers, trace_configs=[trace],
            timeout=aiohttp.ClientTimeout(total=self.timeouts.total, sock_connect=self.timeouts.connect),
        )  # fmt: skip

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._at_hand.close()


@dataclass(slots=True)
class _Sent:
    """When a request was handed to the socket, and whether anything came back."""

    at: float = field(default_factory=time.perf_counter)
    answered: bool = False


async def _stamp(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
    """aiohttp calls this right before it writes headers or body; the last call is the one that counts."""
    sent = context.trace_request_ctx
    if sent is not None:
        sent.at = time.perf_counter()


async def _read(response: aiohttp.ClientResponse, chunk: bytes, at: float, parser: Parser, book: Account) -> None:
    """Read to the end of the stream; each chunk is stamped as it comes, and looked into only then."""
    content = response.content
    while chunk:
        for event in parser.feed(chunk):
            book.add(at, event)
        if book.is_over:
            break
        chunk = await content.readany()
        at = time.perf_counter()
    if not content.at_eof():
        with suppress(asyncio.TimeoutError, aiohttp.ClientError):
            await asyncio.wait_for(content.read(), _GRACE)


def _refused(status: int, text: str) -> Failure:
    try:
        why = said(json.loads(text))
    except ValueError:
        why = one_line(text)
    return Failure(kind="http", message=f"HTTP {status}: {why or 'no reason given'}", status=status)


def _may_be_the_option(exchange: Exchange, refusal: str) -> bool:
    status = exchange.failure.status if exchange.failure else None
    return status in (400, 422) or (status is not None and 400 <= status < 500 and _OPTION in refusal)
