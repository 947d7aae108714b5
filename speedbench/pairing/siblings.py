"""What cells of a run tell of each other's passes, where their engine does not split them.

A null drafter, n-gram, takes next to nothing: over as many verified positions its step is T_verif(B(1+D)), and what
another drafter's step is longer by is T_draft(B, D). Under forced acceptance a step takes what it takes without, so it
prices a step apart from the speed of the cell itself. All of it is `estimated`: an engine may run such a drafter
otherwise, and what the client or the host adds to every step is in all of them.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from speedbench.pairing import baseline_of, square
from speedbench.serving import ladder
from speedbench.stats import Share, answered, block_shares, estimate, full_passes, shares, stepped
from speedbench.types import Drafting, Measured, Measurement, PassCost, Record

CARRIED = 0.95
"""Drafts a step, of D, from which steps are taken to have verified 1 + D tokens each."""
NULL, FORCED = "ngram", "synthetic"
FORCING = ("base", "rate", "acceptance_length")
"""Settings of forced acceptance; the others are those of the drafter that it is based on."""

Reading = Callable[[Sequence[Measured]], list[list[Share]]]
"""(seconds, steps) of each of several cells, or nothing where it does not tell of one; never mixed with another's."""


def costed(measured: Sequence[Measured]) -> list[Measured]:
    """The cells, and with those whose passes are not split what others of their D, concurrency and repeat tell."""
    return _costed(tuple(measured))


@lru_cache(maxsize=1)
def _costed(measured: tuple[Measured, ...]) -> list[Measured]:
    return [each if (cost := _cost(each, measured)) is None else replace(each, cost=cost) for each in measured]


def warnings(measured: Sequence[Measured]) -> list[str]:
    """Which costs rest on another cell, and what that leaves out."""
    cells: dict[str, list[str]] = {}
    for each in costed(measured):
        if each.cost is not None and ladder.told(each) is each.cost:
            cells.setdefault(each.cost.source, []).append(each.cell.key)
    return [f"{', '.join(keys[:3])}{' …' * (len(keys) > 3)}: {source}" for source, keys in cells.items()]


def _cost(measured: Measured, among: Sequence[Measured]) -> PassCost | None:
    """By the best way that its siblings allow; None of a baseline, and where the engine splits its passes."""
    own, baseline = measured.drafting, baseline_of(measured, among)
    is_split = any(one.verify is not None for one in measured.passes)
    if own is None or baseline is None or measured.cell.is_baseline or is_split:
        return None
    beside = [(each, its) for each in among if (its := each.drafting) is not None and _alike(each, measured)]
    null = next((each for each, its in beside if its.mechanism == NULL != own.mechanism), None)
    forced = next((each for each, its in beside if its.drafter == FORCED != own.drafter and _based_on(its, own)), None)
    ways = (
        (_by_passes, measured, null), (_by_telling, measured, null),
        (_by_clock, forced, null), (_by_clock, measured, null), (_by_clock, forced, None),
    )  # fmt: skip
    found = (_read(read, measured, step, other, baseline) for read, step, other in ways if step is not None)
    return next((cost for cost in found if cost is not None), None)


def _alike(one: Measured, other: Measured) -> bool:
    return square(one.cell) == square(other.cell) and one.cell.draft_length == other.cell.draft_length


def _based_on(forced: Drafting, own: Drafting) -> bool:
    """Whether it is this drafter, with these settings, whose acceptance is forced."""
    settings = {key: value for key, value in forced.settings.items() if key not in FORCING}
    return forced.mechanism == own.drafter and settings == dict(own.settings)


def _read(read: Reading, own: Measured, step: Measured, null: Measured | None, baseline: Measured) -> PassCost | None:
    """`step` is the cell itself or its forced twin; a sibling there must be. None too where the null drafter's step is
    the longer one, for then it is no null drafter."""
    if null is None and step is own:
        return None
    found = read([baseline, own, step, *([null] if null else [])])
    if not found or not all(found):
        return None
    by_clock = read is _by_clock
    cost = PassCost(
        t_verify_plain=_mean(found[0]), t_step=_mean(found[2]), origin="estimated",
        source=_said(step if step is not own else None, null, by_clock=by_clock),
        n=round(sum(share.sums[1] for share in found[2])), own_clock=by_clock and step is own,
    )  # fmt: skip
    if null is None:
        return cost
    more = _more(found[2], found[3])
    if more.value is None or more.value <= 0:
        return None
    is_sure = more.low is None or more.low > 0
    return replace(cost, t_verify=_mean(found[3]), t_draft=more.value if is_sure else None)


def _said(forced: Measured | None, null: Measured | None, *, by_clock: bool) -> str:
    said = []
    if null is not None:
        said.append(
            f"T_verif is a step of {null.cell.drafter}, T_draft what a step is longer by; its look-up, and what else "
            "the engine does otherwise for it, are left out"
        )
    if forced is not None:
        said.append(f"a step's time is that of {forced.cell.drafter}, which forces acceptance")
    if by_clock:
        said.append("by the clock, so that the host and the way to the client are in T_verif")
    return "; ".join(said)


def _mean(parts: Iterable[Share]) -> float:
    seconds, steps = map(sum, zip(*(share.sums for share in parts), strict=True))
    return float(seconds / steps)


def _more(one: Iterable[Share], other: Iterable[Share]) -> Measurement:
    """By how many seconds a step of the one is longer, with its interval where there are parts to resample."""
    parts = [share._replace(sums=(*share.sums, 0.0, 0.0)) for share in one]
    parts += [share._replace(sums=(0.0, 0.0, *share.sums)) for share in other]
    return estimate(parts, lambda s: s[0] / s[1] - s[2] / s[3], origin="estimated")


# ---- where a step's seconds are read ---------------------------------------------------------------------------------


def _by_passes(cells: Sequence[Measured]) -> list[list[Share]]:
    """TensorRT-LLM's iterations: those in which every sequence had its D drafts."""
    return [block_shares(each.cell.key, _full(each)) for each in cells]


def _full(measured: Measured) -> list[tuple[float, float]]:
    drafts = measured.cell.draft_length * measured.cell.concurrency
    passes = [one for one in full_passes(measured) if measured.cell.is_baseline or one.proposed == drafts]
    return [(one.seconds, 1.0) for one in passes if one.seconds is not None]


def _by_telling(cells: Sequence[Measured]) -> list[list[Share]]:
    """What the engine told of its steps, as SGLang does; which of them had drafts it does not, so nearly all must."""
    told = [(each, ladder.told(each)) for each in cells if ladder.padded(each) or _carried(each, answered(each))]
    known = [(each, cost.t_step, cost.n) for each, cost in told if cost is not None and cost.t_step is not None]
    rows = [[Share("told", each.cell.key, (t_step * n, float(n)))] for each, t_step, n in known]
    return rows if len(rows) == len(cells) else []


def _by_clock(cells: Sequence[Measured]) -> list[list[Share]]:
    """Of one sequence at a time, since others' prefills are in the steps of more; over turns that all cells have."""
    if not all(each.cell.concurrency == 1 and not each.passes for each in cells):
        return []
    timed = [_timed(each) for each in cells]
    common = set.intersection(*map(set, timed))
    if len({request for request, *_ in common}) < 2:
        return []  # one conversation says nothing of how much they differ
    return [[share for turn, share in rows.items() if turn in common] for rows in timed]


@lru_cache(maxsize=8)
def _timed(measured: Measured) -> dict[tuple[str, int, int], Share]:
    """(seconds, steps) of every turn that has both and whose steps had D drafts, by request, turn and process."""
    records = [record for record in answered(measured) if _carried(measured, [record])]
    rows = zip(records, shares(records, stepped), strict=True)
    return {(one.request, one.turn, one.process): share for one, share in rows if all(share.sums)}


def _carried(measured: Measured, records: Sequence[Record]) -> bool:
    """Whether nearly every step of these had D drafts to verify, as far as it is told."""
    rows = [_proposed(record) for record in records]
    known = [(proposed, steps) for proposed, steps in rows if proposed is not None]
    proposed, steps = sum(p for p, _ in known), sum(n for _, n in known)
    return len(known) == len(rows) and proposed >= CARRIED * measured.cell.draft_length * steps


def _proposed(record: Record) -> tuple[float | None, float]:
    if record.counts is not None:
        return record.counts.proposed, record.counts.steps
    told = [step.proposed for step in record.steps if step.proposed is not None]
    return (sum(told) if len(told) == len(record.steps) else None), len(record.steps)
