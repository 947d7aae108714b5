"""Raw counts without text: whatever a run's numbers are, its submission's are the same."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders import measured, mismatch, passed, record, step
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.cli.document import metrics
from speedbench.errors import UserError
from speedbench.leaderboard import counts
from speedbench.leaderboard.rows import METRICS
from speedbench.summarise import results
from speedbench.types import Counted, Counts, Measured, Pass, Record, Result

SECONDS = st.integers(0, 5 * 10**6).map(lambda n: n / 10**7)
"""Times have seven places in a run's files."""


def judged(cells: Sequence[Measured]) -> list[Result]:
    return results(cells, [replace(each, by_category=False) for each in metrics() if each.name in METRICS])


def again(cells: Sequence[Measured], names: Sequence[str]) -> tuple[Measured, ...]:
    return counts.measured(counts.text(cells, names).encode(), "counts.jsonl")


@st.composite
def turns(draw: st.DrawFn, d: int, names: Sequence[str]) -> list[Record]:
    """Every conversation once, with any steps that D allows, the last one cut or not."""
    found = []
    for index, name in enumerate(names):
        pairs = draw(
            st.lists(st.integers(0, d).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), max_size=8)
        )
        made = [step(accepted, proposed) for proposed, accepted in pairs]
        if made and draw(st.booleans()):
            most = made[-1].committed - 1
            made[-1] = replace(made[-1], committed=made[-1].committed - draw(st.integers(0, most)))
        sent = draw(SECONDS) + 7
        first = sent + draw(SECONDS)
        found.append(
            replace(
                record(
                    made, request=name, category="xy"[index % 2], sent=sent, first=first, last=first + draw(SECONDS)
                ),
                prompt_sha=draw(st.sampled_from(["one", "other"])),
                finish=draw(st.sampled_from(["stop", "length", "error"])),
            )
        )
    return found


@st.composite
def passes(draw: st.DrawFn, d: int, b: int) -> list[Pass]:
    split = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(0, 45))):
        batch = draw(st.integers(1, b))
        made = passed(verify=draw(SECONDS) + 0.01, draft=draw(SECONDS), other=draw(SECONDS), batch=batch, d=d)
        found.append(made if split else replace(made, draft=None, verify=None, other=None, whole=made.seconds))
    return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Measured], list[str]]:
    """A baseline and a drafted cell over the same conversations, outputs compared or not."""
    names = draw(st.lists(st.text("ab/é0", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    b, d = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    kinds = st.sampled_from(["near_tie", "real", "unknown"])
    apart = [mismatch(name, draw(kinds), gap=None) for name in names if draw(st.booleans())]
    drafted = measured(*draw(turns(d, names)), d=d, b=b, passes=draw(passes(d, b)))
    plain = measured(*draw(turns(0, names)), d=0, b=b, passes=draw(passes(0, b)), mismatches=[])
    return [plain, replace(drafted, mismatches=draw(st.sampled_from([None, tuple(apart)])))], names


@settings(max_examples=40, deadline=None)
@given(runs())
def test_every_number_of_a_board_is_recomputed_from_the_counts(run: tuple[list[Measured], list[str]]) -> None:
    cells, names = run
    for ours, theirs in zip(judged(cells), judged(again(cells, names)), strict=True):
        assert ours.cell == theirs.cell
        assert ours.metrics.keys() == theirs.metrics.keys()
        for name, number in ours.metrics.items():
            other = theirs.metrics[name]
            assert (number.n, number.origin if name != "output_tps" else 0) == (
                other.n, other.origin if name != "output_tps" else 0
            ), name  # fmt: skip
            if name == "output_tps" and not cells[0].passes:
                continue  # by the times of single steps, which a submission does not hold
            for mine, fresh in ((number.value, other.value), (number.low, other.low), (number.high, other.high)):
                assert mine == pytest.approx(fresh, rel=1e-7, abs=1e-9) if mine is not None else fresh is None, name


def test_a_turn_is_a_histogram_of_its_steps_and_the_cut_one_comes_last() -> None:
    made = [step(3), step(1, cut=1), step(0, 0), step(3)]
    text = counts.text([measured(record([made[0], made[2], made[3], made[1]]))], ["r0"])
    line = json.loads(text.splitlines()[1])
    assert sorted(line["steps"]) == [
        [0, 0, 1, 1],
        [3, 1, 1, 1],
        [3, 3, 4, 2],
    ]  # proposed, accepted, committed, how many
    (back,) = counts.measured(text.encode(), "f")
    steps = back.records[0].steps
    assert [each.committed for each in steps][-1] == 1
    assert steps[-1].accepted == 1
    assert back.records[0].size == 1 + 4 + 4 + 1 + 1


def test_neither_text_nor_token_nor_payload_nor_name_is_written() -> None:
    told = replace(
        record([step(1)], request="a secret name", prompt_sha="feedbeef"),
        text="the answer", raw={"usage": "payload"}, output=(424242, 1, 2), error="at http://host",
    )  # fmt: skip
    parted = replace(mismatch("a secret name", "real"), expected=434343, got=454545)
    counted = Counted(
        drafted=1, proposed=3, accepted=1, accepted_at=(1,), generated=3, steps=1, running=None, cached=None,
        prompted=None, preempted=None, faults=("reset at http://host",), raw={"series": "payload"},
    )  # fmt: skip
    here = replace(measured(told, mismatches=[parted]), counted=(counted,))
    text = counts.text([here], ["a secret name"])
    for private in ("secret", "feedbeef", "answer", "payload", "424242", "434343", "454545", "http"):
        assert private not in text
    (back,) = counts.measured(text.encode(), "f")
    assert len(back.counted[0].faults) == 1


def test_an_engines_own_sums_are_kept() -> None:
    sums = Counts(steps=4, committed=10, accepted=6, proposed=12, drafted=4)
    told = replace(record([], request="r0"), counts=sums, told="derived", tokens=11, output=())
    (back,) = again([measured(told)], ["r0"])
    assert back.records[0].counts == sums
    assert back.records[0].told == "derived"


GOOD = counts.text([measured(record([step(1)]), d=3, b=2, passes=[passed(verify=0.1, batch=2, d=3)])], ["r0"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"tokens":3', '"tokens":NaN', "counts.jsonl line 2 is not JSON: NaN is no finite number"),
        ('"sent":0.0', '"sent":1e999', "line 2 is not JSON: 1e999 is no finite number"),
        ('"tokens":3', '"tokens":-3', "line 2: tokens: Input should be greater than or equal to 0"),
        ('"tokens":3', '"tokens":3,"tokens":4', "line 2 is not JSON: key 'tokens' stands twice"),
        ('"turn":0', '"turn":0,"text":"hello"', "line 2: text: Unexpected keyword argument"),
        ('"category":"chat"', f'"category":"{"x" * 200}"', "line 2: category: String should have at most 120"),
        ('"turn":0', f'"turn":{"[" * 5000}', "line 2 is nested too deeply"),
        ('"turn":0', f'"turn":{"[" * 40}{"]" * 40}', "line 2 is nested too deeply; at most 32 levels are read"),
        ("]],", "]," * 2, "line 2 is not JSON"),
        (",1]]", ",1000001]]", "line 2: steps.0.3: Input should be less than or equal to 1000000"),
        ('"partly":0', '"partly":-1', "line 1: partly: Input should be greater"),
        ('{"cell"', '{"cel"', "line 1: a turn before its cell"),
        ("\n", "", "ends in the middle of a line; it was cut off"),
    ],
)  # fmt: skip
def test_a_hostile_line_is_refused_by_file_and_line(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=r"^counts\.jsonl") as caught:
        counts.measured(GOOD.replace(old, new).encode(), "counts.jsonl")
    assert said in str(caught.value)


def test_a_small_file_cannot_stand_for_more_steps_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_STEPS", 10)
    fine, bomb = GOOD.replace(",1]]", ",9]]"), GOOD.replace(",1]]", ",10]]")  # and one pass
    assert len(counts.measured(fine.encode(), "f")[0].records[0].steps) == 9
    with pytest.raises(UserError, match="f line 2: more than 10 steps and passes in one submission"):
        counts.measured(bomb.encode(), "f")
    with pytest.raises(UserError, match="f: more than 10 steps and passes in one submission"):
        counts.measured(GOOD.splitlines(keepends=True)[0].replace('"passes":1', '"passes":11').encode(), "f")


def test_a_cell_stands_once_and_a_batch_of_one_is_never_partly_full() -> None:
    with pytest.raises(UserError, match="a cell stands twice"):
        counts.measured((GOOD + GOOD).encode(), "f")
    alone = counts.text([measured(d=3, b=1)], []).replace('"partly":0', '"partly":2')
    with pytest.raises(UserError, match="ngram-d3-b1-r0: a batch of one is never partly full"):
        counts.measured(alone.encode(), "f")


def test_twenty_runs_of_passes_stand_for_all_of_them() -> None:
    made = [passed(verify=0.1 + i / 1000, draft=0.01, d=3) for i in range(45)]
    text = counts.text([measured(passes=made)], [])
    blocks = json.loads(text.splitlines()[0])["blocks"]
    assert [each["passes"] for each in blocks] == [3] * 5 + [2] * 15  # 45 = 5 · 3 + 15 · 2, as numpy splits
    assert sum(each["verify"] for each in blocks) == pytest.approx(45 * 0.1 + 990 / 1000)  # Σ i = 44 · 45 / 2
