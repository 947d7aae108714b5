"""Cells as measured become results: paired with their baseline, every metric, over all and by category."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from speedbench.pairing import baseline_of, pooled
from speedbench.pairing.siblings import costed
from speedbench.types import Measured, Measurement, Metric, Result


def results(measured: Sequence[Measured], metrics: Sequence[Metric]) -> list[Result]:
    """A result a cell, in the given order, then one more a cell with all repeats pooled where there are several."""
    repeats = {each.cell.repeat for each in measured}
    together = pooled(measured) if len(repeats) > 1 else []
    return [*_results(measured, metrics), *_results(together, metrics)]


def to_json(result: Result) -> dict[str, Any]:
    """One cell of summary.json; numbers stay numbers, unknown is null."""
    return {
        **asdict(result.cell),
        "metrics": _plain(result.metrics),
        "by_category": {category: _plain(metrics) for category, metrics in result.by_category.items()},
    }


def _results(measured: Sequence[Measured], metrics: Sequence[Metric]) -> list[Result]:
    return [_result(each, baseline_of(each, measured), metrics) for each in costed(measured)]


def _result(measured: Measured, baseline: Measured | None, metrics: Sequence[Metric]) -> Result:
    some = [metric for metric in metrics if metric.by_category]
    categories = sorted({record.category for record in measured.records})
    return Result(
        cell=measured.cell,
        metrics=_evaluated(measured, baseline, metrics),
        by_category={
            category: _evaluated(_of(measured, category), baseline and _of(baseline, category), some)
            for category in categories
        },
    )


def _evaluated(measured: Measured, baseline: Measured | None, metrics: Sequence[Metric]) -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}
    for metric in metrics:
        found.update(metric.of(measured, baseline))
    return found


def _of(measured: Measured, category: str) -> Measured:
    """The records of one category and what concerns them; a pass belongs to none."""
    records = tuple(record for record in measured.records if record.category == category)
    requests = {record.request for record in records}
    mismatches = measured.mismatches and tuple(each for each in measured.mismatches if each.request in requests)
    return replace(measured, records=records, passes=(), mismatches=mismatches)


def _plain(metrics: Mapping[str, Measurement]) -> dict[str, dict[str, Any]]:
    return {name: asdict(measurement) for name, measurement in metrics.items()}
