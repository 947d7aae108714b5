"""Attention of many proposals at once: each sees one row's keys up to where it begins, and keys of its own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor


def beside(query: Tensor, shared: Tensor, until: Tensor, own: tuple[Tensor, Tensor], *, causal: bool = False) -> Tensor:
    """query [N, W, heads, d] over shared keys and values [2·kv heads, S, d], proposal n before slot until[n], and over
    keys and values of its own [N, K, kv heads, d] (`causal`: query w sees those up to w alone) → [N·W, heads·d].

    What training-time test and block training lay out as one masked matrix (training/serial.py, training/block.py),
    without the columns of the other proposals.
    """
    count, width, heads, size = query.shape
    keys, values = shared[:, : int(until.max())].chunk(2)
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
