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


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33 runs ArcticInference's tree, without its offset; D is an upper bound there. The defaults are ours: a
    deeper tree, and no answers kept for the requests after."""
    defaults = {key: value for key, value in _DEFAULTS.items() if key != "offset"}
    chosen = resolve("suffix", settings, {**defaults, "engine_options": {}})
    at_least("suffix", chosen, depth=2, factor=0.0, min_probability=0.0, max_cached_requests=0)
    config = {
        "method": "suffix",
        "num_speculative_tokens": draft_length,
        "suffix_decoding_max_tree_depth": chosen["depth"],
        "suffix_decoding_max_spec_factor": chosen["factor"],
        "suffix_decoding_min_token_prob": chosen["min_probability"],
        "suffix_decoding_max_cached_requests": chosen["max_cached_requests"],
    }
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """TensorRT-LLM's is a suffix automaton: the longest match, with none of the tree's settings."""
    chosen = resolve("suffix", settings, {"engine_options": {}})
    fields = {"max_draft_len": draft_length, "max_matching_ngram_size": -1, "enable_global_pool": False}
    return {"decoding": "SA", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("suffix", settings, {"url": ""})


DRAFTER = Drafter(
    name="suffix",
    title="suffix tree over the row's own tokens (and earlier answers, if asked)",
    inputs="tokens (and earlier answers, if asked)",
    generation="look-up",
    cost="tens of microseconds a row on the host, whatever D",
    lengths="any",
    training="none; learns while it serves",
    memory="host memory: a tree over the row's tokens",
    state="a tree for each row; earlier answers only with max_cached_requests",
    backends={"native": _native, "scripted": _native, "vllm": _vllm, "trtllm": _trtllm, "openai": _attached},
)
