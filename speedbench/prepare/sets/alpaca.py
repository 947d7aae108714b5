"""Alpaca: short instructions, some with a text that they are about."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedbench.prepare.parts import Part, Prompt, PromptSet


def _prompt(row: Mapping[str, Any]) -> Prompt:
    """The second column is context without which two instructions in five mean nothing."""
    given = row.get("input")
    return {"category": "chat", "turns": [f"{row['instruction']}\n\n{given}" if given else row["instruction"]]}


SET = PromptSet(
    title="Alpaca, 52,002 short instructions",
    licence="CC BY-NC 4.0: not for commercial use",
    page="https://huggingface.co/datasets/tatsu-lab/alpaca",
    rows=52002,
    parts=(
        Part(
            hub="tatsu-lab/alpaca",
            revision="dce01c9b08f87459cf36a430d809084718273017",
            split="train",
            columns=("instruction", "input"),
            prompt=_prompt,
        ),
    ),
)
