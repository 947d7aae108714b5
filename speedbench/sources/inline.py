"""Rows that stand in the task's own YAML.

where:
  prompts:
    - What is the capital of France?                         # one turn
    - {id: trip, category: travel, turns: [Plan a day in Rome., Now for rain.]}
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speedbench.errors import UnknownName, UserError
from speedbench.types import Settings


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """The rows in the YAML's order, as they stand, each with `_at`: its number in the list."""
    for key in where:
        if key != "prompts":
            raise UnknownName("key of 'where' for an inline source", str(key), ("prompts",))
    prompts = where.get("prompts")
    if not isinstance(prompts, list):
        raise UserError(f"where.prompts: should be a list of prompts (got {type(prompts).__name__})")
    for number, prompt in enumerate(prompts, start=1):
        at = f"where.prompts, row {number}"
        if not isinstance(prompt, (str, dict)):
            raise UserError(f"{at}: should be text or a mapping with turns (got {type(prompt).__name__})")
        yield {**(prompt if isinstance(prompt, dict) else {"prompt": prompt}), "_at": at}
