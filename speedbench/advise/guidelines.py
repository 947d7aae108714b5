"""The article's five guidelines as functions, each a named result that says why, from what, and whether it applies.

"Co-Designing AI Models Using Speculative Decoding for Faster LLM Inference", NVIDIA technical blog, 2026-09-02.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speedbench.advise.curves import Curve
from speedbench.advise.roofline import Deployment
from speedbench.costs.passes import TILE, distinct_experts, tiles
from speedbench.types import Mixture

MOST = 32
"""Drafts beyond which no D is proposed: no published acceptance length gains there."""

FULL_TILE = 0.9
"""Share of a tile's rows in use that has to do where no D nearby fills it."""

FAR = 1000
"""The largest D that is looked for."""

DOMINATES = 0.5
"""Share of a pass above which attention is said to dominate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guideline:
    """What a rule says. `value` None: it says nothing here, and `why` says why not."""

    number: int
    title: str
    value: int | str | None
    why: str
    applies: bool
    inputs: Mapping[str, Any] = field(default_factory=dict)
    optimum: int | str | None = None
    """What is best by what was measured or, failing that, by the times; None: nothing says."""
    optimum_by: str = ""
    """What says so."""
    agrees: bool | None = None
    """Whether following the rule costs less than 2 % of the speed at the optimum; None: not to be told."""


# ---- 1: products --------------------------------------------------------------------------------------------------


def gemm_room(on: Deployment, batch: int) -> Guideline:
    """The largest D at which products still wait for their weights: B·(1+D) ≤ M*, or the rows of each expert ≤ M*."""
    facts, turning = on.facts, on.turning_rows
    mixture = facts.mixture
    dense = _room(batch, turning)
    if mixture:
        value, binding = _expert_room(batch, turning, mixture), "experts"
        rows = _rows(batch * (1 + value), mixture)
        why = f"at D={value} each expert woken gets {rows:.0f} rows of the M*={turning:.0f} that turn it compute-bound"
        why += f"; the layers that every token passes have room up to D={dense}"
    else:
        value, binding = dense, "linear layers"
        why = f"B·(1+D) = {batch * (1 + value)} of the M*={turning:.0f} rows that turn a product compute-bound"
    over = _rows(batch, mixture) > turning
    if over:
        why = f"B={batch} is beyond M*={turning:.0f} rows already: every draft token is paid in full"
    return Guideline(
        number=1, title="D up to which linear layers have room", value=value, why=why,
        applies=not over, inputs={"B": batch, "M*": round(turning, 1), "binding": binding, "format": on.format},
    )  # fmt: skip


def _room(batch: int, turning: float) -> int:
    return max(0, math.floor(turning / batch + 1e-9) - 1)


def _rows(tokens: float, mixture: Mixture | None) -> float:
    """Rows of a product for so many tokens: all of them, or those of one woken expert, x·k / N_e(x)."""
    if mixture is None:
        return tokens
    return tokens * mixture.active / distinct_experts(mixture.experts, mixture.active, tokens)


def _expert_room(batch: int, turning: float, mixture: Mixture) -> int:
    """Rows per woken expert grow with the tokens, so the largest D is found by halving; at most FAR."""
    low, high = 0, FAR
    while low < high:
        middle = (low + high + 1) // 2
        fits = _rows(batch * (1 + middle), mixture) <= turning
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


# ---- 2 and 3: attention -------------------------------------------------------------------------------------------


def attention_start(group: int, *, latent: bool = False, share: float | None = None, tile: int = TILE) -> Guideline:
    """D = ⌊128/G⌋ − 1, at least 0: the drafts that fill a tile of attention's queries. Not for latent attention.

    `share` is attention's share of a pass; None: not known, and then the rule is not applied.
    """
    inputs = {"G": group, "tile": tile, "attention share": share}
    title = "D at which attention's tile is full"
    if latent:
        why = f"latent attention shares one entry among {group} heads, so a tile is full without drafts: see rule 1"
        return Guideline(number=2, title=title, value=None, why=why, applies=False, inputs=inputs)
    value = max(0, tile // group - 1)
    used = group * (1 + value)
    why = f"G·(1+D) = {used} of {tile}" + ("" if used == tile else ", which no D makes exact")
    if value > MOST:
        why += f"; D={value} is out of any drafter's reach, where acceptance bounds D"
    return Guideline(
        number=2, title=title, value=value, why=f"{why}; {_gate(share)}",
        applies=value <= MOST and share is not None and share > DOMINATES, inputs=inputs,
    )  # fmt: skip


def align(
    group: int, draft_length: int, *, latent: bool = False, share: float | None = None, tile: int = TILE
) -> Guideline:
    """The D nearest to `draft_length`, within a tile of it, that fills attention's tiles, or all but fills them.

    Of two as near, the smaller. It concerns a D beyond the first full tile only.
    """
    inputs = {"G": group, "D": draft_length, "tile": tile, "attention share": share}
    title = "D nearby that leaves no tile half empty"
    if latent:
        why = "latent attention fills its tile without drafts"
        return Guideline(number=3, title=title, value=None, why=why, applies=False, inputs=inputs)
    step = tile // math.gcd(tile, group)
    near = range(max(1, draft_length - tile // group), min(MOST, draft_length + tile // group) + 1)
    good = [d for d in near if (1 + d) % step == 0] or [d for d in near if fullness(group, d, tile) >= FULL_TILE]
    value = min(good or [draft_length], key=lambda d: (abs(d - draft_length), d))
    here, there = fullness(group, draft_length, tile), fullness(group, value, tile)
    why = f"D={draft_length} uses {100 * here:.0f} % of its tiles' rows, D={value} {100 * there:.0f} %"
    beyond = group * (1 + draft_length) > tile
    why += "" if beyond else f"; below one tile (G·(1+D) ≤ {tile}) nothing is wasted yet"
    return Guideline(
        number=3, title=title, value=value, why=f"{why}; {_gate(share)}",
        applies=beyond and share is not None and share > DOMINATES, inputs=inputs,
    )  # fmt: skip


def fullness(group: int, draft_length: int, tile: int = TILE) -> float:
    """Rows in use of the tiles paid for: G·(1+D) / (128·⌈G·(1+D)/128⌉)."""
    return group * (1 + draft_length) / (tile * tiles(group, draft_length, tile))


def intensity(group: int, draft_length: int, kv_bytes: float) -> float:
    """FLOP per byte of decode attention: 2·G·(1+D)/b with b bytes per element of the cache; 2·G only at FP8, D=0."""
    return 2 * group * (1 + draft_length) / kv_bytes


def _gate(share: float | None) -> str:
    if share is None:
        return "attention's share of a pass is not known"
    said = "dominates" if share > DOMINATES else "does not dominate"
    return f"attention {said}: {100 * share:.0f} % of a pass"


# ---- 4: low latency -----------------------------------------------------------------------------------------------


def latency_limit(curve: Curve, rho: float | Mapping[int, float]) -> Guideline:
    """The D that maximises AL/(1+ρD), D = 0 among them; with a warning where it is the last one measured.

    `rho` is L_draft / L_target of a serial drafter, or T_draft(D) / T_verif by D of any other.
    """
    paid = {d: rho * d if isinstance(rho, float) else rho[d] for d in curve.points}
    speeds = {0: 1.0, **{d: point.value / (1 + paid[d]) for d, point in curve.points.items()}}
    value = max(speeds, key=lambda d: (speeds[d], -d))
    why = f"AL/(1+{'ρD' if isinstance(rho, float) else 'O_d'}) = {speeds[value]:.2f} there"
    after = [d for d in curve.points if d > value]
    if after:
        up = min(after)
        why += f"; D={up} would give {speeds[up]:.2f}"
    elif value:
        why += "; the optimum is at the edge of the measured range: measure larger D"
    told = {"rho": round(rho, 5)} if isinstance(rho, float) else {"O_d": round(paid.get(value, 0.0), 4)}
    return Guideline(
        number=4, title=f"D at very low latency ({curve.label})", value=value, why=why, applies=True,
        inputs={"drafter": curve.label, **told},
    )  # fmt: skip


# ---- the formula ---------------------------------------------------------------------------------------------------


def speedup(al: float, t_plain: float, t_verify: float, t_draft: float) -> float:
    """T_verif(B)·AL / (T_verif(B(1+D)) + T_draft(B, D))."""
    return t_plain * al / (t_verify + t_draft)


def break_even(t_plain: float, t_verify: float, t_draft: float) -> float:
    """The AL at which the speedup is 1."""
    return (t_verify + t_draft) / t_plain
