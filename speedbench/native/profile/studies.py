"""Kernels by themselves: what this machine reaches, a square linear layer over its rows, decode attention over its."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.native.clock import Clock
from speedbench.types import Kernel, Peaks

REPEATS = 5
COLD = 256 << 20
"""Bytes of weights that a study goes round, so that none is still in a cache when its turn comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Decode attention of one layer: KV heads, head width, and G."""

    kv_heads: int
    head_dim: int
    group: int


def seconds(device: torch.device, runs: Sequence[Callable[[], Any]], repeats: int = REPEATS) -> float:
    """Median over the repeats of going through all runs once, for one of them; the first time is not counted."""
    clock, taken = Clock(device), []
    for _ in range(1 + repeats):
        first = clock.mark()
        for run in runs:
            run()
        last = clock.mark()
        clock.settle()
        taken.append(clock.between(first, last) / len(runs))
    return median(taken[1:])


def peaks(device: torch.device, dtype: torch.dtype, *, product: int, copied: int) -> Peaks:
    """A square product of size `product` and a copy of `copied` bytes, read and written."""
    a, b = (torch.randn(product, product, device=device).to(dtype) for _ in range(2))
    taken = seconds(device, [lambda: a @ b])
    source = torch.ones(copied // 4, dtype=torch.float32, device=device)
    into = torch.empty_like(source)
    moved = seconds(device, [lambda: into.copy_(source)])
    return Peaks(
        flops=2 * product**3 / taken, bandwidth=2 * source.numel() * 4 / moved, dtype=str(dtype).removeprefix("torch."),
        product=product,
    )  # fmt: skip


def products(
    device: torch.device,
    dtype: torch.dtype,
    size: int,
    batches: Sequence[int],
    lengths: Sequence[int],
    reached: Peaks,
    until: float,
) -> list[Kernel]:
    """A square linear layer over M = B·(1 + D) rows: with drafts M reaches the knee at a smaller batch.

    What is not begun `until` that perf_counter is left out.
    """
    one = size * size * dtype.itemsize
    count = max(1, min(64, COLD // one))
    weights = [torch.randn(size, size, device=device).to(dtype) for _ in range(count)]
    timed: dict[int, float] = {}
    found: list[Kernel] = []
    for batch in batches:
        for d in lengths:
            rows = batch * (1 + d)
            if time.perf_counter() > until:
                return found
            if rows not in timed:
                x = torch.randn(rows, size, device=device).to(dtype)
                timed[rows] = seconds(device, [_product(x, weight) for weight in weights])
            flops, moved = 2.0 * rows * size * size, float(one + 2 * rows * size * dtype.itemsize)
            found.append(_kernel("gemm", batch, d, rows, timed[rows], flops, moved, reached))
    return found


def _product(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    return lambda: F.linear(x, weight)


def attention(
    device: torch.device,
    dtype: torch.dtype,
    shape: Shape,
    batch: int,
    context: int,
    lengths: Sequence[int],
    reached: Peaks,
    until: float,
) -> list[Kernel]:
    """Decode attention of one layer over G·(1 + D) queries of each KV head, by whatever kernel torch picks."""
    entry = (batch, shape.kv_heads, context, shape.head_dim)
    size = 2 * batch * shape.kv_heads * context * shape.head_dim * dtype.itemsize
    count = max(1, min(16, COLD // size))
    caches = [tuple(torch.randn(entry, device=device).to(dtype) for _ in range(2)) for _ in range(count)]
    found = []
    for d in lengths:
        if time.perf_counter() > until:
            break
        rows = shape.group * (1 + d)
        query = torch.randn(batch, shape.kv_heads, rows, shape.head_dim, device=device).to(dtype)
        taken = seconds(device, [_attend(query, *cache) for cache in caches])
        flops = 4.0 * batch * shape.kv_heads * rows * context * shape.head_dim
        moved = float(size + 2 * query.numel() * dtype.itemsize)
        found.append(_kernel("attention", batch, d, rows, taken, flops, moved, reached))
    return found


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Callable[[], Tensor]:
    return lambda: F.scaled_dot_product_attention(query, key, value)


def attention_kernel(device: torch.device) -> str:
    """What the attention study ran, as far as it can be said."""
    if device.type == "cuda":
        return "torch scaled_dot_product_attention on CUDA (flash where it takes the shape)"
    return "torch scaled_dot_product_attention on the CPU: no tile of 128 queries is to be expected"


def _kernel(
    study: str, batch: int, draft_length: int, rows: int, taken: float, flops: float, moved: float, reached: Peaks
) -> Kernel:
    assert reached.flops is not None
    assert reached.bandwidth is not None
    computing, moving = flops / reached.flops, moved / reached.bandwidth
    return Kernel(
        study=study, batch=batch, draft_length=draft_length, rows=rows, seconds=taken, flops=flops, bytes=moved,
        share=max(computing, moving) / taken, bound="compute" if computing > moving else "memory",
    )  # fmt: skip
