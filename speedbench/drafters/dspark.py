"""DSpark: DFlash's block, corrected slot by slot for the token before, and cut where its confidence is low."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

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


def _served(settings: Settings) -> Settings:
    """No checkpoint: the draft comes with the target, as DeepSeek's does."""
    return resolve("dspark", settings, {"checkpoint": "", "engine_options": {}})


def _named(key: str, chosen: Settings) -> dict[str, Any]:
    return {key: chosen["checkpoint"]} if chosen["checkpoint"] else {}


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33: left out, D would be the checkpoint's block."""
    chosen = _served(settings)
    config = {"method": "dspark", **_named("model", chosen), "num_speculative_tokens": draft_length}
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23: its block is gamma, the D that predict, unlike DFlash's; the window of D + 1 follows from it."""
    chosen = _served(settings)
    return {
        "speculative_algorithm": "DSPARK",
        **_named("speculative_draft_model_path", chosen),
        "speculative_dspark_block_size": draft_length,
        "engine_options": chosen["engine_options"],
    }


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    flags = {"spec-type": "draft-dspark", **_named("spec-draft-model", chosen), "spec-draft-n-max": draft_length}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """TensorRT-LLM 1.4: the block should equal `max_draft_len`."""
    chosen = _served(settings)
    fields = {"max_draft_len": draft_length, "block_size": draft_length, **_named("speculative_model", chosen)}
    return {"decoding": "DSpark", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("dspark", settings, {"url": ""})


DRAFTER = Drafter(
    name="dspark",
    title="dflash with a serial correction and a confidence that may cut the proposal",
    inputs="the anchor token and some (often five) of the target's hidden states",
    generation="parallel block, then a serial low-rank correction",
    cost="dflash and D small products: nearly flat in D",
    lengths="up to the trained block; its confidence may propose fewer",
    training="as dflash",
    memory="dflash and two matrices of vocabulary × rank",
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
