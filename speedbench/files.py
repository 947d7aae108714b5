"""Text on disk: strict JSON, safe names, files that appear whole, and lines that are there once written."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn

from speedbench.errors import UserError

_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows gives to devices."""

LARGEST = 2**30
"""Bytes of a file that is read at once: results come from strangers too."""

_UNPAIRED = "backslashreplace"
"""Half a surrogate pair, of which UTF-8 knows none, is written as JSON's own escape for it."""


def safe(name: str, longest: int = 80) -> str:
    """A short file name for any name; one that had to change carries a hash of the whole, so that none collide."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")
    if name and slug == name and len(slug) <= longest and not _RESERVED.fullmatch(slug):
        return slug
    whole = name.encode("utf-8", "surrogatepass")
    slug = f"x_{slug}" if _RESERVED.fullmatch(slug) else slug or "x"
    return f"{slug[: longest - 9]}-{hashlib.sha256(whole).hexdigest()[:8]}"


def dumps(document: Any, *, indent: int | None = None) -> str:
    """Strict JSON: NaN and infinity are refused, other alphabets stay readable, numpy's scalars are numbers."""
    separators = None if indent else (",", ":")
    return json.dumps(
        document, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators, default=_scalar
    )


def csv_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets a quote before it; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def finite(tree: Any) -> Any:
    """The same values, but None for NaN and infinity, which others write into what they call JSON."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, Mapping):
        return {key: finite(inner) for key, inner in tree.items()}
    return [finite(each) for each in tree] if isinstance(tree, (list, tuple)) else tree


def loads(text: str | bytes) -> Any:
    """Strict JSON back; raises `ValueError`, also for NaN, infinity, a key that stands twice, endless nesting and bytes
    that are not UTF-8."""
    try:
        return _STRICT.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises `ValueError` for a key that stands twice, of which every reader takes another."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} stands twice")
    return found


def _scalar(value: Any) -> Any:
    """The Python number in a scalar of another package."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _number(text: str) -> float:
    """`1e999` is a number of JSON, and infinity in memory."""
    return found if math.isfinite(found := float(text)) else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of strict JSON")


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_number, object_pairs_hook=once)
"""Once for all lines: json.loads would make one for each."""


def write_whole(path: Path, text: str) -> None:
    """The file appears whole or not at all. Raises `UserError` where it cannot be written."""
    scratch = path.with_name(f".{path.name[:80]}-{os.getpid()}-{get_ident()}.tmp")
    with _writing(path):
        if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced by a file
            path.write_text(text, encoding="utf-8", errors=_UNPAIRED, newline="\n")
            return
        try:
            scratch.write_text(text, encoding="utf-8", errors=_UNPAIRED, newline="\n")
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)


def append(path: Path, lines: Sequence[str]) -> None:
    """The lines, handed to the system before this returns. Raises `UserError` where they cannot be written."""
    with _writing(path), path.open("a", encoding="utf-8", errors=_UNPAIRED, newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}") from None


def lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line's number and JSON; none of a file that is not there. A torn last line, which a run may still be
    writing, is left out."""
    if not path.is_file():
        return
    for number, line in enumerate(_content(path).split(b"\n")[:-1], start=1):
        try:
            yield number, loads(line)
        except ValueError as error:
            raise UserError(f"{path} line {number} is not JSON: {error}") from None


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} is too large: {path.stat().st_size} bytes; at most {LARGEST} are read")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} does not read: {error.strerror}") from None


def drop_torn_line(path: Path) -> None:
    """What a killed process left half-written at the end is forgotten."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def document(path: Path, schema: int) -> dict[str, Any]:
    """A file that holds one object of this schema."""
    try:
        found = loads(_content(path))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    got = found.get("schema") if isinstance(found, dict) else None
    if got != schema or isinstance(got, bool):
        raise UserError(f"{path} has schema {'none' if got is None else got}; this speedbench reads schema {schema}")
    return dict(found)
