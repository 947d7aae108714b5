"""Replayed steps are the running engine's, step for step, for every drafter and every D."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from typing import Any

import blocks
import pytest
import scripted_target as st
import serial_heads
import tiny

from speedbench.errors import UserError
from speedbench.native import dspark
from speedbench.native.dflash import DFlash
from speedbench.native.ngram import NGram
from speedbench.native.oracle import Oracle
from speedbench.native.proposer import Plan, Proposer
from speedbench.native.replay.forced import Stage
from speedbench.native.replay.routes import labeller
from speedbench.native.suffix import Suffix
from speedbench.native.target import Target
from speedbench.types import Answer, Chances, Matches, Table

D = range(1, 9)
CAP = 26
PROMPT = tiny.prompt(9)
KEPT = blocks.KEPT


@functools.cache
def two() -> Target:
    return tiny.lean(tiny.exact(tiny.model()))


def _serial(mechanism: str, **given: Any) -> st.Build:
    reduced = given.pop("reduced", False)
    vocab = {"vocab": len(KEPT)} if reduced else {}
    d2t = [token - i for i, token in enumerate(KEPT)] if reduced else None
    head = serial_heads.random(serial_heads.spec(mechanism, **vocab, **given), d2t=d2t)
    return lambda target, shape: serial_heads.serial(head, target, shape)


def _block(short: bool = False, threshold: float = 0.0, **given: Any) -> st.Build:
    head = blocks.head_of(**{"block": 9, "anchor_predicts": True, **given})

    def build(target: Target, shape: Plan) -> Proposer:
        block = "short" if short else "trained"
        if head.spec.mechanism == "dspark":
            return dspark.of(head, shape, target, block=block, threshold=threshold)
        return DFlash(head, shape, target, block=block)

    return build


MARKOV = {"mechanism": "dspark", "markov_rank": 6}
DRAFTERS: dict[str, tuple[Any, st.Build]] = {
    "ngram": (two, lambda target, shape: NGram(device=tiny.CPU, min_n=1, max_n=3)),
    "ngram latest": (two, lambda target, shape: NGram(device=tiny.CPU, min_n=2, max_n=3, latest=True)),
    "suffix": (two, lambda target, shape: Suffix(device=tiny.CPU)),
    "external": (two, lambda target, shape: tiny.external(two(), shape)),
    "external, short context": (two, lambda target, shape: tiny.external(two(), shape, shared=40, length=27)),
    "eagle3": (two, _serial("eagle3")),
    "eagle3, reduced, two layers": (two, _serial("eagle3", reduced=True, layers=2, norm_before_residual=True)),
    "eagle3, short context": (two, _serial("eagle3", context=24)),
    "mtp": (two, _serial("mtp", zero_first_embedding=True)),
    "dflash": (blocks.target, _block()),
    "dflash, slot 0 dropped": (blocks.target, _block(anchor_predicts=False)),
    "dflash, causal": (blocks.target, _block(causal=True)),
    "dflash, short": (blocks.target, _block(short=True)),
    "dflash, short context": (blocks.target, _block(context=28)),
    "dspark": (blocks.target, _block(**MARKOV, markov="vanilla")),
    "dspark, reduced": (blocks.target, _block(**MARKOV, markov="gated", kept=KEPT)),
    "dspark, rnn": (blocks.target, _block(**MARKOV, markov="rnn", anchor_predicts=False)),
    "dspark, short": (blocks.target, _block(**MARKOV, markov="vanilla", short=True)),
    "dspark, cut": (
        blocks.target,
        _block(**MARKOV, markov="vanilla", confidence=True, confidence_reads_markov=True, threshold=0.4),
    ),
}


LOOKUPS = ("ngram", "ngram latest", "suffix")


@functools.cache
def row(name: str) -> list[int]:
    """A row that the drafter is often right about, longer than any answer so that a target can go on."""
    target, build = DRAFTERS[name]
    return st.script(target(), build, PROMPT, 8, CAP + 12, words=4 if name in LOOKUPS else 64)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_step_at_every_d_is_the_running_engines(name: str) -> None:
    target, build = DRAFTERS[name]
    asked = st.answer(row(name), len(PROMPT), CAP)
    found = st.replayed(row(name), target(), build, asked, D)
    for d in D:
        right = st.measured(row(name), target(), build, len(PROMPT), d, CAP)
        assert st.shown(found[d].steps) == st.shown(right), f"D = {d}"
    if "context" not in name:
        assert sum(step.accepted or 0 for step in found[8].steps) >= 5, "the test would pass with no draft right"


DEEP = range(9, 17)


@pytest.mark.parametrize("name", ["ngram", "suffix", "external", "eagle3", "mtp"])
def test_every_step_at_d_of_nine_to_sixteen_is_the_running_engines(name: str) -> None:
    target, build = DRAFTERS[name]
    whole = st.script(target(), build, PROMPT, 16, 64, words=3 if name in LOOKUPS else 64, right=0.97)
    asked = st.answer(whole, len(PROMPT), 44)
    found = st.replayed(whole, target(), build, asked, DEEP)
    for d in DEEP:
        right = st.measured(whole, target(), build, len(PROMPT), d, 44)
        assert st.shown(found[d].steps) == st.shown(right), f"D = {d}"
    assert any((step.accepted or 0) > 10 for step in found[16].steps), "no proposal was right that far"


@functools.cache
def ragged(name: str) -> tuple[list[list[int]], list[Answer]]:
    """Rows that a target says and answers cut out of them: of several lengths, one that stops, one of a single token,
    one whose prompt is longer than the short contexts."""
    whole = row(name)
    other = [*tiny.prompt(4), *whole[len(PROMPT) + 1 :]]
    cut = [(whole, 9, CAP, {}), (whole, 33, 12, {}), (other, 4, 20, {other[17]}), (whole, 9, 1, {}), (whole, 18, 9, {})]
    return [script for script, *_ in cut], [st.answer(*each[:3], frozenset(each[3]), i) for i, each in enumerate(cut)]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 2.0, "top_k": 24}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_answers_labelled_at_once_have_the_tables_of_each_alone(name: str, sampling: dict[str, Any]) -> None:
    if sampling and name in LOOKUPS:
        return
    (target, build), (rows, asked) = DRAFTERS[name], ragged(name)
    told = rows if not sampling else []
    alone = [st.labelled(told[i : i + 1], target(), build, [each], D, **sampling)[0] for i, each in enumerate(asked)]
    for at_once in (2, len(asked)):
        if told and at_once < len(asked):
            continue  # a told target knows its rows by their places in one batch
        found = st.labelled(told, target(), build, asked, D, at_once, **sampling)
        for one, other in zip(alone, found, strict=True):
            assert one.keys() == other.keys()
            for key in one:
                same(one[key], other[key])
    if not sampling:
        assert sum(sum(table.matched) for each in alone for table in each.values() if isinstance(table, Matches)) > 9


def same(one: Table, other: Table) -> None:
    if isinstance(one, Chances):
        assert isinstance(other, Chances)
        assert one.offered == other.offered
        for a, b in zip((*one.target, *one.drafter), (*other.target, *other.drafter), strict=True):
            assert a == pytest.approx(b, abs=1e-5)
    else:
        assert one == other


def test_a_row_that_begins_like_the_one_before_is_not_run_again() -> None:
    """The first feeds 9 + 20 - 1 = 28 tokens, in two chunks because judging begins with the 9th. The second's prompt is
    that whole row and 4 tokens more, its answer 6: of 33 + 6 - 1 = 38 the last 10 are fed."""
    target, build = DRAFTERS["eagle3"]
    whole = row("eagle3")
    turns = [st.answer(whole, 9, 20), st.answer(whole, 33, 6, turn=1)]
    spy = tiny.Spy(st.Told(target(), whole))  # type: ignore[arg-type]
    found = st.labelled([], spy, build, turns, D)
    assert [int(seen.numel()) for seen in spy.positions] == [8, 20, 4, 6]
    assert found[1] == st.labelled([whole], target(), build, turns[1:], D)[0]


def test_tokens_that_the_target_would_not_say_are_counted_by_their_positions() -> None:
    """The target's own greedy output with tokens 1, 6 and 7 replaced; those that follow are judged given these."""
    made = tiny.model()
    said, _ = tiny.plain(made, PROMPT, 12)
    said[0], said[5], said[6] = (said[0] + 1) % 64, (said[5] + 1) % 64, (said[6] + 1) % 64
    right = tiny.judged(made, [*PROMPT, *said])[len(PROMPT) - 1 :]
    off = tuple(i for i, (a, b) in enumerate(zip(said, right, strict=False)) if a != b)
    assert {0, 5} <= set(off) < set(range(12))
    asked = [st.answer([*PROMPT, *said], len(PROMPT), 12), st.answer([*PROMPT, *said], len(PROMPT), 3)]
    stage = Stage(two(), 30, 4, tiny.plan(4).sampling, 2)
    shape = tiny.plan(4, rows=2)
    plain = labeller("ngram", NGram(device=tiny.CPU), stage, [4])
    plain.tables(asked)
    assert stage.differing(asked) == [None, None], "nobody needed the target"
    labeller("eagle3", DRAFTERS["eagle3"][1](two(), shape), stage, [4]).tables(asked[::-1])
    assert stage.differing(asked[::-1]) == [tuple(i for i in off if i < 3), off]


STOPPING = ("ngram", "suffix", "external", "eagle3", "mtp", "dflash", "dspark", "dspark, cut")


@pytest.mark.parametrize("name", STOPPING)
def test_an_answer_that_stops_within_a_proposal_counts_what_was_accepted_behind_it(name: str) -> None:
    """Stop tokens are looked for where a step at D = 8 goes on behind them, as an engine does."""
    target, build = DRAFTERS[name]
    whole, beyond = row(name), 0
    for at in range(len(PROMPT) + 8, len(PROMPT) + CAP - 4, 4):
        stops = frozenset({whole[at]})
        asked = st.answer(whole, len(PROMPT), CAP, stops)
        found = st.replayed(whole, target(), build, asked, [1, 4, 8])
        for d in (1, 4, 8):
            right = st.measured(whole, target(), build, len(PROMPT), d, CAP, stops)
            assert st.shown(found[d].steps) == st.shown(right), f"stop {stops}, D = {d}"
            beyond += any(step.committed <= (step.accepted or 0) - 1 for step in found[d].steps)
    if name in ("external", "dflash", "dspark", "eagle3", "mtp"):
        assert beyond, "no step went on behind its stop token"


def test_a_tree_over_earlier_answers_is_replayed_in_the_order_of_requests() -> None:
    """Two rows one after the other, the second much like the first, which the tree over answers has seen."""
    first = row("suffix")
    second = [*tiny.prompt(5), *first[len(PROMPT) + 4 :]]
    shapes = ((first, len(PROMPT)), (second, 5))
    for d in (1, 3, 8):
        plan = tiny.plan(d)
        running = Suffix(device=tiny.CPU, max_cached_requests=-1, stateful=True)
        replaying = Suffix(device=tiny.CPU, max_cached_requests=-1, stateful=True)
        one = labeller("suffix", replaying, Stage(two(), 80, d, plan.sampling), [d])
        assert one.stateful
        for whole, size in shapes:
            right = tiny.decoded(st.Told(two(), whole), running, plan, [whole[:size]], 22)[0]  # type: ignore[arg-type]
            asked = st.answer(whole, size, 22)
            found = st.record(asked, one.tables([asked])[0][d], d)
            assert st.shown(found.steps) == st.shown(right.steps)
        assert sum(step.accepted or 0 for step in found.steps) > 4


def test_what_replays_the_answer_or_has_no_route_is_refused_by_name() -> None:
    stage = Stage(two(), 40, 4, tiny.plan(4).sampling)
    with pytest.raises(UserError, match="'oracle' replays the answer itself"):
        labeller("oracle", Oracle(device=tiny.CPU), stage, [4])

    class Remembers(DFlash):
        stateful = True

    head = blocks.head_of()
    with pytest.raises(UserError, match="'odd' cannot be replayed: its proposals depend on more than"):
        labeller("odd", Remembers(head, tiny.plan(4), blocks.target()), stage, [4])

    class Another:
        stateful = depends_on_block_length = False

    with pytest.raises(UserError, match="'new' cannot be replayed: nobody has written how a Another runs"):
        labeller("new", Another(), stage, [4])  # type: ignore[arg-type]
