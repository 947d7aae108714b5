"""What is asked of answers beyond their numbers: are they the baseline's, and was the machine quiet meanwhile."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speedbench.stats import percentile
from speedbench.types import Mismatch, Record, Request, Session

NOISY = 0.15
"""Spread of the noise probe above which times are reported as noisy."""

Answers = Mapping[tuple[str, int], Record]
"""Records by request and turn, failed ones left out."""


def answers(records: Sequence[Record]) -> Answers:
    return {(record.request, record.turn): record for record in records if record.finish != "error"}


def outputs(records: Sequence[Record], request: str) -> tuple[tuple[int, ...], ...]:
    """A request's answers in the order of its turns."""
    own = [record for record in records if record.request == request and record.finish != "error"]
    return tuple(record.output for record in sorted(own, key=lambda record: record.turn))


def texts(records: Sequence[Record], request: str) -> tuple[str, ...]:
    """The same as text; none where the engine deals in ids alone."""
    own = [record for record in records if record.request == request and record.finish != "error"]
    return tuple(record.text for record in sorted(own, key=lambda record: record.turn) if record.text is not None)


def mismatches(
    records: Sequence[Record], baseline: Sequence[Record], requests: Mapping[str, Request], session: Session
) -> list[Mismatch]:
    """Every greedy answer that is not its baseline's, with the target's top-2 gap where they part.

    A turn whose prompt differs, because an earlier answer did, is not compared.
    """
    theirs, found = answers(baseline), []
    for key, record in answers(records).items():
        other = theirs.get(key)
        if other is None or other.prompt_sha != record.prompt_sha or said(other) == said(record):
            continue
        index = parting(said(record), said(other))
        before = outputs(baseline, record.request)[: record.turn]
        gap = session.gap(requests[record.request], [*before, other.output[:index]]) if other.output else None
        found.append(_mismatch(record, other, index, gap, session.near_tie()))
    return found


def said(record: Record) -> Sequence[int] | str:
    """What is compared of an answer: its ids, or its text where no ids were told."""
    return record.output or record.text or ""


def parting(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """The first index at which two different outputs differ; where one ends, if it is the beginning of the other."""
    both = min(len(ours), len(theirs))
    return next((i for i in range(both) if ours[i] != theirs[i]), both)


def _mismatch(record: Record, other: Record, index: int, gap: float | None, near_tie: float) -> Mismatch:
    ours, theirs = record.output, other.output
    return Mismatch(
        request=record.request,
        turn=record.turn,
        index=index,
        expected=theirs[index] if index < len(theirs) else None,
        got=ours[index] if index < len(ours) else None,
        gap=gap,
        kind="unknown" if gap is None else "near_tie" if gap <= near_tie else "real",
    )


def noise(seconds: Sequence[float]) -> float | None:
    """Spread of the probe, (p90 - p10) / p50; None with fewer than five probes."""
    if len(seconds) < 5:
        return None
    low, middle, high = (percentile(seconds, q) for q in (10, 50, 90))
    return None if not middle or low is None or high is None else (high - low) / middle
