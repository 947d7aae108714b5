"""GSM8K: school mathematics in words."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import BOXED, Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return {"category": "math", "turns": [f"{row['question']}\n\n{BOXED}"]}


SET = PromptSet(
    title="GSM8K, the 1,319 test problems of school mathematics",
    licence="MIT",
    page="https://github.com/openai/grade-school-math",
    rows=1319,
    parts=(
        Part(
            github="openai/grade-school-math",
            revision="3101c7d5072418e28b9008a6636bde82a006892c",
            file="grade_school_math/data/test.jsonl",
            sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            prompt=_prompt,
        ),
    ),
)
