"""Throughput against interactivity: tokens/s/GPU over tokens/s/user, with and without speculation."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speedbench.advise.offers import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One way to serve: at this batch, with this drafter and D."""

    batch: int
    drafter: str
    draft_length: int
    user_tps: float
    gpu_tps: float


def points(offers: Iterable[Offer], gpus: int) -> list[Point]:
    """At fixed B both axes are proportional to AL / seconds of a pass."""
    return [
        Point(
            batch=each.batch, drafter=each.drafter, draft_length=each.draft_length, user_tps=each.user_tps,
            gpu_tps=each.batch * each.user_tps / gpus,
        )
        for each in offers
    ]  # fmt: skip


def frontier(some: Sequence[Point]) -> list[Point]:
    """The points that none beats on both axes, by falling tokens/s/user: a staircase, for deployments are not mixed."""
    kept: list[Point] = []
    for each in sorted(some, key=lambda point: (-point.user_tps, -point.gpu_tps)):
        if not kept or each.gpu_tps > kept[-1].gpu_tps:
            kept.append(each)
    return kept


def within(some: Sequence[Point], user_tps: float) -> Point | None:
    """The most tokens/s/GPU among those that give each user so many; None where none does."""
    return max((each for each in some if each.user_tps >= user_tps), key=lambda each: each.gpu_tps, default=None)


def matched(some: Sequence[Point], gpu_tps: float) -> Point | None:
    """The most tokens/s/user among those with at least so many tokens/s/GPU; None where none has."""
    return max((each for each in some if each.gpu_tps >= gpu_tps), key=lambda each: each.user_tps, default=None)
