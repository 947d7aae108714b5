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


def _served(settings: Settings) -> Settings:
    chosen = resolve("external", settings, {"model": "", "engine_options": {}})
    if not chosen["model"]:
        raise UserError("external.model: name the draft model, for instance --set external.model=FOLDER or a hub id")
    return chosen


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33, vllm/config/speculative.py: the draft runs at the target's tensor parallelism."""
    chosen = _served(settings)
    config = {"method": "draft_model", "model": chosen["model"], "num_speculative_tokens": draft_length}
    return {"speculative_config": config, "engine_options": chosen["engine_options"]}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23, srt/arg_groups/speculative_hook.py: D steps make a window of D + 1 tokens; left out, it picks its
    own numbers."""
    chosen = _served(settings)
    return {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": chosen["model"],
        "speculative_num_steps": draft_length,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": draft_length + 1,
        "engine_options": chosen["engine_options"],
    }


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    flags = {"spec-type": "draft-simple", "spec-draft-model": chosen["model"], "spec-draft-n-max": draft_length}
    return {"flags": flags, "engine_options": chosen["engine_options"]}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    chosen = _served(settings)
    fields = {"max_draft_len": draft_length, "speculative_model": chosen["model"]}
    return {"decoding": "DraftTarget", "fields": fields, "engine_options": chosen["engine_options"]}


def _attached(draft_length: int, settings: Settings) -> Settings:
    """A server that speculates already, by this mechanism and with this D: nothing is told to it."""
    return resolve("external", settings, {"url": ""})


DRAFTER = Drafter(
    name="external",
    title="a smaller model with the same tokenizer, run D times",
    inputs="tokens",
    generation="serial, D passes",
    cost="linear in D and steep: each pass reads the whole small model",
    lengths="any",
    training="none for a published model; else distillation",
    memory="the model and its KV cache",
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
