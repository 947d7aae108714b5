"""Arena-Hard 2.0: prompts of users that tell models apart."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return {
        "id": row["uid"],
        "category": row["category"],
        "sub_category": row["subcategory"],
        "turns": [row["prompt"]],
    }


SET = PromptSet(
    title="Arena-Hard 2.0, 750 prompts of users: hard ones and creative writing",
    licence="Apache-2.0",
    page="https://github.com/lmarena/arena-hard-auto",
    rows=750,
    parts=(
        Part(
            github="lmarena/arena-hard-auto",
            revision="196f6b826783b3da7310e361a805fa36f0be83f3",
            file="data/arena-hard-v2.0/question.jsonl",
            sha256="a75cef6623db6b27aec810497b059f0659705d7ff48dcbccc5bd5b130728ac73",
            prompt=_prompt,
        ),
    ),
)
