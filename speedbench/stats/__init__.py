"""Which records a number rests on, their steps side by side, and estimates of them with intervals."""

# SPDX-License-Identifier: Apache-2.0

from speedbench.stats.estimates import (
    DRAWS,
    UNAVAILABLE,
    Clusters,
    Share,
    Statistic,
    Sums,
    block_shares,
    estimate,
    jackknife,
    minimum_detectable_effect,
    percentile,
    ratio_of_ratios,
    ratio_of_sums,
    shares,
)
from speedbench.stats.evidence import (
    REPEAT_STRIDE,
    answered,
    decoded,
    full_passes,
    paired,
    stepped,
    tallied,
    timed_together,
)
from speedbench.stats.steps import Column, Steps, begun_of, outcomes_of, rests_on, steps_of

__all__ = [
    "DRAWS",
    "REPEAT_STRIDE",
    "UNAVAILABLE",
    "Clusters",
    "Column",
    "Share",
    "Statistic",
    "Steps",
    "Sums",
    "answered",
    "begun_of",
    "block_shares",
    "decoded",
    "estimate",
    "full_passes",
    "jackknife",
    "minimum_detectable_effect",
    "outcomes_of",
    "paired",
    "percentile",
    "ratio_of_ratios",
    "ratio_of_sums",
    "rests_on",
    "shares",
    "stepped",
    "steps_of",
    "tallied",
    "timed_together",
]
