"""Spec-Bench: the first benchmark of speculative decoding, six tasks and thirteen categories."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    return {"id": row["question_id"], "category": row["category"], "turns": row["turns"]}


SET = PromptSet(
    title="Spec-Bench, 480 prompts of speculative decoding's first benchmark",
    licence="Apache-2.0; within it are texts of MT-Bench, WMT, CNN/DM, Natural Questions, GSM8K",
    page="https://github.com/hemingkx/Spec-Bench",
    rows=480,
    parts=(
        Part(
            github="hemingkx/Spec-Bench",
            revision="fd2c1cd7d2201ef71db4c5f4e455008f017967bf",
            file="data/spec_bench/question.jsonl",
            sha256="4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04",
            prompt=_prompt,
        ),
    ),
)
