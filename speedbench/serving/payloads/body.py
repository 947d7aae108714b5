"""A response as one thing, whether it came whole or as the events of a stream."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JOINED = ("token_ids", "tokens", "output_ids")
"""Lists of ids of which each event of a stream brings its own part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The root of a response and its first choice; of a stream, what each event that had a key said last."""

    root: Mapping[str, Any]
    choice: Mapping[str, Any]


def body(payload: Any) -> Body:
    """Join what came. Later events win, ids are put one after the other, and nulls say nothing."""
    events = [payload] if isinstance(payload, Mapping) else payload
    root: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for event in events if isinstance(events, Sequence) and not isinstance(events, str) else ():
        if isinstance(event, Mapping):
            _add(root, event)
            for each in _firsts(event):
                _add(choice, each)
    return Body(root=root, choice=choice)


def node(holder: Mapping[str, Any], *path: str) -> Mapping[str, Any] | None:
    """The object at a path; None where there is none."""
    here: Any = holder
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else None


def whole(value: Any) -> int | None:
    """A whole number, which may have been written as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        return None
    return int(value)


def wholes(value: Any) -> tuple[int, ...] | None:
    """A list of whole numbers; None for anything else."""
    found = [whole(each) for each in value] if isinstance(value, (list, tuple)) else [None]
    return None if None in found else tuple(each for each in found if each is not None)


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
    return float(value) if good else None


def seconds(milliseconds: Any) -> float | None:
    """Seconds out of milliseconds."""
    found = number(milliseconds)
    return None if found is None else found / 1000


def dense(value: Any) -> tuple[int, ...] | None:
    """A histogram by position, told as a list or as a map whose keys are positions; None for anything else."""
    if not isinstance(value, Mapping):
        return wholes(value)
    if not all(str(key).isdigit() for key in value):
        return None
    longest = max((int(key) for key in value), default=-1)
    counts = {int(key): count for key, count in value.items()}
    return wholes([counts.get(j, 0) for j in range(longest + 1)])


def _firsts(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The choice (OpenAI) or output (TensorRT-LLM in process) of index 0."""
    for name in ("choices", "outputs"):
        listed = event.get(name)
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, Mapping) and each.get("index", 0) == 0:
                yield each


def _add(held: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if key in JOINED and isinstance(value, list) and isinstance(held.get(key), list):
            held[key] = held[key] + value
        elif value is not None:
            held[key] = value
