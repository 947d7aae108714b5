"""What preparing works on: sets as their files describe them, and the pieces that a preparation is made of."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speedbench.prepare.origins import Origins

Prompt = Mapping[str, Any]
"""turns and, where a set has them, id, category, sub_category, difficulty, tier."""

BOXED = "Reason step by step, and put the final answer within \\boxed{}."
"""What is asked of mathematics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Files of one origin: a data set of the hub, or a public repository of GitHub, at a commit."""

    hub: str = ""
    github: str = ""
    revision: str
    file: str = ""
    split: str = ""
    config: str = ""
    """The hub's files by split and config, where `file` names none."""
    sha256: str | None = None
    """Of `file`, where somebody has seen it."""
    package: str = ""
    """An installed package that ships the same file, as `package_file`."""
    package_file: str = ""
    columns: tuple[str, ...] | None = None
    """All that is read of a Parquet file."""
    prompt: Callable[[Mapping[str, Any]], Prompt]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """A set as its file describes it; `rows` is how many there are, None where nobody has counted."""

    title: str
    licence: str
    page: str
    rows: int | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a preparation that is made, and kept, by itself."""

    source: str
    address: str
    key: str
    """A hash of all that it is made from: equal keys, equal rows."""
    ids: Mapping[int, str] | None
    """The rows of the whole that it gives, by number; None: not known before it is made, and then it must not fail."""
    make: Callable[[Origins], Iterator[tuple[int, Prompt | str]]]
    """The number of each row with its prompt, or with the reason why there is none."""
