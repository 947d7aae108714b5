"""MBPP: basic Python problems, those that were looked through by hand."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    tests = "\n".join(row["test_list"])
    asked = f"{row['prompt']}\n\nIt has to pass these tests:\n\n```python\n{tests}\n```"
    return {"id": row["task_id"], "category": "coding", "turns": [asked]}


SET = PromptSet(
    title="MBPP sanitized, the 257 test problems of basic Python",
    licence="CC BY 4.0",
    page="https://huggingface.co/datasets/google-research-datasets/mbpp",
    rows=257,
    parts=(
        Part(
            hub="google-research-datasets/mbpp",
            revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
            split="test",
            config="sanitized",
            columns=("task_id", "prompt", "test_list"),
            prompt=_prompt,
        ),
    ),
)
