"""Synthetic acceptance: the baseline's output with drafts spoiled as often as told, to test the formula by itself."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from speedbench import plugins
from speedbench.errors import UnknownName, Unsupported, UserError
from speedbench.settings import resolve
from speedbench.types import Drafter, Settings

_RATE = 0.7
"""What is forced where neither a rate nor a length is given."""


def _asked(draft_length: int, rate: Any, length: Any) -> None:
    if rate is not None and length is not None:
        raise UserError("synthetic: give rate or acceptance_length, not both")
    for key, value in (("rate", rate), ("acceptance_length", length)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UserError(f"synthetic.{key}: should be a number (got {value!r})")
    if rate is not None and not 0 <= rate <= 1:
        raise UserError(f"synthetic.rate: between 0 and 1 (got {rate})")
    if length is not None and not 1 <= length <= draft_length + 1:
        raise UserError(f"synthetic.acceptance_length: between 1 and D + 1 = {draft_length + 1} (got {length})")


def _native(draft_length: int, settings: Settings) -> Settings:
    chosen = resolve("synthetic", settings, {"rate": None, "acceptance_length": None})
    _asked(draft_length, chosen["rate"], chosen["acceptance_length"])
    return {"module": "speedbench.native.oracle", "forced": True, **chosen}


def _based(backend: str, draft_length: int, settings: Settings) -> tuple[dict[str, Any], Any, Any]:
    """A server drafts by the mechanism that `base` names, with all other settings, and only acceptance is forced."""
    others = {key: value for key, value in settings.items() if key not in ("base", "rate", "acceptance_length")}
    base, rate, length = (settings.get(key) for key in ("base", "rate", "acceptance_length"))
    _asked(draft_length, rate, length)
    if not base:
        raise UserError("synthetic.base: name the drafter that drafts meanwhile, for instance --set synthetic.base=mtp")
    able = [name for name in plugins.names("drafters") if name not in ("none", "oracle", "synthetic")]
    if base not in able:
        raise UnknownName("drafter", str(base), able)
    table = plugins.load("drafters", base).backends
    if backend not in table:
        raise Unsupported(base, backend, table)
    return dict(table[backend](draft_length, others)), rate, length


def _marginals(draft_length: int, rate: float | None) -> list[float]:
    """P(at least i accepted) for i = 1…D, where each draft is right with the same probability."""
    return [round((_RATE if rate is None else rate) ** i, 6) for i in range(1, draft_length + 1)]


def _length(length: float | None) -> float:
    if length is None:
        raise UserError("synthetic.acceptance_length: needed; this engine forces no rate, only a mean length")
    return length


def _vllm(draft_length: int, settings: Settings) -> Settings:
    """vLLM 0.33: the length counts the bonus token; the rates are marginal."""
    table, rate, length = _based("vllm", draft_length, settings)
    forced = (
        {"synthetic_acceptance_rates": _marginals(draft_length, rate)}
        if length is None
        else {"synthetic_acceptance_length": float(length)}
    )
    config = {**table["speculative_config"], "rejection_sample_method": "synthetic", **forced}
    return {**table, "speculative_config": config}


def _sglang(draft_length: int, settings: Settings) -> Settings:
    """SGLang 0.5.23, srt/speculative/spec_utils.py: counts the bonus token; real draft tokens, so that experts and
    tries see text and not one token over and over."""
    table, _, length = _based("sglang", draft_length, settings)
    env = {
        "SGLANG_SIMULATE_ACC_LEN": f"{_length(length):g}",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }
    return {**table, "env": env}


def _llamacpp(draft_length: int, settings: Settings) -> Settings:
    """llama.cpp b11549: the length counts the bonus token; the rates are marginal."""
    table, rate, length = _based("llamacpp", draft_length, settings)
    forced = (
        {"spec-synth-rates": ",".join(f"{each:g}" for each in _marginals(draft_length, rate))}
        if length is None
        else {"spec-synth-len": float(length)}
    )
    return {**table, "flags": {**table["flags"], **forced}}


def _trtllm(draft_length: int, settings: Settings) -> Settings:
    """TensorRT-LLM counts accepted drafts only, without the bonus token: AL - 1. Its 0 means not forced."""
    table, _, length = _based("trtllm", draft_length, settings)
    accepted = round(_length(length) - 1, 6)
    if accepted == 0:
        raise UserError("synthetic.acceptance_length: TensorRT-LLM cannot force 1; its count of 0 means not forced")
    return {**table, "env": {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": f"{accepted:g}"}}


DRAFTER = Drafter(
    name="synthetic",
    title="forced acceptance: right as often as told (rate, default 0.7, or acceptance_length)",
    inputs="the baseline's output",
    generation="replay, spoiled at random",
    cost="nothing",
    lengths="any",
    training="none",
    memory="none",
    state="none",
    backends={"native": _native, "vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp, "trtllm": _trtllm},
    servable=False,
)
