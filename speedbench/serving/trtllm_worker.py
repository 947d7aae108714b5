"""TensorRT-LLM's LLM API in a process of its own, spoken to in lines of JSON over standard input and output.

Run as a file, so that the interpreter that has tensorrt_llm needs nothing else of ours. It is told

    {"build": {keyword: value}, "classes": {keyword: class}}     first; the classes are tensorrt_llm.llmapi's
    {"ask": n, "messages": [...], "sampling": {...}}             or "prompt_ids" in place of messages
    {"cancel": n}
    {"drain": n}                                                 every statistic there is

and says

    {"built": {...}} or {"refused": "why"}
    {"begun": n, "at": s, "prompt_ids": [...]}, {"tokens": n, "at": s, "ids": [...]} for each event of an answer, and
    {"ended": n, "at": s, "text": "…", "output": {...}} or {"failed": n, "at": s, "error": "…"}
    {"iterations": [...], "at": s}                               twice a second while there are any
    {"drained": n}

Seconds are perf_counter's, read here as events arrive. Whatever else is printed goes to standard error. It shuts the
engine down and ends when its standard input does.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import Any

EVERY = 0.5
"""Seconds between readings of the statistics; the engine keeps 1,000 iterations and drops the oldest."""
_NOW, _SETTLED = 0.01, 0.5
"""Seconds without a new one after which those that are there have been read, and after which all are there: the engine
hands them over five times a second."""
_READS = 20
"""Most readings at a time: an engine may go on with idle iterations."""
_GRACE = 8.0
"""Seconds in which the engine may shut down by itself."""
_SPECULATION = ("acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens")


# ---- what the engine is given and gives -----------------------------------------------------------------------------


def objects(kwargs: Mapping[str, Any], classes: Mapping[str, str], llmapi: ModuleType) -> dict[str, Any]:
    """The keyword arguments with the engine's own classes in place of mappings, for `LLM(**…)`."""
    made = dict(kwargs)
    for key, name in classes.items():
        fields = {field: value for field, value in made[key].items() if field != "decoding_type"}
        made[key] = getattr(llmapi, name)(**fields)
    return made


def written(result: Any) -> dict[str, Any]:
    """A RequestOutput as a document."""
    output = result.outputs[0]
    stats = getattr(getattr(output, "request_perf_metrics", None), "speculative_decoding", None)
    told = {name: getattr(stats, name) for name in _SPECULATION if hasattr(stats, name)}
    return {
        "decoding_iter": getattr(result, "decoding_iter", None),
        "avg_decoded_tokens_per_iter": getattr(result, "avg_decoded_tokens_per_iter", None),
        "prompt_token_ids": list(result.prompt_token_ids),
        "outputs": [
            {
                "index": 0,
                "token_ids": list(output.token_ids),
                "finish_reason": output.finish_reason,
                "request_perf_metrics": {"speculative_decoding": told} if told else None,
            }
        ],
    }


def prompt(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Ids of the messages in the model's own chat template."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer.encode(text, add_special_tokens=False))


async def drained(llm: Any, timeout: float) -> list[Any]:
    """The statistics that came since the last call, and what comes until nothing does for `timeout` seconds."""
    kept = llm.get_stats_async(timeout)
    if hasattr(kept, "mark_undone"):  # once found empty it would say nothing more until the next request
        kept.mark_undone()
    return [row async for row in kept]


# ---- the line -------------------------------------------------------------------------------------------------------


class Line:
    """Messages in and out, on what were standard input and output; the engine gets nothing and standard error."""

    def __init__(self) -> None:
        self._in, self._out = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self.told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        """What comes in; None is the end."""
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, **message: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(message, default=str) + "\n")
            self._out.flush()

    def _listen(self) -> None:
        for line in self._in:
            self.told.put(json.loads(line))
        self.told.put(None)
        timer = threading.Timer(_GRACE, os._exit, [1])
        timer.daemon = True
        timer.start()


# ---- the work -------------------------------------------------------------------------------------------------------


class Work:
    """Answers what is asked, all at a time, and hands the statistics on."""

    def __init__(self, line: Line, llm: Any, llmapi: ModuleType) -> None:
        self._line, self._llm, self._llmapi = line, llm, llmapi
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Until there is nothing more to be told."""
        loop = asyncio.get_running_loop()
        regular = loop.create_task(self._regularly())
        while (message := await loop.run_in_executor(None, self._line.told.get)) is not None:
            if "ask" in message:
                number = message["ask"]
                self._tasks[number] = loop.create_task(self._answer(message))
                self._tasks[number].add_done_callback(partial(self._tasks.pop, number))
            elif "cancel" in message and message["cancel"] in self._tasks:
                self._tasks[message["cancel"]].cancel()
            elif "drain" in message:
                for _ in range(_READS):
                    if not await self._read(_SETTLED):
                        break
                self._line.say(drained=message["drain"])
        regular.cancel()

    async def _regularly(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            if self._tasks:
                await self._read(_NOW)

    async def _read(self, timeout: float) -> bool:
        """Whether there were any; one reader at a time."""
        async with self._reading:
            rows = await drained(self._llm, timeout)
        if rows:
            self._line.say(iterations=rows, at=perf_counter())
        return bool(rows)

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        number = asked["ask"]
        try:
            await self._generate(number, asked)
        except Exception as error:
            self._line.say(failed=number, at=perf_counter(), error=f"{type(error).__name__}: {error}")

    async def _generate(self, number: int, asked: Mapping[str, Any]) -> None:
        ids = asked.get("prompt_ids")
        if ids is None:
            run = asyncio.get_running_loop().run_in_executor
            ids = await run(None, prompt, self._llm.tokenizer, asked["messages"])
        sampling = self._llmapi.SamplingParams(**asked["sampling"])
        begun, seen = perf_counter(), 0
        result = self._llm.generate_async(ids, sampling_params=sampling, streaming=True)
        self._line.say(begun=number, at=begun, prompt_ids=ids)
        try:
            async for _ in result:
                at, so_far = perf_counter(), result.outputs[0].token_ids
                if len(so_far) > seen:
                    self._line.say(tokens=number, at=at, ids=list(so_far[seen:]))
                    seen = len(so_far)
        except asyncio.CancelledError:
            result.abort()
            raise
        self._line.say(ended=number, at=perf_counter(), text=result.outputs[0].text, output=written(result))


def main() -> None:
    """Serve until told to end."""
    line = Line()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]  # our files are nobody's packages
    told = line.told.get()
    if told is None:
        return
    try:
        llmapi = import_module("tensorrt_llm.llmapi")
        llm = import_module("tensorrt_llm").LLM(**objects(told["build"], told["classes"], llmapi))
    except Exception as error:
        traceback.print_exc()
        line.say(refused=f"{type(error).__name__}: {error}")
        line.told.get()  # until it is read
        sys.exit(1)
    line.say(
        built={
            "version": getattr(import_module("tensorrt_llm"), "__version__", None),
            "context": getattr(getattr(llm, "args", None), "max_seq_len", None),
        }
    )
    asyncio.run(Work(line, llm, llmapi).run())
    llm.shutdown()


if __name__ == "__main__":
    main()
