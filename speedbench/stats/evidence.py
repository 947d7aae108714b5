"""Which records and passes an estimate rests on, and what one record adds to it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

from speedbench.types import Measured, Pass, Record

REPEAT_STRIDE = 1000
"""Pooling gives the records of repeat r the processes r·1000 + process, so that clocks and repeats stay apart."""

LATELY = 4
"""Cells of which the common parts of their metrics are kept: one, its baseline, and a category of each."""

_COMMITTED = attrgetter("committed")


@lru_cache(maxsize=LATELY)
def answered(measured: Measured) -> tuple[Record, ...]:
    """The records that ended well: failures are counted, and enter nothing else."""
    return tuple(record for record in measured.records if record.finish != "error")


@lru_cache(maxsize=LATELY)
def paired(measured: Measured, baseline: Measured) -> tuple[tuple[Record, Record], ...]:
    """The same turn of the same request in the same repeat, answered in both arms."""
    there = {_turn(record): record for record in answered(baseline)}
    return tuple((record, there[turn]) for record in answered(measured) if (turn := _turn(record)) in there)


@lru_cache(maxsize=LATELY)
def timed_together(measured: Measured, baseline: Measured) -> tuple[tuple[Record, Record], ...]:
    """Of these, the pairs of one process: a resume or another worker may be on another machine, and times of two
    machines say nothing of a drafter."""
    return tuple((ours, theirs) for ours, theirs in paired(measured, baseline) if ours.process == theirs.process)


def _turn(record: Record) -> tuple[str, int, int]:
    return record.request, record.turn, record.process // REPEAT_STRIDE


def tallied(record: Record) -> tuple[int, float]:
    """Σ committed and the steps they took, of single steps or of an engine's sums; zeros where neither was told."""
    if record.counts is not None:
        return record.counts.committed, record.counts.steps
    return sum(map(_COMMITTED, record.steps)), len(record.steps)


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


@lru_cache(maxsize=LATELY)
def full_passes(measured: Measured) -> tuple[Pass, ...]:
    """The passes in which every place of the batch was taken."""
    return tuple(each for each in measured.passes if each.batch == measured.cell.concurrency)
