"""A time as a sum of non-negative terms, fitted on relative residuals; each point also predicted without itself."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speedbench.costs.nnls import Array, nnls
from speedbench.errors import UserError

LIMIT = 0.15
"""Mean leave-one-out error above which nothing is predicted."""

SPARE = 2
"""Points that must be there beyond one for each term."""


class Refused(UserError):
    """No number, because any would be a guess: outside what was measured, or fitted too badly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a time was taken, or is wanted: B rows of 1 + D tokens on S tokens of context. D may be a mean."""

    batch: float
    draft_length: float
    context: float

    @property
    def tokens(self) -> float:
        """x = B·(1 + D)."""
        return self.batch * (1 + self.draft_length)


Terms = Callable[[Place], Sequence[float]]
"""The columns of a place, each a count of something that costs time: bytes, tokens, launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Coefficients [n] of the terms, in seconds for one of each, and how far off they were."""

    terms: Terms
    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    errors: tuple[float, ...]
    """By point, (predicted without it − measured) / scale."""
    knee: float | None = None

    @property
    def mean_error(self) -> float:
        return sum(abs(error) for error in self.errors) / len(self.errors)

    @property
    def worst_error(self) -> float:
        return max(abs(error) for error in self.errors)

    def at(self, place: Place) -> float:
        """Seconds, unchecked."""
        return float(np.dot(self.coefficients, _columns(self.terms, place, self.knee)))

    def shares(self, place: Place) -> dict[str, float]:
        """By term, its share of the time at a place."""
        parts = np.multiply(self.coefficients, _columns(self.terms, place, self.knee))
        whole = float(parts.sum())
        return {name: float(part) / whole if whole else 0.0 for name, part in zip(self.names, parts, strict=True)}


def fit(
    places: Sequence[Place],
    seconds: Sequence[float],
    terms: Terms,
    names: Sequence[str],
    *,
    scale: Sequence[float] | None = None,
    knees: Sequence[float] = (),
) -> Fit:
    """Fit the terms, each residual divided by its `scale` (default: the time itself, so residuals are relative).

    With `knees`, also max(x − knee, 0) for the one of them that fits best, if it earns its keep. The whole procedure,
    the choice of the knee included, is repeated without each point for the leave-one-out errors.
    Raises `Refused` for too few points.
    """
    needs = len(names) + SPARE
    if len(places) < needs:
        raise Refused(f"{len(places)} points are too few for {len(names)} terms; measure {needs} or more")
    a = np.asarray([terms(place) for place in places], dtype=np.float64)
    x = np.asarray([place.tokens for place in places])
    b = np.asarray(seconds, dtype=np.float64)
    weight = 1.0 / np.asarray(seconds if scale is None else scale, dtype=np.float64)
    knee, found = _best(a, b, x, weight, knees)
    errors = []
    for left in range(len(b)):
        rest = np.arange(len(b)) != left
        at, without = _best(a[rest], b[rest], x[rest], weight[rest], knees)
        row = a[left] if at is None else np.append(a[left], max(x[left] - at, 0.0))
        errors.append(float((row @ without - b[left]) * weight[left]))
    return Fit(
        terms=terms, names=(*names, *([] if knee is None else ["beyond the knee"])), coefficients=tuple(found.tolist()),
        errors=tuple(errors), knee=knee,
    )  # fmt: skip


def _best(a: Array, b: Array, x: Array, weight: Array, knees: Sequence[float]) -> tuple[float | None, Array]:
    """The knee, or None, and the coefficients; a knee must lower Akaike's criterion by the two numbers it costs."""
    plain = nnls(a * weight[:, None], b * weight)
    best: tuple[float | None, Array] = None, plain
    least = _criterion(a, b, plain, weight) - 4.0
    for knee in knees:
        if not x.min() < knee < x.max():
            continue
        bent = np.column_stack([a, np.maximum(x - knee, 0.0)])
        found = nnls(bent * weight[:, None], b * weight)
        score = _criterion(bent, b, found, weight)
        if score < least:
            best, least = (knee, found), score
    return best


def _criterion(a: Array, b: Array, found: Array, weight: Array) -> float:
    """n·log of the mean squared residual, which is taken to be no better than a thousandth."""
    return len(b) * math.log(max(float(np.mean(((a @ found - b) * weight) ** 2)), 1e-6))


def _columns(terms: Terms, place: Place, knee: float | None) -> list[float]:
    return [*terms(place), *([] if knee is None else [max(place.tokens - knee, 0.0)])]
