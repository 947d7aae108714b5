"""MTP: the block that a target was trained with to say the token after the next, run on its own output for more.

DeepSeek-V3 (arXiv 2412.19437 §2.2), one module used for every draft as TensorRT-LLM's MTP-Eagle does
(`tensorrt_llm/_torch/speculative/mtp.py`). It reads the target's final state after the last norm and recycles its own
after its last norm (vLLM `model_executor/models/qwen3_next_mtp.py`, `mimo_mtp.py`; SGLang
`srt/models/deepseek_nextn.py`).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor

from speedbench.native.head import Head, rms_norm
from speedbench.native.packed import linear
from speedbench.native.proposer import Near, Plan
from speedbench.native.serial import Serial


class Mtp:
    """u = fc·[norm(embedding) ; norm(state)], or the state first; then an ordinary layer over u."""

    def __init__(self, head: Head, dtype: torch.dtype, device: torch.device) -> None:
        self._spec = head.spec

        def get(name: str) -> Tensor:
            return head.tensors[f"{name}.weight"].to(device=device, dtype=dtype)

        self._fc = linear(get("fc"))
        self._embedding_norm, self._state_norm = get("enorm"), get("hnorm")
        self._input_norm = get("layers.0.input_layernorm")

    def read(self, features: Tensor) -> Tensor:
        return features

    def enter(self, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        parts = rms_norm(embedded, self._embedding_norm, self._spec), rms_norm(g, self._state_norm, self._spec)
        both = torch.cat(parts if self._spec.embedding_first else parts[::-1], -1)
        u = self._fc(both.flatten(0, 1)).view(*both.shape[:2], -1)
        return u, rms_norm(u, self._input_norm, self._spec)


def build(plan: Plan, near: Near, *, checkpoint: str, allow_bin: bool = False) -> Serial:
    target = near.target
    head = near.head(checkpoint, "mtp", allow_bin)
    return Serial(head, Mtp(head, target.dtype, target.device), target, plan)
