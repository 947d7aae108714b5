"""NVIDIA's SPEED-Bench: its configs, its rows as published, and which of our resolvers gives a placeholder its text."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from speedbench.errors import UserError
from speedbench.prepare import bucketed, resolvers, tables
from speedbench.prepare.resolvers import Opener, Published
from speedbench.prepared import MARKER

NAME = "speed-bench"
REPO = "nvidia/SPEED-Bench"
REVISION = "454f88454792dfa3ccfd7ef15fff248efde44cd1"
"""The commit that is prepared unless another is named. Always a commit: a branch moves under results."""

CONFIGS: Mapping[str, int | None] = {
    "qualitative": None,
    "throughput_1k": 1000,
    "throughput_2k": 2000,
    "throughput_8k": 8000,
    "throughput_16k": 16000,
    "throughput_32k": 32000,
}
"""With the tokens of a prompt, as its authors count them."""

RESOLVERS: Mapping[str, Opener] = {
    "RUCAIBox/BAMBOO": bucketed.dialogues,
    "abisee/cnn_dailymail": resolvers.article,
    "cais/hle": bucketed.hard_exam,
    "livecodebench/code_generation_lite": resolvers.live_code,
    "deepmind/code_contests": resolvers.contest,
    "mtbench101/mt-bench-101": resolvers.dialogue,
    "Helsinki-NLP/opus-100": resolvers.pair,
    "nvidia/ChatRAG-Bench": resolvers.conversation,
    "TIGER-Lab/MMLU-Pro": resolvers.exam,
    "AdaLEval/stackselect": bucketed.selection,
    "AdaLEval/textsort": bucketed.sorting,
    "ZenMoore/RoleBench": resolvers.role,
    "Neph0s/CoSER": resolvers.character,
}
"""By what a row's source has in it."""

TERMS = (
    ("SPEED-Bench itself", "NVIDIA Evaluation Dataset License", "https://huggingface.co/datasets/nvidia/SPEED-Bench"),
    ("humanevalpack, MMATH, BAMBOO, EQ-Bench within it", "MIT", ""),
    ("WritingBench, Spec-Bench within it", "Apache-2.0", ""),
    ("MCIF within it", "CC BY 4.0", ""),
    ("RepoBench, LCA within it", "MIT and Apache-2.0", ""),
    ("the words around some prompts", "Apache-2.0", "https://github.com/NVIDIA/Model-Optimizer"),
    ("HLE", "gated; asks that its questions stay off the open web", "https://huggingface.co/datasets/cais/hle"),
    *(
        (source, "its own terms, see its page", f"https://huggingface.co/datasets/{source}")
        for source in RESOLVERS
        if source not in ("cais/hle", "RUCAIBox/BAMBOO", "mtbench101/mt-bench-101")
        and not source.startswith("AdaLEval")
    ),
    ("MT-Bench-101", "its own terms, see its page", "https://github.com/mtbench101/mt-bench-101"),
    ("Ada-LEval", "its own terms, see its page", "https://github.com/open-compass/Ada-LEval"),
)
"""What is fetched, under which terms, and where they stand. What is passed on is up to the user; speedbench passes on
nothing."""


def configs(asked: str | None) -> list[str]:
    """The configs that a name means: one, or all of them."""
    return list(CONFIGS) if asked == "all" else [asked or "qualitative"]


def tier(config: str, category: str) -> str | None:
    """In the throughput configs, what is called category is how predictable the answers are."""
    return category if CONFIGS.get(config) else None


def published(path: Path) -> list[Published]:
    """The rows of a config's file. Raises `UserError` where it lacks what a row must have."""
    found = []
    for number, row in enumerate(tables.rows(path)):
        absent = [key for key in ("question_id", "category", "turns", "source", "src_id") if row.get(key) is None]
        if absent or not row["turns"] or not all(isinstance(turn, str) for turn in row["turns"]):
            raise UserError(f"row {number} of {path.name} has no {absent[0] if absent else 'turns'} that reads")
        found.append(
            Published(
                number=number,
                id=str(row["question_id"]),
                category=str(row["category"]),
                sub_category=str(row.get("sub_category") or ""),
                difficulty=str(row.get("difficulty") or ""),
                source=str(row["source"]),
                source_id=str(row["src_id"]),
                turns=tuple(row["turns"]),
            )
        )
    return found


def source(row: Published) -> str:
    """Which source a placeholder's text comes from; empty where no resolver knows it."""
    return next((name for name in RESOLVERS if name in row.source), "")


def groups(rows: Sequence[Published]) -> dict[tuple[str, str], list[Published]]:
    """The placeholders by source and its address, in the order in which they come."""
    found: dict[tuple[str, str], list[Published]] = {}
    for row in rows:
        if row.is_placeholder:
            found.setdefault((source(row), row.source), []).append(row)
    return found


def whole(turns: Sequence[str]) -> bool:
    """Whether these turns can be asked: text in each, and the marker in none."""
    return bool(turns) and all(turn.strip() and MARKER not in turn for turn in turns)


def is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", text) is not None
