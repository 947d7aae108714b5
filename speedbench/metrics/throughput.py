"""Tokens per second: of a request once it decodes, and of the whole cell while it is full."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from speedbench.stats import (
    UNAVAILABLE,
    answered,
    block_shares,
    decoded,
    estimate,
    full_passes,
    ratio_of_sums,
    shares,
    tallied,
)
from speedbench.types import Measured, Measurement, Metric, Origin, Record


def decode_tps(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ (tokens − tokens of the first event) / Σ (t_last − t_first), over requests whose window is not empty."""
    return {"decode_tps": ratio_of_sums(shares(answered(measured), decoded), origin="derived")}


def output_tps(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Tokens committed by the whole cell per second of its steady window.

    With passes: the steady window is the full-batch passes, drafting, verifying and the rest, without prefills.
    Each commits B · al tokens, so it is B · al / mean seconds of a full-batch pass.
    Without: the stretches in which at least `concurrency` requests were in flight (sent, and not ended), prefills
    included; tokens are those whose events fall inside. Where an engine does not time its steps, an answer's tokens are
    spread evenly from its first to its last, which is an estimate. Unavailable where the cell was never full.
    """
    return {"output_tps": _by_passes(measured) if measured.passes else _by_events(measured)}


def _by_passes(measured: Measured) -> Measurement:
    passes = full_passes(measured)
    rows = [(0.0, 0.0, each.seconds, each.batch) for each in passes if each.seconds is not None]
    if len(rows) < len(passes):
        return UNAVAILABLE
    records = answered(measured)
    steps = shares(records, lambda record: (*tallied(record), 0.0, 0.0))
    parts = [*steps, *block_shares("passes", rows)]
    conversations = len({record.request for record in records if tallied(record)[1]})
    return estimate(parts, lambda s: (s[0] / s[1]) / (s[2] / s[3]), origin="derived", n=conversations)


def _by_events(measured: Measured) -> Measurement:
    by_clock: dict[int, list[Record]] = {}
    for record in answered(measured):
        if record.first is not None and record.last is not None:
            by_clock.setdefault(record.process, []).append(record)
    rows = [row for _, records in sorted(by_clock.items()) for row in _windows(records, measured.cell.concurrency)]
    timed = all(map(_timed, answered(measured)))
    conversations = len({record.request for record in answered(measured)})
    origin: Origin = "derived" if timed else "estimated"
    return estimate(block_shares("", rows), lambda s: s[0] / s[1], origin=origin, n=conversations)


def _timed(record: Record) -> bool:
    """Whether it is known when each of its tokens came."""
    known = sum(step.committed for step in record.steps if step.at is not None)
    return record.first_tokens + known == record.size


def _windows(records: Sequence[Record], concurrency: int) -> list[tuple[float, float]]:
    """Tokens and seconds of each stretch with enough requests in flight."""
    edges = [(at, change) for each in records for at, change in ((each.sent, 1), (each.last or 0.0, -1))]
    events = [event for each in records for event in _events(each)]
    return _counted(sorted(events), _full(sorted(edges), concurrency))


def _events(record: Record) -> list[tuple[float, int]]:
    """When tokens came, and how many."""
    first, last = record.first or 0.0, record.last or 0.0
    if _timed(record):
        return [(first, record.first_tokens), *((step.at or 0.0, step.committed) for step in record.steps)]
    rest = record.size - record.first_tokens
    return [(first, record.first_tokens), *((first + (last - first) * i / rest, 1) for i in range(1, rest + 1))]


def _full(edges: Sequence[tuple[float, int]], concurrency: int) -> list[tuple[float, float]]:
    """The stretches between edges in which at least `concurrency` requests are in flight."""
    found = []
    in_flight, since = 0, 0.0
    for time, change in edges:
        if in_flight >= concurrency and time > since:
            found.append((since, time))
        in_flight, since = in_flight + change, time
    return found


def _counted(events: Sequence[tuple[float, int]], windows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Tokens of the events in each window (after its start, up to its end), with its seconds."""
    times = [time for time, _ in events]
    until = [0, *accumulate(tokens for _, tokens in events)]

    def by(time: float) -> int:
        return until[bisect_right(times, time)]

    return [(float(by(end) - by(start)), end - start) for start, end in windows]


METRICS: tuple[Metric, ...] = (
    Metric(
        name="decode_tps",
        title="tokens per second of a request once it decodes",
        unit="tokens/s",
        better="higher",
        of=decode_tps,
        by_category=True,
    ),
    Metric(
        name="output_tps",
        title="tokens per second of the whole cell while it is full",
        unit="tokens/s",
        better="higher",
        of=output_tps,
    ),
)
