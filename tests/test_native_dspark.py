"""DSpark: the serial correction by hand and from scratch, perfect drafts, and cuts that look at no token they leave."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import test_native_verify as sampled
import tiny
import torch
from blocks import (
    CAP,
    KEPT,
    PROMPTS,
    Watched,
    baseline,
    block,
    dflash,
    drafted,
    first_slot,
    head_of,
    made,
    serial,
    target,
)
from test_native_dflash import TWELVE, check_distribution, idle, simple
from torch import Tensor

from speedbench.drafters.dspark import DRAFTER
from speedbench.errors import UserError
from speedbench.native import dspark
from speedbench.native.dflash import DFlash, Filled, Vocabulary
from speedbench.native.dspark import Markov
from speedbench.native.head import Head
from speedbench.native.proposer import Draft
from speedbench.native.verify import probabilities
from speedbench.types import Sampling

KINDS = ("vanilla", "gated", "rnn")


def spark(markov: str = "vanilla", **given: Any) -> Head:
    fixed: dict[str, Any] = {
        "mechanism": "dspark", "anchor_predicts": True, "markov": markov, "markov_rank": 6, "confidence": True,
        "confidence_reads_markov": True,
    }  # fmt: skip
    return head_of(**{**fixed, **given})


# ---- the recomputation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({}, "lean"),
        ({"anchor_predicts": False}, "transformers"),
        ({"kept": KEPT}, "lean"),
        ({"own": True, "causal": True}, "lean"),
    ],
    ids=["plain", "slots predict themselves", "reduced vocabulary", "causal"],
)
@pytest.mark.parametrize("markov", KINDS)
def test_every_cached_round_is_what_drafting_from_scratch_gives(markov: str, given: dict[str, Any], form: str) -> None:
    head, shape = spark(markov, **given), tiny.plan(4, rows=4)
    own = Watched(dflash(head, shape, form), head)
    answers = tiny.decoded(target(form), own, shape, PROMPTS, CAP)
    assert own.rounds > 12
    assert {s.accepted for a in answers for s in a.steps} >= {0, 1, 2, 3}
    assert tuple(a.tokens for a in answers) == baseline()


@pytest.mark.parametrize("markov", KINDS)
def test_greedy_answers_are_the_targets_at_every_d_alone_and_together(markov: str) -> None:
    head = spark(markov)
    for d in range(1, 6):
        for prompts in (PROMPTS, *([p] for p in PROMPTS)):
            shape = tiny.plan(d, rows=len(prompts))
            answers = tiny.decoded(target(), dflash(head, shape), shape, prompts, CAP)
            assert [a.tokens for a in answers] == [baseline()[PROMPTS.index(p)] for p in prompts]


@pytest.mark.parametrize("given", [{}, {"anchor_predicts": False}])
def test_a_smaller_d_cuts_the_trained_block_and_a_short_block_drafts_otherwise(given: dict[str, Any]) -> None:
    head = spark("rnn", **given)

    def proposal(d: int, **more: Any) -> list[list[int]]:
        found: list[list[int]] = drafted(dflash(head, tiny.plan(d, rows=4), **more)).tokens.tolist()
        return found

    whole = proposal(head.spec.longest or 0)
    for d in (1, 2, 3):
        assert proposal(d) == [row[:d] for row in whole]
    assert any(proposal(d, block="short") != [row[:d] for row in whole] for d in (1, 2, 3))


@pytest.mark.parametrize("markov", KINDS)
def test_without_a_bias_it_is_the_same_block_uncorrected(markov: str) -> None:
    head = spark(markov)
    blank = replace(head, tensors={**head.tensors, "markov_w2.weight": torch.zeros(64, 6, dtype=torch.float64)})
    shape = tiny.plan(5, rows=4)
    plain = drafted(DFlash(head, shape, target())).tokens
    assert drafted(dflash(blank, shape)).tokens.equal(plain)
    assert not drafted(dflash(head, shape)).tokens.equal(plain)


def test_the_bias_is_in_the_drafts_ids_and_what_it_is_looked_up_by_in_the_targets() -> None:
    """W1 has a row for each of the target's 64 ids, W2 for each of the draft's 21."""
    head = spark(kept=KEPT)
    assert len(head.tensors["markov_w1.weight"]) == 64
    assert len(head.tensors["markov_w2.weight"]) == len(KEPT) == 21
    ids = [*PROMPTS[1], baseline()[1][0]]
    states, logits = block(made(), head, ids)
    right = serial(head, states, logits, ids[-1])[0]
    assert drafted(dflash(head, tiny.plan(5)), PROMPTS[1:2]).tokens.tolist() == [right]
    before, wrong = ids[-1], []
    for scores in logits:  # the same, W1 by the draft's ids
        pick = int((scores + head.tensors["markov_w2.weight"] @ head.tensors["markov_w1.weight"][before]).argmax())
        before = pick
        wrong.append(KEPT[pick])
    assert right != wrong


# ---- by hand -------------------------------------------------------------------------------------------------------


def bare(markov: str, **tensors: list[Any]) -> Markov:
    """Rank 1, states of width 1."""
    given = {k.replace("__", "."): torch.tensor(v, dtype=torch.float64) for k, v in tensors.items()}
    head = head_of()
    spec = replace(head.spec, markov=markov, markov_rank=1)  # type: ignore[arg-type]
    stub: Any = SimpleNamespace(device=tiny.CPU, dtype=torch.float64)
    return Markov(Head(spec, {"markov_w1.weight": torch.ones(4, 1), **given}), stub)


def column(*values: float) -> Tensor:
    return torch.tensor([[v] for v in values], dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_gated_step_by_hand() -> None:
    """gate = σ(2·h - 1·e + 0.5) with h = 1, e = 3: σ(-0.5) = 0.3775; the bias is W2 · 0.3775 · 3."""
    own = bare("gated", markov_w2__weight=[[1.0], [-2.0]], gate_proj__weight=[[2.0, -1.0]], gate_proj__bias=[0.5])
    bias, state = own.bias(column(1.0), column(3.0), None)
    assert bias is not None
    assert bias[0].tolist() == pytest.approx([1.1326, -2.2652], abs=1e-4)
    assert state is None


def test_two_rnn_steps_by_hand() -> None:
    """joint reads [state ; e ; h] and gives gate, candidate, output, in that order."""
    rows = [[1.0, 2.0, 0.0], [0.5, -1.0, 1.0], [2.0, 0.0, 1.0]]
    own = bare("rnn", markov_w2__weight=[[1.0], [3.0]], joint_proj__weight=rows, joint_proj__bias=[0.0, 0.1, -0.2])
    bias, state = own.bias(column(0.5), column(1.0), None)
    assert bias is not None
    assert state is not None
    first = (1 - sigmoid(2.0)) * math.tanh(0.5 - 1.0 + 0.1)  # state was 0
    assert float(state) == pytest.approx(first)
    assert bias[0].tolist() == pytest.approx([math.tanh(0.3), 3 * math.tanh(0.3)])
    bias, state = own.bias(column(-1.0), column(2.0), state)
    assert bias is not None
    keep = sigmoid(first + 4.0)
    assert float(state) == pytest.approx(keep * first + (1 - keep) * math.tanh(0.5 * first - 2.0 - 1.0 + 0.1))
    assert float(bias[0, 0]) == pytest.approx(math.tanh(2 * first - 1.0 - 0.2))


# ---- known acceptance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchor_predicts", [True, False])
def test_a_markov_head_that_holds_the_targets_function_is_always_right(anchor_predicts: bool) -> None:
    """The target's logits are W·norm(E[last]); so are W2·W1[before] with W1 = norm(E), W2 = W."""
    model = simple(False)
    norm = model.model.norm
    with torch.no_grad():
        w1, w2 = norm(model.model.embed_tokens.weight), model.lm_head.weight
    head = idle(spark(own=True, confidence=False, markov_rank=32, anchor_predicts=anchor_predicts))
    faint = head.tensors["lm_head.weight"] * 1e-9
    head = idle(head, **{"markov_w1.weight": w1, "markov_w2.weight": w2.detach(), "lm_head.weight": faint})
    for d in range(1, (head.spec.longest or 0) + 1):
        shape = tiny.plan(d, rows=4)
        own = dspark.of(head, shape, tiny.lean(model))
        for answer in tiny.decoded(tiny.lean(model), own, shape, PROMPTS, 1 + 4 * (d + 1)):
            assert answer.commits == [d + 1] * 4
            assert answer.acceptance_length == d + 1


# ---- confidence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads_markov", [True, False])
@pytest.mark.parametrize("anchor_predicts", [True, False])
def test_a_proposal_ends_before_the_first_slot_of_low_confidence(reads_markov: bool, anchor_predicts: bool) -> None:
    counts = set()
    for seed, threshold in enumerate((0.2, 0.4, 0.5, 0.6, 0.8)):
        head = spark(confidence_reads_markov=reads_markov, anchor_predicts=anchor_predicts, seed=seed)
        draft = drafted(dflash(head, tiny.plan(4, rows=4), threshold=threshold))
        for b, ids in enumerate(PROMPTS):
            row = [*ids, baseline()[b][0]]
            used = slice(first_slot(head), first_slot(head) + 4)
            states, logits = (x[used] for x in block(made(), head, row))
            tokens, sure = serial(head, states, logits, row[-1])
            cut = next((k for k, c in enumerate(sure) if c < threshold), 4)
            assert draft.counts[b] == cut
            assert draft.tokens[b, :cut].tolist() == tokens[:cut]
            counts.add(cut)
        assert draft.tokens.shape[1] == max(draft.counts)
    assert len(counts) > 2


def test_a_confident_row_drafts_no_more_than_its_room() -> None:
    head = spark(seed=2)
    full = drafted(dflash(head, tiny.plan(4, rows=4), threshold=1e-9))
    assert full.counts == [4] * 4
    draft = drafted(dflash(head, tiny.plan(4, rows=4), threshold=1e-9), room=[0, 3, 1, 2])
    assert draft.counts == [0, 3, 1, 2]
    assert draft.tokens[1].tolist() == full.tokens[1, :3].tolist()


def test_cut_answers_are_the_targets_and_effective_d_is_less_than_d() -> None:
    head, shape = spark(), tiny.plan(5, rows=4)
    for threshold in (0.5, 1.0):
        answers = tiny.decoded(target(), dflash(head, shape, threshold=threshold), shape, PROMPTS, CAP)
        assert tuple(a.tokens for a in answers) == baseline()
        proposed = [s.proposed or 0 for a in answers for s in a.steps]
        assert sum(proposed) / len(proposed) < 4
        assert threshold < 1 or not any(proposed)


def test_where_a_proposal_ends_says_nothing_about_the_token_it_leaves_out() -> None:
    """One block, drawn from 2000 times: of the proposals that begin with the same k tokens all go on or none does."""
    head, rows, noise = spark(), 2000, torch.Generator().manual_seed(1)

    def same(*shape: int) -> Tensor:
        return torch.randn(shape, generator=noise, dtype=torch.float64).expand(rows, *shape)

    filled = Filled(
        states=same(3, 32), logits=same(3, 64), anchors=torch.full((rows,), 5), counts=[3] * rows,
        luck=torch.rand(rows, 3, generator=noise), sampling=Sampling(temperature=1.0), vocabulary=Vocabulary(None, 64),
    )  # fmt: skip
    draft = Markov(head, target(), 0.4)(filled)
    goes_on: dict[tuple[int, ...], set[bool]] = defaultdict(set)
    for tokens, count in zip(draft.tokens.tolist(), draft.counts, strict=True):
        for k in range(min(count + 1, 3)):
            goes_on[tuple(tokens[:k])].add(count > k)
    assert all(len(found) == 1 for found in goes_on.values())
    assert len(goes_on) > 50
    assert {0, 1, 2, 3} & set(draft.counts) >= {1, 2, 3}


@pytest.mark.parametrize("threshold", [0.0, 0.5])
@pytest.mark.parametrize("markov", KINDS)
def test_sampled_answers_have_the_targets_distribution(markov: str, threshold: float) -> None:
    head = spark(markov, **TWELVE)
    proposed = check_distribution(head, Sampling(temperature=1.0), dspark.of, threshold=threshold)
    assert set(proposed) == {3} if not threshold else len(set(proposed)) > 1


def test_sampled_answers_of_a_reduced_vocabulary_have_the_targets_distribution() -> None:
    head = spark(**TWELVE, kept=(0, 1, 2, 4, 5, 6, 8, 9, 11))
    check_distribution(head, sampled.SAMPLERS["both at T=0.5"], dspark.of, threshold=0.5)


class Peeking:
    """A cut that looks at the token it leaves out: proposals end before the first token below 6."""

    def __init__(self, head: Head, target: Any) -> None:
        self._honest, self.facts = Markov(head, target), {}

    def __call__(self, filled: Filled) -> Draft:
        draft = self._honest(filled)
        kept = (draft.tokens >= 6).long().cumprod(1).sum(1)
        counts = torch.minimum(kept, torch.tensor(draft.counts)).tolist()
        return Draft(draft.tokens, counts, draft.q)


def test_a_cut_that_peeks_would_be_noticed() -> None:
    def make(head: Head, shape: Any, target: Any) -> DFlash:
        return DFlash(head, shape, target, pick=Peeking(head, target))

    with pytest.raises(AssertionError, match=r"> 0\.001"):
        check_distribution(spark(**TWELVE), Sampling(temperature=1.0), make)


def test_q_is_what_the_tokens_were_drawn_from() -> None:
    """In every slot the table is that of the corrected logits, whose correction follows the tokens drawn before."""
    head, sampling = spark(), Sampling(temperature=0.7, top_k=9)
    draft = drafted(dflash(head, tiny.plan(5, rows=4, sampling=sampling)))
    assert draft.q is not None
    for b, ids in enumerate(PROMPTS):
        anchor = baseline_anchor(b, sampling)
        _, logits = block(made(), head, [*ids, anchor])
        for k, before in enumerate([anchor, *draft.tokens[b, :-1].tolist()]):
            bias = head.tensors["markov_w2.weight"] @ head.tensors["markov_w1.weight"][before]
            assert torch.allclose(draft.q[b, k], probabilities(logits[k] + bias, sampling), atol=1e-5)
            assert float(draft.q[b, k, draft.tokens[b, k]]) > 0


def baseline_anchor(b: int, sampling: Sampling) -> int:
    """The first token that row b samples in `drafted`."""
    answer = tiny.decoded(target(), None, tiny.plan(0, sampling=sampling), PROMPTS[b : b + 1], 1, keys=[b])[0]
    return answer.tokens[0]


# ---- settings ------------------------------------------------------------------------------------------------------


def test_a_threshold_without_a_confidence_head_is_refused() -> None:
    with pytest.raises(UserError, match=r"confidence_threshold is 0.5, but this checkpoint has no confidence head"):
        dflash(spark(confidence=False, confidence_reads_markov=False), tiny.plan(2), threshold=0.5)


def test_what_it_says_of_itself_and_its_settings() -> None:
    facts = dflash(spark("gated"), tiny.plan(2), threshold=0.25).facts
    assert (facts["markov"], facts["markov_rank"], facts["confidence_threshold"]) == ("gated", 6, 0.25)
    native = DRAFTER.backends["native"]
    assert native(4, {"checkpoint": "x", "confidence_threshold": 1}) == {
        "module": "speedbench.native.dspark", "checkpoint": "x", "allow_bin": False, "block": "trained",
        "confidence_threshold": 1,
    }  # fmt: skip
    with pytest.raises(UserError, match=r"--set dspark\.checkpoint=FOLDER"):
        native(4, {})
    for value in (-0.1, 1.1):
        with pytest.raises(UserError, match=r"dspark.confidence_threshold: at (least 0|most 1)"):
            native(4, {"checkpoint": "x", "confidence_threshold": value})
