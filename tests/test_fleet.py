"""The fleet: a queue of one is its arithmetic, nothing is lost, a seed is a result, more replicas wait less."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.advise import capacity
from speedbench.advise.fleet import Kind, Mix, simulate
from speedbench.errors import UserError


def mix(**given: Any) -> Mix:
    fixed: dict[str, Any] = {
        "kinds": (Kind(prompt=100, output=101),), "rate": 2.0, "closed": None, "seconds": 60.0, "seed": 0,
        "max_batch": 8,
    }  # fmt: skip
    return Mix(**{**fixed, **given})


def flat(batch: int) -> tuple[float, float]:
    """10 ms a pass, one token for each sequence in it, whatever the batch."""
    return 0.01, 1.0


def test_one_sequence_at_a_time_takes_its_prompt_and_its_passes() -> None:
    # 1 ms a prompt token: 0.1 s; then 100 tokens after the first at 10 ms: 1 s
    found = simulate(mix(rate=None, closed=1, seconds=10.9), flat, 1e-3, 1)
    assert found.finished == 10
    assert found.tpot_p95 == pytest.approx(0.01)
    assert found.ttft_p95 == pytest.approx(0.1)
    assert found.output_tps == pytest.approx(101 / 1.1)
    assert found.decode_tps == pytest.approx(100)
    assert found.busy == pytest.approx(1)
    assert found.batch == 1


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_a_full_batch_decodes_at_batch_times_tokens_over_seconds(batch: int) -> None:
    def rate(rows: int) -> tuple[float, float]:
        return 0.01 + 0.002 * rows, 1.8

    found = simulate(mix(rate=None, closed=batch, seconds=60.0, max_batch=batch), rate, 0.0, 1)
    assert found.decode_tps == pytest.approx(batch * 1.8 / (0.01 + 0.002 * batch), rel=0.03)


def test_an_acceptance_length_of_two_halves_the_time_per_token() -> None:
    def twice(batch: int) -> tuple[float, float]:
        return 0.01, 2.0

    found = simulate(mix(rate=None, closed=1, seconds=11.0), twice, 0.0, 1)
    assert found.tpot_p95 == pytest.approx(0.005)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 20), st.integers(1, 4), st.floats(0, 1.5))
def test_every_request_ends_once_and_every_token_is_counted_once(
    seed: int, rate: float, replicas: int, spread: float
) -> None:
    asked = mix(seed=seed, rate=rate, seconds=10.0, kinds=(Kind(prompt=20, output=30, spread=spread),))
    found = simulate(asked, flat, 1e-4, replicas)
    again = simulate(asked, flat, 1e-4, replicas)
    assert found == again
    if found.finished:
        assert found.ttft_p95 is not None
        assert 0 < found.busy <= 1 + 1e-9
        assert found.output_tps > 0
        assert found.batch <= asked.max_batch


def test_arrivals_come_at_their_rate_and_a_light_load_waits_for_nobody() -> None:
    found = simulate(mix(rate=5.0, seconds=400.0, max_batch=64), flat, 0.0, 1)
    assert found.finished == pytest.approx(2000, rel=0.1)
    assert found.ttft_p95 is not None
    assert found.ttft_p95 <= 0.01 + 1e-6  # the pass under way


def test_too_few_replicas_queue_and_more_wait_less() -> None:
    # one replica of 8 rows ends 8 requests a second (100 passes of 10 ms each); 20 a second come
    waits = [simulate(mix(rate=20.0), flat, 0.0, n).ttft_p95 for n in (1, 2, 3, 4, 6)]
    known = [wait for wait in waits if wait is not None]
    assert len(known) == 5
    assert known[0] > 20
    assert known[-1] < 0.1
    assert known[0] > known[1] > known[2]


def test_lengths_keep_their_mean_whatever_their_spread() -> None:
    asked = mix(rate=20.0, seconds=200.0, kinds=(Kind(prompt=1, output=50, spread=1.0),), max_batch=256)
    found = simulate(asked, flat, 0.0, 1)
    assert found.output_tps * 200 / found.finished == pytest.approx(50, rel=0.1)


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
