"""From a call as measured to a record: tokens by the server's count, acceptance by what it told, times by our clock."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speedbench.serving.acceptance import Acceptance, acceptance, from_chunks
from speedbench.serving.client import Message
from speedbench.serving.exchange import Exchange
from speedbench.serving.load import Held
from speedbench.serving.payloads import Told, not_found, told
from speedbench.types import Finish, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the answers of one engine are read."""

    draft_length: int
    fixed: bool
    """Whether the drafter proposes D in every step."""
    by_chunks: bool = False
    """Whether acceptance may be guessed from chunks where the server tells none."""
    most: int | None = None
    """The tokens that an answer may have, where it was told."""


def read(held: Held, reading: Reading) -> tuple[Record, list[str]]:
    """The record of a turn, and what a reader of the run should know about it."""
    exchange, request = held.exchange, held.conversation.request
    if exchange.failure is None and exchange.tokens is None:
        return _failed(held, "malformed: the server told neither usage nor token ids, so its tokens cannot be counted")
    if exchange.failure is not None:
        return _failed(held, str(exchange.failure))
    said, tokens, finish = told(exchange.payload), exchange.tokens or 0, _finish(exchange)
    found, notes = _acceptance(exchange, said, tokens, finish, reading)
    ids = exchange.token_ids or (said.ids if said and said.ids else ())
    whole = len(ids) == tokens
    record = Record(
        request=request.id, category=request.category, turn=held.turn, prompt_tokens=_prompt_tokens(exchange),
        prompt_sha=_prompt_sha(exchange, said, held.messages), output=tuple(ids) if whole else (), steps=found.steps,
        sent=exchange.sent, first=exchange.first, last=exchange.last, first_tokens=_first_tokens(exchange, tokens),
        prefill=said.prefill if said else None, finish=finish, raw=_raw(exchange, whole),
        tokens=None if whole else tokens, text=exchange.text, counts=found.counts,
        told=found.origin if tokens else "unavailable",
    )  # fmt: skip
    if finish == "length" and reading.most is not None and tokens < reading.most:
        notes.append(f"answers end at the server's limit, before the {reading.most} tokens asked for")
    return record, notes


def _acceptance(
    exchange: Exchange, said: Told | None, tokens: int, finish: Finish, reading: Reading
) -> tuple[Acceptance, list[str]]:
    """Of a baseline, plain steps; of a drafter, what the server told, or, if that is wanted, what the chunks hint."""
    d = reading.draft_length
    found = acceptance(said, tokens=tokens, draft_length=d, finish=finish, fixed=reading.fixed, events=_later(exchange))
    if d == 0 or found.origin != "unavailable" or tokens < 2:
        return found, list(found.faults)
    missing = [] if found.source else [not_found(exchange.payload)]
    if reading.by_chunks:
        guessed = from_chunks(_sizes(exchange), draft_length=d)
        return guessed, [*found.faults, *guessed.faults]
    return found, [*found.faults, *missing]


def _later(exchange: Exchange) -> int:
    """Events that brought tokens, after the first that did; 0 where they are not known for all of the answer."""
    so_far = [tokens for _, tokens in exchange.progress]
    if not so_far or so_far[-1] != exchange.tokens:
        return 0
    return max(0, sum(after > before for before, after in zip([0, *so_far], so_far, strict=False)) - 1)


def _sizes(exchange: Exchange) -> list[int]:
    """Tokens of each event, where they are known; else the answer's tokens spread evenly over its events.

    The prefill's token is one event of its own here, whatever came with it.
    """
    so_far, tokens = [each for _, each in exchange.progress], exchange.tokens or 0
    if so_far and so_far[-1] == tokens:
        sizes = [after - before for before, after in zip([0, *so_far], so_far, strict=False)]
    else:
        events = len({delta.at for delta in exchange.deltas})
        sizes = [tokens * (i + 1) // events - tokens * i // events for i in range(events)]
    first, *rest = [size for size in sizes if size > 0] or [0]
    return [min(first, 1), first - 1, *rest]


def _failed(held: Held, error: str) -> tuple[Record, list[str]]:
    exchange, request = held.exchange, held.conversation.request
    record = Record(
        request=request.id, category=request.category, turn=held.turn, prompt_tokens=_prompt_tokens(exchange),
        prompt_sha=_prompt_sha(exchange, None, held.messages), output=(), steps=(), sent=exchange.sent,
        first=exchange.first, last=exchange.last, first_tokens=0, prefill=None, finish="error", error=error,
        raw=_raw(exchange, False) or None, told="unavailable",
    )  # fmt: skip
    return record, []


_KNOWN = ("prompt_token_ids", "token_ids")


def _raw(exchange: Exchange, whole: bool) -> Any:
    """What was sent, but for the prompt's ids, of which the sha is kept, and the answer's where the record has them."""
    left_out = _KNOWN if whole else _KNOWN[:1]
    payload = {key: value for key, value in exchange.payload.items() if key not in left_out}
    if "choices" in payload:
        payload["choices"] = [{k: v for k, v in each.items() if k not in left_out} for each in payload["choices"]]
    return payload


def _finish(exchange: Exchange) -> Finish:
    return "length" if exchange.finish == "length" else "stop"


def _prompt_tokens(exchange: Exchange) -> int:
    """By the usage, else by the ids; 0 where the server told neither."""
    if exchange.usage is not None and exchange.usage.prompt_tokens is not None:
        return exchange.usage.prompt_tokens
    return len(exchange.prompt_token_ids or ())


def _first_tokens(exchange: Exchange, tokens: int) -> int:
    """Where the server does not tell what its first event held, the one token that prefill yields."""
    return min(tokens, exchange.first_tokens or 1)


def _prompt_sha(exchange: Exchange, said: Told | None, messages: Sequence[Message]) -> str:
    """Of the prompt's ids where the server told them, else of the messages."""
    ids = exchange.prompt_token_ids or (said.prompt_ids if said else None)
    text = ",".join(map(str, ids)) if ids else json.dumps([dict(m) for m in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
