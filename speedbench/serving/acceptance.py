"""From what a response tells to the steps of a record, or to their sums where no single step is told.

The rules, with N output tokens of which the prefill yields one that belongs to no step:

- a step commits accepted + 1; engines count what was accepted before a stop token or the cap cut the last step (G2),
  so what exceeds N − 1 is taken from the last step;
- most engines list only the steps that had drafts (G1), so what is missing to N − 1 are plain steps of one token.
  Where among the others they stood is not told; they are put in front. Unless the passes are told too, it is not seen
  whether the last drafted step was cut as well, with up to its accepted drafts more plain steps before it. The events
  of the stream then count: a pass ends in one at most, so there were no fewer passes than events with tokens;
- where only sums are told, every pass commits 1 + accepted, so passes = N − 1 − accepted (I1), but never fewer than
  the tokens, the drafts and D need. A stop inside a step that this does not show makes up to D passes too few.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speedbench.serving.payloads.told import Told
from speedbench.types import Counts, Finish, Origin, Step

PLAIN = Step(at=None, proposed=0, accepted=0, committed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a record holds of acceptance: steps, or their sums where no single step is told, or neither."""

    steps: tuple[Step, ...] = ()
    counts: Counts | None = None
    """Only where `steps` is empty."""
    origin: Origin = "unavailable"
    source: str | None = None
    faults: tuple[str, ...] = ()


def acceptance(
    told: Told | None,
    *,
    tokens: int,
    first_tokens: int = 1,
    draft_length: int,
    finish: Finish,
    fixed: bool = False,
    events: int = 0,
) -> Acceptance:
    """Steps or sums such that Σ committed + first_tokens = tokens.

    `events` had tokens, after the one with the prefill's; servers merge events, so there may have been more passes.

    `first_tokens` is what belongs to no step: the prefill's one token, even if the first event held more. `fixed` says
    that the drafter proposes D in every step (EAGLE, MTP, DFlash; not n-gram, suffix or an adaptive D). An answer that
    ended in an error is not counted.
    """
    source = None if told is None else told.source
    faults = () if told is None else told.faults
    rest = tokens - first_tokens
    if finish == "error":
        return Acceptance(source=source, faults=faults)
    if draft_length == 0:
        return _baseline(told, rest)
    if told is None or source is None:
        return Acceptance(faults=faults)
    if told.configured not in (None, draft_length):
        faults = (*faults, f"{source}: the server is set to {told.configured} drafts a step; D = {draft_length}")
    if rest <= 0:
        return Acceptance(origin="exact", source=source, faults=faults)
    found: Acceptance | str
    if told.steps is not None:
        found = _in_order(told, told.steps, rest, draft_length, fixed, events)
    elif told.histogram is not None:
        found = _as_multiset(told, told.histogram, rest, draft_length, fixed, events)
    else:
        found = _in_sums(told, rest, draft_length)
    if isinstance(found, str):
        return Acceptance(source=source, faults=(*faults, f"{source}: {found}"))
    return Acceptance(steps=found.steps, counts=found.counts, origin=found.origin, source=source, faults=faults)


def from_chunks(sizes: Sequence[int], *, draft_length: int) -> Acceptance:
    """One step a chunk after the first: an estimate, for the asking only, since servers merge and hold back chunks.

    `sizes` are the tokens of each event that had any, the first one's included (the record's `first_tokens`).
    """
    steps = tuple(Step(at=None, proposed=None, accepted=None, committed=size) for size in sizes[1:] if size > 0)
    most = max((step.committed for step in steps), default=0)
    merged = f"chunks: up to {most} tokens in one with D = {draft_length}; the server merged steps"
    faults = (merged,) if most > draft_length + 1 else ()
    return Acceptance(steps=steps, origin="estimated" if steps else "unavailable", source="chunks", faults=faults)


def _baseline(told: Told | None, rest: int) -> Acceptance:
    """Plain steps, one a token: what a server without speculation does. Anything else is no baseline."""
    source = None if told is None else told.source
    faults = () if told is None else told.faults
    drafts = 0 if told is None else max(told.drafted or 0, told.proposed or 0, told.accepted or 0)
    if drafts:
        return Acceptance(source=source, faults=(*faults, f"{source}: drafts in a baseline ({drafts} told)"))
    passes = None if told is None else told.forwards
    if passes is not None and passes != rest:
        fault = f"{source}: {passes} passes for {rest} tokens after the first in a baseline; one each"
        return Acceptance(source=source, faults=(*faults, fault))
    return Acceptance(steps=(PLAIN,) * max(rest, 0), origin="exact", source=source or "no speculation", faults=faults)


def _in_order(
    told: Told, drafted: Sequence[tuple[int, int]], rest: int, d: int, fixed: bool, events: int
) -> Acceptance | str:
    """Plain steps for what the drafted ones leave, and those as told, the last cut; what is wrong where they cannot be.

    Exact where no plain step can hide behind what the end cut off.
    """
    widest = max((p for p, _ in drafted), default=0)
    if widest > d:
        return f"a step of {widest} drafts with D = {d}"
    last = drafted[-1][1] if drafted else 0
    plain, surplus = _balance([a for _, a in drafted], told.forwards, rest, last, events)
    if plain < 0 or not 0 <= surplus <= last:
        return _unbalanced(len(drafted), told.forwards, rest + surplus, rest)
    sure = told.forwards is not None or last == 0 or (fixed and not plain)
    return Acceptance(steps=_steps(plain, drafted, surplus), origin="exact" if sure else "derived")


def _as_multiset(told: Told, histogram: Sequence[int], rest: int, d: int, fixed: bool, events: int) -> Acceptance | str:
    """The steps of a histogram, in no order that was; the surplus is cut from the shortest that can bear it."""
    accepted = [j for j, n in enumerate(histogram) for _ in range(n)]
    if max(accepted, default=0) > d:
        return f"a step of {max(accepted)} accepted drafts with D = {d}"
    every = d * len(accepted)
    if told.proposed is not None and told.proposed > every:
        return f"{told.proposed} drafts proposed in {len(accepted)} steps with D = {d}"
    plain, surplus = _balance(accepted, told.forwards, rest, max(accepted, default=0), events)
    bearing = next((a for a in accepted if a >= surplus), None)
    if plain < 0 or surplus < 0 or (surplus > 0 and bearing is None):
        return _unbalanced(len(accepted), told.forwards, rest + surplus, rest)
    if surplus > 0 and bearing is not None:
        accepted.remove(bearing)
        accepted.append(bearing)
    known = told.proposed == every or (told.proposed is None and fixed and told.most_proposed in (None, every))
    proposed = d if known else None
    return Acceptance(steps=_steps(plain, [(proposed, a) for a in accepted], surplus), origin="derived")


def _balance(accepted: Sequence[int], passes: int | None, rest: int, bears: int, events: int) -> tuple[int, int]:
    """(plain steps beside the drafted ones, tokens that all of them commit beyond the answer's); `bears` is how many a
    step can have lost at the end."""
    committed = sum(a + 1 for a in accepted)
    plain = max(rest - committed, 0) if passes is None else passes - len(accepted)
    seen = events - len(accepted)
    if passes is None and plain < seen <= rest - committed + bears:
        plain = seen
    return plain, committed + plain - rest


def _unbalanced(steps: int, passes: int | None, committed: int, rest: int) -> str:
    told = "" if passes is None else f" of {passes} passes"
    return f"{steps} steps with drafts{told} commit {committed} tokens; the answer has {rest} after the first"


def _steps(plain: int, drafted: Sequence[tuple[int | None, int]], surplus: int) -> tuple[Step, ...]:
    """Plain steps, then the drafted ones, of which the last commits `surplus` fewer."""
    short = [0] * (len(drafted) - 1) + [surplus]
    steps = (
        Step(at=None, proposed=p, accepted=a, committed=a + 1 - cut)
        for (p, a), cut in zip(drafted, short, strict=False)
    )
    return (*(PLAIN,) * plain, *steps)


def _in_sums(told: Told, rest: int, d: int) -> Acceptance | str:
    """Passes as told, or by I1 but no fewer than the tokens, the drafts and D allow."""
    fewest = max(_ceil(rest, d + 1), told.drafted or 0, _ceil(told.proposed or 0, d))
    if told.forwards is not None:
        passes = told.forwards
        if not fewest <= passes <= rest:
            return f"{passes} passes; {rest} tokens after the first with D = {d} take {fewest} to {rest}"
    elif told.accepted is not None:
        passes = max(rest - told.accepted, fewest)
    else:
        return Acceptance()
    cut = 0 if told.accepted is None else passes + told.accepted - rest
    if passes > rest or not 0 <= cut <= d:
        what = f"{told.proposed} proposed and {told.accepted} accepted drafts"
        return f"{what} in {passes} passes do not make {rest} tokens after the first with D = {d}"
    counts = Counts(
        steps=passes,
        committed=rest,
        accepted=told.accepted,
        proposed=told.proposed,
        drafted=told.drafted,
        origin="derived",
    )
    return Acceptance(counts=counts, origin="derived")


def _ceil(total: int, each: int) -> int:
    return -(-total // each)
