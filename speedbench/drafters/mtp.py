"""MTP: the multi-token prediction block that comes with the target, or one trained for it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

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


def _served(settings: Settings) -> Settings:
    """A checkpoint is named only where the block does not come with the target."""
    chosen = resolve("mtp", settings, {"checkpoint": "", "engine_options": {}})
    return chosen


def _named(key: str, chosen: Settings) -> dict[str, Any]:
    return {key: chosen["checkpoint"]} if chosen["checkpoint"] else {}


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33: one method for all families; beyond the checkpoint's own `n_predict`, D must be a multiple of it."""
    chosen = _served(settings)
    config = {"method": "mtp", **_named("model", chosen), "num_speculative_tokens": draft_length}
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23: NEXTN is EAGLE on the target's own block; D steps make a window of D + 1 tokens."""
    chosen = _served(settings)
    return {
        "speculative_algorithm": "NEXTN",
        **_named("speculative_draft_model_path", chosen),
        "speculative_num_steps": draft_length,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": draft_length + 1,
        "engine_options": chosen["engine_options"],
    }


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    flags = {"spec-type": "draft-mtp", **_named("spec-draft-model", chosen), "spec-draft-n-max": draft_length}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """Up to 1.3 D is spelled `num_nextn_predict_layers`; the plan says so there."""
    chosen = _served(settings)
    fields = {"max_draft_len": draft_length, **_named("speculative_model", chosen)}
    return {"decoding": "MTP", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("mtp", settings, {"url": ""})


DRAFTER = Drafter(
    name="mtp",
    title="the target's multi-token prediction block on its last hidden state, run D times",
    inputs="tokens and the target's last hidden state",
    generation="serial, D passes of one module",
    cost="linear in D: each pass reads one layer and the target's whole head",
    lengths="any",
    training="within the target's pre-training; hours for a small target",
    memory="one layer and its KV; often in the target's checkpoint",
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
