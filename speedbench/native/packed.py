"""Matrix products for few rows: weights packed once for oneDNN on CPU where torch has the operators, else F.linear.

The two operators are private to torch (inductor's freezing pass uses them), so they are tried once and their absence
means the plain product. On a 2-core CPU packing took 120 products of M = 1 from 37 to 20 ms in float32 and from 16 to
11 ms in bfloat16, with results equal for every M from 1 to 16.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

PACKED_FOR_ROWS = 8
"""The row count that oneDNN is told to pack for; one layout served 1 … 32 rows best."""

FEWEST = 4
"""Rows below which a packed product is slower than with this many: all of SmolLM2's products took 12.1 ms at 1 row and
10.4 at 4 in bfloat16, 25 and 20 ms in float32 (2 cores, weights not in cache)."""

Linear = Callable[[Tensor], Tensor]


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this torch, on this CPU, packs weights of this dtype."""
    has_mkldnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if dtype not in (torch.float32, torch.bfloat16) or not has_mkldnn:
        return False
    try:
        weight = torch.eye(16, dtype=dtype)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS)
        out = torch.ops.mkldnn._linear_pointwise(weight[:1], packed, None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool(torch.equal(out, weight[:1]))


def linear(weight: Tensor, bias: Tensor | None = None, *, pack: bool = True) -> Linear:
    """x [M, K] → x·weightᵀ + bias [M, N] for weight [N, K]; the original is let go where packing copies it."""
    if pack and weight.device.type == "cpu" and can_pack(weight.dtype):
        kept = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_FOR_ROWS)
        product = torch.ops.mkldnn._linear_pointwise

        def packed(x: Tensor) -> Tensor:
            out: Tensor = product(x, kept, bias, "none", [], "")
            return out

        return packed
    return lambda x: F.linear(x, weight, bias)
