"""How many tokens a step yields, and how many of the drafts were accepted, by the steps alone."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from speedbench.stats import (
    UNAVAILABLE,
    Clusters,
    Column,
    Steps,
    Sums,
    answered,
    estimate,
    outcomes_of,
    ratio_of_sums,
    rests_on,
    steps_of,
)
from speedbench.types import Measured, Measurement, Metric


def al(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ committed / Σ steps: the target's own token counts, the prefill's token does not.

    Estimated where the engine does not say what was accepted: a step is then whatever the engine sent at once. Where no
    answer tells of its steps, it is what the engine's own counters give.
    """
    steps = steps_of(measured)
    found = _ratio(measured, steps.committed, steps.steps)
    return {"al": _by_counters(measured) if found.value is None else found}


def al_complete(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same over the steps that no stop token and no cap cut short: each committed what it accepted and one more."""
    steps = outcomes_of(measured)
    return {"al_complete": _ratio(measured, (steps.accepted + 1) * steps.complete, steps.complete, outcomes_of)}


def al_drafted(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The same over the steps in which something was proposed; of sums, any other step commits one token."""
    steps = steps_of(measured)
    of_sums = steps.committed - steps.steps + steps.drafted
    yielded = np.where(steps.single, steps.committed * steps.drafted, of_sums)
    return {"al_drafted": _ratio(measured, yielded, steps.drafted)}


def drafted_share(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Steps in which something was proposed / steps."""
    steps = steps_of(measured)
    return {"drafted_share": _ratio(measured, steps.drafted, steps.steps)}


def al_per_request(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The mean over requests of each request's own Σ committed / Σ steps."""
    own = _own(measured)
    parts = Clusters(np.stack([own.sums[:, 0], np.ones(len(own.sums))], axis=1), own.strata)
    return {"al_per_request": ratio_of_sums(parts, origin=rests_on(measured, "derived"))}


def al_macro(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """The mean over categories of the per-request mean."""
    own = _own(measured)
    there = np.eye(int(max(own.strata, default=-1)) + 1)[own.strata]
    parts = Clusters(np.hstack([there * own.sums, there]), own.strata)
    return {"al_macro": estimate(parts, _mean_of_means, origin=rests_on(measured, "derived"))}


def acceptance_rate(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Σ accepted / Σ proposed, as proposed and not as configured."""
    steps = steps_of(measured)
    return {"acceptance_rate": _ratio(measured, steps.accepted, steps.proposed)}


def effective_d(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Mean drafts proposed per step, to be read beside the D asked for."""
    steps = steps_of(measured)
    return {"effective_d": _ratio(measured, steps.proposed, steps.steps)}


def accepted_at_marginal(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """P(at least i drafts accepted), over the steps not cut short: 1 + Σ marginal = al_complete."""

    def row(steps: Steps, i: int) -> tuple[Column, Column]:
        return steps.complete * (steps.accepted >= i), steps.complete

    return _by_position("accepted_at_marginal", 1, measured, row)


def accepted_at_conditional(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """P(draft i accepted given that i−1 were and that draft i was proposed); unavailable where never reached."""

    def row(steps: Steps, i: int) -> tuple[Column, Column]:
        tried = np.where(np.isnan(steps.proposed), np.nan, steps.complete * (steps.proposed >= i))
        return tried * (steps.accepted >= i), tried * (steps.accepted >= i - 1)

    return _by_position("accepted_at_conditional", 1, measured, row)


def accepted_histogram(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Share of all steps that accepted exactly j drafts, j = 0…D: Σ = 1, and Σ j·share = Σ accepted / Σ steps."""

    def row(steps: Steps, j: int) -> tuple[Column, Column]:
        told = np.where(np.isnan(steps.complete), np.nan, steps.steps)
        return told * (steps.accepted == j), told

    return _by_position("accepted_histogram", 0, measured, row)


# ---- the sums ------------------------------------------------------------------------------------------------------


def _ratio(
    measured: Measured, over: Column, under: Column, table: Callable[[Measured], Steps] = steps_of
) -> Measurement:
    """Σ over / Σ under, by conversation; unavailable where an engine left one of them out of any step."""
    return ratio_of_sums(table(measured).summed(over, under), origin=rests_on(measured))


def _by_position(
    name: str, first: int, measured: Measured, row: Callable[[Steps, int], tuple[Column, Column]]
) -> Mapping[str, Measurement]:
    """The same once a position from `first` to D, or further where an engine accepted more: `validate` must see it,
    not lose it. Unavailable of answers of which an engine told no more than their sums."""
    steps = outcomes_of(measured)
    most = np.nanmax(steps.accepted, initial=0, where=~np.isnan(steps.complete))
    positions = range(first, max(measured.cell.draft_length, int(most)) + 1)
    return {f"{name}[{i}]": _ratio(measured, *row(steps, i), outcomes_of) for i in positions}


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


def _own(measured: Measured) -> Clusters:
    """Each request's own AL over all its turns and repeats; requests without a step have none."""
    steps = steps_of(measured)
    (tokens, passes), strata = steps.summed(steps.committed, steps.steps).sums.T, steps.strata
    return Clusters((tokens[passes > 0] / passes[passes > 0])[:, None], strata[passes > 0])


def _mean_of_means(sums: Sums) -> Sums:
    """Mean over categories of Σ value / Σ count, values before counts; a category that a draw left out is left out of
    its mean."""
    values, counts = np.split(sums, 2)
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
