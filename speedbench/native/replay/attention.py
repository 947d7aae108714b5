"""Attention of many proposals at once: each sees its row's keys up to where it begins, and keys of its own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from speedbench.native.replay.tensors import Proposed


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring proposals, all of one row, of which none sees more than the row's first `until` slots."""

    row: int
    count: int
    until: int


def reaches(part: Sequence[Proposed]) -> dict[int, int]:
    """By row, the slots that any proposal of it may see: those before the newest, which begins last."""
    return {p.row: p.start - 1 for p in part}


def spans(part: Sequence[Proposed], until: dict[int, int]) -> list[Span]:
    """Proposals in the order of their rows."""
    return [Span(row, count, until[row]) for row, count in Counter(p.row for p in part).items()]


def beside(
    query: Tensor,
    shared: Tensor,
    spans: Sequence[Span],
    until: Tensor,
    own: tuple[Tensor, Tensor],
    causal: bool = False,
) -> Tensor:
    """query [N, W, heads, d] over keys and values shared by row [rows, 2·kv heads, S, d], proposal n before slot
    until[n], and over keys and values of its own [N, K, kv heads, d] (`causal`: query w sees those up to w alone) →
    [N·W, heads·d].

    What training-time test and block training lay out as one masked matrix (training/serial.py, training/block.py),
    without the columns of the other proposals.
    """
    parts, low = [], 0
    for span in spans:
        these = slice(low, low + span.count)
        there = shared[span.row, :, : span.until]
        parts.append(_of_row(query[these], there, until[these], (own[0][these], own[1][these]), causal))
        low = these.stop
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _of_row(query: Tensor, shared: Tensor, until: Tensor, own: tuple[Tensor, Tensor], causal: bool) -> Tensor:
    count, width, heads, size = query.shape
    keys, values = shared.chunk(2)
    kv, slots = keys.shape[:2]
    q = query.view(count, width, kv, heads // kv, size).permute(2, 0, 3, 1, 4).reshape(kv, count, -1, size)
    q = q * size**-0.5
    far = (q.flatten(1, 2) @ keys.transpose(1, 2)).view(kv, count, -1, slots)
    far = far.masked_fill((torch.arange(slots, device=query.device) >= until[:, None])[:, None], -torch.inf)
    near = q @ own[0].permute(2, 0, 3, 1)
    if causal:
        order = torch.arange(width, device=query.device)
        near = near.masked_fill((order > order[:, None]).repeat(heads // kv, 1), -torch.inf)
    scores = torch.cat([far, near], -1)
    chances = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    mixed = (chances[..., :slots].flatten(1, 2) @ values).view(kv, count, -1, size)
    mixed = mixed + chances[..., slots:] @ own[1].permute(2, 0, 1, 3)
    return mixed.view(kv, count, heads // kv, width, size).permute(1, 3, 0, 2, 4).reshape(count * width, heads * size)
