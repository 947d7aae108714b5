"""TensorRT-LLM: trtllm-serve started, or attached to, or its LLM API in process."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from speedbench import plugins
from speedbench.serving.engines.trtllm import trtllm_plan
from speedbench.serving.launch import version_of
from speedbench.serving.plan import HOLDING_LEAST, TORCH, LaunchPlan, Wanted, pointed
from speedbench.serving.session import served
from speedbench.serving.trtllm_session import in_process
from speedbench.settings import at_least, resolve
from speedbench.types import Drafting, Runner, Session, Settings

_DEFAULTS: dict[str, Any] = {**TORCH, "api": False, "max_num_tokens": None, "chunked_prefill": None}
_CHOICES = {"dtype": ("auto", "bfloat16", "float16", "float32")}


def translate(
    drafting: Settings,
    draft_length: int,
    runner: Runner,
    *,
    concurrency: int,
    port: int,
    version: str | None = None,
    place: Callable[[str], str] = str,
) -> LaunchPlan:
    """What TensorRT-LLM is told; nothing starts. `drafting` is what the drafter's table makes for this backend;
    `place` says where a model that the user named lies."""
    engine = resolve("engine", runner.engine, _DEFAULTS, _CHOICES)
    at_least("engine", engine, **HOLDING_LEAST)
    at_least(
        "engine",
        engine,
        **HOLDING_LEAST,
        max_model_len=1,
        max_batch=1,
        max_num_tokens=1,
        tensor_parallel=1,
        memory_fraction=0,
        seed=0,
    )
    installed = None if engine["python"] else _installed()
    wanted = Wanted(
        model=runner.model, engine=engine, drafting=drafting, draft_length=draft_length, concurrency=concurrency,
        port=port, version=version or getattr(installed, "__version__", None), place=place,
    )  # fmt: skip
    return trtllm_plan(wanted, getattr(installed, "llmapi", None))


@cache
def _installed() -> ModuleType | None:
    """The package, whose classes tell their names where it imports; elsewhere those kept for its version do."""
    if find_spec("tensorrt_llm") is None:
        return None
    try:
        import_module("tensorrt_llm.llmapi")
        return import_module("tensorrt_llm")
    except (ImportError, OSError, RuntimeError):  # no driver, no MPI
        return None


@dataclass(frozen=True)
class _Server:
    name: str = "trtllm"
    title: str = "TensorRT-LLM: trtllm-serve started, or attached to, or its LLM API in process"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[Session]:
        from speedbench.native import weights  # needs torch, where a model is to be unpacked

        version = version_of(runner.engine.get("python", ""), "tensorrt-llm", "tensorrt_llm")

        def plan(drafting: Drafting, draft_length: int, concurrency: int, port: int) -> LaunchPlan:
            told = plugins.translated(self.name, drafting, draft_length)
            return translate(
                told, draft_length, pointed(runner, drafting, draft_length), concurrency=concurrency, port=port,
                version=version, place=weights.placed,
            )  # fmt: skip

        opened = in_process if runner.engine.get("api") else served
        with opened(runner, plan) as session:
            yield session


BACKEND = _Server()
