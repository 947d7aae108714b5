"""What an engine is: a backend opens a session, which brings up engines, which hold conversations."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from speedbench.types.tasks import Request
from speedbench.types.values import Counted, Drafting, Pass, Record, Runner, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request as handed to an engine."""

    request: Request
    done: tuple[tuple[int, ...], ...] = ()
    """Per turn answered before a resume, its token ids."""
    said: tuple[str, ...] = ()
    """Per turn answered before a resume, its text, where the engine deals in text."""
    expected: tuple[tuple[int, ...], ...] | None = None
    """Per turn, the baseline's token ids; for `oracle` and `synthetic`, which replay them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How one request fits: tokens of the first prompt, and an upper bound of all turns with their answers."""

    request: str
    prompt_tokens: int | None
    """None: nothing here can count the target's tokens."""
    most_tokens: int | None
    prompt_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every cell of a sweep shares, so that all are made alike."""

    sampling: Sampling
    longest: int | None
    """Most tokens any conversation can reach, prompts and answers together; None: not known."""
    widest: int
    """The sweep's largest D."""


class Engine(Protocol):
    """One (drafter, D) at one concurrency, up and ready."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the drafter is: parameters, bytes, acceptance rule, resolved settings."""

    def warm_up(self) -> None:
        """Run every shape once, unmeasured."""

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass | Counted]:
        """Hold all conversations, `concurrency` at a time; yield passes as they happen and records as turns end."""


class Session(Protocol):
    """A backend with its target loaded, from which the engines of a sweep are made."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The target as loaded: model, dtype, parameters, context, stop ids, template hash, warnings."""

    @property
    def context(self) -> int | None:
        """Tokens the target can hold; None where the engine does not say."""

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        """Prompt sizes in the target's own tokens, before anything runs."""

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        """(seconds per prefilled token, seconds per plain pass), tried out; None where it cannot be."""

    def keep_in(self, folder: Path) -> None:
        """Where whatever belongs beside the result goes from now on, such as the logs of servers."""

    def plan(self, drafting: Drafting, draft_length: int, concurrency: int) -> Mapping[str, Any] | None:
        """What an engine of its own would be told, for --dry-run; None where there is none to tell."""

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> Engine:
        """Bring up one pair. Raises `Unsupported` or `UserError`."""

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        """The target's top-2 logit gap for the token after the last given output, teacher-forced; None: cannot say."""

    def near_tie(self) -> float:
        """The largest gap that rounding can turn, for the session's dtype."""

    def probe(self) -> float | None:
        """Seconds of a fixed small piece of work: the noise probe; None where there is nothing to time."""

    @property
    def blocks(self) -> int | None:
        """How many blocks a cell may be cut into, to be interleaved with others; None: as many as a sweep likes.

        A server that must be started anew for each cell's turn can afford few.
        """


class Backend(Protocol):
    """Module-level `BACKEND` of a file in backends/."""

    name: str
    title: str

    def open(self, runner: Runner) -> AbstractContextManager[Session]:
        """Load the target. Raises `UserError` for a missing model."""
