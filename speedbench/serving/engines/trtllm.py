"""What TensorRT-LLM is told: `trtllm-serve` with a configuration file, or the same for its LLM API.

No version of it could be run here. Names are from its published sources and reference pages, by version; where it is
installed, its own classes are asked instead (surface.introspected).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import PurePath
from types import ModuleType
from typing import Any

from speedbench.errors import UserError
from speedbench.serving import trtllm_worker
from speedbench.serving.plan import HOST, LaunchPlan, Wanted, attach, captured, compact, extended
from speedbench.serving.surface import Surface, check, introspected, surface

_FORCED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
_FILE = "trtllm.yaml"
_CHUNK = 8192
"""Its own default of `max_num_tokens`: a prompt beyond it needs chunked prefill."""

_PARTS = {"kv_cache_config": "KvCacheConfig", "cuda_graph_config": "CudaGraphConfig"}


def trtllm_plan(wanted: Wanted, llmapi: ModuleType | None = None) -> LaunchPlan:
    """One (drafter, D, concurrency); `llmapi` is the installed `tensorrt_llm.llmapi`, where there is one."""
    engine, names = wanted.engine, surface("trtllm", wanted.names)
    names = introspected(names, llmapi) if llmapi else names
    inside = bool(engine["api"])
    if inside and engine["url"]:
        raise UserError("engine.api: runs the engine in a process of ours; leave it out, or engine.url, a server's")
    if engine["api_key_env"] and not engine["url"]:
        raise UserError(f"engine.api_key_env: trtllm-serve takes no key; it answers on {HOST} alone, so leave it out")
    decoding, fields = speculation(wanted, names)
    args = _args(wanted, names, decoding, fields)
    said = extended("engine.options", args, engine["options"])
    parts = {part: said[key] for key, part in _PARTS.items() if said[key] is not None}
    warnings = check(names, {"llm": said, **parts, **({decoding: fields} if decoding else {})})
    env = {name: str(value) for name, value in engine["env"].items()}
    model = wanted.place(wanted.model)
    serve = str(PurePath(engine["python"]).with_name("trtllm-serve")) if engine["python"] else "trtllm-serve"
    argv = (serve, model, "--host", HOST, "--port", str(wanted.port), names.facts["config_flag"], f"{{folder}}/{_FILE}")
    plan = LaunchPlan(
        engine="trtllm",
        version=names.version,
        mode="api" if inside else "command",
        url=wanted.url,
        model=model,
        argv=(engine["python"] or sys.executable, trtllm_worker.__file__) if inside else argv,
        env=extended("engine.env", _forced(wanted, names, decoding), env),
        kwargs={"model": model, **said} if inside else {},
        files={} if inside else {_FILE: json.dumps(said, indent=1) + "\n"},  # JSON is YAML
        metrics="/prometheus/metrics",
        iterations="/metrics",
        request=engine["request"],
        api_key_env=engine["api_key_env"],
        notes=(*warnings, *_notes(wanted, names, decoding)),
    )
    return attach(plan, (*argv[:-1], compact(said))) if engine["url"] else plan


def speculation(wanted: Wanted, names: Surface) -> tuple[str, dict[str, Any]]:
    """The decoding type and its fields, in this version's spelling; empty for the baseline."""
    if not wanted.draft_length:
        return "", {}
    decoding = names.spelled("decoding", wanted.drafting["decoding"])
    fields = dict(wanted.drafting["fields"])
    if "speculative_model" in fields:
        fields["speculative_model"] = wanted.place(fields["speculative_model"])
    if decoding == "MTP" and "speculative_model" in fields and not names.has("MTP", "speculative_model"):
        raise UserError(f"mtp.checkpoint: {names.title} takes the MTP block from the target only; leave it out")
    ours = {names.spelled(decoding, key): value for key, value in fields.items()}
    return decoding, extended("engine_options", ours, wanted.drafting["engine_options"])


def _args(wanted: Wanted, names: Surface, decoding: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the LLM: caches are private, statistics on, and a graph is captured for each batch size."""
    engine, longest = wanted.engine, wanted.engine["max_model_len"]
    chunked = engine["chunked_prefill"]
    fraction = engine["memory_fraction"]
    args = {
        "dtype": engine["dtype"],
        "tensor_parallel_size": engine["tensor_parallel"],
        "trust_remote_code": engine["trust_remote_code"] or None,
        "max_batch_size": wanted.batch,
        "max_seq_len": longest,
        "max_num_tokens": engine["max_num_tokens"] or max(_CHUNK, wanted.tokens),
        "enable_chunked_prefill": bool(longest and longest > _CHUNK) if chunked is None else chunked,
        "kv_cache_config": {
            "enable_block_reuse": bool(engine["prefix_cache"]),
            **({} if fraction is None else {"free_gpu_memory_fraction": fraction}),
        },
        "disable_overlap_scheduler": bool(engine["matched"]) or decoding in names.facts["two_model"],
        "stream_interval": 1,
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
        "per_request_spec_decode_stats": True if names.has("llm", "per_request_spec_decode_stats") else None,
        "speculative_config": {"decoding_type": decoding, **fields} if decoding else None,
    }
    told = {key: value for key, value in args.items() if value is not None}
    graphs = None if engine["eager"] else {"batch_sizes": captured(wanted.batch), "enable_padding": True}
    return {**told, "cuda_graph_config": graphs}


def _forced(wanted: Wanted, names: Surface, decoding: str) -> dict[str, str]:
    """Forced acceptance. Where the count is read as an integer, a fraction would be dropped with a warning, to none."""
    env: dict[str, str] = dict(wanted.drafting.get("env", {})) if decoding else {}
    whole = not names.facts["forced_fraction"] or decoding in names.facts["two_model"]
    if _FORCED in env and whole and "." in env[_FORCED]:
        raise UserError(
            f"synthetic.acceptance_length: {names.title} forces whole numbers with {decoding} "
            f"(got {float(env[_FORCED]) + 1:g})"
        )
    return env


def _notes(wanted: Wanted, names: Surface, decoding: str) -> list[str]:
    notes = ["TensorRT-LLM: untested on hardware"]
    if decoding in names.facts["two_model"] and not wanted.engine["matched"]:
        notes.append(
            f"{names.title} runs {decoding} without its overlap scheduler, and the baseline with; "
            "engine.matched=true runs both alike"
        )
    return notes


def classes(kwargs: Mapping[str, Any], names: Surface) -> dict[str, str]:
    """Which of the keyword arguments the LLM API takes as objects of its own, and of which class."""
    made = {key: part for key, part in _PARTS.items() if kwargs.get(key) is not None}
    if kwargs.get("speculative_config") is not None:
        made["speculative_config"] = names.sections[kwargs["speculative_config"]["decoding_type"]]["class"]
    return made
