"""What is asked: Task → Request."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speedbench.types.values import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload: where prompts come from (`source`, with its settings in `where`) and what they are."""

    name: str
    title: str
    version: int
    licence: str
    source: str
    where: Settings
    max_tokens: int = 64
    system: str | None = None
    folder: str = ""
    """The folder of the YAML, against which a source resolves relative files."""
    columns: tuple[str, ...] = ()
    """What is kept of a row beside its prompt, such as its difficulty."""
    representative: bool = True
    """Whether acceptance on it says something of real traffic; synthetic and repetitive text does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A prompt of a size: pieces of material are taken in order until it has that many of the target's own tokens."""

    tokens: int
    """Of the whole prompt, chat template included."""
    before: str
    pieces: tuple[str, ...]
    """The material; the last piece taken is cut."""
    after: str
    """The instruction. Like `before` and `needle` it is never cut."""
    needle: str = ""
    depth: float = 0.0
    """Where the needle stands between the pieces taken: 0 before all of them, 1 behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One conversation to hold: user turns, replayed one call at a time with the model's own answers between."""

    id: str
    category: str
    turns: tuple[str, ...]
    """Empty of a prompt that is yet to be cut to its size."""
    system: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What else its row said and its task keeps, such as its difficulty; no prompt shows it."""
    sized: Sized | None = field(default=None, hash=False)
    """What its turn is cut from; it stays when that is done."""
