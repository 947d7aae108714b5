"""CNN/DailyMail: news articles to summarise."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    asked = "Summarise this article in three or four sentences."
    return {"id": row["id"], "category": "summarization", "turns": [f"{asked}\n\n{row['article']}"]}


SET = PromptSet(
    title="CNN/DailyMail, the 11,490 test articles to summarise",
    licence="Apache-2.0 of the set; the articles are their publishers'",
    page="https://huggingface.co/datasets/abisee/cnn_dailymail",
    rows=11490,
    parts=(
        Part(
            hub="abisee/cnn_dailymail",
            revision="96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
            split="test",
            config="3.0.0",
            columns=("id", "article"),
            prompt=_prompt,
        ),
    ),
)
