"""An external draft model: a smaller causal LM with the target's tokenizer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.errors import UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings


def _native(draft_length: int, settings: Settings) -> Settings:
    defaults = {"model": "", "dtype": None, "form": "auto"}
    chosen = resolve("external", settings, defaults, {"form": ("auto", "lean", "transformers")})
    if not chosen["model"]:
        raise UserError("external.model: name the draft model, for instance --set external.model=FOLDER or a hub id")
    return {"module": "speedbench.native.external", **chosen}


DRAFTER = Drafter(
    name="external",
    title="a smaller model with the same tokenizer, run D times",
    inputs="tokens",
    backends={"native": _native},
)
