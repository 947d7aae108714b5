"""Rows of a CSV file with a header: one conversation a row.

where: {file: prompts.csv}                        # beside the YAML
where: {file: prompts.csv, separator: ";"}

id,category,prompt
math-1,math,What is 17 × 23?

A column `turns` or `messages` holds JSON, as ["One?", "Two?"]. An empty field is as good as absent.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from speedbench import catalog
from speedbench.errors import UnknownName, UserError
from speedbench.types import Settings

KEYS = ("file", "separator")
LISTS = ("turns", "messages")
LONGEST_FIELD = 2**31 - 1


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """The rows in the file's order, as they stand, each with `_at`: file and line."""
    file, separator = _settings(where)
    csv.field_size_limit(LONGEST_FIELD)  # 128 kB unless told, and a prompt of 32k tokens has as many
    read = csv.reader(io.StringIO(catalog.read(folder, file)), delimiter=separator, strict=True)
    header = [name.strip() for name in _next(read, file) or ()]
    if len(set(header)) < len(header) or "" in header:
        raise UserError(f"{file}, line 1: should name each column once (got {', '.join(header)})")
    while (fields := _next(read, file)) is not None:
        if not fields:
            continue
        at = f"{file}, line {read.line_num}"
        if len(fields) != len(header):
            raise UserError(f"{at}: should have {len(header)} fields, as the header has (got {len(fields)})")
        yield {name: _value(name, text, at) for name, text in zip(header, fields, strict=True) if text} | {"_at": at}


def _settings(where: Settings) -> tuple[str, str]:
    for key in where:
        if key not in KEYS:
            raise UnknownName("key of 'where' for a csv source", str(key), KEYS)
    file, separator = where.get("file"), where.get("separator", ",")
    if not isinstance(file, str) or not file:
        raise UserError(f"where.file: should name a CSV file (got {file!r})")
    if not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n':
        raise UserError(f"where.separator: should be one character, as ';' (got {separator!r})")
    return file, separator


def _next(read: Any, file: str) -> list[str] | None:
    try:
        return next(read, None)
    except csv.Error as error:
        raise UserError(f"{file}, line {read.line_num}: not CSV: {error}") from None


def _value(name: str, text: str, at: str) -> Any:
    if name not in LISTS:
        return text
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise UserError(f'{at}: {name}: should be JSON, as ["One?", "Two?"] (got {text[:40]!r})') from None
