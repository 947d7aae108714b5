"""What a step of a sequence costs by the clock alone, for engines that do not split a pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping

from speedbench.stats import (
    UNAVAILABLE,
    Share,
    answered,
    ratio_of_ratios,
    ratio_of_sums,
    shares,
    tallied,
    timed_together,
)
from speedbench.types import Measured, Measurement, Metric, Record


def t_step(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ (t_last − t_first) / Σ steps: queueing, other sequences' prefills and the way to the client are in it."""
    return {"t_step": ratio_of_sums(shares(answered(measured), _timed), origin="derived")}


def step_cost(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """t_step / the baseline's t_step, over the turns answered in both: al / step_cost is the measured speedup."""
    if baseline is None:
        return {"step_cost": UNAVAILABLE}
    rows = [(ours, _timed(ours), _timed(theirs)) for ours, theirs in timed_together(measured, baseline)]
    parts = [Share(record.request, record.category, (*a, *b)) for record, a, b in rows if all(a) and all(b)]
    return {"step_cost": ratio_of_ratios(parts)}


def _timed(record: Record) -> tuple[float, float]:
    """Seconds after the first event, and the steps that fell into them: all but those of its own tokens."""
    committed, steps = tallied(record)
    if record.first is None or record.last is None or record.last <= record.first or not committed:
        return 0.0, 0.0
    late = max(0, record.size - max(1, record.first_tokens)) / committed
    return record.last - record.first, steps * late


METRICS: tuple[Metric, ...] = (
    Metric(name="t_step", title="a step of a sequence, by the clock", unit="s", better="lower", of=t_step),
    Metric(
        name="step_cost",
        title="a step / the baseline's step",
        unit="ratio",
        better="lower",
        of=step_cost,
        by_category=True,
    ),
)
