"""What a pass costs at full batch where an engine does not split its passes, read from the best that it tells.

Best first: TensorRT-LLM's iterations, which are passes themselves (trtllm_stats); llama.cpp's log; `vllm bench
forward`; SGLang's step times. What other cells of the run tell (pairing.costed) comes in where these do not split a
pass. Pure: nothing is fetched here. Whatever is not told stays None.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from speedbench.serving.payloads.body import number, whole
from speedbench.types import Measured, Origin, PassCost


def _plain(seconds: float, origin: Origin, source: str, n: int) -> PassCost:
    """Of a baseline, whose pass is all one."""
    return PassCost(t_verify_plain=seconds, t_verify=seconds, t_step=seconds, origin=origin, source=source, n=n)


# ---- llama.cpp: its log ---------------------------------------------------------------------------------------------

_TASK = r"id +\d+ \| task (\d+) \| +"
_EVAL = re.compile(_TASK + r"eval time = +([\d.]+) ms / +(\d+) tokens")
_ACCEPTED = re.compile(_TASK + r"draft acceptance(?: rate)? = +[\d.]+ \( *(\d+) accepted / *\d+ generated\)")
_DRAFTING = re.compile(
    r"statistics +(\S+): #calls\(b,g,a\) = +(\d+) +(\d+) +(\d+),.*dur\(b,g,a\) = ([\d.]+), ([\d.]+), ([\d.]+) ms"
)
_MODEL = "draft-"
"""How the name of a drafter that is a model begins."""


def llamacpp_block(before: str, during: str) -> dict[str, list[str]]:
    """What is read here of a log up to a block, and while it was held; drafting is there from verbosity 4."""
    sums = {found[1]: line for line in before.splitlines() if (found := _DRAFTING.search(line))}
    lines = [line for line in during.splitlines() if any(kind.search(line) for kind in (_EVAL, _ACCEPTED, _DRAFTING))]
    return {"before": list(sums.values()), "lines": lines}


def llamacpp(blocks: Iterable[Mapping[str, Sequence[str]]], *, batch: int, draft_length: int) -> PassCost | None:
    """Of blocks as `llamacpp_block` makes them (b11549).

    A request's `eval time` over its passes, N − 1 − accepted, is a step. Drafting is told in sums since the server
    started, over calls that each drafted for all sequences that wanted drafts. What a drafter that is a model takes to
    read the tokens that were verified is in no sum (common_speculative_process is not timed), so its `t_draft` is a
    lower bound and `t_verify`, all the rest of a step, an upper one. Beyond one sequence, steps beside others' prefills
    and in batches that are not full are among them.
    """
    steps, decoding, drafting, calls, models, requests = 0, 0.0, 0.0, 0, False, 0
    for block in blocks:
        took = _answers(block["lines"])
        requests += len(took)
        steps, decoding = steps + sum(n for n, _ in took), decoding + sum(seconds for _, seconds in took)
        spent = _drafting(block["before"], block["lines"])
        models = models or any(kind.startswith(_MODEL) for kind in spent)
        calls += max((each for each, _ in spent.values()), default=0)
        drafting += sum(seconds for _, seconds in spent.values())
    if not steps:
        return None
    t_step, source = decoding / steps, "llama.cpp's log"
    origin: Origin = "estimated" if models or batch > 1 else "derived"
    if draft_length == 0:
        return _plain(t_step, origin, source, requests)
    t_draft = drafting / calls if calls else None
    return PassCost(
        t_verify=None if t_draft is None else t_step - t_draft, t_draft=t_draft, t_step=t_step, n=requests,
        origin=origin,
        source=f"{source}, without the draft model's own reading of verified tokens" if models else source,
    )  # fmt: skip


def _answers(lines: Sequence[str]) -> list[tuple[int, float]]:
    """(passes, seconds) of each request that decoded anything; a request's lines follow each other."""
    accepted = {found[1]: int(found[2]) for found in map(_ACCEPTED.search, lines) if found}
    rows = [(found[1], int(found[3]), float(found[2])) for found in map(_EVAL.search, lines) if found]
    made = [(tokens - 1 - accepted.get(task, 0), milliseconds / 1000) for task, tokens, milliseconds in rows]
    return [(passes, seconds) for passes, seconds in made if passes > 0]


def _drafting(before: Sequence[str], lines: Sequence[str]) -> dict[str, tuple[int, float]]:
    """By drafter, calls and seconds to draft and to note what was accepted; sums that fell began anew."""
    was, now = _sums(before), _sums(lines)
    fell = any(now[kind][0] < was[kind][0] for kind in now.keys() & was.keys())
    start: Mapping[str, tuple[int, float]] = {} if fell else was
    zero = (0, 0.0)
    return {kind: (calls - start.get(kind, zero)[0], seconds - start.get(kind, zero)[1])
            for kind, (calls, seconds) in now.items()}  # fmt: skip


def _sums(lines: Sequence[str]) -> dict[str, tuple[int, float]]:
    """As told last."""
    found = [match for match in map(_DRAFTING.search, lines) if match]
    return {each[1]: (int(each[3]), (float(each[6]) + float(each[7])) / 1000) for each in found}


# ---- vLLM: `vllm bench forward` -------------------------------------------------------------------------------------


def vllm_forward_slim(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is read here of one of its results."""
    scopes = [{"timing_scope": each.get("timing_scope")} for each in result.get("ranks") or ()][:1]
    return {**{key: result.get(key) for key in ("case", "requests", "median_us")}, "ranks": scopes}


def vllm_forward(results: Sequence[Mapping[str, Any]], *, batch: int, draft_length: int) -> PassCost | None:
    """Of what it wrote with --output-json (0.33), the files of several calls one after the other.

    The case of these requests in each scope: `target_only` (--exclude-drafter, or no drafter) and
    `target_and_drafter`. They are CUDA graphs of exact batches over a made-up cache, every draft accepted; sampling,
    rejection and the host's part are in none, so a real pass takes longer.
    """
    only, both = (
        {_asked(each): _median(each) for each in results if _scope(each) == scope}
        for scope in ("target_only", "target_and_drafter")
    )
    source, plain = "vllm bench forward, without sampling, rejection and the host's part", _fitting(only, batch, 0)
    if draft_length == 0:
        return None if plain is None else _plain(plain, "estimated", source, 1)
    verify, drafted = _fitting(only, batch, draft_length), _fitting(both, batch, draft_length)
    if plain is None and verify is None and drafted is None:
        return None
    t_draft = None if verify is None or drafted is None or drafted < verify else drafted - verify
    return PassCost(
        t_verify_plain=plain, t_verify=verify, t_draft=t_draft, t_step=drafted, origin="estimated", source=source, n=1
    )  # fmt: skip


Shape = tuple[tuple[int, int, int], ...]
"""Of each request: query tokens, tokens in its cache then, drafts."""


def _asked(result: Mapping[str, Any]) -> Shape:
    keys = ("query_len", "kv_len", "num_draft_tokens")
    return tuple(tuple(whole(each.get(key)) or 0 for key in keys) for each in result.get("requests") or ())  # type: ignore[misc]


def _scope(result: Mapping[str, Any]) -> str:
    return str((result.get("ranks") or [{}])[0].get("timing_scope"))


def _median(result: Mapping[str, Any]) -> float | None:
    microseconds = number(result.get("median_us"))
    return None if microseconds is None else microseconds / 1e6


def _fitting(cases: Mapping[Shape, float | None], batch: int, draft_length: int) -> float | None:
    """The first that is a decode of this many sequences with this many drafts each."""
    for shape, seconds in cases.items():
        fits = all(q == 1 + draft_length < kv and d == draft_length for q, kv, d in shape)
        if fits and len(shape) == batch:
            return seconds
    return None


# ---- SGLang: step times ---------------------------------------------------------------------------------------------


def sglang_block(before: Mapping[int, Sequence[float]], after: Mapping[int, Sequence[float]]) -> dict[str, list[float]]:
    """What came to the step times, by running requests, between two readings; all of it where the server began anew."""
    anew = any(len(after.get(batch, ())) < len(times) for batch, times in before.items())
    start: Mapping[int, Sequence[float]] = {} if anew else before
    return {str(batch): list(times[len(start.get(batch, ())) :]) for batch, times in after.items()}


def sglang(seconds: Sequence[float], *, draft_length: int) -> PassCost | None:
    """Of what `step_time_dict` holds for the full batch: means over log intervals, from one decode log to the next.

    An interval in which something was prefilled, or nothing ran, is longer, hence the median; with every interval so
    disturbed that is still too much. `engine.options.decode_log_interval=1` makes an interval of each step.
    """
    if not seconds:
        return None
    t_step, source = median(seconds), "SGLang's step times, the median of its log intervals"
    if draft_length == 0:
        return _plain(t_step, "estimated", source, len(seconds))
    return PassCost(t_step=t_step, origin="estimated", source=source, n=len(seconds))


# ---- out of what a block kept ---------------------------------------------------------------------------------------


def told(measured: Measured) -> PassCost | None:
    """What a cell's blocks kept of it; where that is not split and other cells tell the split, what those tell."""
    raws, cell, beside = [each.raw for each in measured.counted], measured.cell, measured.cost
    own = kept(raws, batch=cell.concurrency, draft_length=cell.draft_length)
    splits = beside is not None and beside.t_verify is not None
    return beside if own is None or (own.t_verify is None and splits) else own


def plain_pass(cost: PassCost | None, baseline: Measured) -> float | None:
    """T_verif(B) to set a cost against: told with it, else of the baseline."""
    if cost is not None and cost.t_verify_plain is not None:
        return cost.t_verify_plain
    found = told(baseline)
    return None if found is None else found.t_verify


def padded(measured: Measured) -> bool:
    """Whether its passes verify 1 + D tokens of each sequence whatever was proposed: SGLang's do, its n-gram's too
    (srt/speculative/ngram_worker.py fills the window up)."""
    return any(isinstance(each.raw, Mapping) and "sglang" in each.raw.get("passes", ()) for each in measured.counted)


def kept(raws: Sequence[Any], *, batch: int, draft_length: int) -> PassCost | None:
    """The best of what blocks kept of it: `Counted.raw["passes"]`, whose key says what it is; None where they kept
    nothing."""
    held = [raw["passes"] for raw in raws if isinstance(raw, Mapping) and isinstance(raw.get("passes"), Mapping)]
    logs = [each["llamacpp"] for each in held if "llamacpp" in each]
    steps = [s for each in held for s in (each.get("sglang") or {}).get(str(batch), ())]
    forward = next((each["vllm_forward"] for each in held if "vllm_forward" in each), ())
    return (
        llamacpp(logs, batch=batch, draft_length=draft_length)
        or vllm_forward(forward, batch=batch, draft_length=draft_length)
        or sglang(steps, draft_length=draft_length)
    )
