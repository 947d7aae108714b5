"""The fleet: a queue of one is its arithmetic, nothing is lost, a seed is a result, more replicas wait less."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_advise import asked, curve, profile
from timings import dense, timed

from speedbench.advise import advice, asking, capacity
from speedbench.advise.fleet import Filling, Kind, Mix, serve, simulate
from speedbench.advise.rates import Rates, filling
from speedbench.costs.linear import Refused
from speedbench.costs.passes import Passes
from speedbench.errors import UserError
from speedbench.types import Prefill


def mix(**given: Any) -> Mix:
    fixed: dict[str, Any] = {
        "kinds": (Kind(prompt=100, output=101),), "rate": 2.0, "closed": None, "seconds": 60.0, "seed": 0,
        "max_batch": 8,
    }  # fmt: skip
    return Mix(**{**fixed, **given})


def flat(batch: int, context: float) -> tuple[float, float]:
    """10 ms a pass, one token for each sequence in it, whatever the batch."""
    return 0.01, 1.0


def per_token(seconds: float) -> Filling:
    return lambda tokens: seconds * tokens


FREE = per_token(0.0)


def test_one_sequence_at_a_time_takes_its_prompt_and_its_passes() -> None:
    # 1 ms a prompt token: 0.1 s; then 100 tokens after the first at 10 ms: 1 s
    found = simulate(mix(rate=None, closed=1, seconds=10.9), flat, per_token(1e-3), 1)
    assert found.finished == 10
    assert found.tpot_p95 == pytest.approx(0.01)
    assert found.ttft_p95 == pytest.approx(0.1)
    assert found.output_tps == pytest.approx(101 / 1.1)
    assert found.decode_tps == pytest.approx(100)
    assert found.busy == pytest.approx(1)
    assert found.batch == 1


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_a_full_batch_decodes_at_batch_times_tokens_over_seconds(batch: int) -> None:
    def rate(rows: int, context: float) -> tuple[float, float]:
        return 0.01 + 0.002 * rows, 1.8

    found = simulate(mix(rate=None, closed=batch, seconds=60.0, max_batch=batch), rate, FREE, 1)
    assert found.decode_tps == pytest.approx(batch * 1.8 / (0.01 + 0.002 * batch), rel=0.03)


def test_an_acceptance_length_of_two_halves_the_time_per_token() -> None:
    def twice(batch: int, context: float) -> tuple[float, float]:
        return 0.01, 2.0

    found = simulate(mix(rate=None, closed=1, seconds=11.0), twice, FREE, 1)
    assert found.tpot_p95 == pytest.approx(0.005)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 20), st.integers(1, 4), st.floats(0, 1.5))
def test_every_request_ends_once_and_every_token_is_counted_once(
    seed: int, rate: float, replicas: int, spread: float
) -> None:
    asked = mix(seed=seed, rate=rate, seconds=10.0, kinds=(Kind(prompt=20, output=30, spread=spread),))
    found = simulate(asked, flat, per_token(1e-4), replicas)
    again = simulate(asked, flat, per_token(1e-4), replicas)
    assert found == again
    if found.finished:
        assert found.ttft_p95 is not None
        assert 0 < found.busy <= 1 + 1e-9
        assert found.output_tps > 0
        assert found.batch <= asked.max_batch


def test_requests_given_all_at_once_are_served_to_their_end_in_their_order() -> None:
    """Two rows, 10 ms a pass, 0.1 s a prompt: (6, 11, 3) tokens to answer.

    Both first prompts: 0.2 s. 5 passes end the first, 0.25; the third's prompt, 0.35, during which nobody decodes; 2
    passes end the third, 0.37; the second had 10 − 5 − 2 = 3 more: 0.40.
    """
    found = serve([[(100, 6)], [(100, 11)], [(100, 3)]], flat, per_token(1e-3), 2)
    assert found.finished == 3
    assert found.output_tps == pytest.approx(20 / 0.40)
    assert found.decode_tps == pytest.approx(17 / 0.10)
    assert found.batch == pytest.approx((7 * 2 + 3) / 10)


def test_a_conversations_turns_follow_one_another_in_its_row() -> None:
    """Two rows, 10 ms a pass, prompts free. (11, then 11) and (6): 5 passes of two, 5 of one, then 10 of one: 0.20 s.

    Were the turns three requests of their own, (11) and (11) would run side by side, and all end after 15 passes.
    """
    found = serve([[(1, 11), (1, 11)], [(1, 6)]], flat, FREE, 2)
    assert found.finished == 3
    assert found.output_tps == pytest.approx(28 / 0.20)
    assert found.ttft_p95 == 0
    apart = serve([[(1, 11)], [(1, 11)], [(1, 6)]], flat, FREE, 2)
    assert apart.output_tps == pytest.approx(28 / 0.15)
    assert serve([[(1, 1), (1, 1)]], flat, per_token(1e-3), 1).output_tps == pytest.approx(2 / 0.002)


def test_a_pass_costs_what_its_context_costs() -> None:
    """1 µs a token of context: 100 passes from 101 to 200 tokens take 100 · 150.5 µs, one row."""

    def growing(batch: int, context: float) -> tuple[float, float]:
        return 1e-6 * context * batch, 1.0

    found = serve([[(100, 101)]], growing, FREE, 1)
    assert found.decode_tps == pytest.approx(100 / (100 * 151e-6), rel=0.005)
    two = serve([[(100, 101)], [(300, 101)]], growing, FREE, 2)
    assert two.decode_tps == pytest.approx(200 / (100 * (151e-6 + 351e-6)), rel=0.005)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 200), min_size=40, max_size=40), st.floats(1.0, 6.0))
def test_the_passes_of_many_requests_are_their_tokens_over_the_acceptance_length(outputs: list[int], al: float) -> None:
    """To wait for whole passes would add half a pass to each; a pooled AL has the cut of the last step in it."""
    found = serve([[(1, output)] for output in outputs], lambda batch, context: (0.01, al), FREE, 1)
    tokens = sum(output - 1 for output in outputs)
    assert found.decode_tps is not None
    passes = tokens / found.decode_tps / 0.01
    short = sum(1 for output in outputs if (output - 1) / al < 1)  # at least one pass each, whatever the length
    assert abs(passes - tokens / al) <= 0.5 * len(outputs) + short
    if len(set(outputs)) > 30:
        assert passes == pytest.approx(tokens / al, rel=0.05)


def test_arrivals_come_at_their_rate_and_a_light_load_waits_for_nobody() -> None:
    found = simulate(mix(rate=5.0, seconds=400.0, max_batch=64), flat, FREE, 1)
    assert found.finished == pytest.approx(2000, rel=0.1)
    assert found.ttft_p95 is not None
    assert found.ttft_p95 <= 0.01 + 1e-6  # the pass under way


def test_too_few_replicas_queue_and_more_wait_less() -> None:
    # one replica of 8 rows ends 8 requests a second (100 passes of 10 ms each); 20 a second come
    waits = [simulate(mix(rate=20.0), flat, FREE, n).ttft_p95 for n in (1, 2, 3, 4, 6)]
    known = [wait for wait in waits if wait is not None]
    assert len(known) == 5
    assert known[0] > 20
    assert known[-1] < 0.1
    assert known[0] > known[1] > known[2]


def test_lengths_keep_their_mean_whatever_their_spread() -> None:
    asked = mix(rate=20.0, seconds=200.0, kinds=(Kind(prompt=1, output=50, spread=1.0),), max_batch=256)
    found = simulate(asked, flat, FREE, 1)
    assert found.output_tps * 200 / found.finished == pytest.approx(50, rel=0.1)


# ---- what it runs on ----------------------------------------------------------------------------------------------


def test_a_pass_between_batches_and_contexts_lies_on_lines_with_the_length_that_its_own_batch_has() -> None:
    """The law is linear in B and in B·S, so lines over both find it again; D is 4 up to B=2, and 2 beyond."""
    times = Passes(profile(draft=0.0).timed, dense.facts)
    d = {1: 4, 2: 4}
    rates = Rates(
        costs=times, curve=curve(), length=lambda batch: d.get(batch, 2), batches=(1, 2, 4, 8), contexts=(512,)
    )
    assert rates(2, 512) == (pytest.approx(dense(2, 4, 512) + 1e-4), 2.5)
    assert rates(3, 512) == (pytest.approx((dense(2, 2, 512) + dense(4, 2, 512)) / 2 + 1e-4), 2.1)
    assert rates(3, 9999) == rates(3, 512)  # beyond the contexts as at the last


def test_contexts_between_the_measured_cost_what_lies_between() -> None:
    both = [*profile().timed, *(timed(1, d, 2048, dense(1, d, 2048)) for d in (0, 1, 2, 4, 8))]
    rates = Rates(costs=Passes(both, dense.facts), curve=None, length=lambda b: 0, batches=(1,), contexts=(512, 2048))
    assert rates(1, 1280)[0] == pytest.approx(dense(1, 0, 1280) + 1e-4)


def test_where_no_time_is_known_the_reason_is_told() -> None:
    rates = Rates(
        costs=Passes(profile().timed, dense.facts), curve=curve(label="mtp"), length=lambda b: 2, batches=(1, 2),
        contexts=(512,),
    )  # fmt: skip
    with pytest.raises(Refused, match="has no 'mtp'"):
        rates(1, 512)


def test_a_prompt_is_read_on_the_line_through_the_nearest_two_and_with_its_own_drafter() -> None:
    told = [Prefill(tokens=n, seconds=s) for n, s in ((100, 0.2), (200, 0.3), (400, 0.7))]
    told += [Prefill(tokens=100, seconds=0.5, drafter="eagle3")]
    plain = filling(told, None)
    # 1 ms a token from 100 to 200, and below; 2 ms from 200 on
    assert [round(plain(n), 6) for n in (50, 100, 150, 300, 500)] == [0.15, 0.2, 0.25, 0.5, 0.9]
    assert filling(told, "eagle3")(200) == pytest.approx(1.0)
    assert filling(told, "ngram")(150) == plain(150)


def test_a_plan_prices_contexts_as_they_are_and_says_what_lies_beyond_the_measured(tmp_path: Path) -> None:
    text = "requests: [{prompt: 1000, output: 101}]\nclosed: 1\nseconds: 20\n"
    path = tmp_path / "mix.yaml"
    path.write_text(text, "utf-8")
    found = capacity.plan(capacity.read(str(path)), advice.advise(asking.question(asked())))
    assert [each.mechanism for each in found.needs] == ["none", "eagle3"]
    # measured at 512 only: a plain pass of one row is priced as there
    assert found.needs[0].decode_tps == pytest.approx(1 / (dense(1, 0, 512) + 1e-4))
    assert "contexts go from 1000 to 1101 on the mean, times were measured at 512 to 512" in found.notes[0]
    assert "what eagle3 read of a prompt is not known" in found.notes[-1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requests: []\nrate: 1\n", "requests: should be a list"),
        ("requests: [{prompt: 1, output: 1}]\n", "needs either rate"),
        ("requests: [{prompt: 1, output: 1}]\nrate: 1\nclosed: 2\n", "needs either rate"),
        ("requests: [{prompt: 1, output: 0}]\nrate: 1\n", "output: should be a number above 0"),
        ("requests: [{prompt: 1, outputs: 3}]\nrate: 1\n", "Did you mean 'output'"),
        ("requests: [{prompt: 1, output: 1}]\nrate: .inf\n", "rate: should be"),
        (
            "requests: [{prompt: 1, output: 1, spread: 1e99}]\nrate: 1\n",
            "spread: should be a number from 0, at most 100",
        ),
        ("requests: [{prompt: 1, output: 1}]\nrate: 1e5\n", r"rate × seconds are 6e\+07 requests; at most 1000000"),
        ("requests: [{prompt: 1, output: 1}]\nrates: 1\n", "Did you mean 'rate'"),
        ("requests: [{prompt: 1, output: 1}]\nclosed: 1.5\n", "closed: should be a whole number"),
    ],
)
def test_a_mix_that_cannot_be_is_refused_by_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=said):
        capacity.read(str(path))
