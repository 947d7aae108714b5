"""Runs over two servers that speak: the runner and the task, the command, and what came of it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from scripts import Bench, Said
from speaking_server import Speaking

ROWS = [("a1", "a", 1), ("a2", "a", 2), ("b1", "b", 1), ("b2", "b", 3)]
TURNS = 7
TOKENS = 11
"""Of an answer: 1 of the prefill and 10 in steps of 4, 1, 3, 2 where 3, 0, 2, 1 of 3 drafts are accepted."""


@contextmanager
def pair(
    bench: Bench, base: Speaking | None = None, drafted: Speaking | None = None, *, drafter: str = "ngram",
    **engine: Any,
) -> Iterator[tuple[Speaking, Speaking]]:  # fmt: skip
    """Two servers that run, a runner that names them, and a task of four conversations, seven turns in all."""
    bench.task([{"id": i, "category": c, "turns": [f"{i}-turn{n}" for n in range(k)]} for i, c, k in ROWS])
    with ExitStack() as stack:
        ours = stack.enter_context(base or Speaking())
        theirs = stack.enter_context(drafted or Speaking(d=3))
        runner = {
            "title": "T", "backend": "openai", "model": "m", "engine": {"url": ours.url, **engine},
            "drafters": {drafter: {"url": theirs.url}},
        }  # fmt: skip
        bench.write("s.yaml", json.dumps(runner))
        yield ours, theirs


def run(bench: Bench, *words: str, drafter: str = "ngram", **more: Any) -> Said:
    return bench.run("--json", *words, drafter=drafter, **more)


def numbers(said: Said, cell: int = 1) -> dict[str, float | None]:
    metrics = said.document["cells"][cell]["metrics"]
    return {name: each["value"] for name, each in metrics.items()}


def warned(said: Said) -> list[str]:
    """What the run warned of, but for what any short run on served engines says."""
    usual = ("few conversations", "the engine tells no pass times", "ngram: attached to", "external: attached to")
    return [each for each in said.document["warnings"] if not each.startswith(usual)]


def validated(bench: Bench) -> str:
    return bench("validate", str(bench.out)).out
