"""Suffix decoding: the most frequent continuation of the best-scored suffix seen before."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.settings import at_least, resolve
from speedbench.types import Drafter, Settings

_DEFAULTS = {"depth": 64, "factor": 1.0, "offset": 0.0, "min_probability": 0.1, "max_cached_requests": 0}
"""ArcticInference's names are max_tree_depth, max_spec_factor, max_spec_offset, min_token_prob, max_cached_requests."""


def _native(draft_length: int, settings: Settings) -> Settings:
    chosen = resolve("suffix", settings, _DEFAULTS)
    at_least("suffix", chosen, depth=2, factor=0.0, min_probability=0.0, max_cached_requests=-1)
    return {"module": "speedbench.native.suffix", **chosen}


DRAFTER = Drafter(
    name="suffix",
    title="suffix tree over the row's own tokens (and earlier answers, if asked)",
    inputs="tokens",
    backends={"native": _native, "scripted": _native},
)
