"""No drafting: the baseline, one token a pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    return resolve("none", settings, {})


def _served(draft_length: int, settings: Settings) -> Settings:
    """A server is told nothing of speculation: never a schedule whose entry is 0."""
    return resolve("none", settings, {})


def _attached(draft_length: int, settings: Settings) -> Settings:
    return resolve("none", settings, {"url": ""})


DRAFTER = Drafter(
    name="none",
    title="no drafting: the D = 0 baseline",
    inputs="nothing",
    generation="none",
    cost="nothing",
    lengths="0",
    training="none",
    memory="none",
    state="none",
    backends={
        "native": _native,
        "scripted": _native,
        "vllm": _served,
        "sglang": _served,
        "llamacpp": _served,
        "trtllm": _served,
        "openai": _attached,
    },
)
