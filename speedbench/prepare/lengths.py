"""Prompts of a size as SPEED-Bench counts it: tokens of o200k_base, k meaning 1,000, before any chat template."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any, Protocol

from speedbench.errors import Missing
from speedbench.prepare.refusals import refusal
from speedbench.prepared import FIX

VOCABULARY = "o200k_base"
PADDING = "Answer now please.\n"


class Encoding(Protocol):
    """What is used of tiktoken's."""

    def encode(self, text: str, *, disallowed_special: Any = ...) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str: ...


def encoding() -> Encoding:
    """tiktoken's own, or that of bpe-openai, which has the vocabulary within. Raises `Missing` with what to do."""
    try:
        import bpe_openai

        return bpe_openai.get_encoding(VOCABULARY)  # type: ignore[no-any-return]
    except ModuleNotFoundError:
        pass
    try:
        import tiktoken
    except ModuleNotFoundError:
        raise Missing(f"sizing prompts needs the package tiktoken: {FIX}") from None
    try:
        return tiktoken.get_encoding(VOCABULARY)  # type: ignore[no-any-return]
    except Exception as error:
        said = refusal(f"tiktoken's vocabulary {VOCABULARY}", error)
        raise Missing(f"{said}; or: pip install bpe-openai, which has it within") from None


def count(encoding: Encoding, text: str) -> int:
    return len(tokens(encoding, text))


def tokens(encoding: Encoding, text: str) -> list[int]:
    """Text that looks like a special token is text."""
    return encoding.encode(text, disallowed_special=())


def fitted(encoding: Encoding, text: str, size: int) -> str:
    """Cut at the end where it is too long; else padded with a short request, over and over, and cut."""
    found = tokens(encoding, text)
    if len(found) == size:
        return text
    if len(found) < size:
        times = -(-(size - len(found)) // count(encoding, PADDING))
        found = tokens(encoding, text + PADDING * times)
    return encoding.decode(found[:size])
