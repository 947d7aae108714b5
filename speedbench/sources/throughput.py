"""Prompts of one size for measuring speed, made on this machine from text that comes with Python; three entropy tiers.

where: {tokens: 8000, rows: 512, seed: 0}         # tokens of the target's own, chat template included; rows a tier

The text is the standard library's code and docstrings, the language reference that `help()` reads, Python's licence and
the long turns of the shipped tasks. Rows of a tier begin at places of it that lie evenly apart, so every prompt differs
from its first lines on; row n asks the same at every size. The category is the tier:

low_entropy     most of the answer stands in the prompt: go on with the code; sort the names
mixed           find a note and copy it, or choose one of four; then say something of one's own
high_entropy    write something new after reading

What is installed differs between versions of Python: the column `material` says which this was and has its text's hash.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import platform
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from speedbench.errors import UserError
from speedbench.library import Library, Note, library
from speedbench.settings import at_least, resolve
from speedbench.types import Settings, Sized

_DEFAULTS: dict[str, Any] = {"tokens": None, "rows": 512, "seed": 0}

CHARACTERS = 16
"""A row has so many characters of material for each of its tokens; no tokenizer met so far packs more into one."""

FORMS = ("a short story", "a letter to a friend", "a radio play", "a travel report", "a fable", "a diary page",
         "an opening speech", "a fairy tale")  # fmt: skip
SUBJECTS = ("a lighthouse keeper who collects clocks", "a market that opens only when it rains",
            "two sisters who repair an old tram", "a village that has lost its map", "a cook who cannot taste salt",
            "a choir without a conductor", "a letter that arrives forty years late",
            "a gardener on a roof above the harbour")  # fmt: skip
MOODS = ("cheerful", "solemn", "dry", "tender", "suspenseful", "nostalgic", "mocking", "matter-of-fact")


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """Tier by tier, its two kinds in turn, each row with the prompt that is yet to be cut to size."""
    found = resolve("where", where, _DEFAULTS)
    if type(found["tokens"]) is not int:
        raise UserError(f"where.tokens: should be a whole number from 500 (got {found['tokens']!r})")
    at_least("where", found, tokens=500, rows=1, seed=0)
    text = library()
    made = f"Python {platform.python_version()}, text {text.sha}"
    for tier, kinds in TIERS.items():
        for number in range(found["rows"]):
            kind, make = kinds[number % len(kinds)]
            dice = random.Random(f"{found['seed']}/{tier}/{number}")
            place = Place(number, found["rows"], found["tokens"], found["seed"], dice)
            name = f"{tier}-{number + 1:03d}"
            yield {
                "id": name, "category": tier, "kind": kind, "material": made, "_at": f"row {name}",
                "_sized": make(text, place),
            }  # fmt: skip


class Place(NamedTuple):
    """Which row of its tier is made: the `number`-th of `of`."""

    number: int
    of: int
    tokens: int
    seed: int
    dice: random.Random


class Ring:
    """Pieces of text, read from anywhere and round."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = tuple(pieces)
        self._ends = list(accumulate(map(len, pieces)))

    def start(self, place: Place) -> int:
        """Where a row begins: the rows of a tier lie evenly apart."""
        if place.of > len(self._pieces):
            raise UserError(f"where.rows: the text on this machine gives at most {len(self._pieces)}")
        return place.number * len(self._pieces) // place.of

    def read(self, start: int, characters: int) -> tuple[str, ...]:
        """Pieces from there on until they have so many characters, and round again where the ring is too short."""
        rounds, rest = divmod(characters, self._ends[-1])
        before = self._ends[start - 1] if start else 0
        end = bisect_left(self._ends, before + rest) + 1
        if end <= len(self._pieces):
            part = self._pieces[start:end]
        else:
            part = self._pieces[start:] + self._pieces[: bisect_left(self._ends, before + rest - self._ends[-1]) + 1]
        return (self._pieces[start:] + self._pieces[:start]) * rounds + part


# ---- the kinds ------------------------------------------------------------------------------------------------------


def complete(text: Library, place: Place) -> Sized:
    ring = _code(text)
    return _sized(
        place, "Code that breaks off:\n\n```python\n", ring, ring.start(place),
        "\n```\n\nGo on with this code from exactly where it breaks off, in the same style. Answer with code alone.",
    )  # fmt: skip


def sort(text: Library, place: Place) -> Sized:
    ring = _names(text, place.seed)
    return _sized(
        place, "Names, one on each line:\n\n", ring, ring.start(place),
        "\n\nSort the names above from A to Z. Write them all, one on each line, and nothing else.",
    )  # fmt: skip


def find(text: Library, place: Place) -> Sized:
    ring = _notes(text)
    start = ring.start(place)
    wanted = text.notes[start - 1]
    return _sized(
        place, "Notes, each below its name:\n\n", ring, start,
        f"\n\nOne of the notes above is named {wanted.name}. Copy it word for word; then say in two sentences of your "
        "own when one would use what it is about.",
        needle=wanted,
    )  # fmt: skip


def choose(text: Library, place: Place) -> Sized:
    ring = _notes(text)
    start = ring.start(place)
    wanted = text.notes[start - 1]
    names = [wanted.name, *(text.notes[(start + i) % len(text.notes)].name for i in range(3))]
    place.dice.shuffle(names)
    options = "\n".join(f"{letter}. {name}" for letter, name in zip("ABCD", names, strict=True))
    return _sized(
        place, "Notes, each below its name:\n\n", ring, start,
        f"\n\nWhich of the notes above begins: \"{wanted.text[:60].splitlines()[0]}\"?\n{options}\n\nGive the letter, "
        "copy that note, and say in a sentence for each of the others what it is about.",
        needle=wanted,
    )  # fmt: skip


def write(text: Library, place: Place) -> Sized:
    ring, dice = _prose(text, place.seed), place.dice
    return _sized(
        place, "Some reading first:\n\n", ring, ring.start(place),
        f"\n\nThat was the reading. Now write {dice.choice(FORMS)} about {dice.choice(SUBJECTS)}, in a "
        f"{dice.choice(MOODS)} tone. Two things from the reading are to appear in it under other names; quote nothing. "
        "Begin at once.",
    )  # fmt: skip


Make = Callable[[Library, Place], Sized]

TIERS: Mapping[str, tuple[tuple[str, Make], ...]] = {
    "low_entropy": (("complete", complete), ("sort", sort)),
    "mixed": (("find", find), ("choose", choose)),
    "high_entropy": (("write", write),),
}


def _sized(place: Place, before: str, ring: Ring, start: int, after: str, *, needle: Note | None = None) -> Sized:
    return Sized(
        tokens=place.tokens, before=before, pieces=ring.read(start, place.tokens * CHARACTERS), after=after,
        needle=str(needle) if needle else "", depth=round(place.dice.random(), 3) if needle else 0.0,
    )  # fmt: skip


# ---- the rings, made once -------------------------------------------------------------------------------------------


@cache
def _code(text: Library) -> Ring:
    return Ring([f"{piece}\n\n\n" for piece in text.code])


@cache
def _notes(text: Library) -> Ring:
    return Ring([str(note) for note in text.notes])


@cache
def _names(text: Library, seed: int) -> Ring:
    """Eight names a piece."""
    names = _shuffled(text.names, seed)
    return Ring(["".join(f"{name}\n" for name in names[i : i + 8]) for i in range(0, len(names), 8)])


@cache
def _prose(text: Library, seed: int) -> Ring:
    return Ring([f"{piece}\n\n" for piece in _shuffled(text.prose, seed)])


def _shuffled(what: Sequence[str], seed: int) -> list[str]:
    mixed = list(what)
    random.Random(f"{seed}/order").shuffle(mixed)
    return mixed
