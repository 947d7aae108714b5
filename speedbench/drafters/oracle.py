"""The oracle: replays the baseline's output, so that every draft is right and only verification costs."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    return {"module": "speedbench.native.oracle", **resolve("oracle", settings, {})}


DRAFTER = Drafter(
    name="oracle",
    title="replays the baseline's output: the ceiling that T_verif sets",
    inputs="the baseline's output",
    generation="replay",
    cost="nothing",
    lengths="any",
    training="none",
    memory="none",
    state="none",
    backends={"native": _native, "scripted": _native},
    servable=False,
)
