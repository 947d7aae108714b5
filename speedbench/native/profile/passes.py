"""T_verif and T_draft: points of one batch and context in turns, there and back, so that drift falls on all alike."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from speedbench.native.decode import Decoder
from speedbench.native.profile.forced import ACCEPTED, Forced, Given
from speedbench.native.proposer import Plan
from speedbench.native.target import Target
from speedbench.types import Sampling, Timed

ROUNDS, FEWEST, BURST = 7, 3, 3
"""Rounds over the points of a group, the fewest that are a result, and passes of a point in a round."""

Build = Callable[[int, int, int], Decoder]
"""(D, rows, slots of a row) → a decoder with the drafter at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Which passes to time."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    """0 the first."""
    contexts: tuple[int, ...]
    static: bool
    drafters: tuple[tuple[str, Build], ...] = ()


@dataclass(slots=True)
class Arm:
    """One point being timed, and the medians of its rounds."""

    drafter: str | None
    draft_length: int
    decoder: Forced
    verify: list[float] = field(default_factory=list)
    draft: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    def burst(self) -> None:
        self.decoder.rewind()
        self.decoder.resume()
        passes = [self.decoder.step()[0] for _ in range(BURST)]
        self.verify.append(median(each.verify or 0.0 for each in passes))
        self.draft.append(median(each.draft or 0.0 for each in passes))
        self.other.append(median(each.other or 0.0 for each in passes))

    def forget(self) -> None:
        for each in (self.verify, self.draft, self.other):
            each.clear()

    def timed(self, batch: int, context: int, base: Arm, again: Arm | None, level: float) -> Timed:
        """Seconds as the median ratio to `base` in the same round, times its `level`: what slows a round slows both."""
        ratios = sorted(ours / theirs for ours, theirs in zip((again or self).verify, base.verify, strict=True))
        tenth = len(ratios) // 10
        return Timed(
            drafter=self.drafter, batch=batch, draft_length=self.draft_length, context=context,
            verify=level if again else level * median(ratios),
            draft=None if self.drafter is None else level * _ratio(self.draft, base.verify),
            other=level * _ratio(self.other, base.verify),
            spread=(ratios[-1 - tenth] - ratios[tenth]) / median(ratios), rounds=len(ratios),
            again=None if again is None else level * median(ratios),
        )  # fmt: skip


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def fits(target: Target, rows: int, length: int, free: float) -> bool:
    """Whether a cache of that size would leave a quarter of the free memory."""
    one = target.slots(1, 1)
    return rows * length * one.bytes_per_token <= 0.75 * free


def plain_arms(target: Target, grid: Grid, batch: int, context: int) -> list[Arm]:
    """The baseline, itself again, and every D with drafts that cost nothing."""
    slots = target.slots(batch, _length(context, max(grid.lengths)), static=grid.static)
    made = []
    for d in (0, *grid.lengths):  # of which the first is 0: the baseline stands twice
        plan = _plan(target, d, batch, slots.length, static=grid.static)
        given = Given(device=target.device) if d else None
        made.append(Arm(None, d, Forced(target, given, plan, slots, context)))
    return made


def alone(target: Target, tokens: int) -> Decoder:
    """The target without a drafter, with room for one prompt."""
    slots = target.slots(1, tokens + 2)
    return Decoder(target, None, _plan(target, 0, 1, slots.length, static=False), slots)


def drafted_arms(target: Target, grid: Grid, batch: int, context: int) -> list[Arm]:
    """The baseline, and every drafter at every D that is not 0."""
    length = _length(context, max(grid.lengths))
    made = plain_arms(target, replace(grid, lengths=(0,)), batch, context)
    for label, build in grid.drafters:
        for d in (d for d in grid.lengths if d):
            like = build(d, batch, length)
            plan = _plan(target, d, batch, like.slots.length, static=grid.static)
            made.append(Arm(label, d, Forced(target, like.proposer, plan, like.slots, context)))
    return made


def measure(arms: Sequence[Arm], batch: int, context: int, deadline: float, level: float | None = None) -> list[Timed]:
    """Each point, by as many rounds as the time allows but FEWEST at least; of two baselines the first carries both.

    With `level`, the baseline's seconds as measured before, the baseline is measured to compare with and not returned.
    """
    for arm in arms:
        arm.decoder.fill()
        arm.burst()  # warms up; not kept
        arm.forget()
    for turn in range(ROUNDS):
        if turn >= FEWEST and time.perf_counter() > deadline:
            break
        for arm in arms if turn % 2 == 0 else reversed(arms):
            arm.burst()
    for arm in arms:
        arm.decoder.empty()
    first, *rest = arms
    twin = next((arm for arm in rest if (arm.drafter, arm.draft_length) == (None, 0)), None)
    kept = [arm for arm in arms if arm is not twin and (arm is not first or level is None)]
    known = median(first.verify) if level is None else level
    return [arm.timed(batch, context, first, twin if arm is first else None, known) for arm in kept]


def _plan(target: Target, draft_length: int, rows: int, length: int, *, static: bool) -> Plan:
    return Plan(
        draft_length=draft_length, rows=rows, length=length, static=static, sampling=Sampling(), stops=frozenset(),
        device=target.device,
    )  # fmt: skip


def _length(context: int, widest: int) -> int:
    """Slots of a row: the context, what all rounds commit, and the widest window."""
    return context + (ROUNDS + 1) * BURST * (1 + ACCEPTED) + widest + 2


def free_memory(device: torch.device) -> float:
    """Bytes that a cache may take of."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    import psutil

    return float(psutil.virtual_memory().available)
