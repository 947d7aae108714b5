"""Estimates as ratios of sums, with intervals that resample whole conversations."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speedbench.types import Measurement, Origin, Record

Sums = NDArray[np.float64]
"""Column sums: one row a column, one column a draw."""

Statistic = Callable[[Sums], Sums]

UNAVAILABLE = Measurement(value=None, origin="unavailable")

DRAWS = 2000


class Share(NamedTuple):
    """What one record, or one run of neighbouring passes, adds to the sums of an estimate."""

    cluster: str
    """The resampling unit: all turns and repeats of one conversation go together."""
    stratum: str
    """The category, within which clusters are resampled."""
    sums: tuple[float, ...]


class Clusters(NamedTuple):
    """The same added up by resampling unit, in the order of strata and names."""

    sums: Sums
    """One row a unit, one column a sum."""
    strata: NDArray[np.intp]
    """Of each unit, the rank of its stratum's name."""


def shares(records: Iterable[Record], row: Callable[[Record], tuple[float, ...]]) -> list[Share]:
    return [Share(record.request, record.category, row(record)) for record in records]


def block_shares(stratum: str, rows: Sequence[tuple[float, ...]] | Sums, most: int = 20) -> list[Share]:
    """Rows in time order as at most `most` runs of neighbours: what follows closely is alike, so runs are resampled."""
    runs = np.array_split(np.asarray(rows, dtype=np.float64), min(most, len(rows))) if len(rows) else []
    return [Share(f"{i:04d}", stratum, tuple(run.sum(axis=0).tolist())) for i, run in enumerate(runs)]


# ---- estimates -----------------------------------------------------------------------------------------------------


def ratio_of_sums(parts: Iterable[Share] | Clusters, *, origin: Origin = "exact") -> Measurement:
    """Σ first / Σ second, with its 95 % interval."""
    return estimate(parts, lambda sums: sums[0] / sums[1], origin=origin)


def ratio_of_ratios(parts: Iterable[Share] | Clusters, *, origin: Origin = "derived") -> Measurement:
    """(Σ first / Σ second) / (Σ third / Σ fourth): two arms over the same clusters, resampled together."""
    return estimate(parts, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]), origin=origin)


def estimate(
    parts: Iterable[Share] | Clusters,
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
    values, sizes = _told(parts if isinstance(parts, Clusters) else _clusters(parts))
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
    drawn = statistic(values.T @ _counts(sizes, draws, seed).T)
    if not np.isfinite(drawn).all():
        return None, None
    ordered = np.sort(drawn)
    return _quantile(ordered, 0.025), _quantile(ordered, 0.975)


def _quantile(ordered: Sums, q: float) -> float:
    """np.percentile's, to the last bit, without the third of an interval's time that numpy's takes."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    below, above, share = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)]), at - low
    return above - (above - below) * (1 - share) if share >= 0.5 else below + (above - below) * share


def _clusters(parts: Iterable[Share]) -> Clusters:
    """Sorted, so that the order of records changes nothing."""
    totals: dict[tuple[str, str], tuple[float, ...]] = {}
    for cluster, stratum, sums in parts:
        before = totals.get((stratum, cluster))
        totals[stratum, cluster] = sums if before is None else tuple(a + b for a, b in zip(before, sums, strict=True))
    keys = sorted(totals)
    ranks = {stratum: rank for rank, stratum in enumerate(dict.fromkeys(stratum for stratum, _ in keys))}
    rows = np.asarray([totals[key] for key in keys], dtype=np.float64).reshape(len(keys), -1 if keys else 0)
    return Clusters(rows, np.fromiter((ranks[stratum] for stratum, _ in keys), np.intp))


def _told(clusters: Clusters) -> tuple[Sums, tuple[int, ...]]:
    """The sums by stratum, and the sizes of the strata. A cluster that adds nothing to any sum is no part of them.

    Strata of one cluster would not vary at all, so they go together; a single one joins the largest stratum.
    """
    some = clusters.sums.any(axis=1)
    rows, strata = clusters.sums[some], clusters.strata[some]
    sizes = np.bincount(strata)
    lone = np.flatnonzero(sizes == 1)
    if len(lone):
        into = lone[0] if len(lone) > 1 else np.argmax(sizes)
        strata = np.where(sizes[strata] == 1, into, strata)
        sizes = np.bincount(strata)
    return rows[np.argsort(strata, kind="stable")], tuple(sizes[sizes > 0].tolist())


@lru_cache(maxsize=8)
def _counts(sizes: tuple[int, ...], draws: int, seed: int) -> Sums:
    """How much each cluster counts, one row a draw.

    k clusters resampled among themselves vary by (k − 1)/k of what they should, which with two in a category is half.
    So k − 1 are drawn, and each counts k/(k − 1) times (Rao and Wu 1988, Resampling inference with complex survey
    data, §3). Raw bits of the generator: numpy promises that these never change, so an interval can be recomputed
    years later.
    """
    raw, found, at = np.random.PCG64(seed), np.empty((draws, sum(sizes))), 0
    for size in sizes:
        taken = max(1, size - 1)
        picks = np.asarray(raw.random_raw(draws * taken)).reshape(draws, taken)
        picks %= np.uint64(size)
        picks += np.uint64(size) * np.arange(draws, dtype=np.uint64)[:, None]
        counts = np.bincount(picks.view(np.int64).ravel(), minlength=draws * size).reshape(draws, size)
        np.multiply(counts, size / taken, out=found[:, at : at + size])
        at += size
    return found


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile, 0…100, interpolated linearly; None of nothing."""
    return float(np.percentile(values, q)) if len(values) else None


def minimum_detectable_effect(log_ratios: Sequence[float]) -> float | None:
    """2.8·sd/√n of paired log ratios: the smallest relative change seen with power 0.8 at 5 % two-sided."""
    if len(log_ratios) < 2:
        return None
    return float(2.8 * np.std(log_ratios, ddof=1) / math.sqrt(len(log_ratios)))
