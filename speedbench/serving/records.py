"""From a call as measured to a record: tokens by the server's count, acceptance by what it told, times by our clock."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

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
        prefill=said.prefill if said else None, finish=finish, raw=exchange.payload,
        tokens=None if whole else tokens, text=exchange.text, counts=found.counts, told=found.origin,
    )  # fmt: skip
    return record, notes


def _acceptance(
    exchange: Exchange, said: Told | None, tokens: int, finish: Finish, reading: Reading
) -> tuple[Acceptance, list[str]]:
    """Of a baseline, plain steps; of a drafter, what the server told, or, if that is wanted, what the chunks hint."""
    found = acceptance(
        said, tokens=tokens, draft_length=reading.draft_length, finish=finish, fixed=reading.fixed
    )  # fmt: skip
    notes = [*(said.faults if said else ()), *found.faults]
    if found.origin == "unavailable" and tokens > 1:
        if reading.by_chunks:
            return from_chunks(_sizes(exchange), draft_length=reading.draft_length), notes
        notes.append(not_found(exchange.payload))
    return found, notes


def _sizes(exchange: Exchange) -> list[int]:
    """Tokens of each event, where they are known; else the answer's tokens spread evenly over its events."""
    so_far = [tokens for _, tokens in exchange.progress]
    if so_far and so_far[-1] == exchange.tokens:
        return [after - before for before, after in zip([0, *so_far], so_far, strict=False) if after > before]
    events, tokens = len({delta.at for delta in exchange.deltas}), exchange.tokens or 0
    return [tokens * (i + 1) // events - tokens * i // events for i in range(events)] if events else []


def _failed(held: Held, error: str) -> tuple[Record, list[str]]:
    exchange, request = held.exchange, held.conversation.request
    record = Record(
        request=request.id, category=request.category, turn=held.turn, prompt_tokens=_prompt_tokens(exchange),
        prompt_sha=_prompt_sha(exchange, None, held.messages), output=(), steps=(), sent=exchange.sent,
        first=exchange.first, last=exchange.last, first_tokens=0, prefill=None, finish="error", error=error,
        raw=exchange.payload or None, told="unavailable",
    )  # fmt: skip
    return record, []


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
