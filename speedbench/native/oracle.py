"""Drafters that replay the baseline's own output: the oracle, always right, and the synthetic, as often as told.

The oracle's speed is the ceiling that verification sets. Synthetic acceptance prescribes how many drafts are right and
spoils the next one, so that the output stays the target's while the acceptance length is forced.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speedbench.errors import UserError
from speedbench.native.proposer import LookUp, Near, Plan, Row


@dataclass(slots=True)
class Oracle(LookUp):
    """Proposes what the baseline said next, as long as the row has said the same so far."""

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        said = row.ids[row.prompt :]
        expected = row.expected or ()
        if list(expected[: len(said)]) != said:
            return ()
        return expected[len(said) : len(said) + room]


@dataclass(slots=True)
class Synthetic(Oracle):
    """Accepts in expectation what it is told: `rates[i]` is the chance that draft i is right given those before it."""

    rates: tuple[float, ...] = ()
    vocab: int = 2

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        right = list(Oracle.look_up(self, row, room))
        luck = row.dice.random(len(right))
        wrong = next((i for i in range(len(right)) if luck[i] >= self.rates[i]), None)
        if wrong is not None:
            right[wrong] = (right[wrong] + 1) % self.vocab
        return right


def schedule(draft_length: int, rate: float | None, acceptance_length: float | None) -> tuple[float, ...]:
    """Conditional acceptance per draft position: one `rate` for all, or the least-variance schedule for a mean
    acceptance length (as vLLM's synthetic sampler: 3.78 at D=7 gives 1, 1, 0.78, 0, 0, 0, 0)."""
    if acceptance_length is None:
        return (0.7 if rate is None else rate,) * draft_length
    left = acceptance_length - 1
    return tuple(float(np.clip(left - i, 0, 1)) for i in range(draft_length))


def build(
    plan: Plan,
    near: Near,
    *,
    forced: bool = False,
    rate: float | None = None,
    acceptance_length: float | None = None,
) -> Oracle:
    if plan.sampling.temperature > 0:
        name = "synthetic" if forced else "oracle"
        raise UserError(f"drafter '{name}' replays the baseline's greedy output; it needs --temperature 0")
    if not forced:
        return Oracle(device=plan.device)
    rates = schedule(plan.draft_length, rate, acceptance_length)
    return Synthetic(device=plan.device, rates=rates, vocab=near.target.vocab)
