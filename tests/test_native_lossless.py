"""Speculation changes no greedy answer: every drafter, draft length, batch, stop token, cap and context limit."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.native.decode import Decoder, cut
from speedbench.native.ngram import NGram
from speedbench.native.oracle import Oracle, Synthetic, schedule
from speedbench.native.proposer import Proposer
from speedbench.native.suffix import Suffix
from speedbench.native.target import Target
from speedbench.types import Pass

D = (1, 2, 3, 5, 8, 16)
CAP = 48
PROMPTS = [tiny.prompt(n) for n in tiny.LENGTHS]


@functools.cache
def made(kind: str = "llama") -> Any:
    return tiny.model(kind)


@functools.cache
def baseline(kind: str = "llama") -> tuple[list[int], ...]:
    """Plain greedy answers, whose closest call is far from rounding."""
    found = [tiny.plain(made(kind), ids, CAP) for ids in PROMPTS]
    assert min(gap for _, gap in found) > 1e-4
    return tuple(tokens for tokens, _ in found)


@functools.cache
def target(kind: str = "llama") -> Target:
    return tiny.as_is(made(kind)) if kind == "gpt_neox" else tiny.lean(made(kind))


@functools.cache
def drafting_model(name: str) -> Target:
    if name == "self":
        return tiny.lean(made())
    return tiny.lean(tiny.noisy(made(), 0.15)) if name == "noisy" else tiny.Wrong(tiny.lean(made()))


def drafter(name: str, shape: Any) -> Proposer:
    if name in ("self", "noisy", "always wrong"):
        return tiny.external(drafting_model(name), shape)
    if name == "ngram":
        return NGram(device=tiny.CPU, min_n=1, max_n=3)
    if name == "suffix":
        return Suffix(device=tiny.CPU)
    return Oracle(device=tiny.CPU)


# ---- equality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["self", "noisy", "always wrong", "ngram", "suffix", "oracle"])
@pytest.mark.parametrize("d", D)
def test_every_row_says_what_plain_greedy_says_alone_and_in_a_ragged_batch(name: str, d: int) -> None:
    shape = tiny.plan(d, rows=4)
    together = tiny.decoded(target(), drafter(name, shape), shape, PROMPTS, CAP, expected=baseline())
    for i, expected in enumerate(baseline()):
        one = tiny.plan(d)
        alone = tiny.decoded(target(), drafter(name, one), one, [PROMPTS[i]], CAP, expected=[expected])[0]
        assert alone.tokens == expected
        assert together[i].tokens == expected
        assert [(s.proposed, s.accepted, s.committed) for s in together[i].steps] == [
            (s.proposed, s.accepted, s.committed) for s in alone.steps
        ]
        if name == "always wrong":
            assert alone.acceptance_length == 1.0


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("d", [1, 4])
def test_a_model_in_transformers_own_form_is_as_lossless(d: int, static: bool) -> None:
    shape = tiny.plan(d, rows=4, static=static)
    own = tiny.external(tiny.as_is(made("gpt_neox")), shape)
    answers = tiny.decoded(target("gpt_neox"), own, shape, PROMPTS, CAP, width=1 + d if static else None)
    assert tuple(a.tokens for a in answers) == baseline("gpt_neox")


@pytest.mark.parametrize("name", ["self", "noisy", "ngram"])
@pytest.mark.parametrize("width", [4, 9])
def test_a_static_width_wider_than_the_drafts_changes_nothing(name: str, width: int) -> None:
    shape = tiny.plan(3, rows=4, static=True)
    passes: list[Pass] = []
    answers = tiny.decoded(target(), drafter(name, shape), shape, PROMPTS, CAP, width=width, passes=passes)
    assert tuple(a.tokens for a in answers) == baseline()
    assert {p.width for p in passes} == {width}


def test_rows_that_end_early_leave_the_others_alone() -> None:
    caps = [5, 1, CAP, 20]
    shape = tiny.plan(3, rows=4)
    answers = tiny.decoded(target(), drafter("noisy", shape), shape, PROMPTS, CAP, caps=caps)
    assert [a.tokens for a in answers] == [b[:n] for b, n in zip(baseline(), caps, strict=True)]


def test_the_first_token_of_prefill_is_nobodys_step() -> None:
    shape = tiny.plan(3)
    answer = tiny.decoded(target(), drafter("self", shape), shape, PROMPTS[:1], 9)[0]
    assert answer.commits == [4, 4]  # 1 + 4 + 4 = 9


# ---- known acceptance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", D)
def test_a_drafter_that_is_the_target_commits_one_more_than_d_every_full_step_over_200_tokens(d: int) -> None:
    shape = tiny.plan(d)
    answer = tiny.decoded(target(), drafter("self", shape), shape, PROMPTS[1:2], 201)[0]
    full, rest = divmod(200, d + 1)
    assert answer.commits == [d + 1] * full + [rest] * (rest > 0)
    assert [s.proposed for s in answer.steps] == [d] * full + [rest - 1] * (rest > 0)


def test_a_draft_wrong_at_position_j_commits_j_and_the_targets_own_token() -> None:
    wrong = {0: 0, 1: 2, 3: 1, 4: 3, 5: 4}
    scripted = tiny.Scripted(device=tiny.CPU, wrong=wrong)
    answer = tiny.decoded(target(), scripted, tiny.plan(5), PROMPTS[1:2], 40, expected=baseline()[1:2])[0]
    assert answer.tokens == baseline()[1][:40]
    assert answer.commits[:7] == [1, 3, 6, 2, 4, 5, 6]
    assert [s.accepted for s in answer.steps[:7]] == [0, 2, 5, 1, 3, 4, 5]


def test_a_drafter_that_was_not_asked_for_a_while_has_missed_nothing() -> None:
    """Draft lengths 3, 3, 0, 0, 0, 3, 3 with the target as its own drafter commit 4, 4, 1, 1, 1, 4, 4."""
    lengths = [3, 3, 0, 0, 0, 3, 3]

    def change(decoder: Decoder, step: int) -> None:
        from dataclasses import replace

        decoder.plan = replace(decoder.plan, draft_length=lengths[step])

    shape = tiny.plan(3, rows=2)
    answers = tiny.decoded(target(), drafter("self", shape), shape, PROMPTS[:2], 20, before_step=change)
    for answer, expected in zip(answers, baseline(), strict=False):
        assert answer.commits == [4, 4, 1, 1, 1, 4, 4]
        assert answer.tokens == expected[:20]


# ---- where an answer ends ------------------------------------------------------------------------------------------


def test_a_row_that_sits_out_while_its_neighbour_drafts_has_missed_nothing() -> None:
    shape = tiny.plan(3, rows=2)
    own = tiny.external(drafting_model("self"), shape)
    asked = own.propose
    turns = [[3, 0], [3, 0], [0, 3], [3, 3], [0, 3], [3, 3], [3, 3]]
    own.propose = lambda batch, room: asked(batch, [min(r, t) for r, t in zip(room, turns.pop(0), strict=True)])  # type: ignore[method-assign]
    answers = tiny.decoded(target(), own, shape, PROMPTS[1:3], 20)
    assert [a.tokens for a in answers] == [b[:20] for b in baseline()[1:3]]
    assert [a.commits for a in answers] == [[4, 4, 1, 4, 1, 4, 1], [1, 1, 4, 4, 4, 4, 1]]


@pytest.mark.parametrize("d", D)
@pytest.mark.parametrize("name", ["self", "noisy"])
def test_whichever_token_ends_the_answer_it_ends_there(name: str, d: int) -> None:
    """Each output index in turn is declared the end; all rows share the stop set, so each has its own first stop."""
    for index in range(0, 24):
        stop = baseline()[1][index]
        shape = tiny.plan(d, rows=2, stops=frozenset({stop}))
        answers = tiny.decoded(target(), drafter(name, shape), shape, PROMPTS[1:3], 24)
        for answer, expected in zip(answers, baseline()[1:3], strict=True):
            whole = expected[:24]
            ends = whole[: whole.index(stop) + 1] if stop in whole else whole
            assert answer.tokens == ends
            assert answer.finish == ("stop" if stop in whole else "length")
            assert 1 + sum(answer.commits) == len(ends)


def test_two_end_tokens_both_end_it() -> None:
    first, second = baseline()[1][4], baseline()[1][9]
    shape = tiny.plan(4, stops=frozenset({first, second}))
    answer = tiny.decoded(target(), drafter("self", shape), shape, PROMPTS[1:2], 24)[0]
    whole = baseline()[1]
    assert answer.tokens == whole[: min(whole.index(first), whole.index(second)) + 1]


@pytest.mark.parametrize("name", ["self", "noisy", "always wrong", "ngram", "oracle"])
@pytest.mark.parametrize("cap", [1, 2, 3, 12])
def test_a_draft_length_beyond_the_budget_proposes_only_what_can_be_used(name: str, cap: int) -> None:
    shape = tiny.plan(16)
    answer = tiny.decoded(target(), drafter(name, shape), shape, PROMPTS[3:], cap, expected=[baseline()[3]])[0]
    assert answer.tokens == baseline()[3][:cap]
    left = cap - 1
    for step in answer.steps:
        assert step.proposed is not None
        assert step.proposed <= left - 1
        left -= step.committed
    assert left == 0


def test_eight_drafts_and_twelve_tokens_propose_eight_then_one() -> None:
    shape = tiny.plan(8)
    answer = tiny.decoded(target(), drafter("self", shape), shape, PROMPTS[:1], 12)[0]
    assert [(s.proposed, s.accepted, s.committed) for s in answer.steps] == [(8, 8, 9), (1, 1, 2)]


@pytest.mark.parametrize("form", [tiny.lean, tiny.as_is])
@pytest.mark.parametrize("width", [None, 17])
@pytest.mark.parametrize("d", [1, 4, 16])
def test_no_position_passes_the_models_limit(form: Any, width: int | None, d: int) -> None:
    """40 positions, prompts of 30 and 9, 10 tokens: the longer row fills the model to the brim."""
    limited = tiny.model(max_position_embeddings=40)
    prompts = [PROMPTS[3], PROMPTS[1]]
    expected = [tiny.plain(limited, ids, 10)[0] for ids in prompts]
    shape = tiny.plan(d, rows=2, length=64, static=width is not None)
    spy = tiny.Spy(form(limited))
    own = tiny.external(form(limited), shape)
    answers = tiny.decoded(spy, own, shape, prompts, 10, width=width)
    assert [a.tokens for a in answers] == expected
    assert max(int(p.max()) for p in spy.positions) <= 39


def test_a_stop_inside_the_budget_beats_the_length() -> None:
    assert cut([10, 11, 2, 20, 21, 22], 5, frozenset({2})) == ([10, 11, 2], "stop")
    assert cut([10, 11, 12, 20, 21, 2], 5, frozenset({2})) == ([10, 11, 12, 20, 21], "length")
    assert cut([10, 11, 12, 20, 2], 5, frozenset({2})) == ([10, 11, 12, 20, 2], "stop")
    assert cut([10, 11], 5, frozenset()) == ([10, 11], None)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 9), st.frozensets(st.integers(0, 9)))
def test_what_is_cut_is_a_prefix_within_the_budget_with_no_stop_before_its_end(
    tokens: list[int], room: int, stops: frozenset[int]
) -> None:
    kept, finish = cut(tokens, room, stops)
    assert kept == tokens[: len(kept)]
    assert 1 <= len(kept) <= room
    assert not stops.intersection(kept[:-1])
    assert (finish == "stop") == (kept[-1] in stops)
    assert (finish is None) == (kept == tokens and len(kept) < room and kept[-1] not in stops)


# ---- replayed answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", D)
def test_the_oracle_is_always_right(d: int) -> None:
    shape = tiny.plan(d)
    answer = tiny.decoded(target(), Oracle(device=tiny.CPU), shape, PROMPTS[:1], CAP, expected=baseline()[:1])[0]
    assert all(c == d + 1 for c in answer.commits[:-1])
    assert answer.tokens == baseline()[0]


def test_an_oracle_whose_row_went_elsewhere_proposes_nothing() -> None:
    expected = [[t + 1 for t in baseline()[0]]]
    answer = tiny.decoded(target(), Oracle(device=tiny.CPU), tiny.plan(4), PROMPTS[:1], 12, expected=expected)[0]
    assert answer.tokens == baseline()[0][:12]
    assert [s.proposed for s in answer.steps] == [0] * 11


def test_the_least_variance_schedule_of_a_mean_of_3_78() -> None:
    assert schedule(7, None, 3.78) == pytest.approx((1, 1, 0.78, 0, 0, 0, 0))
    assert schedule(3, 0.5, None) == (0.5, 0.5, 0.5)
    assert schedule(2, None, None) == (0.7, 0.7)


@pytest.mark.parametrize(
    ("rates", "mean"), [((1.0, 1.0, 0.0, 0.0), 3.0), ((0.0,) * 4, 1.0), ((1.0,) * 4, 5.0), ((1.0, 0.5, 0.0), 2.5)]
)
def test_forced_acceptance_forces_the_acceptance_length_and_not_the_answer(
    rates: tuple[float, ...], mean: float
) -> None:
    d = len(rates)
    ids = PROMPTS[1]
    long, _ = tiny.plain(made(), ids, 241)
    forced = Synthetic(device=tiny.CPU, rates=rates, vocab=64)
    answer = tiny.decoded(target(), forced, tiny.plan(d), [ids], 241, expected=[long])[0]
    assert answer.tokens == long
    assert sum(answer.commits[:-1]) / len(answer.steps[:-1]) == pytest.approx(mean, abs=0 if 0.5 not in rates else 0.15)


# ---- any pattern of acceptance -------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.integers(0, 30), st.integers(0, 5)), st.sampled_from([1, 2, 5]), st.booleans())
def test_any_pattern_of_wrong_drafts_leaves_the_answer(wrong: dict[int, int], d: int, transformers: bool) -> None:
    scripted = tiny.Scripted(device=tiny.CPU, wrong=wrong)
    model = tiny.as_is(made()) if transformers else target()
    answer = tiny.decoded(model, scripted, tiny.plan(d), PROMPTS[2:3], 24, expected=[baseline()[2]])[0]
    assert answer.tokens == baseline()[2][:24]
    for index, step in enumerate(answer.steps):
        assert step.proposed is not None
        at = wrong.get(index, d)
        assert step.accepted == min(at, step.proposed)


# ---- what a drafter is told ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tiny.lean, tiny.as_is])
def test_the_features_given_to_commit_are_the_targets_hidden_states_of_the_accepted_positions(form: Any) -> None:
    """A tap is transformers' index: 0 the embeddings, 2 the state after the last norm of a two-layer model."""
    ids, expected = PROMPTS[1], baseline()[1]
    scripted = tiny.Scripted(device=tiny.CPU, wrong={0: 1, 2: 0, 3: 3}, taps=(0, 1, 2))
    tiny.decoded(form(made()), scripted, tiny.plan(4), [ids], 20, expected=[expected])
    with torch.inference_mode():
        true = made()(torch.tensor([ids + expected[:20]]), output_hidden_states=True).hidden_states
    for tap in (0, 1, 2):
        torch.testing.assert_close(scripted.first[0][tap][0], true[tap][0, : len(ids)], atol=1e-5, rtol=1e-5)
        known = len(ids)
        for seen, (length, accepted) in zip(scripted.seen, scripted.spans[1:], strict=True):
            real = min(accepted + 1, len(ids) + 20 - known)
            torch.testing.assert_close(seen[tap][0, :real], true[tap][0, known : known + real], atol=1e-5, rtol=1e-5)
            known = length - 1


# ---- sixteen bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_at_one_static_width_sixteen_bits_flip_no_near_tie_wherever_a_row_stands(dtype: torch.dtype, rows: int) -> None:
    """`exact`: every D, the baseline too, runs at the width of the largest, and each row multiplies alike."""
    small = tiny.lean(tiny.model(dtype=dtype))
    base = tiny.plan(0, rows=rows, length=96, static=True)
    expected = {i: tiny.decoded(small, None, base, [PROMPTS[i]], CAP, width=6)[0].tokens for i in range(4)}
    for d, order in ((1, [0, 1, 2, 3]), (2, [3, 1, 0, 2]), (5, [2, 3, 1, 0])):
        shape = tiny.plan(d, rows=rows, length=96, static=True)
        for at in range(0, 4, rows):
            batch = order[at : at + rows]
            answers = [expected[i] for i in batch]
            forced = Synthetic(device=tiny.CPU, rates=(0.6,) * d, vocab=64)
            found = tiny.decoded(small, forced, shape, [PROMPTS[i] for i in batch], CAP, width=6, expected=answers)
            assert [a.tokens for a in found] == answers
