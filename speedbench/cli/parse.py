"""Reads the small languages of options: lists of names, ranges of integers, settings."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speedbench.errors import UnknownName, UserError
from speedbench.types import Sampling

SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
MOST = 10_000
"""Values in one list: more is a slip of the hand, and would fill the memory."""


def names(text: str, option: str, kind: str, have: Iterable[str] | None = None) -> list[str]:
    """`coding, math,` → [coding, math]: spaces, empty places and repetition do no harm; a name not in `have` does."""
    known = None if have is None else sorted(have)
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        choices = f", of: {', '.join(known)}" if known else ""
        raise UserError(f"{option}: is empty (got {text!r}); needs one {kind} or more{choices}")
    for name in found:
        if known is not None and name not in known:
            raise UnknownName(kind, name, known)
    return found


def integers(text: str, option: str, low: int = 0, high: int | None = None) -> list[int]:
    """`1-4,8` → [1, 2, 3, 4, 8]: sorted, each once, all from `low` to `high`."""
    allowed = f"whole numbers {_within(low, high)}, as 8 or 1-4,8"
    found: set[int] = set()
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        span = SPAN.fullmatch(part)
        if not span:
            raise UserError(f"{option}: '{part}' does not read (got {text!r}); needs {allowed}")
        first, last = int(span[1]), int(span[2] or span[1])
        if first > last:
            raise UserError(f"{option}: '{part}' runs backwards (got {text!r}); needs {allowed}")
        if first < low or (high is not None and last > high):
            raise UserError(f"{option}: '{part}' is out of range (got {text!r}); needs {allowed}")
        if last - first >= MOST:
            raise UserError(f"{option}: '{part}' is more than {MOST} values (got {text!r}); needs {allowed}")
        found.update(range(first, last + 1))
    if not found:
        raise UserError(f"{option}: is empty (got {text!r}); needs {allowed}")
    return sorted(found)


def lengths(text: str, labels: Sequence[str]) -> tuple[list[int], dict[str, list[int]]]:
    """`1-8,dflash:1-7` → ([1, …, 8], {dflash: [1, …, 7]}): what stands behind a drafter's label is its own."""
    shared: list[str] = []
    own: dict[str, list[str]] = {}
    for part in text.split(","):
        label, colon, span = part.rpartition(":")
        if colon and label.strip() not in labels:
            raise UnknownName("drafter of this run in -D", label.strip(), labels)
        (own.setdefault(label.strip(), []) if colon else shared).append(span)
    found = {label: integers(",".join(spans), f"-D {label}") for label, spans in own.items()}
    if own and not shared and own.keys() == set(labels):
        return [], found
    return integers(",".join(shared), "-D"), found


def listed(options: Mapping[str, Any], key: str) -> str:
    """An option that takes a list, as its flag would have it: YAML may say `1-4,8`, `4` or `[1, 2]`."""
    got = options[key]
    every = got if isinstance(got, list) else [got]
    if not all(isinstance(each, (str, int)) and not isinstance(each, bool) for each in every):
        raise UserError(f"--{key.replace('_', '-')}: should be a list, as [1, 2] or 1,2 (got {got!r})")
    return ",".join(map(str, every))


def settings(pairs: list[str], option: str = "--set") -> dict[str, dict[str, Any]]:
    """`ngram.match=latest`, `engine.seed=1` → {ngram: {match: latest}, engine: {seed: 1}}; values are YAML."""
    from speedbench import catalog

    if not isinstance(pairs, list) or not all(isinstance(pair, str) for pair in pairs):
        raise UserError(f"{option}: should be a list, as [ngram.max_n=3, engine.threads=2] (got {pairs!r})")
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        prefix, dot, key = (part.strip() for part in path.partition("."))
        if not (equals and dot and prefix and key):
            raise UserError(f"{option}: {pair!r} does not read; needs DRAFTER.KEY=VALUE or engine.KEY=VALUE")
        if key in found.get(prefix, {}):
            raise UserError(f"{option}: {prefix}.{key} is given twice")
        found.setdefault(prefix, {})[key] = catalog.value(text)
    return found


def whole(options: Mapping[str, Any], key: str, low: int = 0, high: int | None = None) -> int:
    """A whole number among the options, from a flag or from --config."""
    got = options[key]
    if isinstance(got, bool) or not isinstance(got, int) or got < low or (high is not None and got > high):
        raise UserError(f"--{key.replace('_', '-')}: should be a whole number {_within(low, high)} (got {got!r})")
    return got


def word(options: Mapping[str, Any], key: str) -> str:
    """A name or a path among the options."""
    got = options[key]
    if not isinstance(got, str) or not got.strip():
        raise UserError(f"--{key.replace('_', '-')}: should be a name or a path (got {got!r})")
    return got


def sampling(options: Mapping[str, Any], max_tokens: int) -> Sampling:
    """How the target samples; `max_tokens` is the task's, unless the options say another."""
    temperature = _real(options, "temperature")
    top_k = None if options["top_k"] is None else whole(options, "top_k", low=1)
    top_p = None if options["top_p"] is None else _real(options, "top_p")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"--top-p: above 0 and at most 1 (got {top_p})")
    if not temperature and (top_k is not None or top_p is not None):
        raise UserError("--top-k and --top-p have no effect at --temperature 0, which is greedy; leave them out")
    if options["max_tokens"] is not None:
        max_tokens = whole(options, "max_tokens", low=1)
    seed = whole(options, "seed")
    return Sampling(temperature=temperature, top_k=top_k, top_p=top_p, max_tokens=max_tokens, seed=seed)


def _real(options: Mapping[str, Any], key: str) -> float:
    got = options[key]
    if isinstance(got, bool) or not isinstance(got, (int, float)) or not 0 <= got < float("inf"):
        raise UserError(f"--{key.replace('_', '-')}: should be a number from 0 (got {got!r})")
    return float(got)


def _within(low: int, high: int | None) -> str:
    return f"from {low}" if high is None else f"from {low} to {high}"
