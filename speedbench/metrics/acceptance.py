"""How many tokens a step yields, and how many of the drafts were accepted, by the steps alone."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from speedbench.stats import (
    UNAVAILABLE,
    Share,
    Sums,
    Tally,
    answered,
    estimate,
    ratio_of_sums,
    rests_on,
    shares,
    tallied,
    tally,
    untold,
)
from speedbench.types import Counts, Measured, Measurement, Metric, Record, Step

Known = tuple[float | None, float | None]
"""Two sums, each None where the engine did not tell it."""


def al(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ committed / Σ steps: the target's own token counts, the prefill's token does not.

    Estimated where the engine does not say what was accepted: a step is then whatever the engine sent at once. Where no
    answer tells of its steps, it is what the engine's own counters give.
    """
    found = ratio_of_sums(shares(answered(measured), tallied), origin=rests_on(answered(measured), "exact"))
    return {"al": _by_counters(measured) if found.value is None else found}


def al_complete(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same over the steps that no stop token and no cap cut short: each committed what it accepted and one more."""
    tallies = _tallies(measured, True, "accepted")
    parts = [
        Share(r.request, r.category, (sum(n * (a + 1) for (_, a), n in t.items()), _all_of(t))) for r, t in tallies
    ]
    return {"al_complete": ratio_of_sums(parts, origin=rests_on(answered(measured), "exact")) if parts else UNAVAILABLE}


def al_drafted(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same over the steps in which something was proposed."""

    def row(steps: Sequence[Step]) -> tuple[float, float]:
        return _committed(steps), len(steps)

    def sums(counts: Counts) -> Known:
        """A step without a draft commits one token."""
        return None if counts.drafted is None else counts.committed - counts.steps + counts.drafted, counts.drafted

    return {"al_drafted": _over(measured, _drafted, row, "proposed", sums=sums)}


def drafted_share(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Steps in which something was proposed / steps."""

    def row(steps: Sequence[Step]) -> tuple[float, float]:
        return len(_drafted(steps)), len(steps)

    found = _over(measured, _all, row, "proposed", sums=lambda counts: (counts.drafted, counts.steps))
    return {"drafted_share": found}


def al_per_request(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The mean over requests of each request's own Σ committed / Σ steps."""
    parts = [Share(request, category, (own, 1.0)) for request, category, own in _own(measured)]
    return {"al_per_request": ratio_of_sums(parts, origin=rests_on(answered(measured), "derived"))}


def al_macro(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The mean over categories of the per-request mean."""
    own = _own(measured)
    categories = sorted({category for _, category, _ in own})
    parts = [
        Share(request, name, _one_hot(value, categories.index(name), len(categories))) for request, name, value in own
    ]
    return {"al_macro": estimate(parts, _mean_of_means, origin=rests_on(answered(measured), "derived"))}


def acceptance_rate(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ accepted / Σ proposed, as proposed and not as configured."""

    def row(steps: Sequence[Step]) -> tuple[float, float]:
        return _accepted(steps), _proposed(steps)

    def sums(counts: Counts) -> Known:
        return counts.accepted, counts.proposed

    return {"acceptance_rate": _over(measured, _all, row, "proposed", "accepted", sums=sums)}


def effective_d(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean drafts proposed per step, to be read beside the D asked for."""

    def row(steps: Sequence[Step]) -> tuple[float, float]:
        return _proposed(steps), len(steps)

    return {"effective_d": _over(measured, _all, row, "proposed", sums=lambda counts: (counts.proposed, counts.steps))}


def accepted_at_marginal(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """P(at least i drafts accepted), over the steps not cut short: 1 + Σ marginal = al_complete."""

    def row(tally: Tally, i: int) -> tuple[float, float]:
        return _reached(tally, i), _all_of(tally)

    positions = range(1, _longest(measured) + 1)
    return _by_position("accepted_at_marginal", positions, measured, row, "accepted", complete=True)


def accepted_at_conditional(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """P(draft i accepted given that i−1 were and that draft i was proposed); unavailable where never reached."""

    def row(tally: Tally, i: int) -> tuple[float, float]:
        tried = {(proposed, accepted): n for (proposed, accepted), n in tally.items() if proposed >= i}
        return _reached(tried, i), _reached(tried, i - 1)

    positions = range(1, _longest(measured) + 1)
    return _by_position("accepted_at_conditional", positions, measured, row, "proposed", "accepted", complete=True)


def accepted_histogram(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Share of all steps that accepted exactly j drafts, j = 0…D: Σ = 1, and Σ j·share = Σ accepted / Σ steps."""

    def row(tally: Tally, j: int) -> tuple[float, float]:
        return sum(n for (_, accepted), n in tally.items() if accepted == j), _all_of(tally)

    return _by_position("accepted_histogram", range(_longest(measured) + 1), measured, row, "accepted", complete=False)


# ---- the sums ------------------------------------------------------------------------------------------------------


def _over(
    measured: Measured,
    some: Callable[[Sequence[Step]], Sequence[Step]],
    row: Callable[[Sequence[Step]], tuple[float, float]],
    *needs: str,
    sums: Callable[[Counts], Known],
) -> Measurement:
    """A ratio of sums over some of the steps, or of what `sums` finds in an engine's own sums; unavailable where the
    engine does not tell what it needs."""
    if untold(answered(measured), *needs):
        return UNAVAILABLE
    parts = []
    for record in answered(measured):
        told: Known = row(some(record.steps))
        if record.counts is not None:
            told = sums(record.counts)
        over, under = told
        if over is None or under is None:
            return UNAVAILABLE
        parts.append(Share(record.request, record.category, (over, under)))
    return ratio_of_sums(parts, origin=rests_on(answered(measured), "exact"))


def _by_position(
    name: str,
    positions: range,
    measured: Measured,
    row: Callable[[Tally, int], tuple[float, float]],
    *needs: str,
    complete: bool,
) -> Mapping[str, Measurement]:
    """A ratio of sums once a position; `complete`: over the steps that nothing cut short."""
    tallies, origin = _tallies(measured, complete, *needs), rests_on(answered(measured), "exact")
    if not tallies:
        return {f"{name}[{i}]": UNAVAILABLE for i in positions}
    parts = {i: [Share(one.request, one.category, row(tally, i)) for one, tally in tallies] for i in positions}
    return {f"{name}[{i}]": ratio_of_sums(parts[i], origin=origin) for i in positions}


def _tallies(measured: Measured, complete: bool, *needs: str) -> list[tuple[Record, Tally]]:
    """The steps of every answer, counted once for all; none where the engine does not tell what is needed of any."""
    records = answered(measured)
    found = [(record, tally(record, complete)) for record in records]
    known = [(record, steps) for record, steps in found if steps is not None]
    return [] if untold(records, *needs) or len(known) < len(found) else known


def _all_of(tally: Tally) -> float:
    return sum(tally.values())


def _by_counters(measured: Measured) -> Measurement:
    """Every forward commits its accepted drafts and one token more, so the steps are the decoded tokens less the
    accepted drafts (engines.md, identity I1). One sample, so no interval."""
    if not measured.counted or any(each.faults or each.accepted is None for each in measured.counted):
        return UNAVAILABLE
    answers, told = answered(measured), [each.generated for each in measured.counted if each.generated is not None]
    if len(told) == len(measured.counted) and abs(sum(told) - sum(record.size for record in answers)) > len(answers):
        return UNAVAILABLE  # other answers are in them too, or some are not, as those before a kill
    decoded = sum(max(0, record.size - 1) for record in answers)
    steps = decoded - sum(each.accepted or 0 for each in measured.counted)
    if steps < 1:
        return UNAVAILABLE
    return Measurement(value=decoded / steps, n=len({r.request for r in answered(measured)}), origin="derived")


def _all(steps: Sequence[Step]) -> Sequence[Step]:
    return steps


def _drafted(steps: Sequence[Step]) -> Sequence[Step]:
    return [step for step in steps if step.proposed]


def _committed(steps: Iterable[Step]) -> int:
    return sum(step.committed for step in steps)


def _accepted(steps: Iterable[Step]) -> int:
    return sum(step.accepted or 0 for step in steps)


def _proposed(steps: Iterable[Step]) -> int:
    return sum(step.proposed or 0 for step in steps)


def _reached(tally: Tally, i: int) -> float:
    return sum(n for (_, accepted), n in tally.items() if accepted >= i)


def _longest(measured: Measured) -> int:
    """D, or more where an engine accepted more: `validate` must see it, not lose it."""
    steps = (step.accepted or 0 for record in answered(measured) for step in record.steps)
    return max(measured.cell.draft_length, max(steps, default=0))


def _own(measured: Measured) -> list[tuple[str, str, float]]:
    """Each request's own AL over all its turns and repeats; requests without a step have none."""
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0])
    for record in answered(measured):
        total = totals[record.request, record.category]
        tokens, steps = tallied(record)
        total[0] += tokens
        total[1] += steps
    return [(request, category, tokens / steps) for (request, category), (tokens, steps) in totals.items() if steps]


def _one_hot(value: float, index: int, width: int) -> tuple[float, ...]:
    """The value and a count of one in the columns of its category."""
    row = [0.0] * (2 * width)
    row[2 * index : 2 * index + 2] = value, 1.0
    return tuple(row)


def _mean_of_means(sums: Sums) -> Sums:
    """Mean over categories of Σ value / Σ count; a category that a draw left out is left out of its mean."""
    values, counts = sums[0::2], sums[1::2]
    means = np.divide(values, counts, out=np.zeros_like(values), where=counts > 0)
    return np.asarray(means.sum(axis=0) / (counts > 0).sum(axis=0))


METRICS: tuple[Metric, ...] = (
    Metric(name="al", title="acceptance length", unit="tokens/step", better="higher", of=al, by_category=True),
    Metric(
        name="al_complete",
        title="acceptance length without the steps cut short",
        unit="tokens/step",
        better="higher",
        of=al_complete,
        by_category=True,
    ),
    Metric(
        name="al_drafted",
        title="acceptance length over the steps with a draft",
        unit="tokens/step",
        better="higher",
        of=al_drafted,
        by_category=True,
    ),
    Metric(
        name="drafted_share",
        title="share of steps with a draft",
        unit="share",
        better=None,
        of=drafted_share,
        by_category=True,
    ),
    Metric(
        name="al_per_request",
        title="mean of each request's acceptance length",
        unit="tokens/step",
        better="higher",
        of=al_per_request,
        by_category=True,
    ),
    Metric(
        name="al_macro",
        title="mean over categories of the per-request mean",
        unit="tokens/step",
        better="higher",
        of=al_macro,
    ),
    Metric(
        name="acceptance_rate",
        title="drafts accepted of those proposed",
        unit="share",
        better="higher",
        of=acceptance_rate,
        by_category=True,
    ),
    Metric(
        name="accepted_at_marginal",
        title="P(at least i drafts accepted)",
        unit="share",
        better="higher",
        of=accepted_at_marginal,
        by_category=True,
    ),
    Metric(
        name="accepted_at_conditional",
        title="P(draft i accepted, given that i−1 were)",
        unit="share",
        better="higher",
        of=accepted_at_conditional,
        by_category=True,
    ),
    Metric(
        name="accepted_histogram",
        title="share of steps that accepted j drafts",
        unit="share",
        better=None,
        of=accepted_histogram,
        by_category=True,
    ),
    Metric(
        name="effective_d",
        title="mean drafts proposed per step",
        unit="drafts/step",
        better=None,
        of=effective_d,
        by_category=True,
    ),
)
