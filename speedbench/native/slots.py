"""The slot cache: keys and values of B rows, where the entry of position p lives in slot p and rollback is forgetting.

A row is rolled back by counting fewer of its slots as valid. A stale slot is never read: a query at position p sees
only slots up to p, and every slot between the valid length and p is written in the same forward.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speedbench.native.kernels import pointers


@dataclass(slots=True)
class Window:
    """Where one forward writes and what it may see, computed once and shared by all layers."""

    positions: Tensor
    """[B, W] int64: the position of each token."""
    slots: Tensor
    """[B, W] int64: the slot that each token is written to."""
    flat: Tensor
    """[B·W·2·heads] int64: the same as rows of a joint buffer, for entries ordered by row, token, head."""
    mask: Tensor | None
    """[B, 1, W, end] additive, in the model's dtype; None when every query sees every slot before `end`."""
    end: int
    """Slots to read: 0 … end-1."""


class Slots:
    """Per layer one K and one V buffer [B, heads, length, width].

    Where both have the same shape they are halves of one buffer [B, 2·heads, length, width], so that a window can be
    written in one copy. A head's slots lie side by side: attention over a few queries is a third faster so on CPU.
    Rows of a view share their buffers.
    """

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
        self.joint: list[Tensor | None] = [None] * layers
        self._addresses: Any = None

    def rows(self, low: int, high: int) -> Slots:
        """A view of rows low … high-1 that shares the buffers."""
        if (low, high) == (0, self.batch):
            return self
        view = Slots(
            len(self.keys), high - low, self.length, self.dtype, self.device, static=self.static, context=self.context
        )
        for name in ("keys", "values", "joint"):
            setattr(view, name, [None if one is None else one[low:high] for one in getattr(self, name)])
        return view

    def allocate(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Make a layer's buffers for entries shaped like key, value [B, heads, W, width]."""
        heads, width, self._addresses = key.shape[1], key.shape[3], None
        if key.shape[1::2] == value.shape[1::2]:
            both = torch.zeros(self.batch, 2 * heads, self.length, width, dtype=key.dtype, device=key.device)
            self.joint[layer], self.keys[layer], self.values[layer] = both, both[:, :heads], both[:, heads:]
        else:
            for buffers, entry in ((self.keys, key), (self.values, value)):
                shape = (self.batch, entry.shape[1], self.length, entry.shape[3])
                buffers[layer] = torch.zeros(shape, dtype=entry.dtype, device=entry.device)

    def window(self, start: Sequence[int], width: int) -> Window:
        """The window of `width` tokens that begins at position start[b] in row b."""
        positions = torch.tensor(start, dtype=torch.int64)[:, None] + torch.arange(width)
        end = self.length if self.static else max(start) + width
        mask = None
        if self.static or width > 1 or min(start) != max(start):
            hidden = torch.arange(end)[None, None, :] > positions[:, :, None]
            mask = torch.zeros(hidden.shape, dtype=self.dtype).masked_fill_(hidden, torch.finfo(self.dtype).min)
            mask = mask[:, None].to(self.device, non_blocking=True)
        places = positions if self.context is None else positions.clamp(max=self.context - 1)
        there, flat = positions.to(self.device), self._flat(positions).to(self.device)
        return Window(places.to(self.device), there, flat, mask, end)

    def _flat(self, positions: Tensor) -> Tensor:
        heads = 0 if self.joint[0] is None else self.joint[0].shape[1]
        row = torch.arange(len(positions))[:, None, None] * heads + torch.arange(heads)
        return (row * self.length + positions[:, :, None]).reshape(-1)

    def write(self, layer: int, window: Window, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store key, value [B, heads, W, width] and return all that the window may see, [B, heads, end, width]."""
        rows = torch.arange(len(window.slots), device=window.slots.device)[:, None]
        for buffers, entry in ((self.keys, key), (self.values, value)):
            kept = buffers[layer]
            assert kept is not None, f"layer {layer} was never allocated"
            kept[rows, :, window.slots] = entry.transpose(1, 2)
        return self._seen(layer, window)

    def write_joint(self, layer: int, window: Window, entries: Tensor) -> tuple[Tensor, Tensor]:
        """The same for keys and values side by side, [B·W, 2·heads, width]."""
        both = self.both(layer)
        both.view(-1, both.shape[3]).index_copy_(0, window.flat, entries.reshape(-1, both.shape[3]))
        return self._seen(layer, window)

    def both(self, layer: int) -> Tensor:
        """Keys and values of a layer as one buffer, [B, 2·heads, length, width]."""
        both = self.joint[layer]
        assert both is not None, f"layer {layer} was never allocated, or its keys and values differ in shape"
        return both

    @property
    def addresses(self) -> Any:
        """Where each layer's joint buffer lies, for kernels.c."""
        if self._addresses is None:
            self._addresses = pointers([self.both(layer) for layer in range(len(self.joint))])
        return self._addresses

    def _seen(self, layer: int, window: Window) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[layer], self.values[layer]
        assert keys is not None, f"layer {layer} was never allocated"
        assert values is not None, f"layer {layer} was never allocated"
        return keys[:, :, : window.end], values[:, :, : window.end]

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token of one row takes over all layers."""
        buffers = [*self.keys, *self.values]
        return sum(b.shape[1] * b.shape[3] * b.element_size() for b in buffers if b is not None)
