"""A server's words made fit for a message or a file: what an error says, on one line, in whole letters."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def said(body: Any) -> str:
    """What an error's body says, as one line: `error.message`, `message`, `detail`, or the whole of it."""
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail"):
            if body.get(key):
                return said(body[key])
    return one_line(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))


def one_line(text: str, longest: int = 300) -> str:
    """The text on one line, cut where it is longer than `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def whole(pieces: Iterable[str]) -> str:
    """The pieces end to end; a surrogate pair that was cut between two is one letter again, and half a pair U+FFFD."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
