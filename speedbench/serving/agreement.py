"""Whether what the responses tell and what the server's counters say can both be true."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from speedbench.types import Counted, Record


def agreement(records: Sequence[Record], counted: Counted, *, draft_length: int) -> list[str]:
    """Named warnings where the two contradict each other beyond the known biases; empty where they agree.

    Known, for each request: a step cut short, of which one side may count what was cut (up to D drafts); a drafted step
    that one side leaves out, as a dummy verification under asynchronous scheduling or what was scheduled after the end
    (1 step, D drafts); a stop token that one side counts (1 token). Turns that failed left traffic in the counters and
    nothing here, so with any of them the counters may be higher. Nothing is compared with counters that were reset.
    """
    if counted.faults:
        return []
    good = [record for record in records if record.finish != "error"]
    if draft_length == 0:
        return [f"the server's counters have {counted.proposed} drafts in a baseline"] if counted.proposed else []
    return list(_contradictions(good, counted, draft_length, failed=len(good) < len(records))) if good else []


def _contradictions(good: Sequence[Record], counted: Counted, d: int, *, failed: bool) -> Iterator[str]:
    passes, accepted, proposed, drafted = (_total(column) for column in zip(*map(_sums, good), strict=True))
    by_identity = None
    if counted.generated is not None and counted.accepted is not None and not failed:
        by_identity = counted.generated - len(good) - counted.accepted
    rows = (
        ("output tokens", sum(record.size for record in good), counted.generated, 1),
        ("accepted drafts", accepted, counted.accepted, d),
        ("proposed drafts", proposed, counted.proposed, d),
        ("steps with drafts", drafted, counted.drafted, 1),
        ("passes", passes, counted.steps, 1),
        ("passes (output tokens − requests − accepted drafts)", passes, by_identity, d),
    )
    for what, told, moved, each in rows:
        if told is not None and moved is not None:
            slack = each * len(good)
            if told - moved > slack or (moved - told > slack and not failed):
                yield f"{what}: the responses tell {told}, the server's counters {moved}; more than {slack} apart"


def _sums(record: Record) -> tuple[float | None, float | None, float | None, float | None]:
    """(passes, accepted, proposed, steps with drafts) of a record; an answer of one token has none of them, so 0."""
    if record.counts is not None:
        return record.counts.steps, record.counts.accepted, record.counts.proposed, record.counts.drafted
    if record.told == "estimated" or (not record.steps and record.size > 1):
        return None, None, None, None
    proposed = [step.proposed for step in record.steps]
    drafted = _total(None if p is None else int(p > 0) for p in proposed)
    return len(record.steps), _total(step.accepted for step in record.steps), _total(proposed), drafted


def _total(each: Iterable[float | None]) -> float | None:
    """The sum, where every one is a number."""
    found = list(each)
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None
