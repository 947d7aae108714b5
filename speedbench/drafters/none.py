"""No drafting: the baseline, one token a pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    return resolve("none", settings, {})


DRAFTER = Drafter(
    name="none",
    title="no drafting: the D = 0 baseline",
    inputs="nothing",
    backends={"native": _native, "scripted": _native},
)
