"""Made-up times whose terms are known, so that a fit can be held against what made them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from speedbench import modelfacts
from speedbench.costs.passes import distinct_experts, tiles
from speedbench.types import ModelFacts, Timed


@dataclass(frozen=True)
class Law:
    """T(B, D, S) in seconds: fixed, per token, per woken expert, per token of context and per tile of it."""

    facts: ModelFacts
    fixed: float
    token: float
    expert: float
    context: float
    tile: float

    def __call__(self, batch: float, draft_length: float, context: float) -> float:
        x, seen, mixture = batch * (1 + draft_length), batch * context, self.facts.mixture
        woken = distinct_experts(mixture.experts, mixture.active, x) if mixture else 0.0
        paid = seen * tiles(self.facts.group, draft_length)
        return self.fixed + self.token * x + self.expert * woken + self.context * seen + self.tile * paid


dense = Law(modelfacts.load("qwen3-32b"), 8e-3, 1.5e-5, 0.0, 8e-9, 4e-9)
moe = Law(modelfacts.load("qwen3.5-122b-a10b"), 3e-3, 1e-5, 6e-5, 1e-9, 1e-9)


def timed(batch: int, draft_length: int, context: int, verify: float, **given: Any) -> Timed:
    fixed: dict[str, Any] = {"drafter": None, "draft": None, "other": 1e-4, "spread": 0.02, "rounds": 7, **given}
    return Timed(batch=batch, draft_length=draft_length, context=context, verify=verify, **fixed)
