"""What each drafter and D would give at a batch, from acceptance and times, with an interval and a verdict."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from speedbench.advise.curves import Accepted, Curve
from speedbench.advise.guidelines import break_even, speedup
from speedbench.costs.linear import Place, Refused
from speedbench.types import Origin, Priced

MARGIN = 0.02
"""Relative difference within which two speeds are as good as equal where no interval says so."""

Verdict = Literal["speculate", "within_noise", "do_not_speculate", "unknown"]


class Costs(Protocol):
    """Seconds of the parts of a pass; each raises `Refused` where it cannot say."""

    def verify(self, place: Place) -> Priced: ...

    def draft(self, drafter: str, place: Place) -> Priced: ...

    def other(self, place: Place) -> Priced: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One drafter and D at one batch; D = 0 is the plain target."""

    drafter: str
    draft_length: int
    batch: int
    al: float
    step: float
    """Seconds of a pass."""
    speedup: float
    low: float | None
    high: float | None
    """95 %; None: acceptance or times come without an error."""
    break_even: float
    draft_overhead: float
    verify_overhead: float
    user_tps: float
    """Tokens a second of one sequence."""
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of a batch, what is as good within noise, and what could not be said."""

    batch: int
    verdict: Verdict
    best: Offer | None
    plain: Offer | None
    as_good: tuple[Offer, ...]
    offers: tuple[Offer, ...]
    refused: tuple[str, ...]

    @property
    def draft_length(self) -> int | None:
        """What to serve with: 0 where speculation does not pay; None where nothing can be said."""
        if self.verdict == "unknown":
            return None
        return self.best.draft_length if self.best and self.verdict == "speculate" else 0

    @property
    def served(self) -> Offer | None:
        return self.plain if self.draft_length == 0 else self.best


def plain(costs: Costs, batch: int, context: int) -> Offer:
    """The target alone."""
    base, rest = _base(costs, batch, context)
    step = base.seconds + rest.seconds
    return Offer(
        drafter="none", draft_length=0, batch=batch, al=1.0, step=step, speedup=1.0, low=None, high=None,
        break_even=1.0, draft_overhead=0.0, verify_overhead=1.0, user_tps=1 / step, origin=base.origin,
    )  # fmt: skip


def offer(costs: Costs, curve: Curve, draft_length: int, batch: int, context: int) -> Offer:
    """One drafter at one D, B and context. Speeds count the rest of a pass, overheads and break-even do not.

    Raises `Refused` where a time cannot be told.
    """
    point = curve.points[draft_length]
    base, rest = _base(costs, batch, context)
    verify, drafting, other = _parts(costs, curve, point, draft_length, batch, context)
    step = verify.seconds + drafting.seconds + other.seconds
    gain = speedup(point.value, base.seconds + rest.seconds, verify.seconds + other.seconds, drafting.seconds)
    low, high = _interval(gain, point, _doubt(base, rest), _doubt(verify, drafting, other))
    return Offer(
        drafter=curve.label, draft_length=draft_length, batch=batch, al=point.value, step=step, speedup=gain, low=low,
        high=high, break_even=break_even(base.seconds, verify.seconds, drafting.seconds),
        draft_overhead=drafting.seconds / base.seconds, verify_overhead=verify.seconds / base.seconds,
        user_tps=point.value / step,
        origin="estimated" if "estimated" in (base.origin, verify.origin, drafting.origin) else "derived",
    )  # fmt: skip


def choose(costs: Costs, curves: Sequence[Curve], batch: int, context: int) -> Choice:
    """The fastest at a batch, by the times, of those that surely pay if any does; of equals the smaller D."""
    refused: list[str] = []
    try:
        base = plain(costs, batch, context)
    except Refused as error:
        return Choice(
            batch=batch, verdict="unknown", best=None, plain=None, as_good=(), offers=(), refused=(str(error),)
        )
    found = []
    for curve in curves:
        for d in curve.points:
            try:
                found.append(offer(costs, curve, d, batch, context))
            except Refused as error:
                refused.append(f"{curve.label} D={d}: {error}")
    ranked = sorted(found, key=lambda each: (not pays(each), -each.speedup, each.draft_length, each.drafter))
    best = ranked[0] if ranked else None
    return Choice(
        batch=batch, verdict=_verdict(best), best=best, plain=base,
        as_good=tuple(each for each in ranked[1:] if best and _as_good(each, best)),
        offers=tuple(found), refused=tuple(dict.fromkeys(refused)),
    )  # fmt: skip


def fastest(offers: Iterable[Offer], drafter: str | None = None) -> Offer | None:
    """The fastest, of one drafter if named; None of none."""
    some = [each for each in offers if drafter in (None, each.drafter)]
    return max(some, key=lambda each: (each.speedup, -each.draft_length), default=None)


def _base(costs: Costs, batch: int, context: int) -> tuple[Priced, Priced]:
    place = Place(batch=batch, draft_length=0, context=context)
    return costs.verify(place), costs.other(place)


def _parts(
    costs: Costs, curve: Curve, point: Accepted, draft_length: int, batch: int, context: int
) -> tuple[Priced, Priced, Priced]:
    """T_verif, T_draft and the rest of a mean pass: where a drafter holds back, some passes are plain ones.

    With B rows a pass is plain only if none of them was drafted for; its width is that of a mean proposal.
    """
    wide = Place(batch=batch, draft_length=point.proposed or draft_length, context=context)
    share = 1.0 if point.drafted is None else 1 - (1 - point.drafted) ** batch
    verify, other = costs.verify(wide), costs.other(wide)
    if share < 1:
        narrow = Place(batch=batch, draft_length=0, context=context)
        verify = _mixed(verify, costs.verify(narrow), share)
        other = _mixed(other, costs.other(narrow), share)
    return verify, costs.draft(curve.label, Place(batch=batch, draft_length=draft_length, context=context)), other


def _mixed(wide: Priced, narrow: Priced, share: float) -> Priced:
    doubts = None
    if wide.doubt is not None and narrow.doubt is not None:
        doubts = share * wide.doubt + (1 - share) * narrow.doubt
    seconds = share * wide.seconds + (1 - share) * narrow.seconds
    return Priced(seconds=seconds, doubt=doubts, origin=wide.origin)


def _doubt(*parts: Priced) -> float | None:
    """The relative error of a sum, its parts' taken to point the same way; None where one is not known."""
    doubts = [each.doubt for each in parts if each.doubt is not None]
    return None if len(doubts) < len(parts) else sum(doubts) / sum(each.seconds for each in parts)


def _interval(
    gain: float, point: Accepted, base: float | None, step: float | None
) -> tuple[float | None, float | None]:
    """95 % on the logarithm: acceptance and the two times are taken as independent.

    A mean absolute error is 0.8 of a standard deviation. None where the times come without an error.
    """
    if base is None or step is None:
        return None, None
    times = (1.96 * 1.25) ** 2 * (base**2 + step**2)
    below = math.log(point.value / point.low) if point.low else 0.0
    above = math.log(point.high / point.value) if point.high else 0.0
    return gain * math.exp(-math.sqrt(below**2 + times)), gain * math.exp(math.sqrt(above**2 + times))


def _verdict(best: Offer | None) -> Verdict:
    if best is None:
        return "unknown"
    if best.speedup <= 1:
        return "do_not_speculate"
    return "speculate" if pays(best) else "within_noise"


def pays(each: Offer) -> bool:
    """Whether it is surely faster than the plain target."""
    return each.low > 1 if each.low is not None else each.speedup > 1 + MARGIN


def _as_good(each: Offer, best: Offer) -> bool:
    if each.high is not None and best.low is not None:
        return each.high >= best.low and each.speedup >= 1
    return each.speedup >= best.speedup * (1 - MARGIN)
