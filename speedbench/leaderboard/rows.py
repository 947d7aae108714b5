"""A row of a board, `leaderboard-row.v1`: what was measured, on what, and how far it can be trusted."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from speedbench.columns import measurement, value
from speedbench.files import dumps
from speedbench.leaderboard.submission import Draft, Submission
from speedbench.measure import noise
from speedbench.pairing import baseline_of, pooled
from speedbench.stats import answered, paired
from speedbench.types import Cell, Measured, Result

METRICS = frozenset({
    "al", "acceptance_rate", "accepted_at_marginal", "effective_d", "decode_tps", "output_tps", "speedup",
    "speedup_formula", "residual", "step_cost", "t_verify", "t_draft", "t_other", "tpot_p50", "tpot_p99", "ttft_p50",
    "lossless", "lossless_real", "near_ties", "failed_requests",
})  # fmt: skip
"""What a board shows or judges by; families of positions by their name."""

Lossless = Literal["exact", "exact_modulo_ties", "unexplained", "no", "not_checked", "baseline"]


def _about(text: str, default: Any = ...) -> Any:
    return Field(default, description=text)


class Row(BaseModel):
    """One cell of one submission. A column that may be null says nothing where it is: never 0 for unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="leaderboard-row.v1")

    entry: str = _about("the submission, by the hash of all it says")
    date_utc: str = _about("when the run began")
    submitter: str = _about("who answers for it")
    tier: Literal["self_reported", "reproduced", "verified"] = _about("who measured it again")
    division: Literal["lossless", "lossy"] = _about("by the verification rule")
    speedbench_version: str = _about("what measured it")
    speedbench_commit: str | None = _about("of a checkout")
    counts_sha256: str = _about("of the raw counts")
    target: str = _about("the model served")
    target_revision: str = _about("its commit, or the package that it came in")
    target_parameters: int | None = _about("how many")
    target_dtype: str = _about("what it computes in")
    target_quant: str = _about("how its weights are quantised, or none")
    drafter: str = _about("its label; none is the baseline")
    method: str = _about("the draft mechanism")
    drafter_revision: str | None = _about("null: it has no weights")
    drafter_parameters: int | None = _about("0: it has no weights")
    draft_length: int = _about("D, draft tokens per target pass")
    effective_d: float | None = _about("mean drafts proposed per step")
    acceptance: str | None = _about("the verification rule")
    cross_request_state: str | None = _about("what else it learns from: none, prompt, requests, corpus")
    train_overlap: str = _about("none_known, declared, unknown: prompts of the task in its training")
    drafter_settings_sha256: str = _about("12 hex digits; the settings are in the entry")
    engine: str = _about("the backend")
    engine_version: str = _about("of the engine")
    engine_settings_sha256: str = _about("12 hex digits; the settings are in the entry")
    engine_threads: int | None = _about("CPU threads it was told to use; null: its own choice")
    prefix_cache: str | None = _about("on or off")
    hardware: str = _about("what boards are named by")
    gpu: str | None = _about("null: none")
    gpu_count: int = _about("GPUs that the run saw")
    gpu_memory_gb: float | None = _about("of one GPU")
    driver: str | None = _about("of the GPU")
    power_limit_w: float | None = _about("of the GPU")
    clocks: str | None = _about("locked:MHz or default")
    cpu: str | None = _about("the processor")
    cpu_threads: int | None = _about("usable CPUs")
    memory_gb: float | None = _about("of the machine")
    system: str | None = _about("operating system and kernel")
    python: str | None = _about("version")
    task: str = _about("the workload")
    task_version: int = _about("of its prompts")
    prompts_sha256: str = _about("16 hex digits over all prompts in order")
    n_conversations: int = _about("conversations held")
    chat_template_sha256: str | None = _about("16 hex digits")
    temperature: float = _about("0 is greedy")
    top_k: int | None = _about("null: not applied")
    top_p: float | None = _about("null: not applied")
    seed: int = _about("of sampling")
    max_tokens: int = _about("cap of an answer")
    concurrency: int = _about("B, sequences in the batch")
    repeats: int = _about("pooled")
    input_tokens_mean: float | None = _about("of a prompt; null: not told")
    output_tokens_mean: float | None = _about("of an answer")
    al: float | None = _about("acceptance length, committed tokens / steps")
    al_lo: float | None = _about("95 % interval over conversations")
    al_hi: float | None = _about("")
    al_origin: str = _about("exact, derived, estimated, unavailable")
    acceptance_rate: float | None = _about("drafts accepted / proposed")
    accepted_at: str | None = _about("JSON list: P(at least i drafts accepted), i = 1 … D")
    decode_tps: float | None = _about("tokens per second of a request once it decodes")
    decode_tps_lo: float | None = _about("")
    decode_tps_hi: float | None = _about("")
    output_tps: float | None = _about("tokens per second of the whole batch while it is full")
    output_tps_origin: str = _about("estimated: spread evenly over each answer's time")
    speedup: float | None = _about("decode_tps / the baseline's of the same run, paired by prompt")
    speedup_lo: float | None = _about("95 % interval over conversations")
    speedup_hi: float | None = _about("")
    speedup_formula: float | None = _about("AL / (verify overhead + draft overhead)")
    residual: float | None = _about("speedup / speedup_formula - 1")
    step_cost: float | None = _about("seconds of a step / the baseline's")
    t_verify_ms: float | None = _about("of a pass at full batch")
    t_draft_ms: float | None = _about("of a pass at full batch")
    t_other_ms: float | None = _about("of a pass at full batch")
    tpot_p50_ms: float | None = _about("time per output token")
    tpot_p99_ms: float | None = _about("time per output token")
    ttft_p50_ms: float | None = _about("time to the first token")
    noise: float | None = _about("spread of a fixed piece of work, (p90 - p10) / p50")
    drift: float | None = _about("of that work, last third of the run / first third - 1")
    lossless: Lossless = _about("greedy outputs against the baseline's")
    lossless_n: int | None = _about("outputs compared")
    near_ties: int | None = _about("mismatches where the target's two best logits are within rounding")
    output_ratio: float | None = _about("output tokens / the baseline's, on the turns both answered")


def of(submission: Submission, results: Sequence[Result], tier: str) -> list[tuple[Cell, Row]]:
    """Each cell with its row, repeats pooled where there are several."""
    several = submission.entry.repeats > 1
    measured = list(submission.run.measured)
    measured = pooled(measured) if several else measured
    cells = {each.cell: each for each in measured}
    return [
        (result.cell, _row(submission, result, cells[result.cell], baseline_of(cells[result.cell], measured), tier))
        for result in results
        if result.cell in cells
    ]


def _row(submission: Submission, result: Result, measured: Measured, baseline: Measured | None, tier: str) -> Row:
    draft = submission.entry.draft(result.cell.drafter)
    return Row.model_validate({
        **_who(submission, tier),
        **_what(submission, draft, result.cell),
        **_where(submission),
        **_measured(result, measured),
        **_integrity(submission, result, measured, baseline),
    })  # fmt: skip


def schema() -> str:
    """The JSON Schema of a row, as leaderboards/leaderboard-row.v1.json holds it."""
    return dumps(Row.model_json_schema(), indent=2) + "\n"


def is_lossy(submission: Submission, draft: Draft | None) -> bool:
    rule = (draft.acceptance if draft else None) or str(submission.entry.engine.settings.get("acceptance", ""))
    return "lossy" in rule or rule.startswith("relaxed")


def _who(submission: Submission, tier: str) -> dict[str, Any]:
    entry, target, work = submission.entry, submission.entry.target, submission.entry.workload
    sampling = work.sampling
    return {
        "entry": entry.id, "date_utc": entry.date_utc, "submitter": entry.submitter, "tier": tier,
        "speedbench_version": entry.speedbench_version, "speedbench_commit": entry.speedbench_commit,
        "counts_sha256": entry.counts_sha256, "target": target.name, "target_revision": target.revision,
        "target_parameters": target.parameters, "target_dtype": target.dtype, "target_quant": target.quant,
        "task": work.name, "task_version": work.version, "prompts_sha256": work.content_hash,
        "n_conversations": work.conversations, "chat_template_sha256": target.template_sha,
        "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "seed": sampling.seed,
        "max_tokens": work.max_tokens, "repeats": entry.repeats,
    }  # fmt: skip


def _what(submission: Submission, draft: Draft | None, cell: Cell) -> dict[str, Any]:
    engine = submission.entry.engine
    return {
        "division": "lossy" if is_lossy(submission, draft) else "lossless",
        "drafter": cell.drafter,
        "method": draft.method if draft else "none",
        "drafter_revision": draft.revision if draft else None,
        "drafter_parameters": draft.parameters if draft else 0,
        "draft_length": cell.draft_length,
        "acceptance": draft.acceptance if draft else None,
        "cross_request_state": draft.cross_request_state if draft else "none",
        "train_overlap": draft.train_overlap if draft else "none_known",
        "drafter_settings_sha256": _hash(draft.settings if draft else {}),
        "engine": engine.name,
        "engine_version": engine.version,
        "engine_settings_sha256": _hash(engine.settings),
        "engine_threads": threads if isinstance(threads := engine.settings.get("threads"), int) else None,
        "prefix_cache": engine.prefix_cache,
        "concurrency": cell.concurrency,
    }


def _where(submission: Submission) -> dict[str, Any]:
    machine = submission.entry.machine
    gpu = machine.gpus[0] if machine.gpus else None
    return {
        "hardware": machine.hardware,
        "gpu": gpu.name if gpu else None,
        "gpu_count": len(machine.gpus),
        "gpu_memory_gb": _giga(gpu.memory if gpu else None),
        "driver": gpu.driver if gpu else None,
        "power_limit_w": machine.power_limit_w,
        "clocks": machine.clocks,
        "cpu": machine.cpu,
        "cpu_threads": machine.cpu_threads,
        "memory_gb": _giga(machine.memory),
        "system": machine.system,
        "python": machine.python,
        "noise": noise(submission.run.noise),
        "drift": drift(submission.run.noise),
    }


def _measured(result: Result, measured: Measured) -> dict[str, Any]:
    def ms(name: str) -> float | None:
        seconds = value(result, name)
        return None if seconds is None else 1000 * seconds

    records = answered(measured)
    prompts = [record.prompt_tokens for record in records]
    plain = ("al", "acceptance_rate", "effective_d", "decode_tps", "output_tps", "speedup", "speedup_formula",
             "residual", "step_cost")  # fmt: skip
    return {
        **{name: value(result, name) for name in plain},
        **_bounds(result, "al", "decode_tps", "speedup"),
        **{f"{name}_ms": ms(name) for name in ("t_verify", "t_draft", "t_other", "tpot_p50", "tpot_p99", "ttft_p50")},
        "al_origin": measurement(result, "al").origin,
        "output_tps_origin": measurement(result, "output_tps").origin,
        "accepted_at": _positions(result),
        "input_tokens_mean": sum(prompts) / len(prompts) if prompts and all(prompts) else None,
        "output_tokens_mean": sum(record.size for record in records) / len(records) if records else None,
    }


def _bounds(result: Result, *names: str) -> dict[str, float | None]:
    found = {name: measurement(result, name) for name in names}
    low = {f"{name}_lo": each.low for name, each in found.items()}
    return {**low, **{f"{name}_hi": each.high for name, each in found.items()}}


def _positions(result: Result) -> str | None:
    """None for the baseline, and where an engine tells no positions."""
    found = [value(result, f"accepted_at_marginal[{i}]") for i in range(1, result.cell.draft_length + 1)]
    known = [float(f"{each:.6g}") for each in found if each is not None]
    return json.dumps(known) if known and len(known) == len(found) else None


def _integrity(submission: Submission, result: Result, measured: Measured, baseline: Measured | None) -> dict[str, Any]:
    compared, ties = measurement(result, "lossless"), value(result, "near_ties")
    return {
        "lossless": lossless(submission, result),
        "lossless_n": compared.n if compared.value is not None and not result.cell.is_baseline else None,
        "near_ties": None if ties is None or result.cell.is_baseline else round(ties),
        "output_ratio": output_ratio(measured, baseline),
    }


def lossless(submission: Submission, result: Result) -> Lossless:
    """Near ties are the target's own rounding; a mismatch that nobody explained is not known to be one."""
    share = measurement(result, "lossless")
    if result.cell.is_baseline:
        return "baseline"
    if share.value is None or submission.entry.workload.sampling.temperature > 0:
        return "not_checked"
    if value(result, "lossless_real"):
        return "no"
    apart = round((1 - share.value) * share.n)
    near = round(value(result, "near_ties") or 0)
    return "exact" if not apart else "exact_modulo_ties" if near == apart else "unexplained"


def output_ratio(measured: Measured, baseline: Measured | None) -> float | None:
    """Output tokens / the baseline's over the turns that both answered."""
    both = [] if baseline is None else paired(measured, baseline)
    theirs = sum(record.size for _, record in both)
    return sum(record.size for record, _ in both) / theirs if theirs else None


def drift(probes: Sequence[float]) -> float | None:
    """Mean of the last third of the noise probes / that of the first third − 1; None with fewer than six."""
    third = len(probes) // 3
    return None if third < 2 or not sum(probes[:third]) else sum(probes[-third:]) / sum(probes[:third]) - 1


def _giga(amount: int | None) -> float | None:
    return None if amount is None else round(amount / 2**30, 1)


def _hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
