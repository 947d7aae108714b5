"""T_verif, T_draft and the rest of a pass from a profile: measured where it was, fitted between, refused beyond."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from speedbench.costs.linear import LIMIT, Fit, Place, Refused, Terms, fit
from speedbench.types import ModelFacts, Priced, Timed

TILE = 128
"""Rows of a tile of the attention kernels that the guidelines speak of."""

KNEES = tuple(float(knee) for knee in np.geomspace(4, 4096, 11))


def distinct_experts(experts: int, active: int, tokens: float) -> float:
    """N_e(x) = E·(1 − (1 − k/E)^x): experts that x tokens wake, each picking k at random (MoESD, arXiv 2505.19645)."""
    return float(experts * (1 - (1 - active / experts) ** tokens))


def tiles(group: int, draft_length: float, tile: int = TILE) -> int:
    """⌈G·(1 + D) / tile⌉: what decode attention pays for, tile by tile."""
    return math.ceil(group * (1 + draft_length) / tile - 1e-9)


def verify_terms(facts: ModelFacts) -> tuple[Terms, tuple[str, ...]]:
    """The columns of T_verif(B, D, S): once, x, distinct experts, B·S, B·S·tiles."""
    mixture = facts.mixture

    def terms(place: Place) -> list[float]:
        seen = place.batch * place.context if facts.full else 0.0
        experts = [distinct_experts(mixture.experts, mixture.active, place.tokens)] if mixture else []
        return [1.0, place.tokens, *experts, seen, seen * tiles(facts.group, place.draft_length)]

    return terms, ("fixed", "tokens", *(["experts"] if mixture else []), "context", "attention tiles")


def draft_terms(place: Place) -> list[float]:
    """Once, per row, per serial step, per draft token."""
    return [1.0, place.batch, place.draft_length, place.batch * place.draft_length]


def other_terms(place: Place) -> list[float]:
    return [1.0, place.batch, place.tokens]


@dataclass(frozen=True)
class Box:
    """What was measured: nothing is said of a place outside it."""

    places: tuple[Place, ...]

    def outside(self, place: Place) -> str | None:
        """In words, how a place lies outside; None within."""
        for name, of in _SIDES.items():
            low, high = min(map(of, self.places)), max(map(of, self.places))
            if not low * (1 - 1e-9) <= of(place) <= high * (1 + 1e-9):
                return f"{name}={of(place):g} is outside the measured {low:g} to {high:g}"
        return None


_SIDES: Mapping[str, Callable[[Place], float]] = {
    "B": lambda place: place.batch,
    "D": lambda place: place.draft_length,
    "context": lambda place: place.context,
    "B·(1+D)": lambda place: place.tokens,
    "B·context": lambda place: place.batch * place.context,
}


class Passes:
    """A profile's times as functions of (B, D, S). Each raises `Refused` rather than guess."""

    def __init__(self, timed: Sequence[Timed], facts: ModelFacts) -> None:
        self._facts = facts
        self._plain = [each for each in timed if each.drafter is None]
        self._drafted: dict[str, list[Timed]] = {}
        for each in timed:
            if each.drafter is not None and each.draft is not None:
                self._drafted.setdefault(each.drafter, []).append(each)
        if not self._plain:
            raise Refused("the profile has no pass of the target alone")
        self._drafts: dict[str, Fit] = {}
        self.box = Box(tuple(_place(each) for each in self._plain))

    @cached_property
    def verifying(self) -> Fit:
        """T_verif, fitted over all its points."""
        terms, names = verify_terms(self._facts)
        seconds = [each.verify for each in self._plain]
        return fit([_place(each) for each in self._plain], seconds, terms, names, knees=KNEES)

    @cached_property
    def _rest(self) -> Fit:
        names = ("fixed", "rows", "tokens")
        places, scale = [_place(each) for each in self._plain], [each.verify for each in self._plain]
        return fit(places, [each.other for each in self._plain], other_terms, names, scale=scale)

    def verify(self, place: Place) -> Priced:
        """Seconds of the target's forward over B·(1+D) tokens on S tokens of context."""
        return _priced(place, self._plain, "verify", self.box, lambda: self.verifying, lambda: 0.0)

    def other(self, place: Place) -> Priced:
        """Seconds of the rest of a pass."""
        return _priced(place, self._plain, "other", self.box, lambda: self._rest, lambda: self.verifying.at(place))

    def draft(self, drafter: str, place: Place) -> Priced:
        """Seconds to draft D tokens for B rows; measured at one context and taken to be the same at another."""
        if drafter not in self._drafted:
            raise Refused(f"the profile has no '{drafter}'; it has {', '.join(self._drafted) or 'no drafter'}")
        there = self._drafted[drafter]
        here = Place(batch=place.batch, draft_length=place.draft_length, context=there[0].context)
        box = Box(tuple(map(_place, there)))
        return _priced(here, there, "draft", box, lambda: self._draft(drafter), lambda: self.verifying.at(here))

    def _draft(self, drafter: str) -> Fit:
        if drafter not in self._drafts:
            there = self._drafted[drafter]
            names, scale = ("fixed", "rows", "steps", "drafts"), [each.verify + (each.draft or 0.0) for each in there]
            seconds = [each.draft or 0.0 for each in there]
            self._drafts[drafter] = fit([_place(each) for each in there], seconds, draft_terms, names, scale=scale)
        return self._drafts[drafter]


def _place(each: Timed) -> Place:
    return Place(batch=each.batch, draft_length=each.draft_length, context=each.context)


def _measured(each: Timed, part: str) -> Priced:
    seconds = float(getattr(each, part))
    return Priced(seconds=seconds, doubt=seconds * each.spread / math.sqrt(each.rounds), origin="exact")


def _on_lines(there: Sequence[Timed], part: str, place: Place) -> Priced | None:
    """Over D and then over the context, between what was measured at this very batch; None where that does not lie on
    both sides of the place."""
    grid: dict[float, dict[float, Priced]] = {}
    for each in there:
        if each.batch == place.batch:
            grid.setdefault(each.context, {}).setdefault(each.draft_length, _measured(each, part))
    lines = {context: _on_line(points, place.draft_length) for context, points in grid.items()}
    return _on_line({context: point for context, point in lines.items() if point is not None}, place.context)


def _on_line(points: Mapping[float, Priced], at: float) -> Priced | None:
    """Between the nearest two; the very point where there is one."""
    below, above = max((x for x in points if x <= at), default=None), min((x for x in points if x >= at), default=None)
    if below is None or above is None:
        return None
    low, high = points[below], points[above]
    if below == above:
        return low
    part = (at - below) / (above - below)
    assert low.doubt is not None, "what was measured has an error"
    assert high.doubt is not None, "what was measured has an error"
    return Priced(
        seconds=(1 - part) * low.seconds + part * high.seconds, doubt=(1 - part) * low.doubt + part * high.doubt,
        origin="derived",
    )  # fmt: skip


def _priced(
    place: Place,
    there: Sequence[Timed],
    part: str,
    box: Box,
    fitted: Callable[[], Fit],
    beside: Callable[[], float],
) -> Priced:
    """As measured at this very place; else on lines between places measured at its batch; else fitted, if the place
    lies in the box and the fit is good enough.

    `beside` are the seconds of which, with its own, the fit's errors are shares.
    """
    near = _on_lines(there, part, place)
    if near is not None:
        return near
    outside = box.outside(place)
    if outside:
        raise Refused(outside)
    model = fitted()
    if model.mean_error > LIMIT:
        raise Refused(
            f"the fit of {part} is off by {100 * model.mean_error:.0f} % where a point is left out (limit "
            f"{100 * LIMIT:.0f} %); measure at this very place"
        )
    seconds = model.at(place)
    return Priced(seconds=seconds, doubt=model.mean_error * (seconds + beside()), origin="estimated")
