"""TensorRT-LLM's LLM API from our side: the process that holds it, calls to it, and the statistics it hands on."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from speedbench.errors import UserError
from speedbench.serving import guard
from speedbench.serving.client import Message
from speedbench.serving.engines.trtllm import classes
from speedbench.serving.exchange import Exchange, Failure, FailureKind, Usage
from speedbench.serving.launch import Server
from speedbench.serving.plan import LaunchPlan
from speedbench.serving.surface import surface
from speedbench.serving.words import one_line
from speedbench.types import Sampling

Value = TypeVar("Value")

_DRAINING = 60.0
_WORDS = {"built", "refused", "begun", "tokens", "ended", "failed", "iterations", "drained"}
_decode = json.JSONDecoder(parse_constant=lambda _: None).decode
"""NaN and Infinity, which Python writes though JSON has none, are unknown."""


class Read(NamedTuple):
    """Iteration statistics as they came, and when they were read."""

    at: float
    rows: Sequence[Mapping[str, Any] | str]


@dataclass(slots=True, kw_only=True)
class _Call:
    """One answer under way; times are the process's own from when it began."""

    over: asyncio.Future[Mapping[str, Any]]
    sent: float = field(default_factory=perf_counter)
    prompt: Sequence[int] = ()
    progress: list[tuple[float, int]] = field(default_factory=list)

    def take(self, message: Mapping[str, Any]) -> None:
        if "begun" in message:
            self.sent, self.prompt = message["at"], message["prompt_ids"]
        elif "tokens" in message:
            before = self.progress[-1][1] if self.progress else 0
            self.progress.append((message["at"], before + len(message["ids"])))
        elif not self.over.done():
            self.over.set_result(message)

    def failed(self, failure: Failure, at: float) -> Exchange:
        return Exchange(
            sent=self.sent, first=self._first, last=self._last, ended=at, progress=tuple(self.progress), failure=failure
        )  # fmt: skip

    def answered(self, message: Mapping[str, Any]) -> Exchange:
        output = message["output"]["outputs"][0]
        finish = output["finish_reason"]
        given_up = Failure(kind="cut", message=f"the engine gave the answer up (finish reason '{finish}')")
        return Exchange(
            sent=self.sent, first=self._first, last=self._last, ended=message["at"], progress=tuple(self.progress),
            text=message["text"], finish=finish, payload=message["output"],
            usage=Usage(prompt_tokens=len(self.prompt), completion_tokens=len(output["token_ids"])),
            failure=None if finish in ("stop", "length") else given_up,
        )  # fmt: skip

    @property
    def _first(self) -> float | None:
        return self.progress[0][0] if self.progress else None

    @property
    def _last(self) -> float | None:
        return self.progress[-1][0] if self.progress else None


class Process(Server):
    """The worker of one plan. Calls are made on `loop`, as a client's are; the rest from any other thread."""

    piped = True

    def __init__(self, plan: LaunchPlan, folder: Path, patience: float, longest: float) -> None:
        """`patience`: seconds it may take to load; `longest`: seconds of a call."""
        super().__init__(plan, folder, patience)
        self.loop = asyncio.new_event_loop()
        self.built: Mapping[str, Any] = {}
        """What it says of the engine, once that is up."""
        self.broken = ""
        """Why it can be asked no more."""
        self._longest, self._refused, self._numbers = longest, "", count()
        self._calls: dict[int, _Call] = {}
        self._drains: dict[int, Future[None]] = {}
        self._read: deque[Read] = deque()
        self._said: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()

    # ---- coming and going ----

    def _wait(self) -> None:
        """Give the plan over, and wait until the engine is built."""
        assert self._process is not None
        for target, words in ((self._run, ()), (self._talk, (self._process,)),
                              (self._listen, (self._process,))):  # fmt: skip
            Thread(target=target, args=words, daemon=True).start()
        kwargs = self.plan.kwargs
        self._said.put({"build": kwargs, "classes": classes(kwargs, surface("trtllm", self.plan.version))})
        super()._wait()

    def _answers(self) -> bool:
        if self._refused:
            raise UserError(f"TensorRT-LLM does not come up: {self._refused}; see {self.log}")
        return bool(self.built)

    def stop(self, grace: float = guard.GRACE) -> None:
        """Let it shut the engine down, then end whatever is left."""
        try:
            self._said.put(None)
            if self._process is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
        finally:
            super().stop(grace)
            with suppress(RuntimeError):  # stopped before
                self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def _talk(self, process: subprocess.Popen[bytes]) -> None:
        """In a thread of its own, so that nobody else waits for a worker that does not read."""
        assert process.stdin is not None
        with suppress(OSError), process.stdin:
            while (message := self._said.get()) is not None:
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with suppress(RuntimeError), process.stdout:  # the loop is closed
            for line in process.stdout:
                self._hear(line)
            self.loop.call_soon_threadsafe(self._gone, process)

    def _hear(self, line: bytes) -> None:
        """Before the engine is built, what is no message is a banner of the interpreter, and belongs into the log."""
        message = _message(line)
        if message is not None and message.keys() & {"built", "refused"}:
            self.built, self._refused = message.get("built", {}), message.get("refused", "")
        elif message is not None:
            self.loop.call_soon_threadsafe(self._take, message)
        elif self.built:
            said = one_line(line.decode("utf-8", "replace"), 120)
            self.loop.call_soon_threadsafe(self._break, f"said what is no message: {said!r}")
        else:
            with self.log.open("ab") as log:
                log.write(line)

    # ---- what it says, on the loop ----

    def _take(self, message: Mapping[str, Any]) -> None:
        if "iterations" in message:
            self._read.append(Read(message["at"], message["iterations"]))
        elif "drained" in message:
            self._drains.pop(message["drained"]).set_result(None)
        else:
            number = next(message[key] for key in ("begun", "tokens", "ended", "failed") if key in message)
            if number in self._calls:
                self._calls[number].take(message)

    def _gone(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        self._break(self.fate)

    def _break(self, why: str) -> None:
        """Nothing more can come; what is waited for fails."""
        self.broken = self.broken or f"TensorRT-LLM's process {why}"
        for call in self._calls.values():
            if not call.over.done():
                call.over.set_result({"failed": None, "at": perf_counter(), "error": self.broken})
        for drain in self._drains.values():
            drain.set_exception(UserError(f"{self.broken}; {self.tail()}"))
        self._drains.clear()

    # ---- what it is asked ----

    def submit(self, coroutine: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Run a coroutine on `loop`, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, extra: Mapping[str, Any] | None = None
    ) -> Exchange:
        """One answer; to be awaited on `loop`. A request that fails is the exchange's `failure`, and so is the end of
        the process under it; asking a process that is gone raises `UserError`."""
        if self.broken:
            raise UserError(f"{self.broken}; {self.tail()}")
        number, call = next(self._numbers), _Call(over=self.loop.create_future())
        self._calls[number] = call
        self._said.put({"ask": number, "messages": list(messages), "sampling": _sampling(sampling, extra or {})})
        try:
            message = await asyncio.wait_for(call.over, self._longest)
        except asyncio.TimeoutError:
            return call.failed(Failure(kind="timeout", message=f"not over within {self._longest:g} s"), perf_counter())
        finally:
            del self._calls[number]
            if call.over.cancelled():
                self._said.put({"cancel": number})
        if "ended" in message:
            return call.answered(message)
        kind: FailureKind = "cut" if message["failed"] is None else "error event"
        return call.failed(Failure(kind=kind, message=one_line(message["error"])), message["at"])

    def read(self) -> list[Read]:
        """The statistics that came since the last call."""
        return [self._read.popleft() for _ in range(len(self._read))]

    def drain(self) -> None:
        """Wait until the engine has no more of them."""
        if self.broken:
            raise UserError(f"{self.broken}; {self.tail()}")
        number, waiting = next(self._numbers), Future[None]()
        self._drains[number] = waiting
        self._said.put({"drain": number})
        try:
            waiting.result(_DRAINING)
        except TooLong:
            raise UserError(f"TensorRT-LLM told no statistics within {_DRAINING:g} s; see {self.log}") from None


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        found = _decode(line.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() & _WORDS else None


def _sampling(sampling: Sampling, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of its SamplingParams. Temperature 0 alone, without top-k and top-p, is greedy in every version."""
    said = {
        "max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_k": sampling.top_k,
        "top_p": sampling.top_p, "seed": sampling.seed, "return_perf_metrics": True, **extra,
    }  # fmt: skip
    return {key: value for key, value in said.items() if value is not None}
