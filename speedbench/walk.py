"""From what a drafter would propose behind every token of an answer to the steps that an engine takes, for any D.

A lossless rule leaves the answer y the same whatever is drafted. With g tokens of y committed, a step proposes
p = min(D, what the drafter offers, cap - g - 1) drafts, accepts those that match y from the first on, and commits one
token more, until y ends. So one table of offers and matches gives the steps for every D.

Where drafts are drawn, the answer's own token x counts as an accepted draft with the chance a = min(1, q(x)/p(x)),
since P(x is drafted and accepted) = min(p, q)(x) and P(x is said) = p(x); given y, acceptances are independent. The
chance that a step begins at g then follows from those before it, which is the expectation of the walk.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from speedbench.types import Answer, Chances, Counts, Matches, Origin, Record, Step, Table

_DIGITS = 9
"""Decimal places of what is kept for every token."""


def record(answer: Answer, table: Table, draft_length: int, origin: Origin = "exact") -> Record:
    """The record that an engine would have written at this D, without its times."""
    return Record(
        request=answer.request, category=answer.category, turn=answer.turn, prompt_tokens=answer.prompt_tokens,
        prompt_sha=answer.prompt_sha, output=answer.output, sent=0.0, first=None, last=None, first_tokens=1,
        prefill=None, finish=answer.finish,
        steps=() if isinstance(table, Chances) else tuple(steps(answer, table, draft_length)),
        counts=expected(answer, table, draft_length) if isinstance(table, Chances) else None,
        told="estimated" if isinstance(table, Chances) else origin,
    )  # fmt: skip


def plain(answer: Answer) -> Matches:
    """The table of no drafter at all."""
    none = (0,) * (len(answer.output) - 1)
    return Matches(offered=none, matched=none)


def steps(answer: Answer, table: Matches, draft_length: int) -> Iterator[Step]:
    """Every step in turn; their times are unknown."""
    size, at = len(answer.output), 1
    while at < size:
        proposed = _proposed(answer, table, draft_length, at)
        accepted = min(proposed, table.matched[at - 1])
        committed = min(accepted + 1, size - at)
        yield Step(at=None, proposed=proposed, accepted=accepted, committed=committed)
        at += committed


def expected(answer: Answer, table: Chances, draft_length: int) -> Counts:
    """Expected sums over the steps, given the answer, by how they came out and where they began, in O(T·D)."""
    size = len(answer.output)
    begins = [0.0] * (size + 1)
    """[g]: the chance that a step begins with g tokens committed; [size]: that the answer is over, 1."""
    begins[min(1, size)] = 1.0
    outcomes, begun = defaultdict[tuple[int, int, bool], float](float), list[tuple[float, float]]()
    for at in range(1, size):
        offered, alive, commits = _proposed(answer, table, draft_length, at), begins[at], 0.0
        for i in range(offered + 1):
            end = min(at + i + 1, size)
            chance = _accepted(table.target[at - 1][i], table.drafter[at - 1][i]) if i < offered else 0.0
            ends = alive * (1 - chance)
            outcomes[offered, i, end == at + i + 1] += ends
            commits += ends * (end - at)
            begins[end] += ends
            alive *= chance
        begun.append((round(begins[at], _DIGITS), round(commits, _DIGITS)))
    return Counts(
        steps=sum(begins[1:size]), committed=size - 1, origin="estimated",
        accepted=sum(n * i for (_, i, _), n in outcomes.items()),
        proposed=sum(n * p for (p, _, _), n in outcomes.items()),
        drafted=sum(n for (p, _, _), n in outcomes.items() if p),
        outcomes=tuple((*key, n) for key, n in sorted(outcomes.items())), begun=tuple(begun),
    )  # fmt: skip


def _accepted(log_p: float, log_q: float) -> float:
    """min(1, q/p); rounding at the edge of a top-p can leave a token that was said without a chance."""
    return math.exp(min(0.0, log_q - log_p)) if log_p > -math.inf else float(log_q > -math.inf)


def _proposed(answer: Answer, table: Table, draft_length: int, at: int) -> int:
    """Drafts of the step that begins with `at` tokens committed: the step adds one token of its own, so the last that
    the cap allows is never drafted."""
    room = draft_length if answer.cap is None else min(draft_length, answer.cap - at - 1)
    return max(0, min(room, table.offered[at - 1]))
