"""Whether responses and counters can both be true, with what each is known to leave out."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import record, step, steps
from test_serving_payloads import turns
from test_serving_prometheus import moved

from speedbench.serving.acceptance import acceptance
from speedbench.serving.agreement import agreement
from speedbench.serving.payloads import told
from speedbench.serving.prometheus import NOTHING
from speedbench.types import Counted, Counts, Record


def answers() -> list[Record]:
    """Two requests of D = 3: 7 + 2 accepted in 3 + 2 steps, with one plain step and the prefill's token each."""
    first = record([step(0, 0), *steps(3, 1, 3)], request="a")  # 1 + 1 + 4 + 2 + 4 = 12 tokens
    second = record([step(0, 0), *steps(2, 0)], request="b")  # 1 + 1 + 3 + 1 = 6 tokens
    return [first, second]


def counters(**changes: int | None) -> Counted:
    """What an exact server would have counted of them."""
    right = {"generated": 12 + 6, "accepted": 7 + 2, "proposed": 3 * 5, "drafted": 5, "steps": 4 + 3}
    return replace(NOTHING, **{**right, **changes})  # type: ignore[arg-type]


def test_equal_counts_agree() -> None:
    assert agreement(answers(), counters(), draft_length=3) == []
    assert 18 - 2 - 9 == 4 + 3  # I1: output tokens − requests − accepted = passes


@pytest.mark.parametrize(
    ("name", "right", "slack", "what"),
    [
        ("proposed", 15, 2 * 3, "proposed drafts"),  # a dummy verification of D in each request
        ("drafted", 5, 2 * 1, "steps with drafts"),
        ("steps", 7, 2 * 1, "passes"),
        ("accepted", 9, 2 * 3, "accepted drafts"),  # what a stop cut off, D in each request
    ],
)
def test_a_difference_is_a_warning_beyond_the_known_biases(name: str, right: int, slack: int, what: str) -> None:
    for sign in (1, -1):
        near = {name: right + sign * slack, "generated": None}
        assert agreement(answers(), counters(**near), draft_length=3) == []
        far = {name: right + sign * (slack + 1), "generated": None}
        (warning,) = agreement(answers(), counters(**far), draft_length=3)
        assert warning.startswith(f"{what}: the responses tell {right}, the server's counters {far[name]}")
        assert warning.endswith(f"more than {slack} apart")


def test_another_clients_traffic_shows() -> None:
    (tokens, passes) = agreement(answers(), counters(generated=118), draft_length=3)
    assert tokens == "output tokens: the responses tell 18, the server's counters 118; more than 2 apart"
    # 118 − 2 − 9 = 107 passes by the counters, and 7 by the steps
    what = "passes (output tokens − requests − accepted drafts)"
    assert passes.startswith(f"{what}: the responses tell 7, the server's counters 107;")


def test_sums_are_compared_as_steps_are() -> None:
    sums = Counts(steps=4, committed=11, accepted=7, proposed=9, drafted=3)
    made = [replace(answers()[0], steps=(), counts=sums), answers()[1]]
    assert agreement(made, counters(), draft_length=3) == []
    assert len(agreement(made, counters(accepted=30), draft_length=3)) == 2


def test_what_one_side_does_not_say_is_not_compared() -> None:
    assert agreement(answers(), NOTHING, draft_length=3) == []
    silent = [replace(each, steps=(), told="unavailable") for each in answers()]
    assert agreement(silent, counters(accepted=900, generated=18), draft_length=3) == []
    guessed = [replace(each, told="estimated") for each in answers()]
    assert agreement(guessed, counters(steps=900), draft_length=3) == []


def test_an_answer_of_one_token_had_no_drafts() -> None:
    made = [*answers(), record((), request="c")]
    assert agreement(made, counters(generated=19), draft_length=3) == []
    assert len(agreement(made, counters(generated=None, accepted=30), draft_length=3)) == 1


def test_failed_turns_left_traffic_in_the_counters() -> None:
    made = [*answers(), record((), request="c", finish="error")]
    assert agreement(made, counters(generated=90, accepted=50, proposed=90, drafted=30, steps=30), draft_length=3) == []
    theirs = counters(generated=60, accepted=58, proposed=90)  # 60 − 2 − 58 = 0 passes says nothing: whose tokens?
    assert agreement(made, theirs, draft_length=3) == []
    (warning,) = agreement(made, counters(accepted=1), draft_length=3)  # fewer than was told is impossible still
    assert warning.startswith("accepted drafts: the responses tell 9, the server's counters 1")


def test_counters_that_were_reset_are_not_compared() -> None:
    assert agreement(answers(), replace(counters(accepted=900), faults=("reset",)), draft_length=3) == []


def test_a_baseline_that_drafted_is_a_warning() -> None:
    plain = [record([step(0, 0)] * 5)]
    assert agreement(plain, replace(NOTHING, proposed=0, generated=6), draft_length=0) == []
    (warning,) = agreement(plain, replace(NOTHING, proposed=40), draft_length=0)
    assert warning == "the server's counters have 40 drafts in a baseline"


@pytest.mark.parametrize("session", ["self", "forced", "ngram", "other"])
def test_llamacpps_answers_and_counters_agree(session: str) -> None:
    made = []
    for index, turn in enumerate(turns(session)):
        said = told(turn["payload"])
        assert said is not None
        assert said.tokens is not None
        found = acceptance(said, tokens=said.tokens, draft_length=4, finish="length")
        one = record(found.steps, request=f"r{index}")
        made.append(replace(one, output=(), tokens=said.tokens, counts=found.counts, told=found.origin))
    assert agreement(made, moved(f"llamacpp-{session}"), draft_length=4) == []
