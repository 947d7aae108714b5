"""Readers of what engines tell about acceptance in a response, found by its shape and not by the engine's name.

OpenAI's `completion_tokens_details.accepted_prediction_tokens` is about predicted outputs, another thing: not read.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from speedbench.serving.payloads import llamacpp, sglang, trtllm, vllm
from speedbench.serving.payloads.body import Body, body, node, whole, wholes
from speedbench.serving.payloads.told import Told

__all__ = ["Told", "not_found", "told"]

READERS = (vllm.read, trtllm.read, sglang.read, llamacpp.read)
KEYS = (vllm.KEY, trtllm.KEY, sglang.KEY, "draft_n", "per_step_accepted", "acceptance_histogram")
"""What gives acceptance away, wherever it stands."""


def told(payload: Any) -> Told | None:
    """What a response says of its drafts, ids and times; None where it says nothing of them.

    `payload` is a body as JSON, or the events of a stream in order. Of several choices the first is read.
    """
    here = body(payload)
    base = vllm.times(here, _base(here))
    for read in READERS:
        found = read(here, base)
        if found is not None:
            return found
    return base if (base.ids, base.prompt_ids, base.prefill, base.decode) != (None,) * 4 or base.faults else None


def not_found(payload: Any) -> str:
    """The warning for a response that was asked for acceptance and tells none, with the keys seen."""
    here = body(payload)
    seen = f"{', '.join(sorted(here.root)) or 'nothing'}; its choice: {', '.join(sorted(here.choice)) or 'nothing'}"
    strange = sorted(set(_paths(here.root)))
    moved = f"; it may have moved to {', '.join(strange)}" if strange else ""
    return f"acceptance stats requested but not found; the response has {seen}{moved}"


def _base(here: Body) -> Told:
    """Tokens and ids; ids that are not all there are left out."""
    tokens = next((found for found in map(whole, _counts(here)) if found is not None), None)
    listed = (here.choice.get("token_ids"), here.root.get("output_ids"), here.root.get("tokens"))
    ids = next((found for found in map(wholes, listed) if found is not None), None)
    prompts = (here.choice.get("prompt_token_ids"), here.root.get("prompt_token_ids"))
    prompt_ids = next((found for found in map(wholes, prompts) if found is not None), None)
    base = Told(source=None, tokens=tokens, ids=ids, prompt_ids=prompt_ids)
    if ids is None or tokens is None or len(ids) == tokens:
        return base
    return replace(base, ids=None, faults=("fewer or more ids than output tokens told; ids not used",))


def _counts(here: Body) -> Iterator[Any]:
    yield (node(here.root, "usage") or {}).get("completion_tokens")
    yield (node(here.root, "meta_info") or {}).get("completion_tokens")
    yield (node(here.root, "timings") or {}).get("predicted_n")
    outputs = here.root.get("outputs")
    yield len(here.choice.get("token_ids") or ()) if outputs else None


def _paths(value: Any, path: str = "", depth: int = 8) -> Iterator[str]:
    """Where in a response something stands that gives acceptance away."""
    if depth and isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            if key in KEYS:
                yield path or str(key)
            yield from _paths(inner, here, depth - 1)
    elif depth and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{index}]", depth - 1)
