"""CUDA graphs for a lean target with static shapes: each (batch, width) is captured once and replayed.

Untested on GPU until the README says otherwise.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from speedbench.native.lean import Run
from speedbench.native.slots import Slots, Window
from speedbench.native.target import Seen

WIDEST = 64
"""Tokens a row beyond which a forward is a prefill, whose shapes are too many to capture."""


@dataclass(slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    ids: Tensor
    window: Window
    seen: Seen


class Graphed:
    """Stands in for a lean target's run; the logits it returns live until the next replay of the same shape."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[tuple[object, ...], _Captured] = {}

    def __call__(self, slots: Slots, ids: Tensor, window: Window, last_only: bool, taps: Sequence[int]) -> Seen:
        if ids.shape[1] > WIDEST or not slots.static:
            return self._run(slots, ids, window, last_only, taps)
        first = slots.keys[0]
        assert first is not None, "slots are allocated before a forward"
        key = (first.data_ptr(), tuple(ids.shape), last_only, tuple(taps))
        if key not in self._made:
            self._made[key] = self._capture(slots, ids, window, last_only, taps)
        made = self._made[key]
        made.ids.copy_(ids)
        made.window.positions.copy_(window.positions)
        made.window.slots.copy_(window.slots)
        made.window.flat.copy_(window.flat)
        if made.window.mask is not None and window.mask is not None:
            made.window.mask.copy_(window.mask)
        made.graph.replay()
        return made.seen

    def _capture(self, slots: Slots, ids: Tensor, window: Window, last_only: bool, taps: Sequence[int]) -> _Captured:
        mask = None if window.mask is None else window.mask.clone()
        own = Window(window.positions.clone(), window.slots.clone(), window.flat.clone(), mask, window.end)
        still = ids.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run(slots, still, own, last_only, taps)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            seen = self._run(slots, still, own, last_only, taps)
        return _Captured(graph, still, own, seen)
