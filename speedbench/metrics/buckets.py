"""Acceptance length by how much stands before a step: in the whole context, and of the answer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from speedbench.stats import UNAVAILABLE, Column, answered, begun_of, ratio_of_sums, rests_on
from speedbench.types import Measured, Measurement, Metric

CONTEXT = (1, 1025, 2049, 8193, 16385, 32769)
"""Where the classes of context begin: up to 1k, 2k, 8k, 16k and 32k tokens, and beyond."""

POSITION = (1, 65, 257, 1025)
"""Where the classes of output positions begin."""


def al_by_context(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ committed / Σ steps, over the steps with so many tokens before them, prompt and answer together.

    Where an engine tells no single steps, an answer counts where its prompt ends.
    """
    if any(not record.prompt_tokens for record in answered(measured)):
        return {f"al_by_context[{low}]": UNAVAILABLE for low in CONTEXT}  # an engine that did not tell its prompts
    steps = begun_of(measured)
    return _by("al_by_context", CONTEXT, measured, steps.prompt + steps.before)


def al_by_position(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same by tokens of the answer alone; unavailable where an engine tells no single steps."""
    if any(record.counts is not None and record.counts.begun is None for record in answered(measured)):
        return {f"al_by_position[{low}]": UNAVAILABLE for low in POSITION}
    return _by("al_by_position", POSITION, measured, begun_of(measured).before)


def _by(name: str, lows: Sequence[int], measured: Measured, before: Column) -> dict[str, Measurement]:
    """Once a class; unavailable where no step fell into it."""
    steps, origin = begun_of(measured), rests_on(measured)
    place = np.maximum(0, np.searchsorted(lows, before, side="right") - 1)
    parts = [steps.summed(steps.committed * (place == i), steps.steps * (place == i)) for i in range(len(lows))]
    return {f"{name}[{low}]": ratio_of_sums(each, origin=origin) for low, each in zip(lows, parts, strict=True)}


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
