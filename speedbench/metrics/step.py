"""What a step of a sequence costs by the clock alone, for engines that do not split a pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping

from speedbench.stats import UNAVAILABLE, Share, answered, paired, ratio_of_ratios, ratio_of_sums, shares, stepped
from speedbench.types import Measured, Measurement, Metric


def t_step(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ (t_last − t_first) / Σ steps: queueing, other sequences' prefills and the way to the client are in it."""
    return {"t_step": ratio_of_sums(shares(answered(measured), stepped), origin="derived")}


def step_cost(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """t_step / the baseline's t_step, over the turns answered in both: al / step_cost is the measured speedup."""
    if baseline is None:
        return {"step_cost": UNAVAILABLE}
    rows = [(ours, stepped(ours), stepped(theirs)) for ours, theirs in paired(measured, baseline)]
    parts = [Share(record.request, record.category, (*a, *b)) for record, a, b in rows if all(a) and all(b)]
    return {"step_cost": ratio_of_ratios(parts)}


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
