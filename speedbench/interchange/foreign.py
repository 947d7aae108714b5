"""Result files of specdec_bench, AIPerf and `vllm bench serve`, recognised by shape: each number with its definition.

The same name means different things in these tools, so a number goes by our name for what it is, in our units.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.interchange.shapes import OTHERS, SHAPES, Document, Odd, Shape
from speedbench.untrusted import MEGABYTE, content, parsed

MOST = 256 * MEGABYTE
"""A detailed result of `vllm bench serve` holds the gaps between all events of all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of another tool: seconds, tokens per second, shares and tokens per step, as ours are."""

    metric: str
    """Our name for what it is by its definition."""
    value: float
    definition: str
    tool: str
    source: str
    """The file, and the key within it."""


def read(path: Path) -> list[Figure]:
    """Every number of a file that we have a name for. Raises `UserError` for a file of no known shape, and for one
    that says of itself that it is not whole."""
    found = []
    documents = _documents(path)
    for index, document in enumerate(documents):
        where = f"{path}[{index}]" if len(documents) > 1 else str(path)
        shape = _shape(document, where)
        for metric, key, value, definition in _told(shape, document, where):
            source = f"{where}: {key}"
            found.append(Figure(metric=metric, value=value, definition=definition, tool=shape.tool, source=source))
    if not found:
        raise UserError(f"{path} holds no number that speedbench has a name for")
    return found


def _documents(path: Path) -> list[Any]:
    """The objects of a file: one, those of a list, or one a line, as tools that append to their files have them."""
    whole = content(path, MOST)
    lines = [line for line in whole.split(b"\n") if line.strip()]
    if len(lines) > 1 and _is_object(lines[0]):
        return [parsed(line, f"{path} line {number}", strict=False) for number, line in enumerate(lines, start=1)]
    found = parsed(whole, str(path), strict=False)
    return found if isinstance(found, list) and found else [found]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _shape(document: Any, where: str) -> Shape:
    known = ", ".join(shape.tool for shape in SHAPES)
    if not isinstance(document, dict):
        raise UserError(f"{where} is of no known shape: it holds a {type(document).__name__}; known: {known}")
    for shape in SHAPES:
        if shape.has(document):
            return shape
    for tool, key in OTHERS.items():
        if key in document:
            raise UserError(f"{where} looks like a file of {tool}, which is not read; known: {known}")
    keys = ", ".join(sorted(map(str, document))[:5])
    raise UserError(f"{where} is of no known shape: its keys are {keys} …; known: {known}")


def _told(shape: Shape, document: Document, where: str) -> Iterator[tuple[str, str, float, str]]:
    try:
        for metric, key, value, definition in shape.figures(document):
            if value is not None:
                yield metric, key, value, definition
    except Odd as odd:
        raise UserError(f"{where}: {odd}") from None
