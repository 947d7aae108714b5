"""What vLLM tells: `--per-request-spec-decode-metrics summary` or `detailed`, by `num_accepted_draft_tokens`.

vLLM 0.30 to 0.33: `metrics.speculative_decoding` at the root of the response (of a stream, in its last event, when
usage was asked for), the class `SpeculativeDecodingMetrics` of entrypoints/generate/base/protocol.py. Drafts of the
pull request (vllm #48915) had it as `speculative_decoding_stats` of each choice, the histogram a map by position.

Only steps in which drafts were scheduled are in it, and `accepted` is counted before a stop token or the cap cuts the
step (v1/core/sched/scheduler.py). With asynchronous scheduling D placeholders are scheduled in every step, so a step
for which the drafter found nothing counts as D proposed and 0 accepted.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from speedbench.serving.payloads.body import Body, dense, node, number, seconds, whole, wholes
from speedbench.serving.payloads.told import Told, checked

KEY = "num_accepted_draft_tokens"
DEFINITION = "1 + accepted / steps with drafts"
ROUNDING = 0.01
"""What a proxy may have rounded its mean by."""


def read(body: Body, base: Told) -> Told | None:
    """What it says; None where the response has not this shape."""
    stats = _stats(body)
    if stats is None:
        return None
    steps, uneven = _steps(stats)
    told = replace(
        base,
        source="vllm histogram" if steps is None else "vllm per step",
        steps=steps,
        histogram=dense(stats.get("acceptance_histogram")),
        drafted=whole(stats.get("num_spec_steps")),
        proposed=whole(stats.get("num_draft_tokens")),
        accepted=whole(stats.get(KEY)),
        configured=whole(stats.get("num_spec_tokens")),
        reported_al=number(stats.get("mean_acceptance_length")),
        reported_as=DEFINITION,
    )
    return checked(told, *uneven, *_shifted(told))


def times(body: Body, base: Told) -> Told:
    """`--enable-per-request-metrics`: milliseconds from the scheduling to the first token, and on to the last."""
    metrics = node(body.root, "metrics") or {}
    prefill, decode = seconds(metrics.get("time_to_first_token_ms")), seconds(metrics.get("generation_time_ms"))
    return base if prefill is None and decode is None else replace(base, prefill=prefill, decode=decode)


def _stats(body: Body) -> Mapping[str, Any] | None:
    places = (
        node(body.root, "metrics", "speculative_decoding"),
        node(body.choice, "metrics", "speculative_decoding"),
        node(body.choice, "speculative_decoding_stats"),
        node(body.choice, "speculative_decoding"),
        node(body.root, "speculative_decoding"),
    )
    return next((place for place in places if place is not None and KEY in place), None)


def _steps(stats: Mapping[str, Any]) -> tuple[tuple[tuple[int, int], ...] | None, list[str]]:
    """The steps, and what is wrong where the two lists of them cannot be paired."""
    proposed, accepted = wholes(stats.get("per_step_drafted")), wholes(stats.get("per_step_accepted"))
    if proposed is None and accepted is None:
        return None, []
    if proposed is None or accepted is None or len(proposed) != len(accepted):
        return None, [f"{len(proposed or ())} proposals and {len(accepted or ())} acceptances; one each a step"]
    return tuple(zip(proposed, accepted, strict=True)), []


def _shifted(told: Told) -> Iterator[str]:
    """Where its own mean is not the one of its counts: one of the two has the target's token in it twice, or never."""
    if told.reported_al is not None and told.drafted and told.accepted is not None:
        mean = 1 + told.accepted / told.drafted
        if abs(mean - told.reported_al) > ROUNDING:
            yield f"a mean of {told.reported_al:.6g}; 1 + {told.accepted}/{told.drafted} is {mean:.6g}"
