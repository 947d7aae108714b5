"""Prompts to train on: filled templates, and what of them (or of any text) is kept.

A prompt goes when it shares a run of tokens with a shipped task's, is too short or too long, or was there before.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from speedbench.native.training.templates import TEMPLATES, WORDS

RUN = 8
"""Tokens in a row that no training prompt may share with a shipped task's."""
SHORTEST, LONGEST = 4, 80
"""Tokens of a turn that the target wrote itself."""

_PLACE = re.compile(r"\{(\w+?)(\d?)\}")

Encode = Callable[[str], Sequence[int]]


def templated(dice: random.Random) -> str:
    """A template of a random kind, filled: `{name}` and `{name2}` are different words, the same ones throughout."""
    text = dice.choice(TEMPLATES[dice.choice(list(TEMPLATES))])
    taken: dict[str, str] = {}

    def word(found: re.Match[str]) -> str:
        place, kind = found[0], found[1]
        if place not in taken:
            others = {said for key, said in taken.items() if key.startswith("{" + kind)}
            taken[place] = dice.choice([said for said in WORDS[kind] if said not in others])
        return taken[place]

    while _PLACE.search(text):
        text = _PLACE.sub(word, text)
    return text


def runs(ids: Sequence[int]) -> set[tuple[int, ...]]:
    """All runs of RUN tokens; a shorter text is one run of its own."""
    ids = tuple(ids)
    return {ids[at : at + RUN] for at in range(max(1, len(ids) - RUN + 1))}


class Sieve:
    """Which prompts are kept, and how many went for which reason."""

    def __init__(self, encode: Encode, forbidden: Iterable[str], seen: Iterable[str] = ()) -> None:
        """`forbidden`: the turns of every shipped task; `seen`: prompts kept before."""
        self._encode, self._seen = encode, set(seen)
        self._forbidden: set[tuple[int, ...]] = set()
        for text in forbidden:
            self._forbidden |= runs(encode(text))
        self.counts: Counter[str] = Counter()

    def keeps(self, text: str, *, longest: int | None = None) -> bool:
        """Whether this prompt stays, which is noted; `longest` bounds its tokens."""
        why = self._fault(text, longest)
        self.counts[why or "kept"] += 1
        if why is None:
            self._seen.add(text)
        return why is None

    def _fault(self, text: str, longest: int | None) -> str | None:
        if text in self._seen:
            return "duplicate"
        ids = self._encode(text)
        if longest is not None and not SHORTEST <= len(ids) <= longest:
            return "length"
        return "overlap" if runs(ids) & self._forbidden else None
