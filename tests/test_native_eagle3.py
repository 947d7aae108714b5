"""EAGLE-3 against its formulas from scratch, against plain greedy, and against each mistake that costs acceptance."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any

import foretold
import pytest
import serial_heads as heads
import test_native_verify as verified
import tiny
import torch

from speedbench.drafters.eagle3 import DRAFTER
from speedbench.errors import UserError
from speedbench.native import eagle3
from speedbench.native import serial as serial_module
from speedbench.native.head import Head
from speedbench.native.proposer import Near
from speedbench.native.serial import Serial
from speedbench.types import Sampling

OFFSETS = [k // 2 for k in range(40)]
"""A draft vocabulary of 40 of the 64 ids: 0, 1, 3, 4, 6, …"""
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "recycle_normed": {"recycle_normed": True},
    "two layers": {"layers": 2},
    "zero_centred": {"zero_centred": True},
}


@functools.cache
def made() -> Any:
    return tiny.exact(tiny.model())


@functools.cache
def baseline() -> tuple[list[int], ...]:
    return tuple(tiny.plain(made(), tiny.prompt(n), 40)[0] for n in tiny.LENGTHS)


def target(form: str = "lean") -> Any:
    return tiny.lean(made()) if form == "lean" else tiny.as_is(made())


# ---- the cache against no cache ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_drafting_in_a_ragged_batch_equals_drafting_from_scratch_at_every_round(variant: str) -> None:
    head = heads.random(heads.spec("eagle3", **VARIANTS[variant]))
    assert heads.furthest(head, target(), heads.forced_rounds(head, made(), target())) < 1e-5


@pytest.mark.parametrize("variant", ["map", "own embedding", "narrow"])
def test_a_head_with_its_own_vocabulary_or_embedding_equals_itself_from_scratch(variant: str) -> None:
    given: dict[str, Any] = {"vocab": 40} if variant == "map" else {"hidden": 24} if variant == "narrow" else {}
    of = heads.spec("eagle3", **given)
    head = heads.random(of, d2t=OFFSETS if variant == "map" else None, own_embedding=0 if variant == "map" else 64)
    rounds = heads.forced_rounds(head, made(), target())
    assert heads.furthest(head, target(), rounds) < 1e-5
    if variant == "map":
        allowed = {k + offset for k, offset in enumerate(OFFSETS)}
        drafted = {t for r in rounds for t in r.drafts}
        assert drafted <= allowed
        assert all(d == int(one.argmax()) + OFFSETS[int(one.argmax())] for r in rounds for d, one in zip(
            r.drafts, r.logits, strict=True))  # fmt: skip


def test_a_head_without_its_own_output_matrix_speaks_through_the_targets() -> None:
    head = heads.random(heads.spec("eagle3"))
    borrowing = Head(head.spec, {k: v for k, v in head.tensors.items() if k != "lm_head.weight"})
    assert heads.furthest(borrowing, target(), heads.forced_rounds(borrowing, made(), target())) < 1e-5


def test_the_transformers_form_and_static_slots_change_nothing() -> None:
    head = heads.random(heads.spec("eagle3"))
    for form, static in (("transformers", False), ("lean", True)):
        rounds = heads.forced_rounds(head, made(), target(form), static=static)
        assert heads.furthest(head, target(form), rounds) < 1e-5


def test_a_prompt_in_chunks_is_a_prompt_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_module, "PREFILL_CHUNK", 7)
    head = heads.random(heads.spec("eagle3"))
    assert heads.furthest(head, target(), heads.forced_rounds(head, made(), target())) < 1e-5


# ---- lossless ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_greedy_answers_are_the_targets_alone_and_in_a_batch(d: int) -> None:
    head, prompts = heads.random(heads.spec("eagle3", vocab=40), d2t=OFFSETS), [tiny.prompt(n) for n in tiny.LENGTHS]
    shape = tiny.plan(d, rows=4)
    together = tiny.decoded(target(), heads.serial(head, target(), shape), shape, prompts, 40)
    for i, expected in enumerate(baseline()):
        one = tiny.plan(d)
        alone = tiny.decoded(target(), heads.serial(head, target(), one), one, [prompts[i]], 40)[0]
        assert alone.tokens == together[i].tokens == expected
        assert alone.commits == together[i].commits


SOME = [0, 1, 3, 4, 5, 8, 9, 11]


@pytest.mark.parametrize("reduced", [False, True])
def test_sampled_answers_have_the_targets_distribution(reduced: bool) -> None:
    sampling = Sampling(temperature=1.0)
    vocab, target = verified.VOCAB, verified.target()
    offsets = [token - k for k, token in enumerate(SOME)] if reduced else None
    head = heads.random(heads.spec("eagle3", vocab=len(SOME) if reduced else vocab), d2t=offsets)
    shape = tiny.plan(3, rows=verified.ROWS, length=24, sampling=sampling)
    seen: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for batch in range(verified.RUNS // verified.ROWS):
        own = heads.serial(head, target, shape)
        answers = tiny.decoded(target, own, shape, [verified.IDS] * verified.ROWS, 4, seed=batch)
        seen.update(tuple(a.tokens[:3]) for a in answers)
        accepted += sum(s.accepted or 0 for a in answers for s in a.steps)
    assert accepted > verified.RUNS / 20
    assert verified.pvalue(seen, verified.truth(sampling, 3), verified.RUNS) > 0.001


def test_a_rows_luck_is_its_own_whatever_shares_its_batch() -> None:
    sampling, prompts, caps = Sampling(temperature=1.0), [tiny.prompt(n) for n in tiny.LENGTHS], [23, 40, 31, 36]
    head, shape = heads.random(heads.spec("eagle3")), tiny.plan(3, rows=4, sampling=sampling)
    together = tiny.decoded(target(), heads.serial(head, target(), shape), shape, prompts, 40, caps=caps)
    for i in range(4):
        one = tiny.plan(3, sampling=sampling)
        own = heads.serial(head, target(), one)
        alone = tiny.decoded(target(), own, one, [prompts[i]], 40, caps=[caps[i]], keys=[i])[0]
        assert (alone.tokens, alone.commits) == (together[i].tokens, together[i].commits)


# ---- a head that knows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("reads", ["embedding", "state"])
def test_a_head_that_foretells_the_target_is_accepted_whole(reads: str, d: int, rows: int) -> None:
    foretold.accepts_everything(foretold.perfect("eagle3", reads), d, rows)


def test_a_head_that_foretells_it_over_half_the_vocabulary_is_accepted_whole() -> None:
    foretold.accepts_everything(foretold.halved(foretold.perfect("eagle3", "state")), 4, 4)


def test_it_has_missed_nothing_while_d_was_zero() -> None:
    foretold.misses_nothing_while_d_is_zero(foretold.perfect("eagle3", "state"))


def test_a_row_that_sat_out_and_rows_that_left_cost_the_others_nothing() -> None:
    foretold.a_row_rests_and_others_leave(foretold.perfect("eagle3", "state"))


def test_each_row_drafts_up_to_the_heads_last_position_and_no_further() -> None:
    foretold.keeps_within_its_positions(lambda given: foretold.perfect("eagle3", "embedding", **given))


# ---- the mistakes that cost acceptance -----------------------------------------------------------------------------


def turned_about(head: Head) -> Head:
    """The two halves that q, k and v read, exchanged: a head that was trained on [state ; embedding]."""
    names = [f"layers.0.self_attn.{x}_proj.weight" for x in "qkv"]
    swapped = {name: torch.cat(head.tensors[name].chunk(2, 1)[::-1], 1) for name in names}
    return Head(head.spec, {**head.tensors, **swapped})


def with_spec(head: Head, **given: Any) -> Head:
    return Head(replace(head.spec, **given), head.tensors)


def mistaken(mistake: str) -> tuple[Head, Head, type[Serial]]:
    """A head done right, the same head with one mistake, and the drafter that makes it."""
    state, embedding = foretold.perfect("eagle3", "state"), foretold.perfect("eagle3", "embedding")
    half = foretold.halved(state)
    as_ids = Head(half.spec, {**half.tensors, "d2t": half.tensors["d2t"] - torch.arange(foretold.WORDS // 2)})
    return {
        "concat order": (embedding, turned_about(embedding), Serial),
        "taps off by one": (state, with_spec(state, taps=(1, 2, 3)), Serial),
        "taps from high to low": (with_spec(state, taps=(3, 3, 2)), with_spec(state, taps=(2, 3, 3)), Serial),
        "shift": (embedding, embedding, foretold.Late),
        "recycled after the norm": (state, with_spec(state, recycle_normed=True), Serial),
        "d2t as ids": (half, as_ids, Serial),
    }[mistake]


@pytest.mark.parametrize(
    "mistake",
    ["concat order", "taps off by one", "taps from high to low", "shift", "recycled after the norm", "d2t as ids"],
)
def test_a_mistake_lowers_the_acceptance_length_of_a_head_that_knows(mistake: str) -> None:
    right, wrong, kind = mistaken(mistake)
    assert foretold.acceptance_length(right) == 5.0
    assert foretold.acceptance_length(wrong, kind=kind) < 3.5


def test_the_residual_rule_is_the_heads() -> None:
    """Of a random head: the other rule gives other logits from the same states."""
    head = heads.random(heads.spec("eagle3"))
    rounds = heads.forced_rounds(head, made(), target())
    assert heads.furthest(with_spec(head, norm_before_residual=True), target(), rounds) > 0.1


# ---- building ------------------------------------------------------------------------------------------------------


def test_a_broken_head_is_found_by_one_step() -> None:
    head = heads.random(heads.spec("eagle3"))
    for value, said in ((float("nan"), "NaN or infinite"), (0.0, "all logits equal")):
        broken = Head(head.spec, {**head.tensors, "lm_head.weight": torch.full((64, 32), value).double()})
        with pytest.raises(UserError, match=said):
            heads.serial(broken, target(), tiny.plan(3))


def test_what_the_head_is_is_told() -> None:
    head = heads.random(heads.spec("eagle3", vocab=40, context=99), d2t=OFFSETS)
    facts = heads.serial(Head(head.spec, head.tensors, ("beware",)), target(), tiny.plan(3)).facts
    attention, mlp, rest = (48 + 2 * 24) * 64 + 48 * 32, 3 * 40 * 32, 32 * 96 + 40 * 32 + 4 * 32
    assert facts == {
        "parameters": attention + mlp + rest,
        "bytes": 8 * (attention + mlp + rest),
        "bytes_per_token": 2 * 2 * 12 * 8,  # K and V, KV heads, width, float64
        "dialect": "tiny",
        "taps": [0, 1, 2],
        "draft_vocab": 40,
        "context": 99,
        "warnings": ["beware"],
    }


def test_it_is_built_from_the_checkpoint_named() -> None:
    asked: list[Any] = []

    def head(where: str, mechanism: str, allow_bin: bool) -> Head:
        asked.append((where, mechanism, allow_bin))
        return heads.random(heads.spec("eagle3"))

    settings = dict(DRAFTER.backends["native"](4, {"checkpoint": "drafters/x/eagle3"}))
    assert settings.pop("module") == eagle3.__name__
    near: Any = Near(target(), None, None, None, head)  # type: ignore[arg-type]
    built = eagle3.build(tiny.plan(4), near, **settings)
    assert built.taps == (0, 1, 2)
    assert asked == [("drafters/x/eagle3", "eagle3", False)]


def test_without_a_checkpoint_it_says_how_to_name_one() -> None:
    with pytest.raises(UserError, match=r"--set eagle3.checkpoint=FOLDER"):
        DRAFTER.backends["native"](4, {})
    with pytest.raises(UserError, match="allow_bin: should be true or false"):
        DRAFTER.backends["native"](4, {"checkpoint": "x", "allow_bin": 1})


def test_state_of_a_row_is_forgotten_with_the_row() -> None:
    """The same row index for two turns, the second shorter: nothing of the first is read."""
    head, shape = foretold.perfect("eagle3", "state"), tiny.plan(3)
    copying = tiny.lean(foretold.copying())
    own = heads.serial(head, copying, shape)
    for length in (30, 4):
        assert tiny.decoded(copying, own, shape, [foretold.even_prompt(length)], 13)[0].commits == [4, 4, 4]
