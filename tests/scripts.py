"""Scripted runs by hand: a runner's YAML, a task's JSONL, and the command line called in-process."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from speedbench import cli


class Said(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Bench:
    """A folder with a scripted runner and a task of four conversations in two categories, one of two turns."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.runner()
        rows = [("a1", "a", 1), ("a2", "a", 2), ("b1", "b", 1), ("b2", "b", 1)]
        self.task([{"id": i, "category": c, "turns": ["one two three"] * n} for i, c, n in rows])

    def runner(self, **engine: Any) -> None:
        text = {"title": "T", "backend": "scripted", "model": "none", "engine": engine}
        self.write("s.yaml", json.dumps(text))

    def task(self, rows: Sequence[Any]) -> None:
        self.write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def run(self, *words: str, out: str | None = "out", drafter: str = "ngram", d: str = "3") -> Said:
        """`speedbench run` on that runner and task with 11 tokens a turn; a word given again wins."""
        given = ["--task", f"{self.folder}/t.jsonl", "--runner", f"{self.folder}/s.yaml", "--drafter", drafter]
        given += ["-D", d, "--max-tokens", "11", *(["--out", str(self.folder / out)] if out else [])]
        return self("run", *given, *words)

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = cli._exit_code(list(words))
        return Said(code, *self._capsys.readouterr())
