"""What llama.cpp is told: `llama-server`, or the same server inside the package xllamacpp.

Names are those of b11549, whose binary xllamacpp 2026.10.11549 embeds.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from speedbench.errors import UserError
from speedbench.serving import embedded
from speedbench.serving.plan import HOST, LaunchPlan, Wanted, attach, extended, words
from speedbench.serving.surface import check, surface

_FILE = "llamacpp.json"
PARAMS: Mapping[str, str] = {
    "model": "model.path",
    "port": "port",
    "ctx-size": "n_ctx",
    "parallel": "n_parallel",
    "threads": "cpuparams.n_threads",
    "threads-batch": "cpuparams_batch.n_threads",
    "n-gpu-layers": "n_gpu_layers",
    "batch-size": "n_batch",
    "ubatch-size": "n_ubatch",
    "metrics": "endpoint_metrics",
    "log-verbosity": "verbosity",
    "kv-unified": "kv_unified",
    "warmup": "warmup",
    "seed": "sampling.seed",
    "spec-draft-model": "speculative.draft.mparams.path",
    "spec-draft-n-max": "speculative.draft.n_max",
    "spec-draft-n-min": "speculative.draft.n_min",
    "spec-draft-p-min": "speculative.draft.p_min",
    "spec-draft-p-split": "speculative.draft.p_split",
    "spec-ngram-simple-size-n": "speculative.ngram_simple.size_n",
    "spec-ngram-simple-size-m": "speculative.ngram_simple.size_m",
    "spec-ngram-simple-min-hits": "speculative.ngram_simple.min_hits",
    "spec-ngram-map-k-size-n": "speculative.ngram_map_k.size_n",
    "spec-ngram-map-k-size-m": "speculative.ngram_map_k.size_m",
    "spec-ngram-map-k-min-hits": "speculative.ngram_map_k.min_hits",
    "spec-ngram-map-k4v-size-n": "speculative.ngram_map_k4v.size_n",
    "spec-ngram-map-k4v-size-m": "speculative.ngram_map_k4v.size_m",
    "spec-ngram-map-k4v-min-hits": "speculative.ngram_map_k4v.min_hits",
    "spec-ngram-mod-n-match": "speculative.ngram_mod.n_match",
    "spec-ngram-mod-n-min": "speculative.ngram_mod.n_min",
    "spec-ngram-mod-n-max": "speculative.ngram_mod.n_max",
    "spec-synth-len": "speculative.synth_len",
}
"""{flag: attribute of xllamacpp.CommonParams}; three more take another shape there, see `params`."""


def llamacpp_plan(wanted: Wanted) -> LaunchPlan:
    """A server for one (drafter, D, concurrency). D is fixed at the start: a request's own `speculative.n_max` is taken
    and ignored."""
    engine, names = wanted.engine, surface("llamacpp", wanted.names)
    extra = {key.replace("_", "-"): value for key, value in engine["options"].items()}
    flags = extended("engine.options", {**_flags(wanted), **speculation(wanted)}, extra)
    warnings = check(names, {"server": flags})
    attached, inside = bool(engine["url"]), not engine["binary"]
    key = {"LLAMA_API_KEY": engine["api_key_env"]} if engine["api_key_env"] else {}
    if key and inside and not attached:
        raise UserError("engine.api_key_env: the embedded server takes none; it answers on this machine alone")
    embed = (engine["python"] or sys.executable, embedded.__file__, f"{{folder}}/{_FILE}")
    plan = LaunchPlan(
        engine="llamacpp",
        version=names.version,
        mode="command",
        url=wanted.url,
        model="",
        argv=embed if inside else (engine["binary"], *words(flags)),
        env={name: str(value) for name, value in engine["env"].items()},
        env_from=key,
        files={_FILE: json.dumps(params(flags), indent=1) + "\n"} if inside else {},
        info="/props",
        request=extended("engine.request", _request(wanted), engine["request"]),
        api_key_env=engine["api_key_env"],
        notes=(*warnings, *_notes(flags)),
    )
    return attach(plan, ("llama-server", *words(flags))) if attached else plan


def _request(wanted: Wanted) -> dict[str, Any]:
    """Left out, its top-k of 40 and min-p of 0.05 would stand beneath every sampled request."""
    return {"cache_prompt": bool(wanted.engine["prefix_cache"]), "top_k": 0, "min_p": 0.0}


def speculation(wanted: Wanted) -> dict[str, Any]:
    """The flags that make it speculate; the baseline says `none`, lest a build's default or the model decide."""
    if not wanted.draft_length:
        return {"spec-type": "none"}
    flags = extended("engine_options", wanted.drafting["flags"], wanted.drafting["engine_options"])
    if "spec-draft-model" in flags:
        flags["spec-draft-model"] = wanted.place(flags["spec-draft-model"])
    return flags


def _flags(wanted: Wanted) -> dict[str, Any]:
    """The context is divided among the slots, so it is asked for as many times over."""
    engine, each = wanted.engine, wanted.engine["max_model_len"]
    flags = {
        "model": wanted.place(wanted.model),
        "host": HOST,
        "port": wanted.port,
        "parallel": wanted.batch,
        "ctx-size": each * wanted.batch if each else None,
        "kv-unified": False,
        "metrics": True,
        "log-verbosity": 4,  # from which its log says what drafting took; it logs requests then, not passes
        "seed": engine["seed"],
        "threads": engine["threads"],
        "n-gpu-layers": engine["gpu_layers"],
    }
    return {key: value for key, value in flags.items() if value is not None}


def params(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags as attributes of `xllamacpp.CommonParams`, dotted."""
    told: dict[str, Any] = {}
    for flag, value in flags.items():
        if flag == "host":
            told["hostnames"] = [value]
        elif flag == "spec-type":
            kinds = [f"COMMON_SPECULATIVE_TYPE_{kind.upper().replace('-', '_')}" for kind in value.split(",")]
            told["speculative.types"] = [embedded.ENUM + kind for kind in kinds]
        elif flag == "spec-synth-rates":
            told["speculative.synth_rates"] = [float(rate) for rate in value.split(",")]
        elif flag in PARAMS:
            told[PARAMS[flag]] = value
        else:
            raise UserError(f"engine.options.{flag}: not known of the embedded server; name engine.binary to start one")
    return told


def _notes(flags: Mapping[str, Any]) -> list[str]:
    notes = []
    if "spec-synth-len" in flags or "spec-synth-rates" in flags:
        notes.append("llama.cpp's answers are not valid text while acceptance is forced")
    if flags["spec-type"] == "ngram-mod":
        notes.append("llama.cpp's ngram-mod pool is shared by all requests; only a restart empties it")
    return notes
