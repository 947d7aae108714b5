"""MTP: the multi-token prediction block that comes with the target, or one trained for it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    chosen = resolve("mtp", settings, {"checkpoint": "", "allow_bin": False})
    if not chosen["checkpoint"]:
        raise UserError(
            "mtp.checkpoint: name what holds the MTP block, for instance --set mtp.checkpoint=FOLDER or a hub id; "
            "the target's own folder if it came with one"
        )
    return {"module": "speedbench.native.mtp", **chosen}


DRAFTER = Drafter(
    name="mtp",
    title="the target's multi-token prediction block on its last hidden state, run D times",
    inputs="hidden states",
    backends={"native": _native},
)
