"""Estimates as ratios of sums, with intervals that resample whole conversations; and which records they rest on."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speedbench.types import Measured, Measurement, Origin, Pass, Record

Sums = NDArray[np.float64]
"""Column sums: one row a column, one column a draw."""

Statistic = Callable[[Sums], Sums]

UNAVAILABLE = Measurement(value=None, origin="unavailable")

DRAWS = 2000

REPEAT_STRIDE = 1000
"""Pooling gives the records of repeat r the processes r·1000 + process, so that clocks and repeats stay apart."""


Tally = Mapping[tuple[int, int], float]
"""How many steps proposed so many drafts and accepted so many."""


class Share(NamedTuple):
    """What one record, or one run of neighbouring passes, adds to the sums of an estimate."""

    cluster: str
    """The resampling unit: all turns and repeats of one conversation go together."""
    stratum: str
    """The category, within which clusters are resampled."""
    sums: tuple[float, ...]


# ---- which records and passes an estimate rests on -----------------------------------------------------------------

_COMMITTED = attrgetter("committed")
_RANK: tuple[Origin, ...] = ("exact", "derived", "estimated", "unavailable")
"""From the best to the worst."""


def answered(measured: Measured) -> list[Record]:
    """The records that ended well: failures are counted, and enter nothing else."""
    return [record for record in measured.records if record.finish != "error"]


def paired(measured: Measured, baseline: Measured) -> list[tuple[Record, Record]]:
    """The same turn of the same request in the same repeat, answered in both arms."""
    there = {_turn(record): record for record in answered(baseline)}
    return [(record, there[_turn(record)]) for record in answered(measured) if _turn(record) in there]


def timed_together(measured: Measured, baseline: Measured) -> list[tuple[Record, Record]]:
    """Of these, the pairs of one process: a resume or another worker may be on another machine, and times of two
    machines say nothing of a drafter."""
    return [(ours, theirs) for ours, theirs in paired(measured, baseline) if ours.process == theirs.process]


def _turn(record: Record) -> tuple[str, int, int]:
    return record.request, record.turn, record.process // REPEAT_STRIDE


def tallied(record: Record) -> tuple[int, float]:
    """Σ committed and the steps they took, of single steps or of an engine's sums; zeros where neither was told."""
    if record.counts is not None:
        return record.counts.committed, record.counts.steps
    return sum(map(_COMMITTED, record.steps)), len(record.steps)


def tally(record: Record, complete: bool) -> Tally | None:
    """The record's steps; `complete`: those that nothing cut short. None where sums do not say how steps came out."""
    counts, found = record.counts, defaultdict[tuple[int, int], float](float)
    if counts is not None and counts.outcomes is None:
        return None
    steps = ((s.proposed or 0, s.accepted or 0, s.committed > (s.accepted or 0), 1) for s in record.steps)
    for proposed, accepted, whole, n in steps if counts is None else counts.outcomes or ():
        if whole or not complete:
            found[proposed, accepted] += n
    return found


def untold(records: Iterable[Record], *names: str) -> bool:
    """Whether an engine left one of these out of any step."""
    reads = [attrgetter(name) for name in names]
    return any(None in map(read, record.steps) for record in records for read in reads)


def rests_on(records: Sequence[Record], told: Origin = "exact") -> Origin:
    """The worst of what acceptance in these records rests on, and of `told`."""
    own = {record.counts.origin if record.counts else record.told for record in records}
    return max({told, *own, "estimated" if untold(records, "accepted") else "exact"}, key=_RANK.index)


def decoded(record: Record) -> tuple[float, float]:
    """Tokens after the first event, and the seconds they took; zeros where there is no such window."""
    tokens = record.size - record.first_tokens
    if record.first is None or record.last is None or record.last <= record.first or tokens <= 0:
        return 0.0, 0.0
    return tokens, record.last - record.first


def stepped(record: Record) -> tuple[float, float]:
    """Seconds after the first event, and the steps that fell into them: all but those of its own tokens."""
    committed, steps = tallied(record)
    if record.first is None or record.last is None or record.last <= record.first or not committed:
        return 0.0, 0.0
    late = max(0, record.size - max(1, record.first_tokens)) / committed
    return record.last - record.first, steps * late


def full_passes(measured: Measured) -> list[Pass]:
    """The passes in which every place of the batch was taken."""
    return [each for each in measured.passes if each.batch == measured.cell.concurrency]


def shares(records: Iterable[Record], row: Callable[[Record], tuple[float, ...]]) -> list[Share]:
    return [Share(record.request, record.category, row(record)) for record in records]


def block_shares(stratum: str, rows: Sequence[tuple[float, ...]], most: int = 20) -> list[Share]:
    """Rows in time order as at most `most` runs of neighbours: what follows closely is alike, so runs are resampled."""
    runs = np.array_split(np.asarray(rows, dtype=np.float64), min(most, len(rows))) if rows else []
    return [Share(f"{i:04d}", stratum, tuple(run.sum(axis=0).tolist())) for i, run in enumerate(runs)]


# ---- estimates -----------------------------------------------------------------------------------------------------


def ratio_of_sums(parts: Iterable[Share], *, origin: Origin = "exact") -> Measurement:
    """Σ first / Σ second, with its 95 % interval."""
    return estimate(parts, lambda sums: sums[0] / sums[1], origin=origin)


def ratio_of_ratios(parts: Iterable[Share], *, origin: Origin = "derived") -> Measurement:
    """(Σ first / Σ second) / (Σ third / Σ fourth): two arms over the same clusters, resampled together."""
    return estimate(parts, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]), origin=origin)


def estimate(
    parts: Iterable[Share],
    statistic: Statistic,
    *,
    origin: Origin,
    n: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Measurement:
    """A statistic of column sums with its 95 % percentile-bootstrap interval; unavailable where it is undefined.

    `n` is the number of clusters unless given. With fewer than two clusters, or a draw that is undefined because an arm
    has only one, there is no interval.
    """
    values, sizes = _clusters(parts)
    if not sizes:
        return UNAVAILABLE
    with np.errstate(divide="ignore", invalid="ignore"):
        point = float(statistic(values.sum(axis=0)[:, None])[0])
        if not math.isfinite(point):
            return UNAVAILABLE
        low, high = _interval(statistic, values, sizes, draws, seed)
    if low is not None and high is not None and math.isclose(low, high, rel_tol=1e-12):
        low = high = point  # no width but that of rounding
    return Measurement(value=point, low=low, high=high, n=len(values) if n is None else n, origin=origin)


def jackknife(units: Sequence[tuple[float, ...]], statistic: Statistic, *, origin: Origin = "derived") -> Measurement:
    """A positive statistic of column sums with a 95 % t interval of its logarithm, leaving out one unit at a time.

    For few units, blocks of a run, where a percentile bootstrap is too sure of itself (Efron and Tibshirani, An
    Introduction to the Bootstrap, chapter 11). `n` is the number of units; fewer than two have no interval.
    """
    rows = np.asarray(units, dtype=np.float64)
    n = len(rows)
    if not n:
        return UNAVAILABLE
    with np.errstate(divide="ignore", invalid="ignore"):
        point = float(np.log(statistic(rows.sum(axis=0)[:, None]))[0])
        left = np.log(statistic((rows.sum(axis=0) - rows).T))
    if not math.isfinite(point):
        return UNAVAILABLE
    if n < 2 or not np.isfinite(left).all():
        return Measurement(value=math.exp(point), n=n, origin=origin)
    half = _t_quantile(0.975, n - 1) * math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
    return Measurement(
        value=math.exp(point), low=math.exp(point - half), high=math.exp(point + half), n=n, origin=origin
    )


@lru_cache(maxsize=64)
def _t_quantile(p: float, freedom: int) -> float:
    """Of Student's t: with t = √ν·tan θ its density is that of cos(θ)^(ν−1) over a quarter turn to each side."""
    angles = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    return math.sqrt(freedom) * math.tan(float(np.interp((2 * p - 1) * mass[-1], mass, angles)))


def _interval(
    statistic: Statistic, values: Sums, sizes: tuple[int, ...], draws: int, seed: int
) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    drawn = statistic((_counts(sizes, draws, seed) @ values).T)
    if not np.isfinite(drawn).all():
        return None, None
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(low), float(high)


def _clusters(parts: Iterable[Share]) -> tuple[Sums, tuple[int, ...]]:
    """Sums by cluster, sorted, so that the order of records changes nothing; and the sizes of the strata.

    A cluster that adds nothing to any sum is no part of the estimate.
    """
    totals: dict[tuple[str, str], tuple[float, ...]] = {}
    for cluster, stratum, sums in parts:
        before = totals.get((stratum, cluster))
        totals[stratum, cluster] = sums if before is None else tuple(a + b for a, b in zip(before, sums, strict=True))
    keys = [key for key, sums in totals.items() if any(sums)]
    strata = _merged([stratum for stratum, _ in keys])
    order = sorted(range(len(keys)), key=lambda i: (strata[i], keys[i]))
    sizes = Counter(strata)
    rows = np.asarray([totals[keys[i]] for i in order], dtype=np.float64)
    return rows, tuple(sizes[stratum] for stratum in sorted(sizes))


def _merged(strata: Sequence[str]) -> list[str]:
    """Strata of one cluster would not vary at all, so they go together; a single one joins the largest stratum."""
    sizes = Counter(strata)
    lone = {stratum for stratum, size in sizes.items() if size == 1}
    if not lone:
        return list(strata)
    into = min(lone) if len(lone) > 1 else max(sorted(sizes), key=sizes.__getitem__)
    return [into if stratum in lone else stratum for stratum in strata]


@lru_cache(maxsize=8)
def _counts(sizes: tuple[int, ...], draws: int, seed: int) -> Sums:
    """How much each cluster counts, one row a draw.

    k clusters resampled among themselves vary by (k − 1)/k of what they should, which with two in a category is half.
    So k − 1 are drawn, and each counts k/(k − 1) times (Rao and Wu 1988, Resampling inference with complex survey
    data, §3). Raw bits of the generator: numpy promises that these never change, so an interval can be recomputed
    years later.
    """
    raw = np.random.PCG64(seed)
    return np.hstack([_drawn(raw, size, draws) for size in sizes])


def _drawn(raw: np.random.PCG64, size: int, draws: int) -> Sums:
    taken = max(1, size - 1)
    picks = np.asarray(raw.random_raw(draws * taken) % np.uint64(size), dtype=np.int64).reshape(draws, taken)
    flat = (picks + size * np.arange(draws)[:, None]).ravel()
    counts = np.bincount(flat, minlength=draws * size).reshape(draws, size)
    return np.asarray(counts * (size / taken), dtype=np.float64)


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile, 0…100, interpolated linearly; None of nothing."""
    return float(np.percentile(values, q)) if len(values) else None


def minimum_detectable_effect(log_ratios: Sequence[float]) -> float | None:
    """2.8·sd/√n of paired log ratios: the smallest relative change seen with power 0.8 at 5 % two-sided."""
    if len(log_ratios) < 2:
        return None
    return float(2.8 * np.std(log_ratios, ddof=1) / math.sqrt(len(log_ratios)))
