"""Baselines, pooled repeats, and the results that come of them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import measured, mismatch, passed, record, step, steps, timed

from speedbench.metrics import acceptance, cost, latency, lossless, speedup, throughput
from speedbench.pairing import baseline_of, pooled, warnings
from speedbench.serving.prometheus import NOTHING
from speedbench.stats import paired
from speedbench.summarise import results, to_json
from speedbench.types import Measured

FAMILIES = (acceptance, latency, throughput, cost, speedup, lossless)
METRICS = tuple(metric for family in FAMILIES for metric in family.METRICS)


def test_a_baseline_has_no_drafts_and_the_same_task_runner_concurrency_and_repeat() -> None:
    here, right = measured(b=8, repeat=1), measured(d=0, b=8, repeat=1)
    others = [measured(d=0, b=1, repeat=1), measured(d=0, b=8, repeat=0), measured(d=1, b=8, repeat=1)]
    elsewhere = replace(right, cell=replace(right.cell, task="another"))
    assert baseline_of(here, [*others, elsewhere, right]) is right
    assert baseline_of(here, [*others, elsewhere]) is None
    assert baseline_of(right, [right]) is right


def test_repeats_of_a_request_are_one_cluster_and_still_pair_each_with_its_own() -> None:
    cells = [
        measured(timed(10, 1.0), timed(10, 1.0, request="r1"), repeat=0),
        measured(timed(10, 4.0), repeat=1),  # r1 was lost in this repeat
        measured(timed(10, 2.0), timed(10, 2.0, request="r1"), d=0, repeat=0),
        measured(timed(10, 8.0), timed(10, 9.0, request="r1"), d=0, repeat=1),
    ]
    here, baseline = pooled(cells)
    assert (here.cell.repeat, baseline.cell.repeat, len(here.records)) == (None, None, 3)
    pairs = [(a.last or 0, b.last or 0) for a, b in paired(here, baseline)]
    assert pairs == [(2.0, 3.0), (2.0, 3.0), (5.0, 9.0)]
    found = speedup.METRICS[0].of(here, baseline)["speedup"]
    assert (found.value, found.n) == (pytest.approx((30 / 6) / (30 / 12)), 2)


def test_pooling_keeps_the_clocks_of_repeats_and_resumes_apart() -> None:
    cells = [measured(record(process=p), repeat=r) for r, p in ((1, 0), (0, 1), (0, 0))]
    (together,) = pooled(cells)
    assert [each.process for each in together.records] == [1, 0, 1000]


def test_one_repeat_that_was_not_compared_makes_the_pool_not_compared() -> None:
    compared, not_compared = measured(mismatches=[mismatch("r0", "real")]), measured(repeat=1)
    assert pooled([compared, not_compared])[0].mismatches is None
    (both,) = pooled([compared, measured(repeat=1, mismatches=[])])
    assert both.mismatches is not None
    assert len(both.mismatches) == 1


def test_arms_that_wrote_different_amounts_of_text_give_a_warning_with_both_totals() -> None:
    cells = [measured(timed(179, 2.0)), measured(timed(99, 2.0), d=0)]  # and one token each from prefill
    (warning,) = warnings(cells)
    assert warning.startswith("ngram-d3-b1-r0: 180 tokens against the baseline's 100 on the same 1 prompts")
    assert warnings([measured(timed(100, 2.0)), measured(timed(99, 2.0), d=0)]) == []


def test_a_cell_without_a_baseline_gives_a_warning() -> None:
    (warning,) = warnings([measured(timed(10, 1.0), b=4), measured(timed(10, 1.0), d=0)])
    assert "no baseline (D = 0) at concurrency 4" in warning


# ---- results -------------------------------------------------------------------------------------------------------


def sweep(repeats: int) -> list[Measured]:
    return [
        measured(
            record(steps(3, 1, d=d) if d else [step(0, 0)] * 6, request="a", category="code", first=1.0, last=1.0 + t),
            record(steps(1, 0, d=d) if d else [step(0, 0)] * 3, request="b", first=1.0, last=1.0 + t),
            d=d,
            repeat=repeat,
            passes=[passed(verify=1.0, draft=0.5 * (d > 0), d=d)] * 2,
            mismatches=[] if d else None,
        )
        for repeat in range(repeats)
        for d, t in ((0, 3.0), (3, 2.0))
    ]


def test_every_cell_has_every_metric_and_the_categories_theirs() -> None:
    baseline, here = results(sweep(1), METRICS)
    assert [each.cell.draft_length for each in (baseline, here)] == [0, 3]
    assert here.metrics["al"].value == (4 + 2 + 2 + 1) / 4
    assert here.metrics["speedup"].value == pytest.approx((9 / 4) / (9 / 6))
    assert here.metrics["speedup_formula"].value == pytest.approx(2.25 / 1.5)
    assert here.metrics["residual"].value == pytest.approx(0.0)
    assert baseline.metrics["speedup"].value == 1.0
    assert {name: each["al"].value for name, each in here.by_category.items()} == {"code": 3.0, "chat": 1.5}
    assert here.by_category["code"]["speedup"].value == pytest.approx((6 / 2) / (6 / 3))
    assert here.by_category["code"]["lossless"].n == 1
    assert "t_verify" not in here.by_category["code"]


def test_several_repeats_come_each_and_pooled() -> None:
    found = results(sweep(2), METRICS)
    assert [(each.cell.draft_length, each.cell.repeat) for each in found] == [
        (0, 0),
        (3, 0),
        (0, 1),
        (3, 1),
        (0, None),
        (3, None),
    ]
    assert found[-1].metrics["speedup"].value == pytest.approx(found[1].metrics["speedup"].value)
    assert found[-1].metrics["al"].n == 2
    assert found[-1].metrics["lossless"].n == 4


def test_a_result_is_strict_json_with_exactly_these_keys() -> None:
    cell = to_json(results(sweep(1), METRICS)[1])
    assert list(cell) == [
        "task",
        "runner",
        "drafter",
        "draft_length",
        "concurrency",
        "repeat",
        "metrics",
        "by_category",
    ]
    assert all(list(each) == ["value", "low", "high", "n", "origin"] for each in cell["metrics"].values())
    assert json.loads(json.dumps(cell, allow_nan=False)) == cell


def test_a_cell_that_failed_altogether_still_has_a_result() -> None:
    (found,) = results([measured(record(finish="error", first=None, last=None))], METRICS)
    known = {name for name, each in found.metrics.items() if each.value is not None}
    assert known == {"failed_requests", "failed_share"}


def test_every_name_of_a_metric_is_given_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    here, baseline = sweep(1)[::-1]
    for metric in METRICS:
        assert all(name.partition("[")[0] == metric.name for name in metric.of(here, baseline)), metric.name


def test_pooled_cells_keep_what_the_servers_counters_said_of_each_repeat() -> None:
    blocks = [replace(NOTHING, proposed=n) for n in (1, 2)]
    both = [replace(measured(record(), repeat=i), counted=(block,)) for i, block in enumerate(blocks)]
    assert pooled(both)[0].counted == tuple(blocks)
