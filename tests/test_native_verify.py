"""Verification rules against their tables, and sampled answers against the target's own distribution."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from speedbench.native.ngram import NGram
from speedbench.native.proposer import Draft, LookUp, Proposer, Row
from speedbench.native.verify import draw, greedy, probabilities, rejection, relaxed
from speedbench.types import Sampling

P, Q = [0.3, 0.5, 0.2], [0.6, 0.3, 0.1]


def row(*values: Sequence[float]) -> Tensor:
    return torch.tensor([list(values)])


def one(length: int) -> Tensor:
    return torch.tensor([length])


# ---- greedy --------------------------------------------------------------------------------------------------------


def test_drafts_are_accepted_up_to_the_first_that_is_not_the_argmax() -> None:
    logits = row([0, 9, 0], [0, 0, 9], [9, 0, 0], [0, 9, 0])
    for drafts, expected in (([1, 2, 0], (3, 1)), ([1, 2, 1], (2, 0)), ([0, 2, 0], (0, 1)), ([1, 0, 0], (1, 2))):
        accepted, added = greedy(logits, torch.tensor([drafts]), one(3))
        assert (int(accepted), int(added)) == expected


def test_padding_is_never_accepted_though_it_match() -> None:
    logits = row([9, 0, 0], [9, 0, 0], [9, 0, 0])
    accepted, added = greedy(logits, torch.tensor([[0, 0]]), one(1))
    assert (int(accepted), int(added)) == (1, 0)
    accepted, added = greedy(logits[:, :1], torch.zeros(1, 0, dtype=torch.int64), one(0))
    assert (int(accepted), int(added)) == (0, 0)


# ---- relaxed -------------------------------------------------------------------------------------------------------


def test_relaxed_takes_a_draft_of_the_top_k_within_delta_of_the_best_and_adds_the_argmax() -> None:
    logits = torch.tensor([[[0.5, 0.3, 0.15, 0.05]] * 2]).log()
    for draft, top_k, delta, expected in (
        (0, 1, 0.0, 1),  # the argmax itself
        (1, 1, 1.0, 0),  # not among the best one
        (1, 2, 0.1, 0),  # 0.3 < 0.5 - 0.1
        (1, 2, 0.25, 1),  # 0.3 >= 0.5 - 0.25
        (2, 2, 1.0, 0),  # third of two
        (2, 3, 0.4, 1),
        (3, 4, 0.4, 0),
    ):
        accepted, added = relaxed(logits, torch.tensor([[draft]]), one(1), top_k, delta)
        assert (int(accepted), int(added)) == (expected, 0)


def test_relaxed_with_more_candidates_than_the_vocabulary_has_takes_them_all() -> None:
    accepted, _ = relaxed(torch.zeros(1, 2, 3), torch.tensor([[2]]), one(1), 10, 1.0)
    assert int(accepted) == 1


def test_relaxed_accepts_more_and_so_is_not_lossless() -> None:
    made = tiny.model()
    ids = tiny.prompt(9)
    shape = tiny.plan(4)
    expected, _ = tiny.plain(made, ids, 40)
    noisy = tiny.lean(tiny.noisy(made, 0.15))
    strict = tiny.decoded(tiny.lean(made), tiny.external(noisy, shape), shape, [ids], 40)[0]
    loose = tiny.decoded(tiny.lean(made), tiny.external(noisy, shape), shape, [ids], 40, lossy=(10, 0.9))[0]
    assert strict.tokens == expected
    assert loose.tokens != expected
    assert loose.acceptance_length > strict.acceptance_length


# ---- rejection -----------------------------------------------------------------------------------------------------


def outcomes(q: Sequence[float] | None, count: int = 60_000) -> tuple[float, list[float]]:
    """Share of drafts accepted, and the distribution of the first token, where the target's table is P."""
    rng = np.random.default_rng(3)
    p = torch.tensor(P).expand(count, 2, 3)
    table = None if q is None else torch.tensor(q).expand(count, 1, 3)
    drafts = torch.from_numpy(rng.choice(3, size=(count, 1), p=q or [1, 0, 0]))
    uniform = torch.from_numpy(rng.random((count, 2)))
    accepted, added = rejection(p, drafts, torch.ones(count, dtype=torch.int64), table, uniform)
    first = torch.where(accepted > 0, drafts[:, 0], added)
    return float(accepted.double().mean()), [float((first == t).double().mean()) for t in range(3)]


def test_a_sampled_draft_is_accepted_as_often_as_the_tables_overlap() -> None:
    """Σ min(p, q) = .3 + .3 + .1 = .70; the accept-if-equal rule would give Σ pq = .35."""
    rate, first = outcomes(Q)
    assert rate == pytest.approx(0.70, abs=0.01)
    assert first == pytest.approx(P, abs=0.01)


def test_a_deterministic_draft_is_accepted_as_often_as_the_target_would_say_it() -> None:
    rate, first = outcomes(None)
    assert rate == pytest.approx(P[0], abs=0.01)
    assert first == pytest.approx(P, abs=0.01)


def test_equal_tables_accept_everything() -> None:
    rate, first = outcomes(P)
    assert rate == 1.0
    assert first == pytest.approx(P, abs=0.01)


def test_one_hot_tables_accept_the_one_and_replace_the_other() -> None:
    p = row([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    for q in (None, row([0.0, 1.0, 0.0])):
        accepted, added = rejection(p, torch.tensor([[1]]), one(1), q, torch.tensor([[0.999, 0.5]]))
        assert (int(accepted), int(added)) == (1, 2)
    for q in (None, row([1.0, 0.0, 0.0])):
        accepted, added = rejection(p, torch.tensor([[0]]), one(1), q, torch.tensor([[0.0, 0.5]]))
        assert (int(accepted), int(added)) == (0, 1)


def test_a_row_without_drafts_draws_from_the_target_beside_one_with_drafts() -> None:
    p = torch.tensor([[P, P], [P, P]])
    q = torch.tensor([[Q], [Q]])
    accepted, added = rejection(p, torch.tensor([[0], [0]]), torch.tensor([1, 0]), q, torch.full((2, 2), 0.4))
    assert accepted.tolist() == [1, 0]
    assert added.tolist() == [1, 1]  # 0.4 of P stands in token 1


# ---- draw and probabilities ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.1, 0.25, 1.0, 3.0]), min_size=1, max_size=12).filter(any),
    st.one_of(st.sampled_from([0.0, 0.5, 1 - 2**-53]), st.floats(0, 1, exclude_max=True)),
)
def test_a_token_of_no_weight_is_never_drawn(weights: list[float], uniform: float) -> None:
    index = int(draw(torch.tensor([weights]), torch.tensor([uniform], dtype=torch.float64)))
    assert weights[index] > 0


def test_draws_follow_the_weights_which_need_not_sum_to_one() -> None:
    weights = torch.tensor([[2.0, 0.0, 1.0, 1.0]]).expand(4, 4)
    assert draw(weights, torch.tensor([0.0, 0.49, 0.51, 0.99])).tolist() == [0, 0, 2, 3]


def test_temperature_top_k_and_top_p_apply_in_that_order() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()

    def seen(**more: Any) -> list[float]:
        return [round(x, 4) for x in probabilities(logits, Sampling(**{"temperature": 1.0, **more})).tolist()]

    assert seen() == [0.5, 0.25, 0.15, 0.1]
    assert seen(temperature=0.5) == [0.7246, 0.1812, 0.0652, 0.029]  # squares: .25 .0625 .0225 .01 of .345
    assert seen(top_k=2) == [0.6667, 0.3333, 0, 0]
    assert seen(top_k=9) == [0.5, 0.25, 0.15, 0.1]
    assert seen(top_p=0.6) == [0.6667, 0.3333, 0, 0]  # the token that crosses 0.6 stays
    assert seen(top_p=0.5) == [1, 0, 0, 0]
    assert seen(top_p=1e-9) == [1, 0, 0, 0]
    assert seen(top_k=3, top_p=0.8) == [0.6667, 0.3333, 0, 0]  # of the three .5556 + .2778 reach 0.8
    assert seen(top_p=1.0) == [0.5, 0.25, 0.15, 0.1]


# ---- sampled answers -----------------------------------------------------------------------------------------------

VOCAB = 12
RUNS = 1500
ROWS = 500
IDS = [2, 1, 6, 2, 9, 2, 6, 5, 1, 2]
SAMPLERS = {
    "T=1": Sampling(temperature=1.0),
    "T=0.5": Sampling(temperature=0.5),
    "top-k": Sampling(temperature=1.0, top_k=4),
    "top-p": Sampling(temperature=1.0, top_p=0.8),
    "both at T=0.5": Sampling(temperature=0.5, top_k=6, top_p=0.9),
}


LIKELY = 6
"""A token that the target says often."""


@functools.cache
def made() -> Any:
    return tiny.model(vocab_size=VOCAB, seed=5)


@functools.cache
def sampled_drafter() -> Any:
    return tiny.lean(tiny.noisy(made(), 0.6))


class Fixed(LookUp):
    """Deterministic drafts: after a token always the same, which the target says now and then."""

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        return [LIKELY, LIKELY, (row.ids[-1] + 5) % VOCAB][:room]


class Part(LookUp):
    """Proposes a different number of tokens from step to step, none at times."""

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        return [LIKELY, 5, LIKELY][: min(room, row.ids[-1] % 4)]


def proposer(name: str, shape: Any) -> Proposer | None:
    if name == "external":
        return tiny.external(sampled_drafter(), shape)
    if name == "ngram":
        return NGram(device=tiny.CPU, min_n=1)
    return {"fixed": Fixed, "varying": Part}[name](device=tiny.CPU)


def truth(sampling: Sampling, count: int) -> dict[tuple[int, ...], float]:
    """Exact probability of every answer of `count` tokens, from transformers' own forward."""
    found = {(): 1.0}
    for _ in range(count):
        prefixes = list(found)
        with torch.inference_mode():
            logits = made()(torch.tensor([IDS + list(p) for p in prefixes])).logits[:, -1]
        table = probabilities(logits, sampling).double()
        found = {
            (*prefix, t): found[prefix] * float(table[i, t])
            for i, prefix in enumerate(prefixes)
            for t in range(VOCAB)
            if table[i, t] > 0
        }
    return found


def pvalue(seen: Counter[tuple[int, ...]], exact: dict[tuple[int, ...], float], runs: int) -> float:
    """Chi-square of what was seen, outcomes expected fewer than five times taken together."""
    assert set(seen) <= set(exact), "an answer came that the target cannot give"
    often = [k for k, p in exact.items() if p * runs >= 5]
    rare = sum(p for k, p in exact.items() if p * runs < 5)
    observed = [seen[k] for k in often]
    expected = [exact[k] * runs for k in often]
    if rare * runs >= 5:
        observed.append(runs - sum(observed))
        expected.append(rare * runs)
    expected = [e * sum(observed) / sum(expected) for e in expected]
    return float(chisquare(observed, expected).pvalue)


@pytest.mark.parametrize(
    ("name", "sampler"),
    [*(("external", s) for s in SAMPLERS), *(("fixed", s) for s in SAMPLERS), ("ngram", "T=1"), ("varying", "top-p")],
)
def test_sampled_answers_have_the_targets_distribution(name: str, sampler: str) -> None:
    """The first three tokens of 1500 answers: 5 to 1700 outcomes."""
    sampling = SAMPLERS[sampler]
    exact = truth(sampling, 3)
    shape = tiny.plan(3, rows=ROWS, length=24, sampling=sampling)
    seen: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for batch in range(RUNS // ROWS):
        answers = tiny.decoded(target(), proposer(name, shape), shape, [IDS] * ROWS, 4, seed=batch)
        seen.update(tuple(a.tokens[:3]) for a in answers)
        accepted += sum(s.accepted or 0 for a in answers for s in a.steps)
    assert accepted > RUNS / 20
    assert pvalue(seen, exact, RUNS) > 0.001


@functools.cache
def target() -> Any:
    return tiny.lean(made())


@pytest.mark.parametrize("name", ["external", "ngram", "varying"])
def test_the_same_seed_says_the_same_and_another_does_not(name: str) -> None:
    sampling = Sampling(temperature=1.0)
    shape = tiny.plan(3, sampling=sampling)
    first, again, other = (
        tiny.decoded(target(), proposer(name, shape), shape, [IDS], 40, seed=seed)[0] for seed in (7, 7, 8)
    )
    assert first.tokens == again.tokens
    assert [s.accepted for s in first.steps] == [s.accepted for s in again.steps]
    assert first.tokens != other.tokens


@pytest.mark.parametrize("name", ["external", "ngram", "varying"])
@pytest.mark.parametrize("d", [2, 3])
def test_a_rows_luck_is_its_own_whatever_shares_its_batch(name: str, d: int) -> None:
    sampling = Sampling(temperature=1.0)
    prompts = [tiny.prompt(n, VOCAB) for n in tiny.LENGTHS]
    caps = [23, 40, 31, 36]
    shape = tiny.plan(d, rows=4, sampling=sampling)
    together = tiny.decoded(target(), proposer(name, shape), shape, prompts, 40, caps=caps)
    for i in range(4):
        one = tiny.plan(d, sampling=sampling)
        alone = tiny.decoded(target(), proposer(name, one), one, [prompts[i]], 40, caps=[caps[i]], keys=[i])[0]
        assert alone.tokens == together[i].tokens
        assert alone.commits == together[i].commits


def test_a_drafter_of_fewer_ids_than_the_target_keeps_the_distribution() -> None:
    """Ten of the twelve ids are shared: the drafter never says the last two, the target still does."""
    sampling = Sampling(temperature=1.0)
    exact = truth(sampling, 2)
    shape = tiny.plan(2, rows=ROWS, length=24, sampling=sampling)
    seen: Counter[tuple[int, ...]] = Counter()
    for batch in range(RUNS // ROWS):
        own = tiny.external(sampled_drafter(), shape, shared=10)
        seen.update(tuple(a.tokens[:2]) for a in tiny.decoded(target(), own, shape, [IDS] * ROWS, 4, seed=batch))
    assert any(t >= 10 for answer in seen for t in answer)
    assert pvalue(seen, exact, RUNS) > 0.001


def test_a_draft_is_proposed_no_more_often_than_told() -> None:
    """The row that has no drafts in a pass of others is a plain step: none proposed, one committed."""

    class Odd(LookUp):
        def look_up(self, row: Row, room: int) -> Sequence[int]:
            return [1, 2, 3][:room] if row.index else ()

    answers = tiny.decoded(target(), Odd(device=tiny.CPU), tiny.plan(3, rows=2), [IDS, IDS], 12)
    assert [(s.proposed, s.accepted, s.committed) for s in answers[0].steps] == [(0, 0, 1)] * 11
    assert answers[0].tokens == answers[1].tokens


def test_a_draft_holds_what_lists_hold() -> None:
    from speedbench.native.proposer import draft_of

    draft = draft_of([[4, 5], [], [6]], tiny.CPU)
    assert isinstance(draft, Draft)
    assert draft.tokens.tolist() == [[4, 5], [0, 0], [6, 0]]
    assert draft.counts == [2, 0, 1]
    assert draft_of([[], []], tiny.CPU).tokens.shape == (2, 0)
