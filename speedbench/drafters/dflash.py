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


def _served(settings: Settings) -> Settings:
    chosen = resolve("dflash", settings, {"checkpoint": "", "engine_options": {}})
    if not chosen["checkpoint"]:
        raise UserError("dflash.checkpoint: name the draft head, for instance --set dflash.checkpoint=FOLDER")
    return chosen


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33, v1/spec_decode/dflash.py: its block is D + 1, the anchor and D that predict, but what it is told is
    D."""
    chosen = _served(settings)
    config = {"method": "dflash", "model": chosen["checkpoint"], "num_speculative_tokens": draft_length}
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23: its block is the window that is verified, D + 1; left out, the draft's config or 16 decides."""
    chosen = _served(settings)
    return {
        "speculative_algorithm": "DFLASH",
        "speculative_draft_model_path": chosen["checkpoint"],
        "speculative_dflash_block_size": draft_length + 1,
        "engine_options": chosen["engine_options"],
    }


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    flags = {"spec-type": "draft-dflash", "spec-draft-model": chosen["checkpoint"], "spec-draft-n-max": draft_length}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    fields = {"max_draft_len": draft_length, "speculative_model": chosen["checkpoint"]}
    return {"decoding": "DFlash", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("dflash", settings, {"url": ""})


DRAFTER = Drafter(
    name="dflash",
    title="a small transformer that fills a block of masked slots at once",
    inputs="the anchor token and some (often five) of the target's hidden states",
    generation="parallel block, one pass",
    cost="one pass over the block and the target's head: flat in D until compute-bound",
    lengths="up to the trained block (less one, if its anchor slot does not predict)",
    training="about a day on eight GPUs for an 8B target",
    memory="its layers (often five) and their KV",
    state="its KV of the row",
    backends={
        "native": _native,
        "vllm": _vllm,
        "sglang": _sglang,
        "llamacpp": _llamacpp,
        "trtllm": _trtllm,
        "openai": _attached,
    },
)
