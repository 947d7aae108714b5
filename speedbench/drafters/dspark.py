"""DSpark: DFlash's block, corrected slot by slot for the token before, and cut where its confidence is low."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import at_least, resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    """D is at most DeepSpec's `block_size`. Its own evaluation leaves `--confidence-threshold` at 0, which is off."""
    defaults = {"checkpoint": "", "allow_bin": False, "block": "trained", "confidence_threshold": 0.0}
    chosen = resolve("dspark", settings, defaults, {"block": ("trained", "short")})
    at_least("dspark", chosen, confidence_threshold=0.0)
    if chosen["confidence_threshold"] > 1:
        raise UserError(f"dspark.confidence_threshold: at most 1 (got {chosen['confidence_threshold']})")
    if not chosen["checkpoint"]:
        raise UserError("dspark.checkpoint: name the draft head, for instance --set dspark.checkpoint=FOLDER")
    return {"module": "speedbench.native.dspark", **chosen}


DRAFTER = Drafter(
    name="dspark",
    title="dflash with a serial correction and a confidence that may cut the proposal",
    inputs="hidden states",
    backends={"native": _native},
)
