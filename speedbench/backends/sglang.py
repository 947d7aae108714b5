"""SGLang: its server started, or one that runs attached to."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from speedbench import plugins
from speedbench.serving.engines.sglang import sglang_plan
from speedbench.serving.launch import version_of
from speedbench.serving.plan import HOLDING_LEAST, TORCH, LaunchPlan, Wanted, pointed
from speedbench.serving.session import served
from speedbench.settings import at_least, resolve
from speedbench.types import Drafting, Runner, Session, Settings

_DEFAULTS: dict[str, Any] = {**TORCH}
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
    """What SGLang is told; nothing starts. `drafting` is what the drafter's table makes for this backend;
    `place` says where a model that the user named lies."""
    engine = resolve("engine", runner.engine, _DEFAULTS, _CHOICES)
    at_least("engine", engine, **HOLDING_LEAST)
    at_least("engine", engine, max_model_len=1, max_batch=1, tensor_parallel=1, memory_fraction=0, seed=0)
    return sglang_plan(
        Wanted(
            model=runner.model, engine=engine, drafting=drafting, draft_length=draft_length, concurrency=concurrency,
            port=port, version=version, place=place,
        )
    )  # fmt: skip


@dataclass(frozen=True)
class _Server:
    name: str = "sglang"
    title: str = "SGLang: its server started, or one that runs attached to"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[Session]:
        from speedbench.native import weights  # needs torch, where a model is to be unpacked

        version = version_of(runner.engine.get("python", ""), "sglang")

        def plan(drafting: Drafting, draft_length: int, concurrency: int, port: int) -> LaunchPlan:
            told = plugins.translated(self.name, drafting, draft_length)
            return translate(
                told, draft_length, pointed(runner, drafting, draft_length), concurrency=concurrency, port=port,
                version=version, place=weights.placed,
            )  # fmt: skip

        with served(runner, plan) as session:
            yield session


BACKEND = _Server()
