"""Processes on this machine, one after another: a crash takes a unit down, not the run.

Never two at a time, for each would measure the other's load; Ray hands the GPUs of one machine out to several.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speedbench.attendant import begin, last_line
from speedbench.errors import UserError
from speedbench.types import Ended, Settings


@dataclass(frozen=True, slots=True)
class _Local:
    name: str = "local"
    title: str = "processes on this machine, one after another"
    settings: Settings = field(default_factory=dict)

    @contextmanager
    def open(self, settings: Settings, folder: Path) -> Iterator[_Workers]:
        workers = _Workers(settings["python"])
        try:
            yield workers
        finally:
            workers.close()


EXECUTOR = _Local()


class _Workers:
    places: int | None = 1

    def __init__(self, python: str) -> None:
        self._python = python
        self._begun: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, words: Sequence[str], log: Path) -> _Job:
        try:
            process = begin(words, str(log), self._python)
        except OSError as error:
            raise UserError(f"executor.python: '{self._python}' does not start: {error.strerror or error}") from None
        self._begun.append(process)
        return _Job(process, log)

    def close(self) -> None:
        for process in self._begun:
            with process:  # whose pipe is closed, which it minds
                pass


@dataclass(frozen=True, slots=True)
class _Job:
    process: subprocess.Popen[Any]
    log: Path

    def ended(self) -> Ended | None:
        code = self.process.poll()
        return None if code is None else Ended(code=code, said=last_line(self.log))
