"""TensorRT-LLM's iteration statistics: `LLM.get_stats()`, or the JSON of `GET /metrics`, with enable_iter_perf_stats.

TensorRT-LLM 1.0 to 1.4 (_torch/pyexecutor/py_executor.py, `_update_iter_stats`). A read drains a queue of at most
`iter_stats_max_iterations` (1,000), which drops the oldest silently: read often, one reader only. Times are
milliseconds of wall clock from the start of an iteration to its results, so with the overlap scheduler they overlap.
A row is stamped with the wall clock when its iteration begins, so from one stamp to the next is what a pass took.
`draftOverhead` is draft latency / iteration latency, and a draft latency there is only where the drafter is an engine
of its own; in one-model mode, the default, it is written as 0.0 and means nothing.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from speedbench.serving.payloads.body import node, number, seconds, whole
from speedbench.types import Pass

ROUNDING = 0.01
_STAMP = "%m-%d-%Y %H:%M:%S.%f"
_ASTRAY = 1.0
"""Seconds by which a pass cannot be longer than its iteration: then the clock was set, or nothing ran meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of the executor. Seconds; None is what it does not say."""

    number: int
    seconds: float
    draft: float | None
    """None in one-model mode, where the engine writes 0.0."""
    active: int | None
    queued: int | None
    paused: int | None
    """Requests put aside for want of memory."""
    context: int
    """Requests in prefill; above 0 it is no pure decode pass."""
    batch: int | None
    """Requests in decode."""
    proposed: int | None
    """Verified drafts of the batch. A draft whose token id is 0 may be missing (`py_draft_tokens ≠ 0`)."""
    accepted: int | None
    drafted: int | None
    """Requests that had drafts."""
    raw: Mapping[str, Any]

    @property
    def begun(self) -> datetime | None:
        """By the wall clock; None where it is not told."""
        try:
            return datetime.strptime(str(self.raw.get("timestamp")), _STAMP)
        except ValueError:
            return None

    @property
    def decodes(self) -> bool:
        """Whether something was decoded and nothing prefilled."""
        return self.context == 0 and bool(self.batch)

    @property
    def verify(self) -> float | None:
        """Seconds of all but the drafting: target, sampling and bookkeeping; None where drafting is not told."""
        return None if self.draft is None else self.seconds - self.draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """What was read, in order, and what is missing of it."""

    rows: tuple[Iteration, ...]
    lost: int
    """Iterations between the first and the last that the engine's queue dropped, by the gaps in `iter`."""
    faults: tuple[str, ...] = ()

    @property
    def decode(self) -> tuple[Iteration, ...]:
        """Those in which something was decoded and nothing prefilled."""
        return tuple(row for row in self.rows if row.decodes)


def iterations(rows: Iterable[Mapping[str, Any] | str]) -> Iterations:
    """Read the rows of one or several reads, in the order read; each is a document or its JSON text.

    With attention data parallelism only rank 0's rows are valid, and only they are kept. A row read twice counts once.
    """
    documents = [_document(row) for row in rows]
    valid = [row for row in documents if row.get("attentionDpRank") in (None, 0)]
    read = [_iteration(row) for row in valid]
    made: dict[tuple[Any, ...], Iteration] = {}
    for found in read:
        if found is not None:
            made.setdefault(_identity(found), found)
    kept = tuple(made.values())
    gaps = [after.number - before.number - 1 for before, after in pairwise(kept)]
    unread, others = read.count(None), len(documents) - len(valid)
    faults = [f"{unread} rows without iter or iterLatencyMS left out"] if unread else []
    faults += [f"{others} rows of attention-parallel ranks other than 0 left out"] if others else []
    faults += ["iter went down: the engine began anew meanwhile"] if any(gap < -1 for gap in gaps) else []
    faults += [problem for row in kept for problem in _problems(row)]
    return Iterations(rows=kept, lost=sum(gap for gap in gaps if gap > 0), faults=tuple(faults))


def passes(rows: Sequence[Iteration], at: float) -> Iterator[Pass]:
    """The decode passes among neighbouring rows, but for the last row, which ends only as the next begins.

    A pass takes from its own beginning to that of the decode pass after it, for with the overlap scheduler an
    iteration's seconds are those of two; where rows are not stamped, there is nothing else. They were read `at`.
    """
    for row, after in pairwise(rows):
        whole_pass = _seconds(row, after)
        if row.decodes and row.batch and whole_pass is not None:
            yield Pass(
                at=at, batch=row.batch, width=None, proposed=row.proposed, draft=row.draft, verify=None, other=None,
                whole=whole_pass,
            )  # fmt: skip


def _seconds(row: Iteration, after: Iteration) -> float | None:
    """None where the next is no decode pass, or is not the next."""
    begun, ended = row.begun, after.begun
    if begun is None or ended is None:
        return row.seconds
    took = (ended - begun).total_seconds()
    neighbours = after.number == row.number + 1 and after.decodes
    return took if neighbours and 0 < took < row.seconds + _ASTRAY else None


def _document(row: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """A row as a document; an empty one where its text is no JSON object."""
    if not isinstance(row, str):
        return row
    try:
        found = json.loads(row)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _iteration(row: Mapping[str, Any]) -> Iteration | None:
    index, latency = whole(row.get("iter")), seconds(row.get("iterLatencyMS"))
    if index is None or latency is None:
        return None
    flight, drafts = node(row, "inflightBatchingStats") or {}, node(row, "specDecodingStats") or {}
    context = max(whole(flight.get("numContextRequests")) or 0, min(whole(flight.get("numCtxTokens")) or 0, 1))
    return Iteration(
        number=index,
        seconds=latency,
        draft=seconds(drafts.get("iterLatencyMS")) or None,
        active=whole(row.get("numActiveRequests")),
        queued=whole(row.get("numQueuedRequests")),
        paused=whole(flight.get("numPausedRequests")),
        context=context,
        batch=whole(flight.get("numGenRequests")),
        proposed=whole(drafts.get("numDraftTokens")),
        accepted=whole(drafts.get("numAcceptedTokens")),
        drafted=whole(drafts.get("numRequestsWithDraftTokens")),
        raw=row,
    )


def _identity(row: Iteration) -> tuple[Any, ...]:
    """What tells a row that was read twice from another of the same number (a micro batch, another engine)."""
    flight = node(row.raw, "inflightBatchingStats") or {}
    return row.number, flight.get("microBatchId"), row.raw.get("timestamp")


def _problems(row: Iteration) -> Iterator[str]:
    where = f"iteration {row.number}"
    if row.accepted is not None and row.proposed is not None and row.accepted > row.proposed:
        yield f"{where}: {row.accepted} accepted of {row.proposed} proposed drafts"
    if row.draft is not None and row.draft > row.seconds:
        yield f"{where}: {row.draft:g} s of drafting in {row.seconds:g} s"
    length = number((node(row.raw, "specDecodingStats") or {}).get("acceptanceLength"))
    mean = 1 + row.accepted / row.drafted if row.drafted and row.accepted is not None else None
    if length and mean is not None and abs(mean - length) > ROUNDING:
        yield f"{where}: acceptanceLength {length:g}; 1 + {row.accepted}/{row.drafted} is {mean:g}"
