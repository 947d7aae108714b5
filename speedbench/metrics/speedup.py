"""How much faster than the baseline: measured, paired by prompt; by the formula; and what the two differ by."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from speedbench.serving.ladder import plain_pass, told
from speedbench.stats import (
    UNAVAILABLE,
    Share,
    answered,
    block_shares,
    decoded,
    estimate,
    full_passes,
    minimum_detectable_effect,
    ratio_of_ratios,
    shares,
    tallied,
    timed_together,
)
from speedbench.types import Measured, Measurement, Metric, Record

Rate = Callable[[Record], tuple[float, float]]
"""Tokens and seconds of a record; zeros where it has no such window."""


@lru_cache(maxsize=1)
def speedup(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """decode_tps of the cell / decode_tps of the baseline, each a ratio of sums over the turns answered in both."""
    return {"speedup": ratio_of_ratios(_pairs(measured, baseline, decoded))}


def speedup_e2e(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """The same on tokens / (t_last − t_sent): prefill and waiting included."""
    return {"speedup_e2e": ratio_of_ratios(_pairs(measured, baseline, _answered))}


def speedup_mde(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """The smallest relative change of `speedup` that these prompts could show: 2.8·sd(log ratio)/√conversations."""
    sums: dict[str, tuple[float, ...]] = defaultdict(lambda: (0.0,) * 4)
    for cluster, _, row in _pairs(measured, baseline, decoded):
        sums[cluster] = tuple(a + b for a, b in zip(sums[cluster], row, strict=True))
    logs = [math.log(ours / seconds * their_seconds / theirs) for ours, seconds, theirs, their_seconds in sums.values()]
    effect = minimum_detectable_effect(logs)
    known = UNAVAILABLE if effect is None else Measurement(value=effect, n=len(logs), origin="derived")
    return {"speedup_mde": known}


def speedup_formula(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """al / (verify_overhead + draft_overhead), from steps and full-batch passes alone: a prediction, not a speedup."""
    return {"speedup_formula": _formula(measured, baseline)}


def residual(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """speedup / speedup_formula − 1: what the formula does not explain."""
    found, predicted = speedup(measured, baseline)["speedup"], _formula(measured, baseline)
    if found.value is None or not predicted.value:
        return {"residual": UNAVAILABLE}
    return {"residual": Measurement(value=found.value / predicted.value - 1, n=found.n, origin="derived")}


def _pairs(measured: Measured, baseline: Measured | None, rate: Rate) -> list[Share]:
    """Tokens and seconds here, then there, of each turn that has a window in both arms."""
    both = [] if baseline is None else timed_together(measured, baseline)
    rows = [(ours, rate(ours), rate(theirs)) for ours, theirs in both]
    return [Share(record.request, record.category, (*a, *b)) for record, a, b in rows if all(a) and all(b)]


def _answered(record: Record) -> tuple[float, float]:
    """All tokens, and the seconds since the request was sent."""
    if record.last is None or record.last <= record.sent:
        return 0.0, 0.0
    return record.size, record.last - record.sent


@lru_cache(maxsize=1)
def _formula(measured: Measured, baseline: Measured | None) -> Measurement:
    """Acceptance, the cell's passes and the baseline's are three samples, each resampled by itself."""
    if baseline is None:
        return UNAVAILABLE
    records = [record for record in answered(measured) if tallied(record)[1]]
    mine, plain = full_passes(measured), full_passes(baseline)
    ours = [(0.0, 0.0, each.priced, 1.0, 0.0, 0.0) for each in mine if each.priced is not None]
    split = all(each.verify is not None for each in (*mine, *plain))
    base = [each.verify if split else each.seconds for each in plain]
    theirs = [(0.0, 0.0, 0.0, 0.0, seconds, 1.0) for seconds in base if seconds is not None]
    if not ours or not theirs:
        return _told_formula(measured, baseline, records)
    if len(ours) < len(mine) or len(theirs) < len(plain):
        return UNAVAILABLE
    parts = [*shares(records, _accepted), *block_shares("passes", ours), *block_shares("baseline passes", theirs)]
    n = len({record.request for record in records})
    return estimate(parts, lambda s: (s[0] / s[1]) * (s[4] / s[5]) / (s[2] / s[3]), origin="derived", n=n)


def _told_formula(measured: Measured, baseline: Measured, records: Sequence[Record]) -> Measurement:
    """From what an engine told of its passes otherwise (serving/ladder.py): as good as that, without an interval. The
    cell's own time by the clock would only give its speedup back."""
    cost = told(measured)
    over = plain_pass(cost, baseline)
    tokens, steps = (sum(parts) for parts in zip(*map(tallied, records), strict=True)) if records else (0, 0)
    if cost is None or cost.own_clock or not cost.priced or not over or not steps:
        return UNAVAILABLE
    value = tokens / steps * over / cost.priced
    return Measurement(value=value, n=len({record.request for record in records}), origin=cost.origin)


def _accepted(record: Record) -> tuple[float, ...]:
    return (*tallied(record), 0.0, 0.0, 0.0, 0.0)


METRICS: tuple[Metric, ...] = (
    Metric(
        name="speedup",
        title="decoding speed / the baseline's, paired by prompt",
        unit="ratio",
        better="higher",
        of=speedup,
        by_category=True,
    ),
    Metric(
        name="speedup_e2e",
        title="speed from sending to the last token / the baseline's",
        unit="ratio",
        better="higher",
        of=speedup_e2e,
        by_category=True,
    ),
    Metric(
        name="speedup_mde",
        title="smallest relative change that these prompts could show",
        unit="share",
        better="lower",
        of=speedup_mde,
    ),
    Metric(name="speedup_formula", title="speedup by the formula", unit="ratio", better="higher", of=speedup_formula),
    Metric(name="residual", title="speedup / formula − 1", unit="share", better=None, of=residual),
)
