"""The guidelines at one batch, each beside the optimum by what was measured, and whether the two disagree."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from speedbench import plugins
from speedbench.advise import guidelines
from speedbench.advise.curves import Curve, Seen
from speedbench.advise.guidelines import Guideline
from speedbench.advise.memory import Room
from speedbench.advise.offers import MARGIN, Choice, Costs, fastest
from speedbench.advise.roofline import Deployment
from speedbench.costs.linear import Place, Refused

Speeds = Mapping[tuple[str, int], float]
"""Speedups by drafter and D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the rules are held against."""

    on: Deployment
    costs: Costs
    curves: Sequence[Curve]
    seen: Sequence[Seen]
    context: int
    by: str
    """What the times rest on."""
    share: Callable[[Place], float | None]
    """Full attention's share of a pass."""
    contexts: tuple[int, ...]
    """Those that were measured; empty: times are known at any."""
    layers: Mapping[str, int]
    """By label, the layers of a serial drafter, where they are known."""


def every(ground: Ground, choice: Choice, rooms: Mapping[str, Room]) -> list[Guideline]:
    """All that the guidelines say at one batch."""
    on, batch = ground.on, choice.batch
    speeds, by = _speeds(ground, choice)
    best = max(speeds, key=lambda key: (speeds[key], -key[1]), default=None)
    d = best[1] if best and speeds[best] > 1 else 0
    share = ground.share(Place(batch=batch, draft_length=0, context=ground.context))
    latent = bool(on.facts.latent)
    found = []
    try:
        found.append(_beside(guidelines.gemm_room(on, batch), speeds, best, by, is_limit=True))
    except Refused as error:
        found.append(_silent(1, "D up to which linear layers have room", str(error)))
    start = _hybrid(guidelines.attention_start(on.local_group, latent=latent, share=share), on)
    found.append(_beside(start, speeds, best, by))
    nearby = guidelines.align(
        on.local_group, d or min(guidelines.MOST, max(1, int(start.value or 1))), latent=latent, share=share
    )
    found.append(_beside(nearby, speeds, best, by))
    found += [_latency(ground, curve, choice, speeds, by) for curve in ground.curves]
    return [*found, _mechanism(choice, speeds, best, by, rooms)]


def _speeds(ground: Ground, choice: Choice) -> tuple[Speeds, str]:
    """Measured end to end at this batch where that was done, else by acceptance and times."""
    seen = {(each.label, each.draft_length): each.speedup for each in ground.seen if each.batch == choice.batch}
    if seen:
        return seen, "measured end to end"
    return {(each.drafter, each.draft_length): each.speedup for each in choice.offers}, f"by {ground.by}"


def _beside(
    rule: Guideline, speeds: Speeds, best: tuple[str, int] | None, by: str, *, is_limit: bool = False
) -> Guideline:
    """The rule with the optimum D; a limit disagrees when the optimum is beyond it."""
    if best is None:
        return rule
    optimum = best[1] if speeds[best] > 1 else 0
    agrees = None
    if isinstance(rule.value, int) and rule.applies:
        at = speeds.get((best[0], rule.value), 1.0 if rule.value == 0 else None)
        if is_limit:
            agrees = optimum <= rule.value
        elif at is not None:
            agrees = at >= max(speeds[best], 1.0) * (1 - MARGIN)
    return replace(rule, optimum=optimum, optimum_by=by, agrees=agrees)


def _latency(ground: Ground, curve: Curve, choice: Choice, speeds: Speeds, by: str) -> Guideline:
    """Rule 4 for one drafter: ρ by layers where they are known, else what drafting takes by the times."""
    own = {key: speed for key, speed in speeds.items() if key[0] == curve.label}
    best = max(own, key=lambda key: (own[key], -key[1]), default=None)
    try:
        rule = guidelines.latency_limit(curve, _rho(ground, curve, choice.batch))
    except Refused as error:
        return _silent(4, f"D at very low latency ({curve.label})", str(error))
    small = choice.batch <= 4
    why = rule.why if small else f"{rule.why}; B={choice.batch} is not very low latency"
    return _beside(replace(rule, applies=small, why=why), own, best, by)


def _rho(ground: Ground, curve: Curve, batch: int) -> float | dict[int, float]:
    layers = ground.layers.get(curve.label)
    if layers:
        return layers / ground.on.facts.layers
    places = {d: Place(batch=batch, draft_length=d, context=ground.context) for d in curve.points}
    alone = ground.costs.verify(Place(batch=batch, draft_length=0, context=ground.context)).seconds
    return {d: ground.costs.draft(curve.label, place).seconds / alone for d, place in places.items()}


def _mechanism(
    choice: Choice, speeds: Speeds, best: tuple[str, int] | None, by: str, rooms: Mapping[str, Room]
) -> Guideline:
    """Rule 5: the fastest drafter of those that fit, and what it costs to have."""
    title = "draft mechanism"
    fitting = [each for each in choice.offers if _fits(rooms.get(each.drafter), choice.batch)]
    offer = fastest(fitting)
    if offer is None:
        said = "; ".join(choice.refused[:2]) or "no drafter has acceptance lengths here"
        return _silent(5, title, said)
    excluded = sorted({each.drafter for each in choice.offers} - {each.drafter for each in fitting})
    why = f"{offer.speedup:.2f}x at D={offer.draft_length} by acceptance and times{_training(offer.drafter)}"
    if excluded:
        why += f"; {', '.join(excluded)} would not fit into memory at B={choice.batch}"
    value = offer.drafter if offer.speedup > 1 else "none"
    at = max((speed for key, speed in speeds.items() if key[0] == value), default=1.0)
    top = max([*speeds.values(), 1.0])
    return Guideline(
        number=5, title=title, value=value, why=why, applies=True, inputs={"B": choice.batch},
        optimum=None if best is None else best[0] if speeds[best] > 1 else "none", optimum_by=by,
        agrees=at >= top * (1 - MARGIN) if speeds else None,
    )  # fmt: skip


def _fits(room: Room | None, batch: int) -> bool:
    return room is None or room.largest is None or room.largest >= batch


def _training(label: str) -> str:
    if label not in plugins.names("drafters"):
        return ""
    training = plugins.load("drafters", label).training
    return f"; training: {training}" if training else ""


def _hybrid(rule: Guideline, on: Deployment) -> Guideline:
    """What rules 2 and 3 leave out of account in a model with few layers of full attention."""
    facts = on.facts
    if facts.full == facts.layers:
        return rule
    return replace(rule, why=f"{rule.why}; it concerns {facts.full} of {facts.layers} layers")


def _silent(number: int, title: str, why: str) -> Guideline:
    return Guideline(number=number, title=title, value=None, why=why, applies=False)
