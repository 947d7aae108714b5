"""How work is handed to other processes: an executor brings workers, which do one command each."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from speedbench.types.values import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended. `code` None: it was lost, with its worker or its machine."""

    code: int | None
    said: str = ""
    """What is known of why, in one line."""


class Job(Protocol):
    """A command that was handed out."""

    def ended(self) -> Ended | None:
        """None while it waits or runs."""


class Workers(Protocol):
    """Whoever takes commands; what is under way when the context ends is stopped."""

    places: int | None
    """Commands to hand out at a time; None: all of them, the executor has a queue of its own."""

    def start(self, name: str, words: Sequence[str], log: Path) -> Job:
        """Hand out `speedbench WORDS`, its output going to the end of `log`. Raises `UserError`."""


class Executor(Protocol):
    """Module-level `EXECUTOR` of a file in executors/."""

    name: str
    title: str
    settings: Settings
    """Its own settings with their defaults."""

    def open(self, settings: Settings, folder: Path) -> AbstractContextManager[Workers]:
        """Reach the workers; `folder` is for the executor's own files. Raises `UserError`."""
