"""What fits: weights, caches and states of target and drafter, and the batch that a drafter takes away."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

from speedbench.advise.roofline import BLOCK_LAYERS, MARKOV_RANK, PRUNED, Deployment
from speedbench.types import ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a drafter weighs beside its target, in bytes."""

    weights: float
    per_token: float
    """Of its cache."""
    origin: str
    """How it is known: measured, counted, or assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Memory of all devices together, at one context and D. None: the device's memory is not known."""

    drafter: str
    draft_length: int
    weights: float
    draft_weights: float
    per_sequence: float
    """Cache and states of one sequence, target's and drafter's."""
    largest: int | None
    """The largest batch that fits."""
    lost: int | None
    """Of the batch that fits without drafter."""


def weight(on: Deployment, mechanism: str, external: ModelFacts | None = None) -> Weight | None:
    """Of a drafter by its mechanism; None where nothing tells."""
    facts, wide = on.facts, on.weight_bytes
    entry = 2 * facts.kv_heads * facts.head_dim * on.kv_bytes
    if mechanism in ("ngram", "suffix", "none", "oracle", "synthetic"):
        return Weight(weights=0.0, per_token=0.0, origin="counted")
    if external is not None:
        own = Deployment(facts=external, hardware=on.hardware, gpus=on.gpus, weight_bytes=external.weight_bytes)
        return Weight(weights=own.weights, per_token=own.cache_bytes(1), origin="counted")
    if mechanism == "mtp":
        layers = max(1, facts.drafting)
        one = (facts.mixer_weights + facts.mlp_weights) / facts.layers + facts.experts_weights / max(1, facts.mixtures)
        return Weight(weights=layers * one * wide, per_token=layers * on.entry_bytes, origin="counted")
    if mechanism == "eagle3":
        weights = 16 * facts.hidden**2 + min(facts.head_weights, PRUNED * facts.hidden)
        return Weight(weights=weights * 2, per_token=entry, origin="assumed")
    if mechanism in ("dflash", "dspark"):
        markov = 2 * facts.vocab * MARKOV_RANK if mechanism == "dspark" else 0
        weights = BLOCK_LAYERS * 16 * facts.hidden**2 + markov
        return Weight(weights=weights * 2, per_token=BLOCK_LAYERS * entry, origin="assumed")
    return None


def room(on: Deployment, label: str, draft_length: int, drafter: Weight, tokens: int) -> Room:
    """What fits with sequences of `tokens`; a recurrent state is kept 1 + D times, to go back to any of them."""
    alone = on.cache_bytes(tokens) + on.facts.state
    each = on.cache_bytes(tokens) + drafter.per_token * tokens + on.facts.state * (1 + draft_length)
    largest, without = _largest(on, drafter.weights, each), _largest(on, 0.0, alone)
    return Room(
        drafter=label, draft_length=draft_length, weights=on.weights, draft_weights=drafter.weights,
        per_sequence=each, largest=largest, lost=None if largest is None or without is None else without - largest,
    )  # fmt: skip


def _largest(on: Deployment, beside: float, each: float) -> int | None:
    if on.hardware.memory is None:
        return None
    left = on.usable * on.hardware.memory * on.gpus - on.weights - beside
    return max(0, math.floor(left / each)) if each > 0 else None
