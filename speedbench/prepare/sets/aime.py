"""AIME: competition mathematics of two years."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from speedbench.prepare.parts import BOXED, Part, Prompt, PromptSet


def _prompts(year: int) -> Callable[[Mapping[str, Any]], Prompt]:
    def prompt(row: Mapping[str, Any]) -> Prompt:
        return {"id": f"{year}-{row['id']}", "category": f"aime-{year}", "turns": [f"{row['problem']}\n\n{BOXED}"]}

    return prompt


SET = PromptSet(
    title="AIME 2024 and 2025, 60 problems of competition mathematics",
    licence="see their pages; the contests are the Mathematical Association of America's",
    page="https://huggingface.co/datasets/HuggingFaceH4/aime_2024 and .../math-ai/aime25",
    rows=60,
    parts=(
        Part(
            hub="HuggingFaceH4/aime_2024",
            revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
            split="train",
            columns=("id", "problem"),
            prompt=_prompts(2024),
        ),
        Part(
            hub="math-ai/aime25",
            revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
            file="test.jsonl",
            sha256="b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331",
            prompt=_prompts(2025),
        ),
    ),
)
