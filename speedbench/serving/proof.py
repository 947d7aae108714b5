"""Whether a server speculates as it was told to: its answers and counters on a few requests that are not measured."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.exchange import Exchange
from speedbench.serving.load import Caller, by_chat, hold
from speedbench.serving.payloads import Told, told
from speedbench.serving.prometheus import Scrape, counted
from speedbench.serving.records import Reading
from speedbench.types import Conversation, Request, Sampling

_SAYING = "Repeat this line three times, word for word: the seven grey cats sat on the old red mat number {n}."
"""Something that look-up drafters find in the prompt."""
_WARM = Sampling(max_tokens=48)


def prove(
    client: Caller, scraped: Callable[[], Scrape | None], concurrency: int, reading: Reading, extra: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Warm the server up at its concurrency and see whether it drafts; (what was seen, warnings).

    Raises `UserError` for a baseline that drafts, for a drafter that drafts in every step (`reading.fixed`) and did
    not, and for a server that answers none of the requests or counts no tokens.
    """
    before = scraped()
    work = [
        Conversation(request=Request(id=f"warm-{n}", category="warm", turns=(_SAYING.format(n=n),)))
        for n in range(concurrency)
    ]
    exchanges = [one.exchange for one in hold(client, work, by_chat(client, _WARM, extra), concurrency=concurrency)]
    after = scraped()
    notes = _refuse_mute(exchanges)
    by_answers = _sum(_drafts(told(exchange.payload)) for exchange in exchanges)
    moved = counted(before, after) if before is not None and after is not None else None
    by_counters = None
    if moved is not None and not moved.faults:
        by_counters = _first(moved.proposed, moved.drafted, moved.accepted, moved.steps)
    known = [n for n in (by_answers, by_counters) if n is not None]
    speculates = any(known) if known else None
    seen = {
        "requests": len(exchanges),
        "drafts_by_answers": by_answers,
        "drafts_by_counters": by_counters,
        "speculates": speculates,
    }
    return seen, [*notes, *_verdict(speculates, reading)]


def _refuse_mute(exchanges: Sequence[Exchange]) -> list[str]:
    """What to be warned of where some requests failed; raises `UserError` where no answer can be used."""
    failed = [exchange.failure for exchange in exchanges if exchange.failure is not None]
    if failed and len(failed) == len(exchanges):
        raise UserError(f"the server answers no request; the first says {failed[0]}")
    if all(exchange.tokens is None for exchange in exchanges if exchange.failure is None):
        raise UserError("the server tells neither usage nor token ids, so nothing can count the tokens of its answers")
    return [f"{len(failed)} of {len(exchanges)} requests before the first block failed, the first with {failed[0]}"
            ] if failed else []  # fmt: skip


def _drafts(found: Told | None) -> int | None:
    """Drafts of an answer, or, where they are not told, what only drafts can have saved; None: cannot be seen."""
    if found is None:
        return None
    saved = None if found.forwards is None or found.tokens is None else found.tokens - 1 - found.forwards
    return _first(found.proposed, found.most_proposed, found.accepted, saved or None)


def _first(*numbers: int | None) -> int | None:
    return next((n for n in numbers if n is not None), None)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Over those that are known; None where none is."""
    known = [n for n in numbers if n is not None]
    return sum(known) if known else None


def _verdict(speculates: bool | None, reading: Reading) -> list[str]:
    if reading.draft_length == 0:
        if speculates:
            raise UserError(
                "the baseline's server drafts, so it is no baseline; start it without speculation, as its own server"
            )
        return []
    if speculates is None:
        return ["the server tells nothing of its drafts, so that it speculates at all is not proven"]
    if not speculates and reading.fixed:
        raise UserError("the server drafted nothing in its first requests: the drafter is not engaged; see its log")
    return [] if speculates else ["the drafter found nothing to draft in the first requests; it may not be engaged"]
