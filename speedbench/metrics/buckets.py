"""Acceptance length by how much stands before a step: in the whole context, and of the answer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from speedbench.stats import UNAVAILABLE, Share, answered, ratio_of_sums, rests_on
from speedbench.types import Measured, Measurement, Metric, Record

CONTEXT = (1, 1025, 2049, 8193, 16385, 32769)
"""Where the classes of context begin: up to 1k, 2k, 8k, 16k and 32k tokens, and beyond."""

POSITION = (1, 65, 257, 1025)
"""Where the classes of output positions begin."""

Part = tuple[int, float, float]
"""Tokens before a step, what it committed, and how many steps that was."""


def al_by_context(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ committed / Σ steps, over the steps with so many tokens before them, prompt and answer together.

    Where an engine tells no single steps, an answer counts where its prompt ends.
    """

    def parts(record: Record) -> Iterator[Part]:
        if record.counts is not None and record.counts.begun is None:
            yield record.prompt_tokens, record.counts.committed, record.counts.steps
        else:
            yield from ((record.prompt_tokens + before, tokens, n) for before, tokens, n in _steps(record))

    if any(not record.prompt_tokens for record in answered(measured)):
        return {f"al_by_context[{low}]": UNAVAILABLE for low in CONTEXT}  # an engine that did not tell its prompts
    return _by("al_by_context", CONTEXT, measured, parts)


def al_by_position(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same by tokens of the answer alone; unavailable where an engine tells no single steps."""
    if any(record.counts and record.counts.begun is None for record in answered(measured)):
        return {f"al_by_position[{low}]": UNAVAILABLE for low in POSITION}
    return _by("al_by_position", POSITION, measured, _steps)


def _steps(record: Record) -> Iterator[Part]:
    before = record.first_tokens
    if record.counts is not None:
        yield from ((before + k, tokens, n) for k, (n, tokens) in enumerate(record.counts.begun or ()))
    for step in record.steps:
        yield before, step.committed, 1
        before += step.committed


def _by(
    name: str, lows: Sequence[int], measured: Measured, parts: Callable[[Record], Iterator[Part]]
) -> dict[str, Measurement]:
    """Once a class; unavailable where no step fell into it."""
    shares: list[list[Share]] = [[] for _ in lows]
    for record in answered(measured):
        sums: list[list[float]] = [[0, 0] for _ in lows]
        for before, committed, passes in parts(record):
            own = sums[max(0, bisect_right(lows, before) - 1)]
            own[0] += committed
            own[1] += passes
        for kept, (tokens, steps) in zip(shares, sums, strict=True):
            kept.append(Share(record.request, record.category, (tokens, steps)))
    origin = rests_on(answered(measured))
    return {f"{name}[{low}]": ratio_of_sums(kept, origin=origin) for low, kept in zip(lows, shares, strict=True)}


METRICS: tuple[Metric, ...] = (
    Metric(
        name="al_by_context",
        title="acceptance length from so many tokens of context on",
        unit="tokens/step",
        better="higher",
        of=al_by_context,
        by_category=True,
    ),
    Metric(
        name="al_by_position",
        title="acceptance length from so many tokens of the answer on",
        unit="tokens/step",
        better="higher",
        of=al_by_position,
        by_category=True,
    ),
)
