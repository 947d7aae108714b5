"""Which cell of the candidate stands against which of the base."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

from speedbench.compare.wording import clean
from speedbench.types import Cell

Pairs = list[tuple[Cell, Cell]]


def against(base: Sequence[Cell], cand: Sequence[Cell], vary: Collection[str]) -> tuple[Pairs, list[Cell], list[Cell]]:
    """Cells of equal drafter, D and concurrency; of what is left, those that only what may vary tells apart.

    The latter only where there is one of each, so that nothing is paired by guess. Then what neither side can pair.
    """
    pairs: Pairs = []
    mine, theirs = list(base), list(cand)
    ways: list[Callable[[Cell], Hashable]] = [lambda cell: (cell.concurrency, cell.drafter, cell.draft_length)]
    if "drafter" in vary:
        ways.append(lambda cell: (cell.concurrency, cell.draft_length))
    if "D" in vary:
        ways.append(lambda cell: (cell.concurrency, cell.drafter))
    if {"drafter", "D"} <= set(vary):
        ways.append(lambda cell: cell.concurrency)
    for way in ways:
        for one in list(mine):
            ours = [each for each in mine if way(each) == way(one)]
            others = [each for each in theirs if way(each) == way(one)]
            if len(ours) == len(others) == 1:
                pairs.append((one, others[0]))
                mine.remove(one)
                theirs.remove(others[0])
    return sorted(pairs, key=lambda pair: base.index(pair[0])), mine, theirs


def named(cell: Cell) -> str:
    return f"{clean(cell.drafter, 40)} D={cell.draft_length}"


def pair_name(base: Cell, cand: Cell) -> str:
    """`ngram D=4, B=1`, or `eagle3 D=4 → mtp D=4, B=1`."""
    both = named(base) if named(base) == named(cand) else f"{named(base)} → {named(cand)}"
    return f"{both}, B={base.concurrency}"
