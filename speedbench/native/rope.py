"""Positions beyond what a model was made for: its rotary frequencies stretched, because a runner says so.

rope_scaling: {rope_type: dynamic, factor: 4}     # linear, dynamic (NTK) or yarn; as many times the model's positions

A model that was not trained for it reads long prompts poorly, so it is a test of the mechanism, not of the model.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from speedbench.errors import UserError
from speedbench.native.lean import rope

TYPES = ("linear", "dynamic", "yarn")
MOST = 64
"""Beyond this factor it is a slip of the hand."""
MORE = {"yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")}
"""What else a type may be told, as transformers names it."""


def scaled(config: Any, asked: Any) -> Any:
    """A model's config with as many times its positions. Raises `UserError` for a request that does not read, and for a
    model whose frequencies are stretched already."""
    kind, factor, more = _checked(asked)
    found = copy.deepcopy(config)
    text = found.get_text_config()
    own, positions = rope(text), getattr(text, "max_position_embeddings", None)
    if own.get("rope_type", "default") != "default" or positions is None:
        raise UserError(f"engine.rope_scaling: the model has its own already: {own.get('rope_type', 'no positions')}")
    settings = {"rope_theta": own["rope_theta"], "rope_type": kind, "factor": factor, **more}
    if kind == "dynamic":
        settings = {"rope_theta": _ntk(own["rope_theta"], factor, text), "rope_type": "default"}
    if kind == "yarn":
        settings["original_max_position_embeddings"] = positions
    if hasattr(text, "rope_parameters"):
        text.rope_parameters = {**text.rope_parameters, **settings}
    else:  # transformers before 5.0
        text.rope_theta = settings.pop("rope_theta")
        text.rope_scaling = settings if len(settings) > 1 else None
    text.max_position_embeddings = int(positions * factor)
    return found


def warning(asked: Mapping[str, Any], context: int | None) -> str:
    """What to say of every number of such a run."""
    kind, fixed = asked["rope_type"], ", its base fixed at the longest row's"
    how = f"{kind}, factor {asked['factor']}{fixed if kind == 'dynamic' else ''}"
    return (
        f"positions are stretched to {context} (engine.rope_scaling: {how}), for which the model was not trained: "
        "a test of the mechanism, no result about long contexts"
    )


def _checked(asked: Any) -> tuple[str, float, dict[str, Any]]:
    said = f"engine.rope_scaling: should be {{rope_type: {' | '.join(TYPES)}, factor: N}} (got {asked!r})"
    if not isinstance(asked, Mapping) or asked.get("rope_type") not in TYPES:
        raise UserError(said)
    kind, factor = asked["rope_type"], asked.get("factor")
    more = {key: value for key, value in asked.items() if key not in ("rope_type", "factor")}
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 < factor <= MOST:
        raise UserError(f"engine.rope_scaling.factor: should be a number above 1, up to {MOST} (got {factor!r})")
    for key, value in more.items():
        if key not in MORE.get(kind, ()):
            have = ", ".join(("rope_type", "factor", *MORE.get(kind, ())))
            raise UserError(f"engine.rope_scaling.{key}: unknown to '{kind}'. Have: {have}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UserError(f"engine.rope_scaling.{key}: should be a number (got {value!r})")
    return kind, float(factor), more


def _ntk(base: float, factor: float, config: Any) -> float:
    """The base that transformers' dynamic NTK comes to at the longest row. There it grows with the row, and so with
    drafts that are then refused: greedy answers would depend on D, and keys in the cache would not match."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = int(size * (getattr(config, "partial_rotary_factor", None) or 1.0))
    return float(base * (factor * factor - factor + 1) ** (turned / (turned - 2)))
