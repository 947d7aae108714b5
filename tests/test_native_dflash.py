"""DFlash against a from-scratch recomputation in plain torch: context, alignment, truncation, limits, sampling."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_native_verify as sampled
import tiny
import torch
from torch import Tensor

from speedbench.backends.native import BACKEND
from speedbench.drafters.dflash import DRAFTER
from speedbench.errors import UserError
from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Head, HeadSpec
from speedbench.native.proposer import Draft, Row
from speedbench.native.target import Target
from speedbench.types import Drafting, Load, Runner, Sampling

HEADS = {
    "z-lab": head_of(),
    "own head and embedding, anchor predicts": head_of(own=True, anchor_predicts=True),
    "causal": head_of(causal=True),
    "reduced vocabulary": head_of(kept=KEPT),
    "last state": head_of(taps=(0, 2, 4), layers=1),
    "llama 3 rope": head_of(rope={"rope_theta": 5000.0}, anchor_predicts=True, causal=True),
}


@pytest.mark.parametrize("form", ["lean", "transformers"])
@pytest.mark.parametrize("name", HEADS)
def test_every_cached_round_is_what_drafting_from_scratch_gives(name: str, form: str) -> None:
    head = HEADS[name]
    for static in (False, True):
        shape = tiny.plan(4, rows=4, static=static)
        own = Watched(dflash(head, shape, form), head)
        answers = tiny.decoded(
            target(form), own, shape, PROMPTS, CAP, caps=[CAP, 13, CAP, 17], width=8 if static else None
        )
        assert own.rounds > 12
        assert {s.accepted for a in answers for s in a.steps} >= {0, 1, 2, 3}
        assert [a.tokens for a in answers] == [b[:n] for b, n in zip(baseline(), [CAP, 13, CAP, 17], strict=True)]


@pytest.mark.parametrize("form", ["lean", "transformers"])
@pytest.mark.parametrize("name", ["z-lab", "own head and embedding, anchor predicts", "reduced vocabulary"])
def test_greedy_answers_are_the_targets_at_every_d_alone_and_together(name: str, form: str) -> None:
    head = HEADS[name]
    assert head.spec.longest
    for d in range(1, head.spec.longest + 1):
        for prompts in (PROMPTS, *([p] for p in PROMPTS)):
            shape = tiny.plan(d, rows=len(prompts))
            answers = tiny.decoded(target(form), dflash(head, shape, form), shape, prompts, CAP)
            assert [a.tokens for a in answers] == [baseline()[PROMPTS.index(p)] for p in prompts]
            assert all(s.proposed == d for a in answers for s in a.steps[:-4])


# ---- block, D and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["z-lab", "own head and embedding, anchor predicts"])
def test_a_smaller_d_cuts_the_trained_block_and_a_short_block_drafts_otherwise(name: str) -> None:
    head = HEADS[name]
    whole = proposal(head, head.spec.longest or 0)
    short = [proposal(head, d, block="short") for d in (1, 2, 3)]
    for d in (1, 2, 3):
        assert proposal(head, d) == [row[:d] for row in whole]
    assert any(short[d - 1] != [row[:d] for row in whole] for d in (1, 2, 3))
    assert proposal(head, head.spec.longest or 0, block="short") == whole
    _, logits = block(made(), head, [*PROMPTS[2], baseline()[2][0]], 2 + first_slot(head))
    assert short[1][2] == logits[first_slot(head) :].argmax(-1).tolist()


def test_what_a_drafter_says_of_itself() -> None:
    head = HEADS["reduced vocabulary"]
    trained, short = (dflash(head, tiny.plan(2), block=b) for b in ("trained", "short"))
    assert (trained.taps, trained.limit, trained.stateful) == ((3, 1), 4, False)
    assert (trained.depends_on_block_length, short.depends_on_block_length) == (False, True)
    assert [(x.facts["block"], x.facts["block_run"], x.facts["slots_run"]) for x in (trained, short)] == [
        (5, "trained", 5),
        (5, "short", 3),
    ]
    assert trained.facts["parameters"] == sum(t.numel() for n, t in head.tensors.items() if n != "d2t")
    assert trained.facts["bytes"] == 8 * trained.facts["parameters"]
    assert trained.facts["bytes_per_token"] == 2 * 2 * 2 * 12 * 8  # K and V, layers, KV heads, width, float64
    assert trained.facts["draft_vocabulary"] == len(KEPT)
    assert dflash(HEADS["z-lab"], tiny.plan(9), block="short").facts["slots_run"] == 5


def test_a_row_without_positions_for_a_block_drafts_no_more_and_the_others_go_on() -> None:
    """A draft of 32 positions and blocks of 5: the last anchor that fits stands at 27."""
    head = head_of(context=32)
    shape = tiny.plan(3, rows=4)
    own = Watched(dflash(head, shape), head, skips=False)
    answers = tiny.decoded(target(), own, shape, PROMPTS, CAP)
    for ids, answer, expected in zip(PROMPTS, answers, baseline(), strict=True):
        assert answer.tokens == expected
        length = len(ids) + 1
        for step in answer.steps:
            left = CAP - (length - len(ids)) - 1
            assert step.proposed == (min(3, left) if length - 1 + 5 <= 32 else 0)
            length += step.committed
    assert {s.proposed for s in answers[3].steps} == {0}


def test_rows_that_were_not_asked_for_a_while_have_missed_nothing() -> None:
    lengths = [3, 3, 0, 0, 0, 3, 3, 3, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]

    def change(decoder: Any, step: int) -> None:
        decoder.plan = replace(decoder.plan, draft_length=lengths[step])

    head, shape = HEADS["z-lab"], tiny.plan(3, rows=4)
    own = Watched(dflash(head, shape), head)
    tiny.decoded(target(), own, shape, PROMPTS, CAP, before_step=change)
    assert own.rounds > 8


def test_a_prompt_longer_than_a_chunk_and_a_row_used_again_are_remembered_whole() -> None:
    long = tiny.exact(tiny.model(num_hidden_layers=4, max_position_embeddings=1024))
    ids, head, shape = tiny.prompt(700), HEADS["z-lab"], tiny.plan(4, length=768)
    own = DFlash(head, shape, tiny.lean(long))
    drafts = []
    for prompt in (ids, ids[:20]):
        pick = own._pick

        def noting(filled: Filled, pick: Any = pick) -> Draft:
            drafts.append(filled.logits[0])
            return pick(filled)  # type: ignore[no-any-return]

        own._pick = noting  # type: ignore[assignment]
        answer = tiny.decoded(tiny.lean(long), own, shape, [prompt], 6)[0]
        _, logits = block(long, head, [*prompt, answer.tokens[0]])
        assert torch.allclose(drafts[0], logits[1:], atol=1e-5, rtol=0)
        drafts.clear()
        own._pick = pick


def broken(head: Head, **changed: Tensor) -> Head:
    return replace(head, tensors={**head.tensors, **{k.replace("__", "."): v for k, v in changed.items()}})


def test_broken_weights_are_refused_before_anything_is_drafted() -> None:
    head = head_of(own=True)
    nan = torch.full_like(head.tensors["fc.weight"], torch.nan)
    with pytest.raises(UserError, match="logits that are not finite: its weights are broken"):
        dflash(broken(head, fc__weight=nan), tiny.plan(2))
    with pytest.raises(UserError, match="logits that are equal: its weights are broken"):
        dflash(broken(head, lm_head__weight=torch.zeros(64, 32)), tiny.plan(2))
