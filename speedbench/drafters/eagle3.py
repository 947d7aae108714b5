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


def _served(settings: Settings) -> Settings:
    chosen = resolve("eagle3", settings, {"checkpoint": "", "engine_options": {}})
    if not chosen["checkpoint"]:
        raise UserError(
            "eagle3.checkpoint: name the head made for this target, for instance --set eagle3.checkpoint=FOLDER "
            "or a hub id"
        )
    return chosen


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33: the method is always given; left out, it is guessed from the name of the head."""
    chosen = _served(settings)
    config = {"method": "eagle3", "model": chosen["checkpoint"], "num_speculative_tokens": draft_length}
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23: D steps, a window of D + 1 tokens and no tree; left out, it picks a tree for Llama."""
    chosen = _served(settings)
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": chosen["checkpoint"],
        "speculative_num_steps": draft_length,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": draft_length + 1,
        "engine_options": chosen["engine_options"],
    }


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    flags = {"spec-type": "draft-eagle3", "spec-draft-model": chosen["checkpoint"], "spec-draft-n-max": draft_length}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """TensorRT-LLM calls it Eagle up to 1.2; its plan says so there."""
    chosen = _served(settings)
    fields = {"max_draft_len": draft_length, "speculative_model": chosen["checkpoint"]}
    return {"decoding": "Eagle3", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("eagle3", settings, {"url": ""})


DRAFTER = Drafter(
    name="eagle3",
    title="a one-layer head that reads three of the target's hidden states, run D times",
    inputs="tokens and three of the target's hidden states",
    generation="serial, D passes of one layer",
    cost="linear in D, shallow: each pass reads one wide layer and a reduced head",
    lengths="any",
    training="hours to days, the target frozen",
    memory="one layer, a reduced head and one layer's KV",
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
