"""What a replay works on: Answer → Table, from which the steps for every D follow."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from speedbench.types.values import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the target to one turn, made by whatever engine under a lossless rule."""

    request: str
    category: str
    turn: int
    prompt: tuple[int, ...]
    """Token ids; empty where it comes out of a trace, whose tables are made already."""
    prompt_tokens: int
    prompt_sha: str
    output: tuple[int, ...]
    """As `Record.output`: the prefill's token first, a stop token included."""
    cap: int | None
    """Tokens it might have had, by which the last proposals are cut; None: no cap was near."""
    finish: Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What a drafter that picks its drafts proposes behind every token of an answer but the last.

    Index k: k + 1 tokens of the answer are committed.
    """

    offered: tuple[int, ...]
    """Drafts it proposes when asked for as many as the table was made for."""
    matched: tuple[int, ...]
    """How many of them, from the first, are what the target says; those behind a stop token count too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """The same of a drafter that draws its drafts: natural logarithms of the served sampler's probabilities.

    [k][i] is of the answer's own token k + 1 + i, as draft i + 1 of the proposal behind k + 1 committed tokens, when
    the drafts before it are the answer's too. -inf: never drawn.
    """

    offered: tuple[int, ...]
    target: tuple[tuple[float, ...], ...]
    drafter: tuple[tuple[float, ...], ...]


Table: TypeAlias = Matches | Chances

Tables: TypeAlias = Mapping[int | None, Table]
"""By the D that a table was made for; None: one table serves every D."""


class Labeller(Protocol):
    """A drafter as it is replayed."""

    @property
    def route(self) -> str:
        """How, in words."""

    @property
    def stateful(self) -> bool:
        """Whether it must see every answer, in order."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the drafter said of itself."""

    def tables(self, answers: Sequence[Answer]) -> Sequence[Tables]:
        """What it proposes all along each of some answers, as many as `Labelling.rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """The drafters of a replay over the target that they share."""

    drafters: Mapping[str, Labeller]
    """By label."""
    rows: int
    """Answers that are taken at once, at most."""
    differing: Callable[[Sequence[Answer]], Sequence[tuple[int, ...] | None]]
    """Of the answers just labelled, the positions where the target says another token when it is given those before
    it: near ties, other numerics, or another model. None: no drafter needed the target there, or tokens are drawn."""
