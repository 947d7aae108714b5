"""EAGLE-3: three of the target's states fused by one matrix, beside the next token's embedding, through one layer.

Li et al. 2025 (arXiv 2503.01840). Rules as in EAGLE `eagle/model/cnets.py`, SpecForge
`specforge/modeling/draft/llama3_eagle.py` and vLLM `model_executor/models/llama_eagle3.py`; the variants (norms before
the fusion, which residual, which output is recycled) as speculators `models/eagle3` names them.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor

from speedbench.native.head import Head, rms_norm
from speedbench.native.packed import linear
from speedbench.native.proposer import Near, Plan
from speedbench.native.serial import Serial


class Eagle3:
    """g = fc(states, raw, low layers first); layer 0 reads [norm(embedding) ; norm(g)] and adds to g."""

    def __init__(self, head: Head, dtype: torch.dtype, device: torch.device) -> None:
        self._spec = head.spec

        def get(name: str) -> Tensor:
            return head.tensors[f"{name}.weight"].to(device=device, dtype=dtype)

        taps = range(len(head.spec.taps))
        self._tap_norms = [get(f"fc_norm.{k}") for k in taps] if head.spec.fc_norm else None
        self._all_norm = get("input_norm") if head.spec.norm_before_fc else None
        self._fc = linear(get("fc"))
        self._embedding_norm, self._state_norm = get("layers.0.input_layernorm"), get("hidden_norm")

    def read(self, features: Tensor) -> Tensor:
        """The norm of all taps comes first where a head has both (vLLM `llama_eagle3.py` combine_hidden_states)."""
        if self._all_norm is not None:
            features = rms_norm(features, self._all_norm, self._spec)
        if self._tap_norms is not None:
            each = features.chunk(len(self._tap_norms), -1)
            pairs = zip(each, self._tap_norms, strict=True)
            features = torch.cat([rms_norm(state, norm, self._spec) for state, norm in pairs], -1)
        return self._fc(features.flatten(0, 1)).view(*features.shape[:2], -1)

    def enter(self, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        normed = rms_norm(g, self._state_norm, self._spec)
        z = torch.cat([rms_norm(embedded, self._embedding_norm, self._spec), normed], -1)
        return (normed if self._spec.norm_before_residual else g), z


def build(plan: Plan, near: Near, *, checkpoint: str, allow_bin: bool = False) -> Serial:
    target = near.target
    head = near.head(checkpoint, "eagle3", allow_bin)
    return Serial(head, Eagle3(head, target.dtype, target.device), target, plan)
