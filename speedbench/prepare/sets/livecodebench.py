"""LiveCodeBench: contest problems, newer than most models; its earlier releases are gigabytes."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    begin = row.get("starter_code")
    starter = f"\n\nBegin with this:\n\n```python\n{begin}\n```" if begin else "\n\nRead the input from stdin."
    asked = f"Solve this in Python. Answer with the program, in one code block.\n\n{row['question_content']}{starter}"
    return {"id": row["question_id"], "category": "coding", "difficulty": row.get("difficulty"), "turns": [asked]}


SET = PromptSet(
    title="LiveCodeBench, the problems that its release 6 added",
    licence="see its page",
    page="https://huggingface.co/datasets/livecodebench/code_generation_lite",
    rows=None,
    parts=(
        Part(
            hub="livecodebench/code_generation_lite",
            revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
            file="test6.jsonl",
            prompt=_prompt,
        ),
    ),
)
