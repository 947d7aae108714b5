"""EAGLE-3: a one-layer head over three of the target's hidden states."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    chosen = resolve("eagle3", settings, {"checkpoint": "", "allow_bin": False})
    if not chosen["checkpoint"]:
        raise UserError(
            "eagle3.checkpoint: name the head made for this target, for instance --set eagle3.checkpoint=FOLDER "
            "or a hub id"
        )
    return {"module": "speedbench.native.eagle3", **chosen}


DRAFTER = Drafter(
    name="eagle3",
    title="a one-layer head that reads three of the target's hidden states, run D times",
    inputs="hidden states",
    backends={"native": _native},
)
