"""What TensorRT-LLM tells: iterations of the request, and, in some versions, its drafts.

`trtllm-serve` 1.1 and later: `avg_decoded_tokens_per_iter` of each choice. In process, a `RequestOutput` written as
{"decoding_iter", "avg_decoded_tokens_per_iter", "outputs": [{"token_ids", "request_perf_metrics":
{"speculative_decoding": {…}}}]}. The average is output tokens / `decoding_iter` (batch_manager/llmRequest.h), and
`decoding_iter` counts the prefill's iteration too: without speculation it is the number of tokens
(executor/executor.h), so the decode passes are one fewer.

Drafts: `total_draft_tokens` and `total_accepted_draft_tokens`, in process since 1.0 and per choice under
`speculative_decoding` with a histogram (NVIDIA/TensorRT-LLM #19311). Before #17082 (July 2026) they stayed 0 in the
default flow, so a 0 says nothing; the iterations do.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speedbench.serving.payloads.body import Body, dense, node, number, whole
from speedbench.serving.payloads.told import Told, checked

KEY = "total_draft_tokens"
AVERAGE = "avg_decoded_tokens_per_iter"
DEFINITION = "output tokens / iterations, the prefill's too"
SLACK = 0.01
"""How far tokens / average may be from a whole number of iterations: the average is a float32."""


def read(body: Body, base: Told) -> Told | None:
    """What it says; None where the response has not this shape."""
    stats = _stats(body)
    average = number(body.choice.get(AVERAGE, body.root.get(AVERAGE)))
    if stats is None and average is None and "decoding_iter" not in body.root:
        return None
    told = replace(base, source="trtllm iterations", reported_al=average, reported_as=DEFINITION)
    told = _passes(told, whole(body.root.get("decoding_iter")), average)
    return told if stats is None else _drafts(told, stats)


def _stats(body: Body) -> Mapping[str, Any] | None:
    places = (
        node(body.choice, "speculative_decoding"),
        node(body.choice, "request_perf_metrics", "speculative_decoding"),
    )
    return next((place for place in places if place is not None and KEY in place), None)


def _passes(told: Told, iterations: int | None, average: float | None) -> Told:
    """With the decode passes, if both ways to tell them agree."""
    by_average = told.tokens / average if told.tokens and average else None
    if by_average is not None and abs(by_average - round(by_average)) > SLACK:
        fault = f"{told.tokens} tokens at {average} per iteration are {by_average:.4g} iterations; a whole number"
        return _fault(told, fault)
    if iterations is not None and by_average is not None and round(by_average) != iterations:
        return _fault(told, f"decoding_iter {iterations}; {told.tokens} tokens at {average} make {by_average:.4g}")
    found = iterations if iterations is not None or by_average is None else round(by_average)
    return told if found is None else replace(told, forwards=max(found - 1, 0))


def _drafts(told: Told, stats: Mapping[str, Any]) -> Told:
    """With the drafts, unless they are the zeros of a version that did not count them."""
    proposed, accepted = whole(stats.get(KEY)), whole(stats.get("total_accepted_draft_tokens"))
    if not proposed:
        return _zeros(told, f"{proposed} proposed and {accepted} accepted drafts")
    histogram = dense(stats.get("acceptance_histogram"))
    steps = whole(stats.get("num_spec_steps"))
    told = replace(told, source="trtllm choice", histogram=histogram, drafted=steps, proposed=proposed)
    told = checked(replace(told, accepted=accepted, configured=whole(stats.get("num_spec_tokens"))))
    if told.drafted is not None and told.forwards is not None and told.drafted > told.forwards:
        fault = f"{told.drafted} steps with drafts in {told.forwards} decode iterations; the steps are used"
        return _fault(replace(told, forwards=None), fault)
    return told


def _zeros(told: Told, zeros: str) -> Told:
    """Without the drafts; a fault unless the iterations say too that there were none."""
    if told.forwards is None or told.tokens is None:
        return _fault(told, f"{zeros}, and no iterations to confirm it; some versions do not count drafts")
    if told.forwards == told.tokens - 1:
        return told
    each = told.tokens / (told.forwards + 1)
    return _fault(told, f"{zeros}, but {each:.4g} tokens per iteration; the iterations are used")


def _fault(told: Told, text: str) -> Told:
    return replace(told, faults=(*told.faults, f"{told.source}: {text}"))
