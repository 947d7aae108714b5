"""How long a reader waits: for the first token, per token, and between events."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import pairwise

from speedbench.stats import UNAVAILABLE, Share, answered, percentile, ratio_of_sums
from speedbench.types import Measured, Measurement, Metric, Record

Waits = Callable[[Record], list[float]]
"""The waits of one record in seconds: none where a time is not known."""


def ttft(record: Record) -> list[float]:
    """t_first − t_sent."""
    return [] if record.first is None else [record.first - record.sent]


def tpot(record: Record) -> list[float]:
    """(t_last − t_first) / (n − 1); none with fewer than two tokens."""
    if record.first is None or record.last is None or record.size < 2:
        return []
    return [(record.last - record.first) / (record.size - 1)]


def inter_event(record: Record) -> list[float]:
    """The gaps between the first token and the steps after it: an event may carry several tokens."""
    times = [record.first, *(step.at for step in record.steps)]
    known = [time for time in times if time is not None]
    return [after - before for before, after in pairwise(known)] if len(known) == len(times) else []


@lru_cache(maxsize=1)
def _every(waits: Waits, measured: Measured) -> list[tuple[Record, list[float]]]:
    return [(record, waits(record)) for record in answered(measured)]


def _percentile(name: str, waits: Waits, q: float, measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    found = _every(waits, measured)
    value = percentile([wait for _, some in found for wait in some], q)
    n = len({record.request for record, some in found if some})
    return {name: UNAVAILABLE if value is None else Measurement(value=value, n=n, origin="derived")}


def _mean(name: str, waits: Waits, measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    found = _every(waits, measured)
    parts = [Share(record.request, record.category, (sum(some), len(some))) for record, some in found]
    return {name: ratio_of_sums(parts, origin="derived")}


def _metrics(name: str, title: str, waits: Waits) -> tuple[Metric, ...]:
    """Percentiles 50, 90, 99 over all waits, and the mean with its interval."""
    ranks = tuple(
        Metric(
            name=f"{name}_p{q}",
            title=f"{title}, percentile {q}",
            unit="s",
            better="lower",
            of=partial(_percentile, f"{name}_p{q}", waits, q),
        )
        for q in (50, 90, 99)
    )
    mean = partial(_mean, f"{name}_mean", waits)
    return (*ranks, Metric(name=f"{name}_mean", title=f"{title}, mean", unit="s", better="lower", of=mean))


METRICS: tuple[Metric, ...] = (
    *_metrics("ttft", "time to the first token", ttft),
    *_metrics("tpot", "time per output token after the first", tpot),
    *_metrics("inter_event", "gap between events", inter_event),
)
