"""Whether a server speculates as it was told to: its answers and counters on a few requests that are not measured."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.client import Client
from speedbench.serving.load import by_chat, hold
from speedbench.serving.payloads import told
from speedbench.serving.prometheus import Scrape, counted
from speedbench.serving.records import Reading
from speedbench.types import Conversation, Request, Sampling

_SAYING = "Repeat this line three times, word for word: the seven grey cats sat on the old red mat number {n}."
"""Something that look-up drafters find in the prompt."""
_WARM = Sampling(max_tokens=48)


def prove(
    client: Client,
    scraped: Callable[[], Scrape | None],
    concurrency: int,
    reading: Reading,
    extra: Mapping[str, Any],
    *,
    sure: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Warm the server up at its concurrency and see whether it drafts; (what was seen, warnings).

    Raises `UserError` for a baseline that drafts, for a drafter that must draft in every step (`sure`) and did not, and
    for a server that answers none of the requests.
    """
    before = scraped()
    work = [
        Conversation(request=Request(id=f"warm-{n}", category="warm", turns=(_SAYING.format(n=n),)))
        for n in range(concurrency)
    ]
    exchanges = [one.exchange for one in hold(client, work, by_chat(client, _WARM, extra), concurrency=concurrency)]
    after = scraped()
    failed = [exchange.failure for exchange in exchanges if exchange.failure is not None]
    if len(failed) == len(exchanges):
        raise UserError(f"the server answers no request; the first says {failed[0]}")
    said = [found for found in (told(exchange.payload) for exchange in exchanges) if found is not None]
    proposed = [p for p in (found.proposed if found.proposed is not None else found.most_proposed for found in said)
                if p is not None]  # fmt: skip
    by_answers = sum(proposed) if proposed else None
    moved = counted(before, after) if before is not None and after is not None else None
    by_counters = moved.proposed if moved is not None and not moved.faults else None
    seen: dict[str, Any] = {
        "requests": len(exchanges),
        "proposed_by_answers": by_answers,
        "proposed_by_counters": by_counters,
        "speculates": _speculates(by_answers, by_counters),
    }
    return seen, _verdict(seen["speculates"], reading, sure)


def _speculates(*proposed: int | None) -> bool | None:
    known = [n for n in proposed if n is not None]
    return any(known) if known else None


def _verdict(speculates: bool | None, reading: Reading, sure: bool) -> list[str]:
    if reading.draft_length == 0:
        if speculates:
            raise UserError(
                "the baseline's server drafts, so it is no baseline; start it without speculation, as its own server"
            )
        return []
    if speculates is None:
        return ["the server tells nothing of its drafts, so that it speculates at all is not proven"]
    if not speculates and sure:
        raise UserError("the server drafted nothing in its first requests: the drafter is not engaged; see its log")
    return [] if speculates else ["the drafter found nothing to draft in the first requests; it may not be engaged"]
