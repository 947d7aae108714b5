"""Plans made for tests, and what of them makes an engine speculate."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from speedbench import plugins
from speedbench.errors import Unsupported
from speedbench.serving.plan import LaunchPlan
from speedbench.types import Runner

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23", "llamacpp": "b11549", "trtllm": "1.4.0"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "external": {"model": "org/draft"},
    "mtp": {},
    "eagle3": {"checkpoint": "org/head"},
    "dflash": {"checkpoint": "org/block"},
    "dspark": {"checkpoint": "org/block"},
    "suffix": {},
    "ngram": {},
    "synthetic": {"base": "mtp", "acceptance_length": 2},
}


def plan(
    engine: str,
    drafter: str,
    draft_length: int,
    settings: Mapping[str, Any] | None = None,
    *,
    told: Mapping[str, Any] | None = None,
    version: str | None = "",
    concurrency: int = 4,
    model: str = "org/target",
) -> LaunchPlan:
    table = plugins.load("drafters", drafter).backends
    if engine not in table:
        raise Unsupported(drafter, engine, table)
    if told is None and engine == "llamacpp":
        told = {"binary": "llama-server"}
    drafting = table[engine](draft_length, SETTINGS[drafter] if settings is None else settings)
    runner = Runner(name="r", title="R", backend=engine, model=model, engine=told or {})
    made: LaunchPlan = import_module(f"speedbench.backends.{engine}").translate(
        drafting, draft_length, runner, concurrency=concurrency, port=8000,
        version=VERSIONS.get(engine) if version == "" else version,
    )  # fmt: skip
    return made


def flags(made: LaunchPlan) -> dict[str, Any]:
    """The options of a command line; a switch is True."""
    found: dict[str, Any] = {}
    name = ""
    for word in made.argv[1:]:
        if word.startswith("--"):
            name = word[2:]
            found[name] = True
        elif name:
            found[name] = word if found[name] is True else f"{found[name]} {word}"
    return found


def speculation(made: LaunchPlan) -> dict[str, Any]:
    """What of the plan makes the engine speculate, numbers as numbers."""
    if made.engine == "trtllm":
        file: dict[str, Any] = json.loads(made.files["trtllm.yaml"])
        return file.get("speculative_config", {})
    given = flags(made)
    if made.engine == "vllm":
        config: dict[str, Any] = json.loads(given.get("speculative-config", "{}"))
        return config
    prefix = "speculative-" if made.engine == "sglang" else "spec-"
    return {
        name.removeprefix(prefix): int(value) if str(value).isdigit() else value
        for name, value in given.items()
        if name.startswith(prefix)
    }
