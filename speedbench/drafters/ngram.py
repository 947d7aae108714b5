"""N-gram drafting, or prompt lookup: copy what followed the same tokens earlier in the row."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from speedbench.errors import UserError
from speedbench.settings import at_least, resolve
from speedbench.types import Drafter, Settings

_RULES: dict[str, dict[str, Any]] = {
    "vllm": {"min_n": 2, "max_n": 4, "match": "earliest"},
    "transformers": {"min_n": 1, "max_n": 2, "match": "earliest"},
    "trtllm": {"min_n": 1, "max_n": 2, "match": "earliest"},
}
"""Sizes and occurrence by engine; TensorRT-LLM's `is_use_oldest=False` is match: latest. Its pool, shared by default
across requests there, is per row here."""


def _native(draft_length: int, settings: Settings) -> Settings:
    rule = str(settings.get("rule", "vllm"))
    defaults = {"rule": "vllm", **_RULES.get(rule, _RULES["vllm"])}
    chosen = resolve("ngram", settings, defaults, {"rule": tuple(_RULES), "match": ("earliest", "latest")})
    at_least("ngram", chosen, min_n=1, max_n=1)
    if chosen["min_n"] > chosen["max_n"]:
        raise UserError(f"ngram.min_n: at most ngram.max_n = {chosen['max_n']} (got {chosen['min_n']})")
    return {"module": "speedbench.native.ngram", **chosen}


DRAFTER = Drafter(
    name="ngram",
    title="n-gram look-up in the row's own tokens",
    inputs="tokens",
    backends={"native": _native, "scripted": _native},
)
