"""The slot cache: keys and values of B rows, where the entry of position p lives in slot p and rollback is forgetting.

A row is rolled back by counting fewer of its slots as valid. A stale slot is never read: a query at position p sees
only slots up to p, and every slot between the valid length and p is written in the same forward.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Window:
    """Where one forward writes and what it may see, computed once and shared by all layers."""

    positions: Tensor
    """[B, W] int64: the position of each token."""
    flat: Tensor
    """[B·heads·W] int64: rows of the flattened cache that the window writes."""
    mask: Tensor | None
    """[B, 1, W, end] additive, in the model's dtype; None when every query sees every slot before `end`."""
    end: int
    """Slots to read: 0 … end-1."""


class Slots:
    """Per layer one K and one V buffer [B, heads, length, width]; filled on first use, so any layer shape fits."""

    def __init__(
        self,
        layers: int,
        batch: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        static: bool = False,
        context: int | None = None,
    ) -> None:
        """`static` makes every forward read all slots; `context` bounds the positions of padding beyond it."""
        self.batch, self.length, self.dtype, self.device = batch, length, dtype, device
        self.static, self.context = static, context
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.heads = 0

    def rows(self, low: int, high: int) -> Slots:
        """A view of rows low … high-1 that shares the buffers."""
        view = Slots(
            len(self.keys), high - low, self.length, self.dtype, self.device, static=self.static, context=self.context
        )
        view.heads = self.heads
        view.keys = [None if k is None else k[low:high] for k in self.keys]
        view.values = [None if v is None else v[low:high] for v in self.values]
        return view

    def allocate(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Make a layer's buffers for entries shaped like key, value [B, heads, W, width]."""
        shape = (self.batch, key.shape[1], self.length)
        self.keys[layer] = torch.zeros(*shape, key.shape[3], dtype=key.dtype, device=key.device)
        self.values[layer] = torch.zeros(*shape, value.shape[3], dtype=value.dtype, device=value.device)
        self.heads = key.shape[1]

    def window(self, start: Sequence[int], width: int, heads: int) -> Window:
        """The window of `width` tokens that begins at position start[b] in row b."""
        first = torch.tensor(start, dtype=torch.int64)
        positions = first[:, None] + torch.arange(width)
        row = torch.arange(len(start))[:, None, None] * heads + torch.arange(heads)[None, :, None]
        flat = (row * self.length + positions[:, None, :]).reshape(-1)
        end = self.length if self.static else max(start) + width
        mask = None
        if self.static or width > 1 or min(start) != max(start):
            hidden = torch.arange(end)[None, None, :] > positions[:, :, None]
            mask = torch.zeros(hidden.shape, dtype=self.dtype).masked_fill_(hidden, torch.finfo(self.dtype).min)
            mask = mask[:, None].to(self.device, non_blocking=True)
        if self.context is not None:
            positions = positions.clamp(max=self.context - 1)
        return Window(positions.to(self.device), flat.to(self.device), mask, end)

    def write(self, layer: int, window: Window, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store key, value [B, heads, W, width] and return all that the window may see, [B, heads, end, width]."""
        keys, values = self.keys[layer], self.values[layer]
        assert keys is not None, f"layer {layer} was never allocated"
        assert values is not None, f"layer {layer} was never allocated"
        keys.view(-1, keys.shape[3]).index_copy_(0, window.flat, key.reshape(-1, key.shape[3]))
        values.view(-1, values.shape[3]).index_copy_(0, window.flat, value.reshape(-1, value.shape[3]))
        return keys[:, :, : window.end], values[:, :, : window.end]

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token of one row takes over all layers."""
        buffers = [*self.keys, *self.values]
        return sum(b.shape[1] * b.shape[3] * b.element_size() for b in buffers if b is not None)
