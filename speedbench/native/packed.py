"""Matrix products over weights packed once on CPU: by kernels.c where that pays, else by oneDNN where torch has the
operators, else F.linear.

On a 2-core CPU with AVX512-BF16 the 120 products of SmolLM2's layers and its head took, for 1, 8 and 40 rows, 8.8, 9.0
and 28 ms in bfloat16 by kernels.c, as fast as memory or the vector units allow, and 12, 14 and 33 ms by oneDNN. Built
without AVX512 it still won up to 8 rows in float32, and at every number of rows in bfloat16.

oneDNN's two operators are private to torch (inductor's freezing pass uses them), so they are tried once and their
absence means the plain product.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.native.kernels import Kernels, Matrix, kernels

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


class Product:
    """x [..., K] → x·weightᵀ + bias [..., N] by kernels.c, over a weight [N, K] that it keeps in panels: equal bits for
    equal rows, whatever M."""

    def __init__(self, few: Kernels, weight: Tensor, bias: Tensor | None) -> None:
        self._linear, self._panels, self._bias, self._rows = few.linear, few.pack(weight), bias, len(weight)
        self.matrix = Matrix(self._panels.data_ptr(), None if bias is None else bias.data_ptr(), *weight.shape)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], self._rows)
        self._linear(x.data_ptr(), self.matrix, out.data_ptr(), x.numel() // x.shape[-1])
        return out


def linear(weight: Tensor, bias: Tensor | None = None, *, pack: bool = True) -> Linear:
    """x [M, K] → x·weightᵀ + bias [M, N] for weight [N, K]; the original is let go where packing copies it."""
    packs = pack and weight.device.type == "cpu"
    own = kernels(weight.dtype) if packs and weight.shape[1] % 2 == 0 else None
    if own is not None and own.pays:
        return Product(own, weight, bias)
    if packs and can_pack(weight.dtype):
        kept = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_FOR_ROWS)
        product = torch.ops.mkldnn._linear_pointwise

        def packed(x: Tensor) -> Tensor:
            out: Tensor = product(x, kept, bias, "none", [], "")
            return out

        return packed
    return lambda x: F.linear(x, weight, bias)
