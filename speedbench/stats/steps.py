"""The steps of a cell side by side, so that every number of acceptance is a sum over a few columns."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speedbench.stats.estimates import Clusters
from speedbench.stats.evidence import LATELY, answered
from speedbench.types import Measured, Origin, Record

Column = NDArray[np.float64]
Places = NDArray[np.intp]

_RANK: tuple[Origin, ...] = ("exact", "derived", "estimated", "unavailable")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Of every answer its steps, one row each; where an engine told only sums, a row for each of them.

    NaN is what was not told: it makes every sum that it is in NaN, and its estimate unavailable.
    """

    steps: Column
    """1, or of how many a row is the sum."""
    single: NDArray[np.bool_]
    """Whether a row is one step."""
    committed: Column
    proposed: Column
    accepted: Column
    drafted: Column
    """Steps in which something was proposed."""
    complete: Column
    """Steps that no stop token and no cap cut short."""
    before: Column
    """Tokens of the answer before it; 0 of a whole answer."""
    prompt: Column
    """Tokens of the prompt; 0 where the engine did not tell."""
    conversation: Places
    """Place of its conversation in `strata`."""
    strata: Places
    """By conversation, the rank of its category's name."""

    def summed(self, *columns: Column | NDArray[np.bool_]) -> Clusters:
        """Σ of each column by conversation."""
        sums = [np.bincount(self.conversation, weights=each, minlength=len(self.strata)) for each in columns]
        return Clusters(np.stack(sums, axis=1), self.strata)


class _Sum(NamedTuple):
    """A row that is no single step."""

    steps: float
    committed: float | None = None
    proposed: float | None = None
    accepted: float | None = None
    drafted: float | None = None
    complete: float | None = None
    before: int = 0


def _whole(record: Record) -> Sequence[_Sum]:
    told = record.counts
    assert told is not None, "single steps are rows by themselves"
    return [_Sum(told.steps, told.committed, told.proposed, told.accepted, told.drafted)]


def _outcomes(record: Record) -> Sequence[_Sum]:
    if record.counts is None or record.counts.outcomes is None:
        return _whole(record)
    return [
        _Sum(n, proposed=proposed, accepted=accepted, complete=n * whole)
        for proposed, accepted, whole, n in record.counts.outcomes
    ]


def _begun(record: Record) -> Sequence[_Sum]:
    if record.counts is None or record.counts.begun is None:
        return _whole(record)
    return [_Sum(n, tokens, before=record.first_tokens + k) for k, (n, tokens) in enumerate(record.counts.begun)]


@lru_cache(maxsize=LATELY)
def steps_of(measured: Measured) -> Steps:
    """An answer of which only sums were told is one row."""
    return _table(measured, _whole)


@lru_cache(maxsize=LATELY)
def outcomes_of(measured: Measured) -> Steps:
    """It is one row for each way that its steps came out, if that was told: `proposed` and `accepted` are then of each
    such step, and nothing is known of what cut ones committed."""
    told = any(record.counts is not None and record.counts.outcomes is not None for record in answered(measured))
    return _table(measured, _outcomes) if told else steps_of(measured)


@lru_cache(maxsize=LATELY)
def begun_of(measured: Measured) -> Steps:
    """It is one row for each token behind which steps begin, if that was told."""
    told = any(record.counts is not None and record.counts.begun is not None for record in answered(measured))
    return _table(measured, _begun) if told else steps_of(measured)


def _table(measured: Measured, spread: Callable[[Record], Sequence[_Sum]]) -> Steps:
    records = answered(measured)
    told = [record.steps if record.counts is None else spread(record) for record in records]
    rows, lengths = [row for each in told for row in each], [len(each) for each in told]
    sums = [row for row in rows if isinstance(row, _Sum)]
    single = np.repeat([record.counts is None for record in records], lengths).astype(bool)
    committed, proposed, accepted = (_column(name, rows) for name in ("committed", "proposed", "accepted"))
    until = np.concatenate(([0.0], np.cumsum(np.where(single, committed, 0.0))))
    begun = [record.first_tokens for record in records] - until[np.cumsum([0, *lengths])[:-1]]
    columns = {
        "steps": np.ones(len(rows)),
        "drafted": np.where(np.isnan(proposed), np.nan, proposed > 0),
        "complete": np.where(np.isnan(accepted), np.nan, committed >= accepted + 1),
        "before": until[:-1] + np.repeat(begun, lengths),
    }
    for name, column in columns.items():
        column[~single] = _column(name, sums)
    keys = [(record.category, record.request) for record in records]
    places = {key: i for i, key in enumerate(sorted(set(keys)))}
    ranks = {category: i for i, category in enumerate(dict.fromkeys(category for category, _ in places))}
    return Steps(
        **columns,
        single=single,
        committed=committed,
        proposed=proposed,
        accepted=accepted,
        prompt=np.repeat([float(record.prompt_tokens) for record in records], lengths),
        conversation=np.repeat(np.fromiter(map(places.__getitem__, keys), np.intp), lengths),
        strata=np.fromiter((ranks[category] for category, _ in places), np.intp),
    )


def _column(name: str, rows: Iterable[object]) -> Column:
    """NaN for None."""
    return np.array(list(map(attrgetter(name), rows)), dtype=np.float64)


def rests_on(measured: Measured, told: Origin = "exact") -> Origin:
    """The worst of what acceptance in its answers rests on, and of `told`."""
    own = {record.counts.origin if record.counts else record.told for record in answered(measured)}
    table = steps_of(measured)
    silent = bool(np.isnan(table.accepted[table.single]).any())
    return max({told, *own, "estimated" if silent else "exact"}, key=_RANK.index)
