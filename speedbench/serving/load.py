"""Load: conversations held with live answers, so many at a time or as they arrive."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import gc
import queue
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from speedbench.errors import UserError
from speedbench.serving.client import Message
from speedbench.serving.exchange import Exchange
from speedbench.types import Conversation, Sampling

Value = TypeVar("Value")


class Caller(Protocol):
    """What makes the calls, on a loop of its own: a client, or an engine in a process of ours."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def submit(self, coroutine: Coroutine[Any, Any, Value]) -> Future[Value]: ...

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, extra: Mapping[str, Any] | None = None
    ) -> Exchange: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A turn about to be made: `messages` end with its user turn, `earlier` are this run's calls before it."""

    conversation: Conversation
    turn: int
    messages: tuple[Message, ...]
    earlier: tuple[Exchange, ...]
    """Shorter than `turn` after a resume."""


class Held(NamedTuple):
    """A turn that was made."""

    conversation: Conversation
    turn: int
    messages: tuple[Message, ...]
    exchange: Exchange


Call = Callable[[Asked], Awaitable[Exchange]]
"""How a turn's call is made; it runs on the client's loop."""


def by_chat(client: Caller, sampling: Sampling, extra: Mapping[str, Any] | None = None) -> Call:
    """Every turn as messages to the chat endpoint."""

    async def call(asked: Asked) -> Exchange:
        return await client.chat(asked.messages, sampling, extra)

    return call


def hold(
    client: Caller, work: Sequence[Conversation], call: Call, *, concurrency: int, rate: float | None = None,
    seed: int = 0, room: int = 1024,
) -> Iterator[Held]:  # fmt: skip
    """Hold all conversations, in order and at most `concurrency` at once; yield each turn as its call ends.

    With `rate`, conversations arrive as a Poisson process of that many per second (seeded) and wait where
    `concurrency` are under way. A failed turn ends its conversation. `room` ended calls may wait to be taken; beyond
    that no further call is sent. Closing the iterator cancels what is under way. What `call` raises is raised here.
    """
    if concurrency < 1 or (rate is not None and not rate > 0):
        raise UserError(f"concurrency should be 1 or more and rate above 0 (got {concurrency} and {rate})")
    return _taken(client, _Driver(client, work, call, concurrency, arrivals(len(work), rate, seed), room))


def arrivals(count: int, rate: float | None, seed: int) -> list[float]:
    """Seconds after the start at which each conversation is due: all at once, or a Poisson process."""
    if rate is None:
        return [0.0] * count
    dice, due, now = random.Random(seed), [], 0.0
    for _ in range(count):
        now += dice.expovariate(rate)
        due.append(now)
    return due


def _taken(client: Caller, driver: _Driver) -> Iterator[Held]:
    """The turns, in the thread of whoever iterates."""
    with _short_pauses():
        running: Future[None] = client.submit(driver.run())
        try:
            while (held := driver.take(running)) is not None:
                yield held
            running.result()
        finally:
            driver.stop()
            wait([running])


@contextmanager
def _short_pauses() -> Iterator[None]:
    """No collection of all garbage meanwhile: it stops every thread, and so the clock, for 0.1 s and more."""
    young, middle, old = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(young, middle, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        gc.unfreeze()


class _Driver:
    """C workers on the client's loop, and the queue to the thread that takes what they made."""

    def __init__(
        self, client: Caller, work: Sequence[Conversation], call: Call, concurrency: int, due: Sequence[float],
        room: int,
    ) -> None:  # fmt: skip
        self._loop, self._call, self._workers = client.loop, call, min(concurrency, len(work))
        self._waiting = deque(zip(due, work, strict=True))
        self._room = asyncio.Semaphore(room)
        self._made: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    async def run(self) -> None:
        """Hold everything; ends early, and in peace, when stopped."""
        start = perf_counter()
        try:
            if not self._stopped:
                self._tasks = [asyncio.ensure_future(self._work(start)) for _ in range(self._workers)]
                await asyncio.gather(*self._tasks)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            self._cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._made.put(None)

    def take(self, running: Future[None]) -> Held | None:
        """The next turn made; None once there are no more. Waits in short bits, so that Ctrl-C gets through."""
        while True:
            try:
                held = self._made.get(timeout=0.5)
            except queue.Empty:
                if running.done():
                    return None
                continue
            if held is not None:
                self._loop.call_soon_threadsafe(self._room.release)
            return held

    def stop(self) -> None:
        """Cancel what is under way, from any thread; nothing happens where all is over."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    async def _work(self, start: float) -> None:
        while self._waiting:
            due, conversation = self._waiting.popleft()
            await asyncio.sleep(max(0.0, start + due - perf_counter()))
            await self._converse(conversation)

    async def _converse(self, conversation: Conversation) -> None:
        """Turn after turn, each with the answers before it; the first that fails is the last."""
        turns, said = conversation.request.turns, list(conversation.said)
        earlier: list[Exchange] = []
        for turn in range(len(said), len(turns)):
            await self._room.acquire()
            asked = Asked(
                conversation=conversation, turn=turn, messages=messages(conversation, said), earlier=tuple(earlier)
            )
            exchange = await self._call(asked)
            self._made.put(Held(conversation, turn, asked.messages, exchange))
            if exchange.failure is not None:
                return
            said.append(exchange.text)
            earlier.append(exchange)


def messages(conversation: Conversation, said: Sequence[str]) -> tuple[Message, ...]:
    """The system prompt if there is one, the turns answered so far with what was said, and the turn to answer."""
    request = conversation.request
    made: list[Message] = [{"role": "system", "content": request.system}] if request.system else []
    for turn, answer in zip(request.turns, said, strict=False):
        made += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return (*made, {"role": "user", "content": request.turns[len(said)]})
