"""The steps of a cell side by side, so that every number of acceptance is a sum over a few columns."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from speedbench.stats.estimates import Clusters
from speedbench.stats.evidence import LATELY, answered
from speedbench.types import Measured, Origin

Column = NDArray[np.float64]
Places = NDArray[np.intp]

_RANK: tuple[Origin, ...] = ("exact", "derived", "estimated", "unavailable")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Of every answer its steps, one row each; where an engine told only sums, one row for the whole answer.

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
    """Whether no stop token and no cap cut it short; NaN of a whole answer."""
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


@lru_cache(maxsize=LATELY)
def steps_of(measured: Measured) -> Steps:
    records = answered(measured)
    rows = [row for record in records for row in (record.steps if record.counts is None else (record.counts,))]
    lengths = [len(record.steps) if record.counts is None else 1 for record in records]
    sums = [record.counts for record in records if record.counts is not None]
    single = np.repeat([record.counts is None for record in records], lengths).astype(bool)
    committed, proposed, accepted = (_column(name, rows) for name in ("committed", "proposed", "accepted"))
    steps, drafted = np.ones(len(rows)), np.where(np.isnan(proposed), np.nan, proposed > 0)
    steps[~single], drafted[~single] = _column("steps", sums), _column("drafted", sums)
    until = np.concatenate(([0.0], np.cumsum(committed)))
    begun = [record.first_tokens for record in records] - until[np.cumsum([0, *lengths])[:-1]]
    keys = [(record.category, record.request) for record in records]
    places = {key: i for i, key in enumerate(sorted(set(keys)))}
    ranks = {category: i for i, category in enumerate(dict.fromkeys(category for category, _ in places))}
    return Steps(
        steps=steps,
        single=single,
        committed=committed,
        proposed=proposed,
        accepted=accepted,
        drafted=drafted,
        complete=np.where(single & ~np.isnan(accepted), committed >= accepted + 1, np.nan),
        before=np.where(single, until[:-1] + np.repeat(begun, lengths), 0.0),
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
