"""The scripted engine does as told, and every number of a scripted run can be worked out by hand."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest
from builders import cell

from speedbench import plugins
from speedbench.backends.scripted import BACKEND
from speedbench.errors import UserError
from speedbench.summarise import results
from speedbench.types import Conversation, Drafting, Load, Measured, Pass, Record, Request, Runner, Sampling

METRICS = [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]
ONE = Request(id="r", category="c", turns=("one two three",))


def served(d: int, *requests: Request, tokens: int = 11, **engine: Any) -> Measured:
    """What a cell of these requests yields."""
    runner = Runner(name="u", title="T", backend="scripted", model="none", engine=engine)
    drafting = Drafting(label="ngram", drafter="ngram" if d else "none")
    load = Load(sampling=Sampling(max_tokens=tokens), longest=99, widest=d)
    with BACKEND.open(runner) as session:
        events = list(session.engine(drafting, d, 1, load).serve([Conversation(request=r) for r in requests or (ONE,)]))
    records = tuple(event for event in events if isinstance(event, Record))
    passes = tuple(event for event in events if isinstance(event, Pass))
    return Measured(cell=cell(d=d), records=records, passes=passes, mismatches=None)


def values(here: Measured, baseline: Measured) -> dict[str, float | None]:
    found = results([baseline, here], METRICS)[1]
    return {name: each.value for name, each in found.metrics.items()}


def test_accepting_3_0_2_1_of_3_yields_two_and_a_half_tokens_a_step() -> None:
    here = served(3)  # 11 tokens: one of prefill, then 4 + 1 + 3 + 2 = 10
    (record,) = here.records
    # 10 are left, then 6 and 5, of which a step may propose 3; then 2, of which it may propose 1
    assert [(s.proposed, s.accepted, s.committed) for s in record.steps] == [(3, 3, 4), (3, 0, 1), (3, 2, 3), (1, 1, 2)]
    found = values(here, served(0))
    assert found["al"] == 10 / 4
    assert found["acceptance_rate"] == 6 / 10
    assert found["effective_d"] == 10 / 4
    assert (len(record.output), record.first_tokens, record.finish) == (11, 1, "length")


def test_accepted_is_cut_at_d() -> None:
    # 3, 0, 2, 1 at D = 1 is 1, 0, 1, 1: 2 + 1 + 2 + 2 = 7 tokens; 3 more are 1 (+ 1), then one that nothing may precede
    (record,) = served(1).records
    assert [s.accepted for s in record.steps] == [1, 0, 1, 1, 1, 0]
    assert sum(s.committed for s in record.steps) == 10


def test_the_clock_moves_as_the_script_says_and_not_otherwise() -> None:
    here = served(2, tokens=4, accepted=[2], verify_seconds=1.0, verify_per_token=0.25, draft_per_token=0.125,
                  other_seconds=0.5, prefill_seconds=3.0)  # fmt: skip
    (record,), (one,) = here.records, here.passes
    assert (record.sent, record.first, record.prefill) == (0.0, 3.0, 3.0)
    # two drafts: 2 · 0.125 to draft, 1 + 2 · 0.25 to verify, 0.5 for the rest
    assert (one.draft, one.verify, one.other, one.width, one.proposed) == (0.25, 1.5, 0.5, 3, 2)
    assert record.last == 3.0 + 0.25 + 1.5 + 0.5


def test_speedup_formula_and_residual_are_those_worked_out_by_hand() -> None:
    here, baseline = served(3), served(0)
    found = values(here, baseline)
    # ours: 4 passes of 0.020 and 10 drafts of 0.001 for 10 tokens: 0.090 s; the baseline: 10 passes of 0.020: 0.200 s
    assert found["decode_tps"] == pytest.approx(10 / 0.090)
    assert found["speedup"] == pytest.approx(0.200 / 0.090)
    assert found["verify_overhead"] == pytest.approx(1.0)
    assert found["draft_overhead"] == pytest.approx(0.010 / 4 / 0.020)
    assert found["speedup_formula"] == pytest.approx(2.5 / 1.125)  # = 2.222…, as measured
    assert found["residual"] == pytest.approx(0, abs=1e-12)
    assert found["break_even_al"] == pytest.approx(1.125)


def test_what_is_neither_target_nor_drafter_is_what_the_formula_misses() -> None:
    found = values(served(3, other_seconds=0.005), served(0, other_seconds=0.005))
    # ours: 0.090 + 4 · 0.005 = 0.110; the baseline: 0.200 + 10 · 0.005 = 0.250; the formula knows neither
    assert found["speedup"] == pytest.approx(0.250 / 0.110)
    assert found["residual"] == pytest.approx((0.250 / 0.110) / (2.5 / 1.125) - 1)
    assert found["t_other"] == pytest.approx(0.005)


def test_a_dearer_verification_is_measured_and_not_assumed_away() -> None:
    found = values(served(3, verify_per_token=0.01), served(0, verify_per_token=0.01))
    # 10 drafts of 0.01 over 4 passes on top of 0.020
    assert found["verify_overhead"] == pytest.approx((0.020 + 0.1 / 4) / 0.020)


def test_a_baseline_commits_one_token_a_step() -> None:
    (record,) = served(0).records
    assert {(s.proposed, s.accepted, s.committed) for s in record.steps} == {(0, 0, 1)}
    assert len(record.steps) == 10


def test_a_failed_turn_ends_its_conversation_and_no_other() -> None:
    long = Request(id="long", category="c", turns=("a", "b", "c"))
    here = served(3, long, ONE, fails=["long"])
    assert [(r.request, r.turn, r.finish) for r in here.records] == [("long", 0, "error"), ("r", 0, "length")]
    assert here.records[0].error == "ScriptedError: told to fail"


def test_answers_differ_from_the_baselines_only_where_told_and_so_do_the_prompts_after_them() -> None:
    two = Request(id="two", category="c", turns=("a", "b"))
    ours, theirs = served(3, two, ONE, flips=["two"]).records, served(0, two, ONE, flips=["two"]).records
    assert [a.output == b.output for a, b in zip(ours, theirs, strict=True)] == [False, False, True]
    assert [a.prompt_sha == b.prompt_sha for a, b in zip(ours, theirs, strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"verfy_seconds": 1}, "no setting of engine named 'verfy_seconds'. Did you mean 'verify_seconds'?"),
        ({"verify_seconds": "fast"}, "engine.verify_seconds: should be a number (got 'fast')"),
        ({"verify_seconds": -1}, "engine.verify_seconds: at least 0 (got -1)"),
        ({"verify_seconds": float("nan")}, "engine.verify_seconds: should be a finite number (got nan)"),
        ({"accepted": []}, "engine.accepted: should be whole numbers from 0 (got [])"),
        ({"accepted": [1, -1]}, "engine.accepted: should be whole numbers from 0 (got [1, -1])"),
        ({"accepted": 3}, "engine.accepted: should be a list, as [1, 2] (got 3)"),
        ({"context": 0}, "engine.context: at least 1 (got 0)"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(engine: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        served(0, **engine)
    assert said in str(caught.value)


def test_a_drafters_settings_are_checked_as_everywhere() -> None:
    runner = Runner(name="u", title="T", backend="scripted", model="none")
    drafting = Drafting(label="ngram", drafter="ngram", settings={"max_m": 3})
    with BACKEND.open(runner) as session, pytest.raises(UserError, match=r"no setting of ngram named 'max_m'"):
        session.engine(drafting, 3, 1, Load(sampling=Sampling(), longest=9, widest=3))
