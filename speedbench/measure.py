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
        index = None if other is None else departure(record, other)
        if other is None or index is None:
            continue
        before = outputs(baseline, record.request)[: record.turn]
        gap = session.gap(requests[record.request], [*before, other.output[:index]]) if other.output else None
        found.append(_mismatch(record, other, index, gap, session.near_tie()))
    return found


def departure(ours: Record, theirs: Record) -> int | None:
    """Where an answer leaves the baseline's to the same prompt; None where it does not, or the prompts differ.

    The index is a token's, and a character's where one of the two was told without ids.
    """
    if ours.prompt_sha != theirs.prompt_sha:
        return None
    a, b = _alike(ours, theirs)
    return None if a == b else parting(a, b)


def _alike(ours: Record, theirs: Record) -> tuple[Sequence[Any], Sequence[Any]]:
    """What is compared of two answers: ids with ids, else text with text."""
    told = ours.output and theirs.output
    if told or ours.text is None or theirs.text is None:
        return ours.output, theirs.output
    return ours.text, theirs.text


def parting(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """The first index at which two different outputs differ; where one ends, if it is the beginning of the other."""
    both = min(len(ours), len(theirs))
    return next((i for i in range(both) if ours[i] != theirs[i]), both)


def _mismatch(record: Record, other: Record, index: int, gap: float | None, near_tie: float) -> Mismatch:
    ours, theirs = _alike(record, other)
    words = isinstance(ours, str)
    return Mismatch(
        request=record.request,
        turn=record.turn,
        index=index,
        expected=theirs[index] if index < len(theirs) and not words else None,
        got=ours[index] if index < len(ours) and not words else None,
        gap=gap,
        kind="unknown" if gap is None else "near_tie" if gap <= near_tie else "real",
    )


def noise(seconds: Sequence[float]) -> float | None:
    """Spread of the probe, (p90 - p10) / p50; None with fewer than five probes."""
    if len(seconds) < 5:
        return None
    low, middle, high = (percentile(seconds, q) for q in (10, 50, 90))
    return None if not middle or low is None or high is None else (high - low) / middle
