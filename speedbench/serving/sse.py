"""Server-sent events out of raw bytes, wherever the network happened to cut them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import NamedTuple

DONE = "[DONE]"
"""The data of the event by which OpenAI's kind of stream says that it is over."""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: `name` is its `event:` field, empty for a plain one; `data` its `data:` lines joined by newlines."""

    name: str
    data: str


class Parser:
    """Takes chunks as they come and gives back the events that each completes.

    Lines end in LF, CRLF or CR; comments, ids and retry times are skipped, and so is an event without data. Bytes that
    are no UTF-8 become U+FFFD. llama.cpp's `error: {…}` line, which is no field of the standard, is an event named
    `error`.
    """

    def __init__(self) -> None:
        self._rest = b""
        """The line that has not ended yet."""
        self._started = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that end in this chunk."""
        text = self._rest + chunk if self._rest else chunk
        if not self._started:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._started, text = True, text.removeprefix(_BOM)
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # a newline that belongs to it may still come
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = text.split(b"\n")
        self._rest = lines.pop() + held
        return self._events(lines)

    def close(self) -> list[Event]:
        """What an end without a blank line left over: at most one event, and its last line may be cut."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return self._events([rest, b""])

    def _events(self, lines: list[bytes]) -> list[Event]:
        found = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    found.append(Event(self._name, b"\n".join(self._data).decode("utf-8", "replace")))
                    self._data = []
                self._name = ""
            else:
                self._other(line)
        return found

    def _other(self, line: bytes) -> None:
        """A line of any other field: its name, a colon, perhaps a space, its value."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":
            self._name = "error"
            self._data.append(value)
        elif field == b"data":  # without a colon: an empty line of data
            self._data.append(b"")
