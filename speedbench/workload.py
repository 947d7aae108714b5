"""A workload under one target: how long its prompts are, which are too long, and what qualifies numbers on it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speedbench.errors import UserError
from speedbench.types import Fit, Request, Task

LENGTHS = (128, 512, 1024, 2048, 8192, 16384, 32768)
"""Upper ends of the classes of prompt lengths; one more lies beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What is known of a run before anything runs."""

    requests: tuple[Request, ...]
    """Cut to their size, and without those left out."""
    fits: tuple[Fit, ...]
    cells: int
    turns: int
    most_tokens: int
    """Tokens of all answers of all cells, if none stops early."""
    drafters: Mapping[str, Mapping[str, Any]]
    """What each drafter said of itself, by label."""
    plans: Mapping[str, Mapping[str, Any]]
    """What an engine of its own would be told, by cell; empty where the engine is ours."""
    estimated_seconds: float | None
    """At the plain pace, as if drafting cost exactly what it saves and no answer stopped early; None: pace unknown."""
    skipped: tuple[str, ...] = ()
    """Requests left out for their length."""
    warnings: tuple[str, ...] = ()

    @property
    def workload(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "categories": dict(Counter(request.category for request in self.requests)),
            "lengths": histogram(self.fits),
            "skipped": list(self.skipped),
            "warnings": list(self.warnings),
        }

    def document(self) -> dict[str, Any]:
        return {
            "rows": len(self.fits),
            "prompt_tokens": [fit.prompt_tokens for fit in self.fits],
            **self.workload,
            "cells": self.cells,
            "turns": self.turns,
            "most_output_tokens": self.most_tokens,
            "drafters": {label: dict(facts) for label, facts in self.drafters.items()},
            "estimated_seconds": self.estimated_seconds,
            "plans": dict(self.plans),
        }


def histogram(fits: Sequence[Fit]) -> dict[str, int]:
    """How many prompts have so many tokens, from the shortest class met to the longest: `≤1024`, `>32768`."""
    known = [fit.prompt_tokens for fit in fits if fit.prompt_tokens is not None]
    met = Counter(bisect_left(LENGTHS, tokens) for tokens in known)
    if not met:
        return {}
    return {_length(index): met[index] for index in range(min(met), max(met) + 1)}


def _length(index: int) -> str:
    return f"≤{LENGTHS[index]}" if index < len(LENGTHS) else f">{LENGTHS[-1]}"


# ---- what is too long ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many tokens something takes."""

    of: str
    tokens: int
    prompts: bool = False
    """Whether prompts alone must be within: a drafter that comes to its end in an answer drafts no further."""

    def beyond(self, fits: Sequence[Fit]) -> dict[str, int]:
        """The conversations that could exceed it, with their tokens; what was not counted does not."""
        sizes = {fit.request: (fit.prompt_tokens if self.prompts else fit.most_tokens) or 0 for fit in fits}
        return {name: tokens for name, tokens in sizes.items() if tokens > self.tokens}

    def said(self, over: Mapping[str, int], of: int) -> str:
        """`1 of 8 conversations could exceed the target's context of 100 tokens, answers included: a (101)`."""
        shown = ", ".join(f"{name} ({tokens})" for name, tokens in [*over.items()][:5])
        more = f" and {len(over) - 5} more" if len(over) > 5 else ""
        exceed, answers = ("exceed", "") if self.prompts else ("could exceed", ", answers included")
        return f"{len(over)} of {of} conversations {exceed} {self.of} of {self.tokens} tokens{answers}: {shown}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The conversations that will be held, how each fits, and what was said on the way."""

    requests: tuple[Request, ...]
    fits: tuple[Fit, ...]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def within(self, limits: Iterable[Limit], *, skip: bool) -> Held:
        """Those within all limits. Raises `UserError` where one is not, unless told to `skip`, and where none is."""
        held = self
        for limit in limits:
            over = limit.beyond(held.fits)
            said = limit.said(over, len(held.fits))
            if over and not skip:
                raise UserError(f"{said}; shorten them, lower --max-tokens, or leave them out with --skip-long")
            if over:
                held = held._without(over, f"left out: {said}")
        return held

    def _without(self, over: Mapping[str, int], note: str) -> Held:
        if len(over) == len(self.fits):
            raise UserError(f"--skip-long: no conversation is left; {note.removeprefix('left out: ')}")
        return Held(
            requests=tuple(request for request in self.requests if request.id not in over),
            fits=tuple(fit for fit in self.fits if fit.request not in over),
            skipped=(*self.skipped, *over), notes=(*self.notes, note),
        )  # fmt: skip

    def within_drafters(self, drafters: Mapping[str, Mapping[str, Any]], *, skip: bool) -> Held:
        """Those whose prompts every drafter can read; where an answer may go beyond, that is said."""
        limits = [
            Limit(of=f"the context of {label}", tokens=facts["context"], prompts=True)
            for label, facts in drafters.items()
            if facts.get("context")
        ]
        held = self.within(limits, skip=skip)
        partly = [(limit, replace(limit, prompts=False).beyond(held.fits)) for limit in limits]
        notes = [
            f"{len(over)} of {len(held.fits)} conversations could go beyond {limit.of}, {limit.tokens} tokens, "
            "where it drafts nothing more"
            for limit, over in partly
            if over
        ]
        return replace(held, notes=(*held.notes, *notes))


# ---- what qualifies it ----------------------------------------------------------------------------------------------

LONG, WORDS = 1000, 150
"""Characters and words from which a prompt's repetitions say something."""
MONOTONOUS = 0.1
"""What is left, compressed, of a prompt that says the same again and again; of prose and code it is 0.15 to 0.6."""
RANDOM = 0.9
"""Share of different words in made-up text; in prose and code it is 0.4 to 0.75."""

UNREAL = "acceptance not representative"


def qualified(task: Task, requests: Sequence[Request]) -> list[str]:
    """What makes numbers on these prompts say less of real traffic: the task says so, or their text does."""
    texts, every = ["\n".join(request.turns) for request in requests], len(requests)
    said = {
        "conversations ask what another one asks; caches may answer for the drafter": every - len(set(texts)),
        f"prompts repeat themselves over and over: {UNREAL}": sum(map(_repeats, texts)) * task.representative,
        f"prompts hardly use a word twice, as random text does: {UNREAL}": sum(map(_rambles, texts))
        * task.representative,
    }
    synthetic = [f"task '{task.name}' is synthetic or repetitive: {UNREAL}, AL and speedup hold for such text alone"]
    return synthetic * (not task.representative) + [f"{n} of {every} {what}" for what, n in said.items() if n]


def _repeats(text: str) -> bool:
    data = text[: 64 * LONG].encode()
    return len(text) >= LONG and len(zlib.compress(data, 1)) < MONOTONOUS * len(data)


def _rambles(text: str) -> bool:
    words = text[: 64 * LONG].split()[:LONG]
    return len(words) >= WORDS and len(set(words)) > RANDOM * len(words)
