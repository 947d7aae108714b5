"""By how much a number differs between two cells, over the conversations that both answered, and how surely.

What is counted, acceptance length, varies by conversation: conversations are resampled, within categories large enough.
What is timed varies with the machine: the unit is a block, within which a run's cells take turns, and its baseline cell
takes part in the ratio.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from speedbench.compare.values import Change
from speedbench.metrics.latency import Waits, tpot, ttft
from speedbench.stats import (
    REPEAT_STRIDE,
    UNAVAILABLE,
    Share,
    Statistic,
    answered,
    decoded,
    jackknife,
    minimum_detectable_effect,
    ratio_of_ratios,
    stepped,
    tallied,
)
from speedbench.types import Measured, Measurement, Metric, Record

BLOCK = 4
"""Conversations per row of the batch in a block, where a run does not tell how many blocks it had."""

STRATUM = 10
"""Conversations from which on a category is resampled by itself. k of them, resampled among themselves, vary by
(k − 1)/k of what they should: with two in each category, an interval would be too narrow by a third."""

BOOTSTRAPPED = 30
"""Conversations from which on they are resampled; of fewer, a percentile is too sure, and t knows how few they are."""

Row = Callable[[Record], tuple[float, float]]


class Arm(NamedTuple):
    """A cell with what its times are held against."""

    measured: Measured
    baseline: Measured | None
    block: Mapping[tuple[str, int], int]
    """Of each request and repeat, the block in which it was held."""

    def within(self, category: str | None) -> Arm:
        """The records of one category, None for all; passes belong to none."""
        return self if category is None else self._where(lambda record: record.category == category)

    def among(self, turns: Collection[tuple[str, int]]) -> Arm:
        """The cell's own records of these requests' turns."""
        return self._replace(measured=_where(self.measured, lambda record: (record.request, record.turn) in turns))

    def _where(self, wanted: Callable[[Record], bool]) -> Arm:
        return self._replace(
            measured=_where(self.measured, wanted), baseline=self.baseline and _where(self.baseline, wanted)
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """A number as a ratio of sums over records."""

    row: Row
    timed: bool = True
    relative: bool = False
    """Whether it is divided by the baseline cell's."""


def _waits(of: Waits) -> Row:
    return lambda record: (sum(of(record)), len(of(record)))


RATES: Mapping[str, Rate] = {
    "al": Rate(tallied, timed=False),
    "speedup": Rate(decoded, relative=True),
    "decode_tps": Rate(decoded),
    "step_cost": Rate(stepped, relative=True),
    "ttft_mean": Rate(_waits(ttft)),
    "tpot_mean": Rate(_waits(tpot)),
}
"""What a relative gate may ask for: each a ratio of the same sums that its metric is made of."""


def blocks(requests: Sequence[str], concurrency: int, told: Mapping[int, int]) -> dict[tuple[str, int], int]:
    """The block of each request and repeat: neighbours in the order of the run, as many blocks as `told` by repeat.

    Where nothing is told, the blocks of an engine in process, of 4 conversations per row of the batch.
    """
    found: dict[tuple[str, int], int] = {}
    for repeat, turns in told.items():
        size = BLOCK * concurrency
        if turns and turns < math.ceil(len(requests) / size):
            size = math.ceil(len(requests) / turns)
        found |= {(request, repeat): i // size for i, request in enumerate(requests)}
    return found


def change(metric: Metric, base: Arm, cand: Arm, category: str | None = None) -> Change:
    """The relative change of a metric that is in RATES, and the metric itself on both sides, over the same turns."""
    rate = RATES[metric.name]
    mine, theirs = base.within(category), cand.within(category)
    ratio, detectable = (_by_blocks if rate.timed else _by_conversation)(rate, mine, theirs)
    both = turns(mine.measured) & turns(theirs.measured)
    values = [metric.of(arm.measured, arm.baseline)[metric.name] for arm in (mine.among(both), theirs.among(both))]
    if ratio.value is None:
        return unpaired(metric.name, category, *values)
    return Change(
        metric=metric.name, category=category, base=values[0], cand=values[1], change=_less_one(ratio),
        unit="blocks" if rate.timed else "conversations", detectable=detectable,
    )  # fmt: skip


def turns(measured: Measured) -> set[tuple[str, int]]:
    """Request and turn of every answer."""
    return {(record.request, record.turn) for record in answered(measured)}


def unpaired(name: str, category: str | None, base: Measurement, cand: Measurement) -> Change:
    """Of two numbers alone: their intervals put together as if they knew nothing of each other, which is wider."""
    ratio = UNAVAILABLE
    if base.value and cand.value:
        point = cand.value / base.value
        half = math.hypot(_half(base), _half(cand)) if None not in (base.low, cand.low) else None
        low, high = (None, None) if half is None else (point * math.exp(-half), point * math.exp(half))
        ratio = Measurement(value=point, low=low, high=high, n=min(base.n, cand.n), origin="estimated")
    return Change(
        metric=name, category=category, base=base, cand=cand, change=_less_one(ratio), unit="", detectable=None
    )


def _half(found: Measurement) -> float:
    """Half the width of an interval of the logarithm."""
    return math.log(found.high / found.low) / 2 if found.high and found.low and found.low > 0 else math.inf


def _less_one(ratio: Measurement) -> Measurement:
    def less(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else value - 1

    return replace(ratio, value=less(ratio.value), low=less(ratio.low), high=less(ratio.high))


# ---- the sums ------------------------------------------------------------------------------------------------------


def _by_conversation(rate: Rate, base: Arm, cand: Arm) -> tuple[Measurement, float | None]:
    theirs, ours = _summed(rate.row, base.measured), _summed(rate.row, cand.measured)
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for record in answered(cand.measured):
        turn = record.request, record.turn
        if turn in ours and turn in theirs:
            rows[record.request, record.category].append((*ours.pop(turn), *theirs[turn]))
    sizes = Counter(category for _, category in rows)
    parts = [
        Share(request, category if sizes[category] >= STRATUM else "", tuple(map(sum, zip(*every, strict=True))))
        for (request, category), every in rows.items()
    ]
    sums = [part.sums for part in parts]
    ratio = ratio_of_ratios(parts) if len(parts) >= BOOTSTRAPPED else jackknife(sums, _doubled)
    return ratio, _detectable(sums, _doubled)


def _summed(row: Row, measured: Measured) -> dict[tuple[str, int], tuple[float, float]]:
    """By request and turn over all repeats; turns of which nothing was told are left out."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for record in answered(measured):
        over, under = row(record)
        before = found.get((record.request, record.turn), (0.0, 0.0))
        if under:
            found[record.request, record.turn] = before[0] + over, before[1] + under
    return found


def _by_blocks(rate: Rate, base: Arm, cand: Arm) -> tuple[Measurement, float | None]:
    arms = [cand.measured, base.measured]
    if rate.relative:
        if cand.baseline is None or base.baseline is None:
            return UNAVAILABLE, None
        arms += [base.baseline, cand.baseline]
    sides = [{_turn(record): rate.row(record) for record in answered(arm)} for arm in arms]
    units: dict[tuple[int, int], tuple[float, ...]] = {}
    for turn in sides[0]:
        row = tuple(number for side in sides for number in side.get(turn, (0.0, 0.0)))
        at = cand.block.get((turn[0], turn[2]))
        if all(row) and at is not None:
            before = units.get((turn[2], at), (0.0,) * len(row))
            units[turn[2], at] = tuple(a + b for a, b in zip(before, row, strict=True))
    rows = [units[at] for at in sorted(units)]
    statistic = _fourfold if rate.relative else _doubled
    return jackknife(rows, statistic), _detectable(rows, statistic)


def _doubled(sums: np.ndarray) -> np.ndarray:
    return np.asarray((sums[0] / sums[1]) / (sums[2] / sums[3]))


def _fourfold(sums: np.ndarray) -> np.ndarray:
    """(cand / base) · (base's baseline / cand's baseline)."""
    return np.asarray(_doubled(sums) * _doubled(sums[4:]))


def _detectable(rows: Sequence[tuple[float, ...]], statistic: Statistic) -> float | None:
    found = [float(np.log(statistic(np.asarray(row)[:, None]))[0]) for row in rows if all(row)]
    return minimum_detectable_effect(found)


def _turn(record: Record) -> tuple[str, int, int]:
    """Request, turn and repeat."""
    return record.request, record.turn, record.process // REPEAT_STRIDE


def _where(measured: Measured, wanted: Callable[[Record], bool]) -> Measured:
    return replace(measured, records=tuple(filter(wanted, measured.records)))
