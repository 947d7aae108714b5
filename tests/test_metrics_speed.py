"""Latency, throughput, cost and speedup, by hand-made times."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from builders import measured, passed, record, step, steps, timed, values

from speedbench.metrics import cost, latency, speedup, throughput
from speedbench.types import Measured, Step


def at(*times: float, committed: int = 4) -> tuple[Step, ...]:
    return tuple(Step(at=time, proposed=None, accepted=None, committed=committed) for time in times)


# ---- latency and throughput ----------------------------------------------------------------------------------------


def test_a_decode_rate_leaves_the_prefill_out_and_an_end_to_end_rate_does_not() -> None:
    slow = measured(timed(100, 2.0, sent=0.0), d=0)  # first at 1 s; half the speed, and 101 tokens in 3 s
    here = measured(record([step(0, 0)] * 100, sent=0.0, first=2.0, last=3.0))
    assert values(throughput.METRICS, here)["decode_tps"] == 100 / 1.0
    found = values(speedup.METRICS, here, slow)
    assert found["speedup"] == pytest.approx(100 / 50)
    assert found["speedup_e2e"] == pytest.approx((101 / 3) / (101 / 3)) == 1.0


def test_times_of_two_processes_are_never_paired() -> None:
    slow = measured(timed(100, 2.0, request="a"), timed(100, 4.0, request="b"), d=0)
    here = measured(timed(100, 1.0, request="a"), timed(100, 1.0, request="b", process=1))
    assert values(speedup.METRICS, here, slow)["speedup"] == pytest.approx(2.0)  # a alone: 100 tok/s against 50
    other = measured(timed(100, 1.0, request="a", process=1))
    assert values(speedup.METRICS, other, slow)["speedup"] is None


def test_events_of_four_tokens_are_counted_as_tokens() -> None:
    # one token at 1.0 s, then ten events of four tokens every 100 ms: 41 tokens
    made = at(*(1.0 + 0.1 * i for i in range(1, 11)))
    here = measured(record(made, first=1.0, last=2.0))
    assert values(throughput.METRICS, here)["decode_tps"] == pytest.approx(40 / 1.0)
    found = values(latency.METRICS, here)
    assert found["tpot_mean"] == pytest.approx(1.0 / 40)
    assert found["inter_event_p50"] == pytest.approx(0.1)
    assert found["ttft_mean"] == pytest.approx(1.0)


def test_an_empty_window_has_no_rate_and_spoils_no_other() -> None:
    empty = [
        record((), request="nothing", first=None, last=None, first_tokens=0, finish="stop"),
        record((), request="one token", first=1.0, last=1.0),
        record(steps(3), request="all at once", first=1.0, last=1.0),
    ]
    for one in empty:
        assert values(throughput.METRICS, measured(one))["decode_tps"] is None
    found = throughput.METRICS[0].of(measured(*empty, timed(10, 2.0, request="good")), None)["decode_tps"]
    assert (found.value, found.n) == (10 / 2.0, 1)


def test_latency_without_a_sample_is_unknown() -> None:
    here = measured(record((), first=None, last=None, first_tokens=0))
    assert set(values(latency.METRICS, here).values()) == {None}
    buffered = measured(record([step(3), step(3)]))  # events whose times are not known
    assert values(latency.METRICS, buffered)["inter_event_mean"] is None


def test_percentiles_are_over_all_turns() -> None:
    here = measured(*(record(steps(1), request=f"r{i}", first=float(i)) for i in range(1, 12)))
    found = values(latency.METRICS, here)
    assert (found["ttft_p50"], found["ttft_p90"], found["ttft_mean"]) == (6.0, 10.0, 6.0)


def test_failed_requests_enter_no_time() -> None:
    here = measured(timed(10, 1.0), record(steps(0), request="x", first=99.0, last=100.0, finish="error"))
    assert values(throughput.METRICS, here)["decode_tps"] == 10.0
    assert values(latency.METRICS, here)["ttft_p99"] == 1.0


def test_the_whole_cells_rate_counts_full_batches_only() -> None:
    # B = 2, AL = (2 + 4) / 2 = 3, a full pass takes 0.03 + 0.06 + 0.01 = 0.1 s: 2 · 3 / 0.1 = 60 tokens/s
    full, tail = passed(verify=0.06, draft=0.03, other=0.01, batch=2), passed(verify=9.0, batch=1)
    here = measured(record(steps(1)), record(steps(3), request="r1"), b=2, passes=[full, full, tail])
    assert values(throughput.METRICS, here)["output_tps"] == pytest.approx(60)


def test_the_whole_cells_rate_without_passes_counts_while_enough_requests_are_in_flight() -> None:
    # both in flight from 0.5 to 2.0; in there fall 1 + 4 tokens of the first and 1 of the second: 6 / 1.5
    here = measured(
        record(at(1.5, 3.0), request="a", sent=0.0, first=1.0, last=3.0),
        record((), request="b", sent=0.5, first=2.0, last=2.0),
        b=2,
    )
    assert values(throughput.METRICS, here)["output_tps"] == pytest.approx(6 / 1.5)


def test_a_cell_that_was_never_full_has_no_rate_of_its_own() -> None:
    assert values(throughput.METRICS, measured(record(at(1.5)), b=2))["output_tps"] is None
    lone = measured(record(steps(1)), b=2, passes=[passed(verify=1.0, batch=1)])
    assert values(throughput.METRICS, lone)["output_tps"] is None


def test_clocks_of_two_processes_are_not_mixed() -> None:
    one = record(at(2.0), request="a", sent=0.0, first=1.0, last=2.0)
    other = record(at(2.0), request="b", sent=0.0, first=1.0, last=2.0, process=1)
    assert values(throughput.METRICS, measured(one, other, b=2))["output_tps"] is None
    assert values(throughput.METRICS, measured(one, other, b=1))["output_tps"] == (5 + 5) / (2.0 + 2.0)


# ---- cost ----------------------------------------------------------------------------------------------------------


def test_the_seconds_of_a_pass_are_means_over_full_batches() -> None:
    passes = [
        passed(verify=2.0, draft=1.0, other=0.5, batch=4),
        passed(verify=4.0, draft=1.0, other=1.5, batch=4),
        passed(verify=0.1, draft=0.1, batch=3),
    ]
    baseline = measured(b=4, d=0, passes=[passed(verify=2.0, batch=4), passed(verify=1.0, batch=2)])
    found = values(cost.METRICS, measured(b=4, passes=passes), baseline)
    assert (found["t_verify"], found["t_draft"], found["t_other"]) == (3.0, 1.0, 1.0)
    assert (found["t_pass"], found["t_baseline"]) == (5.0, 2.0)
    assert (found["verify_overhead"], found["draft_overhead"], found["break_even_al"]) == (3 / 2, 1 / 2, 4 / 2)
    assert found["other_share"] == pytest.approx(2 / 10)


def test_no_full_batch_or_no_baseline_makes_the_cost_unavailable() -> None:
    partial = measured(b=4, passes=[passed(verify=1.0, batch=3)])
    assert set(values(cost.METRICS, partial, partial).values()) == {None}
    full = measured(b=1, passes=[passed(verify=1.0)])
    found = values(cost.METRICS, full, None)
    assert found["t_verify"] == 1.0
    assert found["t_baseline"] is found["verify_overhead"] is found["break_even_al"] is None


# ---- speedup -------------------------------------------------------------------------------------------------------


def with_al(tokens: int, of: int, seconds: float, passes: list[float]) -> Measured:
    """One request of `of` steps that commit so many tokens in so many seconds; `passes` is (draft, verify)."""
    full, rest = divmod(tokens - of, of)
    made = [step(full + (i < rest), 8) for i in range(of)]
    draft, verify = passes
    return measured(record(made, first=0.0, last=seconds), d=8, passes=[passed(verify=verify, draft=draft, d=8)] * 4)


@pytest.mark.parametrize(
    ("al", "draft", "verify", "measured_speedup", "predicted", "residual"),
    [
        (1.792, 7.69, 30.49, 1.251, 1.312, -0.046),  # 1.792 · 27.95 / 38.18
        (3.762, 39.03, 63.54, 0.931, 1.025, -0.092),  # 3.762 · 27.95 / 102.57
        (3.955, 40.27, 62.69, 0.988, 1.074, -0.080),  # 3.955 · 27.95 / 102.96
    ],
)
def test_published_step_times_predict_the_speedup(
    al: float, draft: float, verify: float, measured_speedup: float, predicted: float, residual: float
) -> None:
    tokens, step_time = round(1000 * al), 27.95
    baseline = measured(
        record([step(0, 0)] * tokens, first=0.0, last=tokens * step_time), d=0, passes=[passed(verify=step_time)] * 4
    )
    here = with_al(tokens, 1000, tokens * step_time / measured_speedup, [draft, verify])
    found = values(speedup.METRICS, here, baseline)
    assert found["speedup"] == pytest.approx(measured_speedup)
    assert found["speedup_formula"] == pytest.approx(predicted, abs=5e-4)
    assert found["residual"] == pytest.approx(residual, abs=5e-4)


@pytest.mark.parametrize(
    ("al", "draft_share", "right"), [(3.0, 0.5, 2.0), (1.0, 0.5, 0.6667), (6.0, 0.5, 4.0), (1.0, 0.0, 1.0)]
)
def test_the_formula_divides_acceptance_by_what_a_pass_costs(al: float, draft_share: float, right: float) -> None:
    # verification at the price of one plain pass, drafting at D · c of one: al / (1 + D · c)
    baseline = measured(record([step(0, 0)]), d=0, passes=[passed(verify=1.0)])
    here = with_al(round(10 * al), 10, 1.0, [draft_share, 1.0])
    assert values(speedup.METRICS, here, baseline)["speedup_formula"] == pytest.approx(right, abs=5e-5)


def test_the_baseline_is_as_fast_as_itself() -> None:
    here = measured(*(timed(10 + i, 1.0 + i, request=f"r{i}") for i in range(4)), d=0, passes=[passed(verify=1.0)] * 3)
    found = {name: m for metric in speedup.METRICS for name, m in metric.of(here, here).items()}
    assert (found["speedup"].value, found["speedup"].low, found["speedup"].high) == (1.0, 1.0, 1.0)
    assert found["speedup"].origin == "derived"
    assert (found["speedup_formula"].value, found["residual"].value) == (1.0, 0.0)


def test_without_a_baseline_there_is_no_speedup() -> None:
    assert set(values(speedup.METRICS, measured(timed(10, 1.0)), None).values()) == {None}


def test_speedup_is_paired_by_prompt() -> None:
    # the prompt that failed in one arm is in neither sum: (10 / 1) / (10 / 2) = 2, and not (10 / 1) / (110 / 3)
    here = measured(timed(10, 1.0, request="a"), timed(100, 1.0, request="b", finish="error"))
    baseline = measured(timed(10, 2.0, request="a"), timed(100, 1.0, request="b"), d=0)
    assert values(speedup.METRICS, here, baseline)["speedup"] == pytest.approx(2.0)


def test_arms_of_different_length_are_compared_by_tokens_per_second() -> None:
    here, baseline = measured(timed(180, 3.6)), measured(timed(100, 4.0), d=0)
    assert values(speedup.METRICS, here, baseline)["speedup"] == pytest.approx((180 / 3.6) / (100 / 4.0))  # 50 / 25


def test_the_detectable_effect_stands_beside_the_speedup() -> None:
    # gains e^0.1 and e^0.3: sd of the logs 0.1414, 2.8 · 0.1414 / √2 = 0.28
    here = measured(timed(10, 1.0, request="a"), timed(10, 1.0, request="b"))
    baseline = measured(timed(10, 2.718281828**0.1, request="a"), timed(10, 2.718281828**0.3, request="b"), d=0)
    assert values(speedup.METRICS, here, baseline)["speedup_mde"] == pytest.approx(0.28)
