"""A server's own counters, read from Prometheus text and differenced.

The names are those of vLLM 0.33 (v1/metrics/loggers.py, v1/spec_decode/metrics.py), SGLang 0.5.23, TensorRT-LLM 1.2 and
later (tensorrt_llm/metrics/collector.py; its text is at `/prometheus/metrics`) and llama.cpp b11549.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from speedbench.serving.payloads.body import number, whole
from speedbench.types import Counted

NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
POSITIONS = ("position", "token_position")
"""Labels that say which draft of a step is counted, from 0: vLLM's and llama.cpp's, TensorRT-LLM's."""
MOST_POSITIONS = 16
"""TensorRT-LLM counts no more by position (MAX_SPEC_DECODE_POSITIONS of pyexecutor/llm_request.py)."""
UNREAD = "metrics line not read: "
STARTED = "process_start_time_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One reading of `/metrics`: each series summed over its label sets (engines, models, ranks)."""

    series: Mapping[str, float]
    positions: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Value by position of the series that have one among their labels."""
    samples: Mapping[str, float] = field(default_factory=dict)
    """Each sample by its name and labels, so that one engine's restart shows."""
    warnings: tuple[str, ...] = ()
    """Lines that could not be read."""


def scrape(text: str) -> Scrape:
    """Read Prometheus text, histogram buckets left out; a line that cannot be read becomes a warning that names it."""
    series: dict[str, float] = {}
    positions: dict[str, dict[int, float]] = {}
    samples: dict[str, float] = {}
    warnings = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#") or "_bucket{" in line:
            continue
        try:
            name, labels, value = _sample(line)
        except ValueError as error:
            warnings.append(f"{UNREAD}{line} ({error})")
            continue
        if not math.isfinite(value):
            continue  # a gauge that nothing has set yet
        series[name] = series.get(name, 0.0) + value
        samples[name + _shown(labels)] = value
        for position in (labels[label] for label in POSITIONS if labels.get(label, "").isdigit()):
            here = positions.setdefault(name, {})
            here[int(position)] = here.get(int(position), 0.0) + value
    return Scrape(series=series, positions=positions, samples=samples, warnings=tuple(warnings))


def counted(before: Scrape, after: Scrape, samples: Sequence[Scrape] = (), *, process: int = 0) -> Counted:
    """What the counters moved by; `samples` are readings in between, for the gauges (mean running batch).

    A series that appears meanwhile began at 0. Where any fell or vanished, nothing is used. None is what the server
    does not say, and everything where it has no series that is known here.
    """
    names = _names(after) or _names(before)
    if names is None:
        return replace(NOTHING, process=process)
    ours = tuple(UNREAD + name for name in names.counters)
    unread = [line for line in (*before.warnings, *after.warnings) if line.startswith(ours)]
    faults = (*dict.fromkeys(unread), *_resets(before, after, names))
    running = [each.series[names.running] for each in samples if names.running in each.series]
    raw = {"before": _raw(before, names), "after": _raw(after, names), "running": running}
    if faults:
        return replace(NOTHING, faults=faults, process=process, raw=raw)
    moved = _moved(before, after, names)
    wrong = tuple(_contradictions(moved, names))
    if wrong:
        moved = replace(moved, drafted=None, proposed=None, accepted=None, accepted_at=None)
    mean = sum(running) / len(running) if running else None
    return replace(moved, running=mean, faults=wrong, process=process, raw=raw)


# ---- what each server calls them -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What one server calls its series; "" is one that it has not."""

    prefix: str
    drafted: str = ""
    proposed: str = ""
    accepted: str = ""
    proposed_at: str = ""
    """Drafts by position; what is counted at position 0 are the steps with drafts."""
    accepted_at: str = ""
    steps: str = ""
    generated: str
    running: str
    cached: str
    prompted: str = ""
    uncached: str = ""
    """Prompt tokens without the cached ones, where the server counts those."""
    preempted: str = ""

    @property
    def counters(self) -> frozenset[str]:
        """All that only ever rise."""
        named = {self.drafted, self.proposed, self.accepted, self.proposed_at, self.accepted_at, self.steps}
        return frozenset(named | {self.generated, self.cached, self.prompted, self.uncached, self.preempted}) - {""}


VENDORS = (
    Names(
        prefix="vllm:",
        drafted="vllm:spec_decode_num_drafts_total",
        proposed="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        accepted_at="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        generated="vllm:generation_tokens_total",
        running="vllm:num_requests_running",
        cached="vllm:prefix_cache_hits_total",
        prompted="vllm:prefix_cache_queries_total",
        preempted="vllm:num_preemptions_total",
    ),
    Names(
        # Its spec_accept_length and _rate are gauges of the last logging interval: no difference can be taken.
        prefix="sglang:",
        steps="sglang:spec_verify_calls_total",
        generated="sglang:generation_tokens_total",
        running="sglang:num_running_reqs",
        cached="sglang:cached_tokens_total",
        prompted="sglang:prompt_tokens_total",
        preempted="sglang:num_retracted_requests_total",
    ),
    Names(
        # No counter of steps; what is by position is counted as requests end, the rest as iteration stats are read.
        prefix="trtllm_",
        proposed="trtllm_spec_decode_num_draft_tokens_total",
        accepted="trtllm_spec_decode_num_accepted_tokens_total",
        proposed_at="trtllm_spec_decode_drafted_tokens_total",
        accepted_at="trtllm_spec_decode_accepted_tokens_total",
        generated="trtllm_generation_tokens_total",
        running="trtllm_num_requests_running",
        cached="trtllm_prompt_cached_tokens_total",
        prompted="trtllm_prompt_tokens_total",
    ),
    Names(
        prefix="llamacpp:",
        drafted="llamacpp:spec_decode_num_drafts_total",
        proposed="llamacpp:spec_decode_num_draft_tokens_total",
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
        accepted_at="llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
        generated="llamacpp:tokens_predicted_total",
        running="llamacpp:requests_processing",
        cached="llamacpp:prompt_tokens_cached_total",
        uncached="llamacpp:prompt_tokens_total",
    ),
)

NOTHING = Counted(
    drafted=None,
    proposed=None,
    accepted=None,
    accepted_at=None,
    generated=None,
    steps=None,
    running=None,
    cached=None,
    prompted=None,
    preempted=None,
)


def _names(found: Scrape) -> Names | None:
    return next((each for each in VENDORS if any(name.startswith(each.prefix) for name in found.series)), None)


# ---- lines and differences -----------------------------------------------------------------------------------------


def _sample(line: str) -> tuple[str, dict[str, str], float]:
    """Raises ValueError for a line that is no sample."""
    found = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    if len(found) != 1 or not NAME.fullmatch(found[0].name):
        raise ValueError("not a name, labels and a number")
    return found[0].name, dict(found[0].labels), float(found[0].value)


def _shown(labels: Mapping[str, str]) -> str:
    inside = ",".join(f"{name}={json.dumps(labels[name])}" for name in sorted(labels))
    return f"{{{inside}}}" if inside else ""


def _resets(before: Scrape, after: Scrape, names: Names) -> Iterator[str]:
    """What shows that counters began anew between two readings, sample by sample."""
    born = {name.removesuffix("_total") + "_created" for name in names.counters} | {STARTED}
    for sample, was in before.samples.items():
        name = sample.partition("{")[0]
        now = after.samples.get(sample)
        if name in names.counters and now is None:
            yield f"counters were reset meanwhile: {sample} was {was:g} and is gone"
        elif name in names.counters and now is not None and now < was:
            yield f"counters were reset meanwhile: {sample} fell from {was:g} to {now:g}"
        elif name in born and now is not None and now != was:
            yield f"counters were reset meanwhile: {sample} changed, so the server began anew"


def _moved(before: Scrape, after: Scrape, names: Names) -> Counted:
    def delta(name: str) -> int | None:
        return round(after.series[name] - before.series.get(name, 0.0)) if name in after.series else None

    proposed, accepted, drafted = delta(names.proposed), delta(names.accepted), delta(names.drafted)
    proposed_at = _by_position(before, after, names.proposed_at)
    accepted_at = _by_position(before, after, names.accepted_at)
    if proposed_at:
        drafted = proposed_at[0]
        if len(proposed_at) < MOST_POSITIONS:
            proposed, accepted = sum(proposed_at), sum(accepted_at or ())
    cached, prompted, uncached = delta(names.cached), delta(names.prompted), delta(names.uncached)
    if cached is not None and uncached is not None:
        prompted = cached + uncached
    return replace(
        NOTHING,
        drafted=drafted,
        proposed=proposed,
        accepted=accepted,
        accepted_at=accepted_at,
        generated=delta(names.generated),
        steps=delta(names.steps),
        cached=cached,
        prompted=prompted,
        preempted=delta(names.preempted),
    )


def _by_position(before: Scrape, after: Scrape, name: str) -> tuple[int, ...] | None:
    """What each position moved by, from the first; positions that a server leaves out were never reached."""
    now, was = after.positions.get(name), before.positions.get(name, {})
    if not now:
        return None
    return tuple(round(now.get(i, 0.0) - was.get(i, 0.0)) for i in range(max(now) + 1))


def _contradictions(moved: Counted, names: Names) -> Iterator[str]:
    """What counters that were not reset cannot say, with their values."""
    if moved.accepted is not None and moved.proposed is not None and moved.accepted > moved.proposed:
        yield f"{names.prefix} counters: {moved.accepted} accepted of {moved.proposed} proposed drafts"
    sums = None if moved.accepted_at is None or names.proposed_at else sum(moved.accepted_at)
    if sums is not None and moved.accepted is not None and sums != moved.accepted:
        yield f"{names.prefix} counters: {sums} accepted by position; {moved.accepted} in all"


def _raw(found: Scrape, names: Names) -> dict[str, float]:
    return {sample: value for sample, value in found.samples.items() if sample.partition("{")[0] in names.counters}


# ---- SGLang's own page ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What SGLang's `/server_info` says of its schedulers, one per rank."""

    reported_al: tuple[float, ...]
    """`avg_spec_accept_length`: since the server started, so no block can be told from it."""
    step_seconds: Mapping[int, tuple[float, ...]]
    """By running requests, mean seconds of a decode step in each log interval (`SGLANG_RECORD_STEP_TIME=1`)."""


def server_info(document: Mapping[str, Any]) -> ServerInfo:
    """Read SGLang's `/server_info`, older `/get_server_info` (`internal_states`)."""
    states = [state for state in document.get("internal_states") or () if isinstance(state, Mapping)]
    reported = (number(state.get("avg_spec_accept_length")) for state in states)
    seconds: dict[int, tuple[float, ...]] = {}
    for state in states:
        for running, steps in (state.get("step_time_dict") or {}).items():
            batch = whole(int(running)) if str(running).isdigit() else None
            times = tuple(time for time in map(number, steps) if time is not None)
            if batch is not None and times:
                seconds[batch] = seconds.get(batch, ()) + times
    return ServerInfo(reported_al=tuple(each for each in reported if each is not None), step_seconds=seconds)
