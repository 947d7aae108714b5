"""DFlash: one pass of a small block transformer over the target's hidden states drafts a whole block."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    """D is the slots that predict: z-lab's `block_size` is D + 1 (its anchor slot is thrown away), DeepSpec's is D."""
    defaults = {"checkpoint": "", "allow_bin": False, "block": "trained"}
    chosen = resolve("dflash", settings, defaults, {"block": ("trained", "short")})
    if not chosen["checkpoint"]:
        raise UserError("dflash.checkpoint: name the draft head, for instance --set dflash.checkpoint=FOLDER")
    return {"module": "speedbench.native.dflash", **chosen}


DRAFTER = Drafter(
    name="dflash",
    title="a small transformer that fills a block of masked slots at once",
    inputs="hidden states",
    backends={"native": _native},
)
