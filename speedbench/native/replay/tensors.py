"""Rows fed to a model side by side and judged; all that a replay brings from the device to the host goes by `host`."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speedbench.native.slots import Slots
from speedbench.native.target import PREFILL_CHUNK, Seen, Target
from speedbench.native.verify import best, probabilities
from speedbench.types import Sampling

NOTHING = -1
"""Stands for a token where nobody knows what the target would say."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A proposal of some drafts that begins at index `start` of a row, behind the tokens before it."""

    row: int
    start: int
    offered: int


def batch_rows(device: torch.device, longest: int, positions: int | None) -> int:
    """Answers to take at once so that their rows, of up to `longest` tokens, have so many positions together; None:
    16,384 on a GPU, and one answer on a CPU, where four at once took half as long again and more: nothing is gained
    there by wider products, and rows are padded."""
    if positions is None:
        positions = 0 if device.type == "cpu" else 16384
    return max(1, positions // max(1, longest))


def budget(each: int, device: torch.device) -> int:
    """How many items of `each` bytes one step may take: of 64 MiB on a CPU, of 1 GiB elsewhere.

    Beside models, a replay takes slots, tapped states and activations for the positions of one batch, and a small
    multiple of this, however many answers there are.
    """
    return max(1, (64 if device.type == "cpu" else 1024) * 2**20 // each)


def host(x: Tensor) -> Any:
    """A tensor as plain numbers."""
    return x.tolist()


def padded(rows: Sequence[Sequence[int]], size: int, device: torch.device, filler: int = NOTHING) -> Tensor:
    return torch.tensor([[*row, *[filler] * (size - len(row))] for row in rows], device=device)


def verdicts(logits: Tensor, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Of tokens [...], whether each is the best of logits [..., V], 1 or 0; where tokens are drawn, its log chance."""
    if sampling.temperature:
        return log_chances(probabilities(logits, sampling), tokens)
    return (best(logits) == tokens).float()


def log_chances(chances: Tensor, tokens: Tensor) -> Tensor:
    """Natural logarithms of the chances [..., V] of tokens [...]; an id outside V has none."""
    size = chances.shape[-1]
    found = chances.gather(-1, tokens.clamp(0, size - 1)[..., None])[..., 0]
    return found.masked_fill((tokens < 0) | (tokens >= size), 0.0).log()


class Held:
    """A model's slots and the tokens that they hold: what the next rows begin with alike, as the turns of a
    conversation do, is not run again."""

    def __init__(self, model: Target, slots: Slots) -> None:
        self._model, self.slots = model, slots
        self._rows: list[Sequence[int]] = []

    def feed(
        self, rows: Sequence[Sequence[int]], *, judged: int, taps: Sequence[int] = ()
    ) -> Iterator[tuple[slice, Seen]]:
        """Run rows from their beginnings, shorter ones padded: columns, and what was seen of the first rows there.

        From column `judged` on there are logits of every position, before it of each chunk's last alone.
        """
        model, size, had = self._model, max(map(len, rows)), self._rows
        tokens = padded(rows, size, model.device, filler=0)
        alike = [_alike(*pair) for pair in zip(rows, had, strict=False)]
        at, self._rows = min([judged, *alike]) if len(alike) == len(rows) else 0, []
        while at < size:
            live = 1 + max(b for b, row in enumerate(rows) if len(row) > at)
            wide = max(1, PREFILL_CHUNK // live) if model.device.type == "cpu" else PREFILL_CHUNK
            few = max(1, min(wide, budget(4 * model.vocab * live, model.device)))
            end = min(at + few, size) if at >= judged else min(at + wide, judged, size)
            there = [at] * live
            seen = model.forward(
                self.slots.rows(0, live), tokens[:live, at:end], there, last_only=at < judged, taps=taps
            )  # fmt: skip
            yield slice(at, end), seen
            at = end
        self._rows = [tuple(row) for row in rows]


def _alike(row: Sequence[int], had: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(row, had, strict=False)) if a != b), min(len(row), len(had)))
