"""A stand-in for tensorrt_llm that runs: its LLM API's surface, a scripted engine, and statistics as 1.2 keeps them.

`installed` writes a package that an interpreter finds by PYTHONPATH; the rest runs in that interpreter. The engine
decodes one token a pass and what `accepted` says, cycled; a pass takes 20 ms by its own clock and 2 ms in truth.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_fakes import CudaGraphConfig, KvCacheConfig, Strict
from pydantic import ConfigDict

PASS = 0.020
_REAL = 0.002


def installed(folder: Path, version: str, **script: Any) -> dict[str, str]:
    """The environment in which `import tensorrt_llm` finds this, behaving as `script` says."""
    package, about = folder / "tensorrt_llm", folder / f"tensorrt_llm-{version}.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (package / "__init__.py").write_text(f"from trtllm_fake import LLM\n__version__ = {version!r}\n")
    (package / "llmapi.py").write_text(
        "import engine_fakes, trtllm_fake\n"
        f"globals().update(vars(engine_fakes.trtllm({version[:3]!r})))\n"
        "SamplingParams = trtllm_fake.SamplingParams\n"
    )
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
    (folder / "script.json").write_text(json.dumps({"pids": str(folder / "pids"), **script}))
    places = [str(folder), str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    return {"PYTHONPATH": os.pathsep.join(places), "FAKE_TRTLLM": str(folder / "script.json")}


class SamplingParams(Strict):
    """Those of its fields that may be meant."""

    max_tokens: int = 32
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    ignore_eos: bool = False
    return_perf_metrics: bool = False


class Args(Strict):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    model: str
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    trust_remote_code: bool = False
    max_batch_size: int
    max_seq_len: int | None = None
    max_num_tokens: int
    enable_chunked_prefill: bool = False
    kv_cache_config: KvCacheConfig
    cuda_graph_config: CudaGraphConfig | None
    disable_overlap_scheduler: bool = False
    stream_interval: int = 1
    enable_iter_perf_stats: bool = False
    return_perf_metrics: bool = False
    per_request_spec_decode_stats: bool = False
    speculative_config: Any = None


class Tokenizer:
    """A token a letter."""

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"<{each['role']}>{each['content']}" for each in messages) + "<assistant>"

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]


class RequestOutput:
    def __init__(self, llm: LLM, prompt: list[int], sampling: SamplingParams) -> None:
        self.prompt_token_ids, self._llm, self._sampling = prompt, llm, sampling
        self._came: asyncio.Queue[list[int] | Exception] = asyncio.Queue()
        self._accepted, self.prefilled, self.done = cycle(llm.script.get("accepted", [2, 0, 1])), False, False
        self.decoding_iter, self.avg_decoded_tokens_per_iter = 0, 0.0
        stats = SimpleNamespace(acceptance_rate=0.0, total_accepted_draft_tokens=0, total_draft_tokens=0)
        self.outputs = [
            SimpleNamespace(token_ids=[], text="", finish_reason=None,
                            request_perf_metrics=SimpleNamespace(speculative_decoding=stats))
        ]  # fmt: skip

    def step(self) -> tuple[int, int]:
        """(proposed, accepted) of one pass; the answer depends on the prompt alone."""
        output, d = self.outputs[0], self._llm.drafts if self.prefilled else 0
        left = self._sampling.max_tokens - len(output.token_ids)
        accepted = min(next(self._accepted), d, left - 1) if d else 0
        at = len(output.token_ids)
        output.token_ids += [97 + (sum(self.prompt_token_ids) + 7 * i) % 26 for i in range(at, at + accepted + 1)]
        output.text = "".join(map(chr, output.token_ids))
        self.decoding_iter += 1
        self.avg_decoded_tokens_per_iter = len(output.token_ids) / self.decoding_iter
        if not self._llm.script.get("zeros"):
            stats = output.request_perf_metrics.speculative_decoding
            stats.total_draft_tokens += d
            stats.total_accepted_draft_tokens += accepted
        self.prefilled, self.done = True, len(output.token_ids) >= self._sampling.max_tokens
        output.finish_reason = "length" if self.done else None
        self._came.put_nowait([])
        return d, accepted

    def abort(self) -> None:
        self.done = True

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        while not self.done or not self._came.empty():
            await self._came.get()
            yield self


class Statistics:
    """Says nothing more, once it was found empty, until a request comes or `mark_undone` is called."""

    def __init__(self) -> None:
        self.rows: deque[dict[str, Any]] = deque()
        self._done, self._timeout = False, 2.0

    def mark_undone(self) -> None:
        self._done = False

    def within(self, timeout: float) -> Statistics:
        self._timeout = timeout
        return self

    def __aiter__(self) -> Statistics:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._done:
            raise StopAsyncIteration
        if not self.rows:
            await asyncio.sleep(self._timeout)
        if not self.rows:
            self._done = True
            raise StopAsyncIteration
        return self.rows.popleft()


class LLM:
    def __init__(self, **kwargs: Any) -> None:
        self.script = json.loads(Path(os.environ["FAKE_TRTLLM"]).read_text())
        self.args, self.tokenizer = Args(**kwargs), Tokenizer()
        print("[TensorRT-LLM] a banner on standard output")
        with open(self.script["pids"], "a") as pids:
            sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as MPI's workers are
            pids.write(f"{os.getpid()}\n{sleeper.pid}\n")
        if self.script.get("refuses"):
            raise RuntimeError(self.script["refuses"])
        config = self.args.speculative_config
        self.drafts = 0 if config is None else int(getattr(config, "drafted", None) or config.max_draft_len)
        self._stats, self._active, self._passes = Statistics(), list[RequestOutput](), 0
        self._running: asyncio.Task[None] | None = None
        self._sleeper = sleeper

    def generate_async(
        self, inputs: list[int], sampling_params: SamplingParams, streaming: bool = False
    ) -> RequestOutput:
        assert streaming
        if "".join(map(chr, inputs)).find("poison") >= 0:
            raise ValueError("the prompt is longer than max_seq_len")
        request = RequestOutput(self, inputs, sampling_params)
        self._active.append(request)
        self._stats.mark_undone()
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        return request

    async def _run(self) -> None:
        while self._active:
            await asyncio.sleep(_REAL)
            decoding = [each.prefilled for each in self._active]
            told = [each.step() for each in self._active]
            drafted = [found for found, decodes in zip(told, decoding, strict=True) if decodes]
            self._stats.rows.append(self._row(len(told) - len(drafted), drafted))
            self._active = [each for each in self._active if not each.done]
            self._passes += 1
            if self._passes == self.script.get("crash_at"):
                os._exit(3)
            if self._passes == self.script.get("garbage_at"):
                self._say_garbage()

    def _say_garbage(self) -> None:
        """Past all care, on the pipe itself."""
        for descriptor in range(3, 64):
            try:
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe"):
                    os.write(descriptor, b"what is this\n")
            except OSError:
                continue

    def _row(self, new: int, told: list[tuple[int, int]]) -> dict[str, Any]:
        begun = datetime(2026, 1, 10, 10) + timedelta(seconds=PASS * self._passes)
        drafted = sum(1 for d, _ in told if d)
        own = PASS * 1000 / 4 if self.script.get("two_models") and drafted else 0.0
        spec = {
            "numDraftTokens": sum(d for d, _ in told),
            "numAcceptedTokens": sum(a for _, a in told),
            "numRequestsWithDraftTokens": drafted,
            "acceptanceLength": 1 + sum(a for _, a in told) / drafted if drafted else 0.0,
            "iterLatencyMS": own,
            "draftOverhead": own / (PASS * 1000),
        }
        return {
            "iter": self._passes,
            "iterLatencyMS": PASS * 1800,  # overlapping with the next
            "timestamp": begun.strftime("%m-%d-%Y %H:%M:%S.%f"),
            "numActiveRequests": new + len(told),
            "inflightBatchingStats": {"numContextRequests": new, "numGenRequests": len(told), "numCtxTokens": 9 * new},
            **({"specDecodingStats": spec} if self.drafts else {}),
        }

    def get_stats_async(self, timeout: float) -> Statistics:
        return self._stats.within(timeout)

    def shutdown(self) -> None:
        print("shut down in order")
        self._sleeper.kill()


def living(folder: Path) -> Iterator[int]:
    """The processes of the fake that are still there."""
    for pid in map(int, (folder / "pids").read_text().split()):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            yield pid
