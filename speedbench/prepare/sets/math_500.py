"""MATH-500: competition mathematics, 500 problems."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import BOXED, Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return {
        "id": row["unique_id"],
        "category": row["subject"],
        "difficulty": f"level {row['level']}",
        "turns": [f"{row['problem']}\n\n{BOXED}"],
    }


SET = PromptSet(
    title="MATH-500, competition mathematics in 7 subjects and 5 levels",
    licence="see its page",
    page="https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
    rows=500,
    parts=(
        Part(
            hub="HuggingFaceH4/MATH-500",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            file="test.jsonl",
            sha256="35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
            prompt=_prompt,
        ),
    ),
)
