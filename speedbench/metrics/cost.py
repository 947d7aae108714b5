"""What a pass costs at full batch: drafting, verifying and the rest, and against the baseline's pass."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter

import numpy as np

from speedbench.serving.ladder import plain_pass, told
from speedbench.stats import UNAVAILABLE, Sums, block_shares, estimate, full_passes
from speedbench.types import Measured, Measurement, Metric, Pass, PassCost

Seconds = Callable[[Pass], float | None]
Told = Callable[[PassCost], float | None]

# In this family `n` counts the passes of the cell, not conversations: a pass belongs to no conversation. Where an
# engine shows no pass or does not split it, seconds are what it told otherwise (serving/ladder.py) or what other cells
# tell (pairing/siblings.py): with that origin, and no interval.


def t_verify(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean seconds of the target's forward over B · (1 + D) tokens."""
    return {"t_verify": _mean(measured, _verify, lambda cost: cost.t_verify)}


def t_draft(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean seconds to draft for the whole batch."""
    return {"t_draft": _mean(measured, _draft, lambda cost: cost.t_draft)}


def t_other(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean seconds of the rest of a pass: sampling, bookkeeping."""
    return {"t_other": _mean(measured, _other)}


def t_pass(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean seconds of a whole pass."""
    return {"t_pass": _mean(measured, _seconds, lambda cost: cost.t_step)}


def other_share(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ other / Σ (draft + verify + other)."""
    return {"other_share": _ratio(_rows(_column(measured, _other), _column(measured, _seconds)))}


def t_baseline(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """Mean seconds of the baseline's target forward at the same B: T_verif(B)."""
    found = UNAVAILABLE if baseline is None else _mean(baseline, _verify, lambda cost: cost.t_verify)
    told_here = found.value is None and measured.cost is not None
    return {"t_baseline": _told(measured.cost, lambda cost: cost.t_verify_plain) if told_here else found}


def draft_overhead(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """t_draft / t_baseline."""
    return {"draft_overhead": _against(measured, baseline, _draft, lambda cost: cost.t_draft)}


def verify_overhead(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """t_verify / t_baseline: measured, never assumed to be 1."""
    return {"verify_overhead": _against(measured, baseline, _verify, lambda cost: cost.t_verify)}


def break_even_al(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """verify_overhead + draft_overhead: the acceptance length above which speculation pays."""
    return {"break_even_al": _against(measured, baseline, _priced, lambda cost: cost.priced, _plain)}


_draft, _verify, _other, _seconds, _priced = map(attrgetter, ("draft", "verify", "other", "seconds", "priced"))


def _plain(each: Pass) -> float | None:
    """Of a baseline's pass, what stands beside a drafter's `priced`."""
    return each.verify if each.verify is not None else each.whole


@lru_cache(maxsize=8)
def _column(measured: Measured, of: Seconds) -> Sums:
    """Of every pass at full batch; NaN is not told."""
    return np.array(list(map(of, full_passes(measured))), dtype=np.float64)


def _rows(*columns: Sums) -> Sums:
    """One row a pass; none where one lacks a number."""
    rows = np.stack(columns, axis=1)
    return rows[:0] if np.isnan(rows).any() else rows


def _counted(measured: Measured, seconds: Seconds) -> Sums:
    """Each pass's seconds, and 1."""
    column = _column(measured, seconds)
    return _rows(column, np.ones_like(column))


def _ratio(rows: Sums) -> Measurement:
    return estimate(block_shares("cell", rows), lambda s: s[0] / s[1], origin="derived", n=len(rows))


def _mean(measured: Measured, seconds: Seconds, told_by: Told | None = None) -> Measurement:
    """Σ seconds / passes at full batch; unavailable where the batch was never full, or the engine does not say."""
    rows = _counted(measured, seconds)
    return _ratio(rows) if len(rows) or told_by is None else _told(told(measured), told_by)


def _told(cost: PassCost | None, by: Told, over: float = 1.0) -> Measurement:
    value = None if cost is None else by(cost)
    return (
        UNAVAILABLE if cost is None or value is None else Measurement(value=value / over, n=cost.n, origin=cost.origin)
    )


def _against(
    measured: Measured, baseline: Measured | None, seconds: Seconds, told_by: Told, theirs_by: Seconds = _verify
) -> Measurement:
    """Mean seconds of the cell / mean verify seconds of the baseline, each resampled by itself."""
    if baseline is None:
        return UNAVAILABLE
    ours, theirs = _counted(measured, seconds), _counted(baseline, theirs_by)
    if not len(ours) or not len(theirs):
        cost = told(measured)
        over = plain_pass(cost, baseline)
        return _told(cost, told_by, over) if over else UNAVAILABLE
    parts = [
        *block_shares("cell", np.pad(ours, ((0, 0), (0, 2)))),
        *block_shares("baseline", np.pad(theirs, ((0, 0), (2, 0)))),
    ]
    return estimate(parts, lambda s: (s[0] / s[1]) / (s[2] / s[3]), origin="derived", n=len(ours))


METRICS: tuple[Metric, ...] = (
    Metric(name="t_verify", title="the target's forward over B·(1+D) tokens", unit="s", better="lower", of=t_verify),
    Metric(name="t_draft", title="drafting D tokens for B sequences", unit="s", better="lower", of=t_draft),
    Metric(name="t_other", title="the rest of a pass", unit="s", better="lower", of=t_other),
    Metric(name="t_pass", title="a whole pass", unit="s", better="lower", of=t_pass),
    Metric(name="other_share", title="the rest's share of a pass", unit="share", better="lower", of=other_share),
    Metric(name="t_baseline", title="the target's forward over B tokens", unit="s", better=None, of=t_baseline),
    Metric(name="draft_overhead", title="drafting / plain forward", unit="ratio", better="lower", of=draft_overhead),
    Metric(name="verify_overhead", title="verifying / plain forward", unit="ratio", better="lower", of=verify_overhead),
    Metric(
        name="break_even_al",
        title="acceptance length above which speculation pays",
        unit="tokens/step",
        better="lower",
        of=break_even_al,
    ),
)
