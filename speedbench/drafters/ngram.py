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
    _check_sizes(chosen)
    return {"module": "speedbench.native.ngram", **chosen}


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33: left out, both sizes would be 5; these are the native ones. `gpu` is its ngram_gpu."""
    chosen = resolve("ngram", settings, {"min_n": 2, "max_n": 4, "gpu": False, "engine_options": {}})
    _check_sizes(chosen)
    config = {
        "method": "ngram_gpu" if chosen["gpu"] else "ngram",
        "num_speculative_tokens": draft_length,
        "prompt_lookup_min": chosen["min_n"],
        "prompt_lookup_max": chosen["max_n"],
    }
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23 matches suffixes of any size up to `depth` in a trie of all requests. Breadth 1 makes it a chain of
    D nodes; the window has the last token before them."""
    chosen = resolve("ngram", settings, {"depth": 18, "engine_options": {}})
    at_least("ngram", chosen, depth=2)
    return {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": draft_length + 1,
        "speculative_ngram_max_bfs_breadth": 1,
        "speculative_ngram_max_trie_depth": chosen["depth"],
        "engine_options": chosen["engine_options"],
    }


_KINDS = ("simple", "map-k", "map-k4v", "mod")


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    """llama.cpp looks for one size only and drafts `size-m` tokens; its own default of 12 hardly ever matches."""
    defaults: dict[str, Any] = {"kind": "simple", "min_n": None, "max_n": 4, "engine_options": {}}
    chosen = resolve("ngram", settings, defaults, {"kind": _KINDS})
    at_least("ngram", chosen, max_n=1)
    kind, n = chosen["kind"], chosen["max_n"]
    if chosen["min_n"] not in (None, n):
        raise UserError(f"ngram.min_n: llama.cpp looks for one size only, ngram.max_n = {n} (got {chosen['min_n']})")
    sizes = (
        {"n-match": n, "n-min": 1, "n-max": draft_length} if kind == "mod" else {"size-n": n, "size-m": draft_length}
    )
    flags = {"spec-type": f"ngram-{kind}", **{f"spec-ngram-{kind}-{key}": value for key, value in sizes.items()}}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """TensorRT-LLM goes down to single tokens; its pool, shared by all requests unless told, is each request's own."""
    defaults = {"min_n": 1, "max_n": 2, "match": "earliest", "engine_options": {}}
    chosen = resolve("ngram", settings, defaults, {"match": ("earliest", "latest")})
    at_least("ngram", chosen, max_n=1)
    if chosen["min_n"] != 1:
        raise UserError(f"ngram.min_n: TensorRT-LLM always goes down to 1 (got {chosen['min_n']})")
    fields = {
        "max_draft_len": draft_length,
        "max_matching_ngram_size": chosen["max_n"],
        "is_keep_all": True,
        "is_use_oldest": chosen["match"] == "earliest",
        "is_public_pool": False,
    }
    return {"decoding": "NGram", "fields": fields, "engine_options": chosen["engine_options"]}


def _check_sizes(chosen: Settings) -> None:
    at_least("ngram", chosen, min_n=1, max_n=1)
    if chosen["min_n"] > chosen["max_n"]:
        raise UserError(f"ngram.min_n: at most ngram.max_n = {chosen['max_n']} (got {chosen['min_n']})")


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("ngram", settings, {"url": ""})


DRAFTER = Drafter(
    name="ngram",
    title="n-gram look-up in the row's own tokens",
    inputs="tokens",
    generation="look-up",
    cost="microseconds a row on the host, whatever D",
    lengths="any",
    training="none",
    memory="none",
    state="none",
    backends={
        "native": _native,
        "scripted": _native,
        "vllm": _vllm,
        "sglang": _sglang,
        "llamacpp": _llamacpp,
        "trtllm": _trtllm,
        "openai": _attached,
    },
)
