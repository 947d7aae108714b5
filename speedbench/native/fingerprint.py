"""Which weights a target has, in sixteen letters: a head says what it was trained for, a run what it drafts for.

Some rows of every matrix and all of every vector of the checkpoint, as bfloat16: fine-tuning, merging an adapter or
another quantisation changes some of them, and copying the model to another dtype or into other files does not. Numbers
below 2^-14 count as 0, for float16 holds them less exactly than bfloat16. Reading them takes a moment at any size.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from speedbench.native import weights

ROWS = 4
"""Of each matrix, evenly spaced from the first."""
TINY = 2.0**-14

_LAYER = re.compile(r"\.(\d+)\.")
_LEFT_OUT = ("lm_head.", "mtp.", "mtp_layers.")
"""Beginnings of names: what a copy may lack, being the embedding again or a head of its own."""


def fingerprint(home: Path) -> str:
    """Of the model in a folder of safetensors."""
    tensors, layers = weights.Tensors(home), text_config(home).get("num_hidden_layers")
    files: dict[str, list[str]] = defaultdict(list)
    for name in tensors:
        files[tensors.file(name)].append(name)
    digests: dict[str, bytes] = {}
    for file, names in files.items():
        with safe_open(home / file, "pt") as opened:
            for name in names:
                bare = name.removeprefix("model.")
                if _counts(bare, layers):
                    digests[bare] = _digest(opened, name)
    whole = hashlib.sha256()
    for bare in sorted(digests):
        whole.update(bare.encode() + digests[bare])
    return whole.hexdigest()[:16]


def text_config(home: Path) -> dict[str, Any]:
    """The config of the language model in a folder."""
    config: dict[str, Any] = json.loads((home / "config.json").read_text("utf-8"))
    return config.get("text_config") or config


def _counts(bare: str, layers: int | None) -> bool:
    """DeepSeek's MTP head is a decoder layer more than the config counts."""
    index = _LAYER.search(bare)
    beyond = index is not None and layers is not None and bare.startswith("layers.") and int(index[1]) >= layers
    return not (beyond or bare.startswith(_LEFT_OUT) or "rotary_emb" in bare)


def _digest(opened: Any, name: str) -> bytes:
    """Of one tensor; none of what is no floating point."""
    part = opened.get_slice(name)
    shape = part.get_shape()
    if len(shape) < 2:
        found = [opened.get_tensor(name)]
    else:
        found = [part[r : r + 1] for r in range(0, shape[0], max(1, shape[0] // ROWS))[:ROWS]]
    if not all(x.is_floating_point() for x in found):
        return b""
    kept = [x.to(torch.bfloat16).masked_fill(x.float().abs() < TINY, 0.0) for x in found]
    return hashlib.sha256(b"".join(x.contiguous().view(torch.int16).numpy().tobytes() for x in kept)).digest()
