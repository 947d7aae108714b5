"""The lean forward as one call into kernels.c, for every width: what Python does for a pass is to point at tensors."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speedbench.native.kernels import Kernels, Layer, Pass, place, pointers, window
from speedbench.native.packed import Linear, Product
from speedbench.native.slots import Slots
from speedbench.native.target import Seen


@dataclass(slots=True)
class Parts:
    """The weights of one layer."""

    norm: Tensor
    qkv: Linear
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None

    @property
    def described(self) -> Any:
        """The same as kernels.c reads it."""
        norms = (None if norm is None else norm.data_ptr() for norm in (self.q_norm, self.k_norm))
        products = (self.qkv, self.out, self.gate_up, self.down)
        matrices = [one.matrix for one in products if isinstance(one, Product)]
        return Layer(self.norm.data_ptr(), self.mlp_norm.data_ptr(), *norms, *matrices)

    @property
    def is_ours(self) -> bool:
        return all(isinstance(one, Product) for one in (self.qkv, self.out, self.gate_up, self.down))


@dataclass(slots=True)
class Ends:
    """What stands before and after the layers: embedding [V, H], norm [H], head, cos and sin [context, size]."""

    embedding: Tensor
    norm: Tensor
    head: Linear
    cos: Tensor
    sin: Tensor


class Fused:
    """A forward over layers whose products are all ours. There is little Python in it, since the weights sweep the
    caches in every pass, and a torch operator then takes ten microseconds and more."""

    def __init__(
        self, few: Kernels, layers: Sequence[Parts], ends: Ends, *, heads: int, kv: int, inner: int, eps: float
    ) -> None:
        assert isinstance(ends.head, Product), "the head's product is not ours"
        assert ends.head.matrix.rows == len(ends.embedding), "head and embedding are of different vocabularies"
        self._forward, self._dtype, self._kept = few.forward, few.dtype, (layers, ends)
        self._vocab, self._hidden = ends.embedding.shape
        self._layers = (Layer * len(layers))(*(layer.described for layer in layers))
        self._pass = Pass(
            window=window(heads, kv, ends.cos, ends.sin), layers=len(layers), hidden=self._hidden, inner=inner,
            vocab=self._vocab, eps=eps, embedding=ends.embedding.data_ptr(), norm=ends.norm.data_ptr(),
            layer=self._layers, head=ends.head.matrix,
        )  # fmt: skip
        self._window = self._pass.window

    def __call__(self, slots: Slots, ids: Tensor, start: Sequence[int], last_only: bool, taps: Sequence[int]) -> Seen:
        """As `Target.forward`."""
        (batch, width), asked = ids.shape, self._pass
        ids = ids if ids.is_contiguous() else ids.contiguous()
        logits = torch.empty(batch, 1 if last_only else width, self._vocab, dtype=self._dtype)
        features = {tap: torch.empty(batch, width, self._hidden, dtype=self._dtype) for tap in taps}
        kept = pointers([features.get(i) for i in range(len(self._layers) + 1)]) if taps else None
        place(self._window, start, width, slots.length)
        asked.slots, asked.taps, asked.last_only = slots.addresses, kept, last_only
        asked.ids, asked.logits = ids.data_ptr(), logits.data_ptr()
        failure = self._forward(asked)
        if failure == 1:
            raise MemoryError(f"no memory for a forward of {batch * width} tokens")
        if failure:
            raise IndexError(
                f"{width} tokens from {max(start)} on exceed {slots.length} slots, or an id the vocabulary"
            )
        return Seen(logits, features)
