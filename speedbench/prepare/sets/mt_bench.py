"""MT-Bench: conversations of two turns."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return {"id": row["question_id"], "category": row["category"], "turns": row["turns"]}


SET = PromptSet(
    title="MT-Bench, 80 conversations of two turns in 8 categories",
    licence="Apache-2.0",
    page="https://github.com/lm-sys/FastChat",
    rows=80,
    parts=(
        Part(
            github="lm-sys/FastChat",
            revision="0e6d3e4beaab66f4d3f93db72541a4abab8af28d",
            file="fastchat/llm_judge/data/mt_bench/question.jsonl",
            sha256="119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
            prompt=_prompt,
        ),
    ),
)
