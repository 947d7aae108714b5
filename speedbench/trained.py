"""What is known of the repository's trained drafters, from their files alone: nothing is loaded or unpacked."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from speedbench import content
from speedbench.errors import UserError

_FLOATS = ("BF16", "F16", "F32", "F64")
_BYTES = 2
"""Of a number in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One trained drafter. What its `training.json` does not say is None."""

    name: str
    """As a runner names it: `drafters/TARGET/DRAFTER`."""
    drafter: str
    parameters: int
    """All that it holds, be it trained or the target's own."""
    bytes_bf16: int
    """Of its parameters, in memory in bfloat16."""
    bytes_stored: int
    """Of its folder."""
    kv_bytes_per_token: int | None
    """Keys and values that it keeps for a token of a row, in bfloat16; None where its config does not say."""
    trained_tokens: int | None
    """Answer tokens seen in training, again and again counted."""
    trained_seconds: float | None
    al_d4: float | None
    """Acceptance length at D = 4 on held-out answers of the same making as those it learned from."""


def checkpoints() -> tuple[Checkpoint, ...]:
    """Those of the checkout, by drafter and target. Raises `UserError` for one whose files do not read."""
    found = [_read(path.parent) for path in content.drafters().glob("*/*/config.json")]
    return tuple(sorted(found, key=lambda one: (one.drafter, one.name)))


def _read(folder: Path) -> Checkpoint:
    name = f"drafters/{folder.parent.name}/{folder.name}"
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        log = folder / "training.json"
        told = json.loads(log.read_text("utf-8")) if log.is_file() else {}
        tensors = _tensors(folder)
        parameters = sum(prod(said["shape"]) for said in tensors.values() if said["dtype"] in _FLOATS)
        return Checkpoint(
            name=name,
            drafter=told.get("drafter", folder.name),
            parameters=parameters,
            bytes_bf16=_BYTES * parameters,
            bytes_stored=sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
            kv_bytes_per_token=_kv(config.get("transformer_layer_config", config)),
            trained_tokens=told.get("tokens_seen"),
            trained_seconds=told.get("seconds"),
            al_d4=told.get("val_al_d4"),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"'{name}' does not read: {error!r}") from None


def _tensors(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Dtype and shape of every tensor, from `packed.json` or the headers of the safetensors."""
    packed = folder / "packed.json"
    if packed.is_file():
        said: Mapping[str, Mapping[str, Any]] = json.loads(packed.read_text("utf-8"))["tensors"]
        return said
    found: dict[str, Mapping[str, Any]] = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        found |= {name: said for name, said in header.items() if name != "__metadata__"}
    return found


def _kv(body: Mapping[str, Any]) -> int | None:
    """Bytes of keys and values a token, from a transformers config."""
    heads = body.get("num_attention_heads")
    kv_heads = body.get("num_key_value_heads") or heads
    size = body.get("head_dim") or (body["hidden_size"] // heads if heads and "hidden_size" in body else None)
    if not kv_heads or not size or "num_hidden_layers" not in body:
        return None
    return 2 * _BYTES * int(body["num_hidden_layers"]) * int(kv_heads) * int(size)
