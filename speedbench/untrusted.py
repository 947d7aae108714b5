"""Files that strangers wrote: read within limits, refused in a line that names file and line, and shown harmlessly."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.files import finite, once

DEEPEST = 32
"""Objects and lists within each other; a result has about eight."""

MEGABYTE = 1 << 20


def content(path: Path, most: int) -> bytes:
    """A file's bytes. Raises `UserError` for one that is no plain file, is empty, or has more than `most` bytes."""
    try:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path} is {'no plain file' if os.path.lexists(path) else 'not there'}")
        size = path.stat().st_size
        if not 0 < size <= most:
            said = "is empty" if not size else f"has {size} bytes; at most {most} are read"
            raise UserError(f"{path} {said}")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def document(path: Path, most: int, *, strict: bool = True) -> Any:
    """A file that holds one JSON value; `strict` refuses NaN, infinity and keys that stand twice, else NaN is None."""
    return parsed(content(path, most), str(path), strict=strict)


def lines(whole: bytes, path: str) -> Iterator[tuple[str, Any]]:
    """Each line's place, as `FILE line 3`, and its JSON, of what was read from `path`; the last line must be whole."""
    if not whole.endswith(b"\n"):
        raise UserError(f"{path} ends in the middle of a line; it was cut off")
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        where = f"{path} line {number}"
        yield where, parsed(line, where)


def parsed(text: bytes, where: str, *, strict: bool = True) -> Any:
    """JSON of a stranger, no deeper than `DEEPEST`; `where` names it in what is raised."""
    try:
        if strict:
            found = json.loads(text, object_pairs_hook=once, parse_constant=_number, parse_float=_number)
        else:
            found = finite(json.loads(text, parse_constant=lambda _: None))
    except RecursionError:
        raise UserError(f"{where} is nested too deeply; at most {DEEPEST} levels are read") from None
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}") from None
    if _deeper(found, DEEPEST):
        raise UserError(f"{where} is nested too deeply; at most {DEEPEST} levels are read")
    return found


def _number(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError(f"{text} is no finite number")
    return found


def _deeper(tree: Any, levels: int) -> bool:
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return any(not levels or _deeper(each, levels - 1) for each in inner)


def markdown(text: str) -> str:
    """Text as it is in a Markdown table: no HTML, no link, no mention, and no new column or line."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    shown = "".join(f"\\{each}" if each in "\\|`*_[]~" else each for each in shown)
    for live, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "&#64;"), ("://", "&#58;//")):
        shown = shown.replace(live, harmless)
    return shown
