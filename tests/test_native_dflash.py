"""DFlash against a from-scratch recomputation in plain torch: context, alignment, truncation, limits, sampling."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
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
    proposal,
    target,
)

from speedbench.backends.native import BACKEND
from speedbench.drafters.dflash import DRAFTER
from speedbench.errors import UserError
from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Head
from speedbench.native.proposer import Draft
from speedbench.types import Drafting, Load, Runner, Sampling

HEADS = {
    "z-lab": head_of(),
    "own head and embedding, anchor predicts": head_of(own=True, anchor_predicts=True),
    "causal": head_of(causal=True),
    "reduced vocabulary": head_of(kept=KEPT),
    "last state": head_of(taps=(0, 2, 4), layers=1),
    "causal, anchor predicts": head_of(causal=True, anchor_predicts=True, kv_heads=4),
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
            assert {a.steps[0].proposed for a in answers} == {d}


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
    own = Watched(dflash(head, shape), head, skips=False, helped=False)  # so that every length comes up
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
    head, shape = HEADS["z-lab"], tiny.plan(4, length=768)
    own = DFlash(head, shape, tiny.lean(long))
    pick, seen = own.pick, []

    def noting(filled: Filled) -> Draft:
        seen.append(filled)
        return pick(filled)

    own.pick = noting  # type: ignore[assignment]
    for prompt in (tiny.prompt(700), tiny.prompt(20)):
        seen.clear()
        answer = tiny.decoded(tiny.lean(long), own, shape, [prompt], 6)[0]
        _, logits = block(long, head, [*prompt, answer.tokens[0]])
        assert torch.allclose(seen[0].logits[0], logits[1:], atol=1e-5, rtol=0)


def broken(head: Head, **changed: torch.Tensor) -> Head:
    return replace(head, tensors={**head.tensors, **{k.replace("__", "."): v for k, v in changed.items()}})


def test_broken_weights_are_refused_before_anything_is_drafted() -> None:
    head = head_of(own=True)
    nan = torch.full_like(head.tensors["fc.weight"], torch.nan)
    with pytest.raises(UserError, match="logits that are not finite: its weights are broken"):
        dflash(broken(head, fc__weight=nan), tiny.plan(2))
    with pytest.raises(UserError, match="logits that are equal: its weights are broken"):
        dflash(broken(head, lm_head__weight=torch.zeros(64, 32)), tiny.plan(2))


# ---- the known mistakes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["layer id", "context holds the anchor", "input_layernorm on context"])
def test_a_known_mistake_would_draft_other_tokens(wrong: str) -> None:
    head = HEADS["z-lab"]
    ids = [[*p, b[0]] for p, b in zip(PROMPTS, baseline(), strict=True)]
    right = [block(made(), head, row)[1][1:].argmax(-1).tolist() for row in ids]
    other = [block(made(), head, row, wrong=wrong)[1][1:].argmax(-1).tolist() for row in ids]
    assert proposal(head, 4) == right
    assert other != right


def test_slots_that_predict_themselves_are_not_taken_for_slots_that_predict_the_next() -> None:
    """The same weights: D = 4 from slots 1 to 4, or D = 5 from slots 0 to 4."""
    own, next_one = (proposal(head_of(anchor_predicts=x), 4) for x in (False, True))
    whole = proposal(head_of(anchor_predicts=True), 5)
    assert own == [row[1:] for row in whole]
    assert next_one == [row[:4] for row in whole]
    assert own != next_one


def test_d2t_holds_offsets_not_ids() -> None:
    """Draft id 3 of 1, 4, 7, 10 … is the target's 10, its offset 7."""
    head = HEADS["reduced vocabulary"]
    assert (KEPT[3], int(head.tensors["d2t"][3])) == (10, 7)
    for row, drafts in zip(PROMPTS, proposal(head, 4), strict=True):
        _, logits = block(made(), head, [*row, baseline()[PROMPTS.index(row)][0]])
        picked = logits[1:].argmax(-1).tolist()
        assert drafts == [KEPT[i] for i in picked]
        assert drafts != [int(head.tensors["d2t"][i]) for i in picked]


# ---- known acceptance ----------------------------------------------------------------------------------------------


def simple(constant: bool) -> Any:
    """A target whose next token is a fixed function of the last: no layer adds anything to the embedding. `constant`:
    it is 9 whatever came before."""
    model = tiny.model(num_hidden_layers=4, seed=6)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        if constant:
            model.model.embed_tokens.weight[:, 0] = 30.0
            model.lm_head.weight[9] = 0.0
            model.lm_head.weight[9, 0] = 100.0 * model.model.norm.weight[0].sign()
    return model


def idle(head: Head, **more: torch.Tensor) -> Head:
    """The same head with layers that add nothing: a slot's state is its embedding, normed."""
    nothing = {k: torch.zeros_like(v) for k, v in head.tensors.items() if "o_proj" in k or "down_proj" in k}
    return replace(head, tensors={**head.tensors, **nothing, **more})


def test_a_block_of_one_slot_with_the_targets_own_norm_and_head_is_always_right() -> None:
    """Only if slot 0 predicts the token after the anchor."""
    model, shape = simple(False), tiny.plan(1)
    head = idle(head_of(block=1, anchor_predicts=True, eps=model.config.rms_norm_eps))
    head = idle(head, **{"norm.weight": model.model.norm.weight.detach()})
    answer = tiny.decoded(tiny.lean(model), DFlash(head, shape, tiny.lean(model)), shape, [tiny.prompt(9)], 41)[0]
    assert answer.commits == [2] * 20


@pytest.mark.parametrize(("anchor_predicts", "al"), [(False, 5.0), (True, 1.0)])
def test_the_anchors_slot_is_thrown_away_where_slots_predict_themselves(anchor_predicts: bool, al: float) -> None:
    """The target says 9 for ever. The head says 9 where it sees a mask and 20 where it sees a 9."""
    model, shape = simple(True), tiny.plan(4)
    table = torch.randn(64, 32, dtype=torch.float64)
    table = table / table.norm(dim=-1, keepdim=True)
    own = torch.zeros(64, 32, dtype=torch.float64)
    own[9], own[20] = table[7], table[9]
    given = {"norm.weight": torch.ones(32), "embed_tokens.weight": table, "lm_head.weight": own}
    head = idle(head_of(own=True, anchor_predicts=anchor_predicts), **given)
    answer = tiny.decoded(tiny.lean(model), DFlash(head, shape, tiny.lean(model)), shape, [tiny.prompt(9)], 41)[0]
    assert set(answer.tokens) == {9}
    assert answer.acceptance_length == al


# ---- sampled drafts ------------------------------------------------------------------------------------------------

TWELVE: dict[str, Any] = {"target_vocab": sampled.VOCAB, "taps": (1, 0), "mask_token": 3, "own": True, "sharp": 1.0}


@pytest.mark.parametrize("kept", [(), (0, 1, 2, 4, 5, 6, 8, 9, 11)])
@pytest.mark.parametrize("sampler", ["T=1", "both at T=0.5"])
def test_sampled_answers_have_the_targets_distribution(sampler: str, kept: tuple[int, ...]) -> None:
    check_distribution(head_of(**TWELVE, kept=kept), sampled.SAMPLERS[sampler])


def check_distribution(head: Head, sampling: Sampling, make: Any = DFlash, **more: Any) -> list[int]:
    """The first three tokens of 1500 answers; returns the drafts proposed in each one's first step."""
    shape = tiny.plan(3, rows=sampled.ROWS, length=24, sampling=sampling)
    seen: Counter[tuple[int, ...]] = Counter()
    steps = []
    for batch in range(sampled.RUNS // sampled.ROWS):
        own = make(head, shape, sampled.target(), **more)
        answers = tiny.decoded(sampled.target(), own, shape, [sampled.IDS] * sampled.ROWS, 5, seed=batch)
        seen.update(tuple(a.tokens[:3]) for a in answers)
        steps += [a.steps[0] for a in answers]
    assert sum(s.accepted or 0 for s in steps) > sampled.RUNS / 20
    assert sampled.pvalue(seen, sampled.truth(sampling, 3), sampled.RUNS) > 0.001
    return [s.proposed or 0 for s in steps]


def test_the_drafts_of_a_reduced_vocabulary_have_no_chance_elsewhere() -> None:
    shape = tiny.plan(4, rows=4, sampling=Sampling(temperature=1.0))
    draft = drafted(dflash(HEADS["reduced vocabulary"], shape))
    assert draft.q is not None
    assert draft.q.shape == (4, 4, 64)
    assert torch.allclose(draft.q.sum(-1), torch.ones(4, 4))
    assert {i for i in range(64) if float(draft.q[..., i].sum()) > 0} <= set(KEPT)
    assert set(draft.tokens.flatten().tolist()) <= set(KEPT)


def test_a_rows_luck_is_its_own_whatever_shares_its_batch() -> None:
    sampling, head = Sampling(temperature=1.0), HEADS["z-lab"]
    shape, one = tiny.plan(3, rows=4, sampling=sampling), tiny.plan(3, sampling=sampling)
    together = tiny.decoded(target(), dflash(head, shape), shape, PROMPTS, CAP, caps=[9, CAP, 14, 17])
    for i, cap in enumerate([9, CAP, 14, 17]):
        alone = tiny.decoded(target(), dflash(head, one), one, [PROMPTS[i]], CAP, caps=[cap], keys=[i])[0]
        assert (alone.tokens, alone.commits) == (together[i].tokens, together[i].commits)


# ---- through the backend -------------------------------------------------------------------------------------------


def test_d_beyond_the_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tiny.folder(tmp_path / "target", tiny.model(dtype=torch.float32), tiny.tokenizer(size=64))
    asked = []

    def load(where: str, target: Any, **more: Any) -> Head:
        asked.append((where, more))
        return head_of(taps=(1, 0))

    monkeypatch.setattr("speedbench.native.checkpoint.load", load)
    runner = Runner(name="t", title="t", backend="native", model=str(home), engine={"device": "cpu"})
    with BACKEND.open(runner) as session:

        def engine(d: int, **settings: Any) -> Any:
            given = {"checkpoint": "somewhere", **settings}
            drafting = Drafting(label="dflash", drafter="dflash", settings=given)
            return session.engine(drafting, d, 1, Load(sampling=Sampling(max_tokens=8), longest=64, widest=8))

        assert engine(4).facts["block"] == 5
        assert engine(4, block="short", allow_bin=True).facts["block_run"] == "short"
        for block_run in ("trained", "short"):
            with pytest.raises(
                UserError, match="-D 5: drafter 'dflash' was made for at most 4 draft tokens; give it its own, as"
            ):
                engine(5, block=block_run)
    assert asked[0] == ("somewhere", {"mechanism": "dflash", "allow_bin": False})
    assert asked[1] == ("somewhere", {"mechanism": "dflash", "allow_bin": True})


def test_the_settings() -> None:
    native = DRAFTER.backends["native"]
    assert native(4, {"checkpoint": "x"}) == {
        "module": "speedbench.native.dflash", "checkpoint": "x", "allow_bin": False, "block": "trained"
    }  # fmt: skip
    with pytest.raises(UserError, match=r"--set dflash\.checkpoint=FOLDER"):
        native(4, {})
    with pytest.raises(UserError, match="block: one of trained, short"):
        native(4, {"checkpoint": "x", "block": "long"})
