"""What a server's own counters say: acceptance beside the requests' own, the batch it ran, what its cache gave."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping

from speedbench.stats import UNAVAILABLE
from speedbench.types import Counted, Measured, Measurement, Metric

Found = Callable[[Counted], float | None]


def al_server(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """1 + Δaccepted / Δdrafted: as vLLM defines it, over the steps that carried drafts, cut off or not."""
    accepted, drafted = _sum(measured, lambda c: c.accepted), _sum(measured, lambda c: c.drafted)
    return {"al_server": _measurement(None if accepted is None or not drafted else 1 + accepted / drafted)}


def observed_batch(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean sequences that ran at a time, as the server said while it was held: the B it really had."""
    blocks = [each.running for each in measured.counted if each.running is not None]
    return {"observed_batch": _measurement(sum(blocks) / len(blocks) if blocks else None)}


def prefix_cached(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Prompt tokens that a prefix cache gave / prompt tokens."""
    cached, prompted = _sum(measured, lambda c: c.cached), _sum(measured, lambda c: c.prompted)
    return {"prefix_cached": _measurement(None if cached is None or not prompted else cached / prompted)}


def preempted(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Sequences that were thrown out of the batch and begun again."""
    return {"preempted": _measurement(_sum(measured, lambda c: c.preempted))}


def _sum(measured: Measured, found: Found) -> float | None:
    """Over all blocks; None where one does not say, or its counters cannot be trusted."""
    each = [None if one.faults else found(one) for one in measured.counted]
    known = [value for value in each if value is not None]
    return sum(known) if known and len(known) == len(each) else None


def _measurement(value: float | None) -> Measurement:
    return UNAVAILABLE if value is None else Measurement(value=float(value), origin="derived")


METRICS: tuple[Metric, ...] = (
    Metric(
        name="al_server",
        title="acceptance length by the server's counters",
        unit="tokens/step",
        better="higher",
        of=al_server,
    ),
    Metric(
        name="observed_batch", title="sequences running at a time", unit="sequences", better=None, of=observed_batch
    ),
    Metric(
        name="prefix_cached",
        title="share of prompt tokens out of a cache",
        unit="share",
        better=None,
        of=prefix_cached,
    ),
    Metric(name="preempted", title="sequences preempted", unit="sequences", better="lower", of=preempted),
)
