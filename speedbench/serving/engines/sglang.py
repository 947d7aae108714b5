"""What SGLang is told: `python -m sglang.launch_server`.

Names and rules are those of the wheel sglang 0.5.23: sglang/srt/arg_groups/fields/*.py, speculative_hook.py in the
folder above, and sglang/srt/environ.py.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.plan import HOST, LaunchPlan, Wanted, attach, extended, words
from speedbench.serving.surface import check, surface

_MODULE = "sglang.launch_server"


def sglang_plan(wanted: Wanted) -> LaunchPlan:
    """A server for one (drafter, D, concurrency); D = 0 says nothing of speculation."""
    engine, names = wanted.engine, surface("sglang", wanted.names)
    if engine["api_key_env"] and not engine["url"]:
        raise UserError(
            "engine.api_key_env: SGLang takes a key on its command line only, where others can read it; leave it out, "
            f"for the server answers on {HOST} alone"
        )
    args, env = speculation(wanted), _env(wanted)
    extra = {key.replace("-", "_"): value for key, value in engine["options"].items()}
    said = extended("engine.options", {**_args(wanted), **args}, extra)
    warnings = check(names, {"serve": said, "env": env})
    plan = LaunchPlan(
        engine="sglang",
        version=names.version,
        mode="command",
        url=wanted.url,
        model=said["model_path"],
        argv=(engine["python"] or sys.executable, "-m", _MODULE, *_words(said)),
        env=extended("engine.env", env, {name: str(value) for name, value in engine["env"].items()}),
        info="/server_info",
        resets=(("POST", "/flush_cache"),),
        request=extended("engine.request", {"return_spec_tokens_details": True} if args else {}, engine["request"]),
        api_key_env=engine["api_key_env"],
        notes=(*warnings, *_notes(args)),
    )
    return attach(plan, ("python", *plan.argv[1:])) if engine["url"] else plan


def speculation(wanted: Wanted) -> dict[str, Any]:
    """The arguments that make it speculate; none for the baseline."""
    if not wanted.draft_length:
        return {}
    ours = {key: value for key, value in wanted.drafting.items() if key not in ("env", "engine_options")}
    args = extended("engine_options", ours, wanted.drafting["engine_options"])
    if "speculative_draft_model_path" in args:
        args["speculative_draft_model_path"] = wanted.place(args["speculative_draft_model_path"])
    return args


def _args(wanted: Wanted) -> dict[str, Any]:
    """`max_running_requests` is always given: with speculation SGLang would make it 48, and more without."""
    engine = wanted.engine
    args = {
        "model_path": wanted.place(wanted.model),
        "host": HOST,
        "port": wanted.port,
        "dtype": engine["dtype"],
        "random_seed": engine["seed"],
        "tp_size": engine["tensor_parallel"],
        "context_length": engine["max_model_len"],
        "max_running_requests": wanted.batch,
        "mem_fraction_static": engine["memory_fraction"],
        "disable_radix_cache": not engine["prefix_cache"],
        "enable_metrics": True,
        "stream_interval": 1,
        "sampling_defaults": "openai",  # else the checkpoint's own penalties and top-p stand beneath every request
        "trust_remote_code": bool(engine["trust_remote_code"]),
        "disable_overlap_schedule": bool(engine["matched"]),
        "disable_decode_cuda_graph": bool(engine["eager"]),
        "cuda_graph_max_bs_decode": None if engine["eager"] else wanted.batch,
    }
    return {key: value for key, value in args.items() if value is not None and value is not False}


def _words(args: Mapping[str, Any]) -> tuple[str, ...]:
    """SGLang's switches have no `--no-` form: one that is off is left out."""
    return words({key.replace("_", "-"): value for key, value in args.items() if value is not False})


def _env(wanted: Wanted) -> dict[str, str]:
    """Step times come for free, as means by running requests in /server_info."""
    forced = wanted.drafting.get("env", {}) if wanted.draft_length else {}
    return {"SGLANG_RECORD_STEP_TIME": "1", **forced}


def _notes(args: Mapping[str, Any]) -> list[str]:
    if args.get("speculative_algorithm") != "NGRAM":
        return []
    return [
        "SGLang's n-grams are those of all requests together; they are forgotten between blocks, not between requests"
    ]
