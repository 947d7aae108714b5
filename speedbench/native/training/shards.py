"""A corpus read back: which sequences there are, batches of them with their hidden states, and the commonest tokens."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from speedbench.errors import UserError

HELD_OUT_EVERY = 40
"""One sequence of so many is never trained on."""


@dataclass(slots=True)
class Batch:
    """Sequences side by side, padded on the right with zeros."""

    ids: Tensor
    """[B, T] int64."""
    best: Tensor
    """[B, T] int64: the target's argmax after each token."""
    lengths: Tensor
    """[B] int64."""
    answers: Tensor
    """[B] int64: the position of each answer's first token."""
    states: dict[int, Tensor]
    """tap → [B, T, H] float32."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sequence lies."""

    shard: int
    start: int
    length: int
    answer: int
    greedy: bool


class Corpus:
    """The shards of a folder. Ids are in memory, states are read from the files as asked for."""

    def __init__(self, folder: Path, held_out_every: int = HELD_OUT_EVERY) -> None:
        files = sorted(folder.glob("shard-*.safetensors"))
        if not files:
            raise UserError(f"there is no training corpus at '{folder}'")
        opened: Any = safe_open
        self._files: list[Any] = [opened(path, "pt") for path in files]
        self._ids = [file.get_tensor("ids").long() for file in self._files]
        self._best = [file.get_tensor("best").long() for file in self._files]
        self.taps = tuple(sorted(int(k[4:]) for k in self._files[0].keys() if k.startswith("tap.")))  # noqa: SIM118
        self.places = [place for shard in range(len(files)) for place in self._places(shard)]
        numbers = range(len(self.places))
        self.held = [n for n in numbers if n % held_out_every == held_out_every - 1]
        self.train = [n for n in numbers if n % held_out_every != held_out_every - 1]
        self.tokens = sum(place.length - place.answer for place in self.places)

    def _places(self, shard: int) -> list[Place]:
        file, found, at = self._files[shard], [], 0
        greedy = file.metadata()["greedy"] == "1"
        both = zip(file.get_tensor("lengths").tolist(), file.get_tensor("answers").tolist(), strict=True)
        for length, answer in both:
            found.append(Place(shard, at, length, answer, greedy))
            at += length
        return found

    def ids(self, number: int) -> Tensor:
        place = self.places[number]
        found: Tensor = self._ids[place.shard][place.start : place.start + place.length]
        return found

    def batch(self, numbers: Sequence[int], taps: Sequence[int]) -> Batch:
        places = [self.places[n] for n in numbers]
        width = max(place.length for place in places)
        ids, best = (torch.zeros(len(places), width, dtype=torch.int64) for _ in range(2))
        states: dict[int, Tensor] = {}
        for b, place in enumerate(places):
            here = slice(place.start, place.start + place.length)
            ids[b, : place.length] = self._ids[place.shard][here]
            best[b, : place.length] = self._best[place.shard][here]
            for tap in set(taps):
                read = self._files[place.shard].get_slice(f"tap.{tap}")[here]
                if tap not in states:
                    states[tap] = torch.zeros(len(places), width, read.shape[1])
                states[tap][b, : place.length] = read
        lengths = torch.tensor([place.length for place in places])
        return Batch(ids, best, lengths, torch.tensor([place.answer for place in places]), states)

    def commonest(self, count: int, vocab: int) -> Tensor:
        """[count] int64, ascending: the ids most frequent in the answers trained on, the lower id first of equals."""
        seen = torch.zeros(vocab, dtype=torch.int64)
        for n in self.train:
            seen += torch.bincount(self.ids(n)[self.places[n].answer :], minlength=vocab)
        return seen.sort(descending=True, stable=True).indices[: min(count, vocab)].sort().values

    def size(self, tap: int) -> float:
        """The median root mean square of a tap's states, over a few sequences."""
        states = [self.batch([n], (tap,)).states[tap][0] for n in self.train[:8]]
        return float(torch.cat(states).pow(2).mean(-1).sqrt().median())

    def order(self, epoch: int, batch: int, seed: int) -> list[list[int]]:
        """The batches of an epoch, the same for the same seed: shuffled, then those of like length together."""
        dice = torch.Generator().manual_seed(seed * 100_003 + epoch)
        shuffled = [self.train[i] for i in torch.randperm(len(self.train), generator=dice).tolist()]
        groups = [shuffled[at : at + 16 * batch] for at in range(0, len(shuffled), 16 * batch)]
        found = []
        for group in groups:
            group.sort(key=lambda n: self.places[n].length)
            found += [group[at : at + batch] for at in range(0, len(group), batch)]
        return [found[i] for i in torch.randperm(len(found), generator=dice).tolist()]


def token_counts(folder: Path) -> list[int]:
    """Answer tokens of each shard there is."""
    counts = []
    for path in sorted(folder.glob("shard-*.safetensors")):
        with safe_open(path, "pt") as file:
            counts.append(int(file.metadata()["tokens"]))
    return counts
