"""Synthetic acceptance: the baseline's output with drafts spoiled as often as told, to test the formula by itself."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    chosen = resolve("synthetic", settings, {"rate": None, "acceptance_length": None})
    rate, length = chosen["rate"], chosen["acceptance_length"]
    if rate is not None and length is not None:
        raise UserError("synthetic: give rate or acceptance_length, not both")
    for key in ("rate", "acceptance_length"):
        if chosen[key] is not None and (isinstance(chosen[key], bool) or not isinstance(chosen[key], (int, float))):
            raise UserError(f"synthetic.{key}: should be a number (got {chosen[key]!r})")
    if rate is not None and not 0 <= rate <= 1:
        raise UserError(f"synthetic.rate: between 0 and 1 (got {rate})")
    if length is not None and not 1 <= length <= draft_length + 1:
        raise UserError(f"synthetic.acceptance_length: between 1 and D + 1 = {draft_length + 1} (got {length})")
    return {"module": "speedbench.native.oracle", "forced": True, **chosen}


DRAFTER = Drafter(
    name="synthetic",
    title="forced acceptance: right as often as told (rate, default 0.7, or acceptance_length)",
    inputs="the baseline's output",
    backends={"native": _native},
    servable=False,
)
