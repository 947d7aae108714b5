"""What the loop asks of a drafter, and what it hands it: the interface between decode.py and each proposer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from speedbench.native.chat import Chat
from speedbench.native.head import Head, Mechanism
from speedbench.native.slots import Slots
from speedbench.native.target import Target
from speedbench.types import Sampling


@dataclass(slots=True)
class Row:
    """One sequence being decoded. The last token of `ids` is the anchor: committed, not yet run through the target."""

    index: int
    """Its row in the slot cache."""
    ids: list[int]
    prompt: int
    """Tokens of the prompt, the first of `ids`."""
    cap: int
    """Tokens it may generate in all."""
    dice: np.random.Generator
    expected: Sequence[int] | None = None
    """The baseline's output for this turn, for drafters that replay it."""

    @property
    def generated(self) -> int:
        return len(self.ids) - self.prompt


@dataclass(slots=True)
class Draft:
    """Proposals for the rows of a batch: tokens [B, W-1] int64, of which counts[b] are real; q [B, W-1, V] are the
    probabilities each was drawn from, None when they were picked, not drawn."""

    tokens: Tensor
    counts: list[int]
    q: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a proposer is made for: the cell's shape and the served sampler."""

    draft_length: int
    rows: int
    length: int
    """Slots of a row."""
    static: bool
    sampling: Sampling
    stops: frozenset[int]
    device: torch.device


@dataclass(frozen=True, slots=True)
class Near:
    """What a proposer may be built from: the target, its chat, and how to get another model and its slots."""

    target: Target
    chat: Chat
    load: Callable[[str, str | None, str], tuple[Target, Chat]]
    """(model, dtype or None for the target's, form) → the model and its chat, loaded once a session."""
    slots: Callable[[Target, Plan], Slots]
    """Slots for a model in the plan's shape, shared by the cells of a session, of which one runs at a time."""
    head: Callable[[str, Mechanism, bool], Head]
    """(checkpoint, mechanism, whether pickled weights may be read) → the head, loaded once a session."""


class Proposer(Protocol):
    """A drafter at work. Rows come and go; `batch[b]` is None where a row of the window is not live."""

    taps: tuple[int, ...]
    """Hidden states of the target it reads, by transformers' index."""
    limit: int | None
    """The longest D it was made for."""
    depends_on_block_length: bool
    """Whether the first D' tokens proposed at D differ from those proposed at D' < D."""
    stateful: bool
    """Whether a proposal depends on more than the committed tokens of its own row."""
    facts: Mapping[str, Any]

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        """A row was prefilled and its first token sampled; features [1, prompt, H]."""

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        """Draft at most room[b] tokens for each row; 0 means none."""

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        """Tokens were committed (they stand in row.ids already); features [B, W, H] of the verified window."""

    def end(self, row: Row) -> None:
        """A row's turn is over."""


def draft_of(lists: Sequence[Sequence[int]], device: torch.device) -> Draft:
    """Proposals from plain lists, padded with token 0."""
    width = max((len(x) for x in lists), default=0)
    padded = [[*x, *([0] * (width - len(x)))] for x in lists]
    tokens = torch.tensor(padded, dtype=torch.int64, device=device).view(len(lists), width)
    return Draft(tokens, [len(x) for x in lists])


def uniforms(batch: Sequence[Row | None], count: int, device: torch.device) -> Tensor:
    """[B, count] float64 in [0, 1) from each row's own generator, so that a row's luck is its own in any batch."""
    draws = np.stack([np.zeros(count) if row is None else row.dice.random(count) for row in batch])
    return torch.from_numpy(draws).to(device)


@dataclass(slots=True)
class LookUp:
    """The shared half of drafters that look tokens up on the host: no taps, no limit, nothing to keep in step."""

    device: torch.device
    taps: tuple[int, ...] = ()
    limit: int | None = None
    depends_on_block_length: bool = False
    stateful: bool = False
    facts: Mapping[str, Any] = field(default_factory=lambda: {"parameters": 0, "bytes": 0, "bytes_per_token": 0})

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None: ...

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        raise NotImplementedError

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        found = [() if row is None or not n else self.look_up(row, n) for row, n in zip(batch, room, strict=True)]
        return draft_of(found, self.device)

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None: ...

    def end(self, row: Row) -> None: ...
