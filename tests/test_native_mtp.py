"""MTP against its formulas from scratch, against plain greedy, and against each mistake that costs acceptance."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import foretold
import pytest
import serial_heads as heads
import test_native_verify as verified
import tiny
import torch

from speedbench.backends.native import BACKEND
from speedbench.drafters.mtp import DRAFTER
from speedbench.errors import UserError
from speedbench.native import checkpoint, mtp, publish
from speedbench.native.head import Head
from speedbench.native.proposer import Near
from speedbench.native.serial import Serial
from speedbench.types import Drafting, Load, Runner, Sampling

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "state first": {"embedding_first": False},
    "first embedding zeroed": {"zero_first_embedding": True},
    "zero_centred": {"zero_centred": True},
    "two layers": {"layers": 2},
    "recycled before the norm": {"recycle_normed": False},
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
    head = heads.random(heads.spec("mtp", **VARIANTS[variant]))
    assert heads.furthest(head, target(), heads.forced_rounds(head, made(), target())) < 1e-5


def test_the_transformers_form_and_static_slots_change_nothing() -> None:
    head = heads.random(heads.spec("mtp"))
    for form, static in (("transformers", False), ("lean", True)):
        rounds = heads.forced_rounds(head, made(), target(form), static=static)
        assert heads.furthest(head, target(form), rounds) < 1e-5


@pytest.mark.parametrize("given", [{"embedding_first": False}, {"zero_first_embedding": True}, {"taps": (1,)}])
def test_another_rule_gives_other_logits(given: dict[str, Any]) -> None:
    head = heads.random(heads.spec("mtp"))
    rounds = heads.forced_rounds(head, made(), target())
    assert heads.furthest(with_spec(head, **given), target(), rounds) > 0.01


# ---- lossless ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_greedy_answers_are_the_targets_alone_and_in_a_batch(d: int) -> None:
    head, prompts = heads.random(heads.spec("mtp")), [tiny.prompt(n) for n in tiny.LENGTHS]
    shape = tiny.plan(d, rows=4)
    together = tiny.decoded(target(), heads.serial(head, target(), shape), shape, prompts, 40)
    for i, expected in enumerate(baseline()):
        one = tiny.plan(d)
        alone = tiny.decoded(target(), heads.serial(head, target(), one), one, [prompts[i]], 40)[0]
        assert alone.tokens == together[i].tokens == expected
        assert alone.commits == together[i].commits


def test_sampled_answers_have_the_targets_distribution() -> None:
    sampling, target = Sampling(temperature=1.0), verified.target()
    head = heads.random(heads.spec("mtp", vocab=verified.VOCAB))
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


# ---- a head that knows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("reads", ["embedding", "state"])
def test_a_head_that_foretells_the_target_is_accepted_whole(reads: str, d: int, rows: int) -> None:
    foretold.accepts_everything(foretold.perfect("mtp", reads), d, rows)


def test_it_has_missed_nothing_while_d_was_zero() -> None:
    foretold.misses_nothing_while_d_is_zero(foretold.perfect("mtp", "state"))


def test_a_row_that_sat_out_and_rows_that_left_cost_the_others_nothing() -> None:
    foretold.a_row_rests_and_others_leave(foretold.perfect("mtp", "state"))


def test_each_row_drafts_up_to_the_heads_last_position_and_no_further() -> None:
    foretold.keeps_within_its_positions(lambda given: foretold.perfect("mtp", "state", **given))


# ---- the mistakes that cost acceptance -----------------------------------------------------------------------------


def with_spec(head: Head, **given: Any) -> Head:
    return Head(replace(head.spec, **given), head.tensors)


def mistaken(mistake: str) -> tuple[Head, Head, type[Serial]]:
    """A head done right, the same head with one mistake, and the drafter that makes it."""
    state, embedding = foretold.perfect("mtp", "state"), foretold.perfect("mtp", "embedding")
    return {
        "concat order": (embedding, with_spec(embedding, embedding_first=False), Serial),
        "tap before the last norm": (state, with_spec(state, taps=(foretold.COPY_LAYERS - 1,)), Serial),
        "shift": (embedding, embedding, foretold.Late),
        "recycled before the norm": (state, with_spec(state, recycle_normed=False), Serial),
    }[mistake]


@pytest.mark.parametrize("mistake", ["concat order", "tap before the last norm", "shift", "recycled before the norm"])
def test_a_mistake_lowers_the_acceptance_length_of_a_head_that_knows(mistake: str) -> None:
    right, wrong, kind = mistaken(mistake)
    assert foretold.acceptance_length(right) == 5.0
    assert foretold.acceptance_length(wrong, kind=kind) < 3.5


# ---- building ------------------------------------------------------------------------------------------------------


def test_a_broken_head_is_found_by_one_step() -> None:
    head = heads.random(heads.spec("mtp"))
    broken = Head(head.spec, {**head.tensors, "norm.weight": torch.full((32,), float("nan")).double()})
    with pytest.raises(UserError, match="NaN or infinite"):
        heads.serial(broken, target(), tiny.plan(3))


def test_only_what_the_head_adds_is_counted() -> None:
    """The embedding and the output matrix are the target's."""
    facts = heads.serial(heads.random(heads.spec("mtp")), target(), tiny.plan(3)).facts
    parameters = 48 * 32 * 2 + 2 * 24 * 32 + 3 * 40 * 32 + 2 * 32 * 32 + 5 * 32
    assert (facts["parameters"], facts["bytes"], facts["draft_vocab"]) == (parameters, 8 * parameters, 64)


def test_it_is_built_from_the_checkpoint_named() -> None:
    asked: list[Any] = []

    def head(where: str, mechanism: str, allow_bin: bool) -> Head:
        asked.append((where, mechanism, allow_bin))
        return heads.random(heads.spec("mtp"))

    settings = dict(DRAFTER.backends["native"](4, {"checkpoint": "x", "allow_bin": True}))
    assert settings.pop("module") == mtp.__name__
    near: Any = Near(target(), None, None, None, head)  # type: ignore[arg-type]
    assert mtp.build(tiny.plan(4), near, **settings).taps == (2,)
    assert asked == [("x", "mtp", True)]


def test_without_a_checkpoint_it_says_how_to_name_one() -> None:
    with pytest.raises(UserError, match=r"--set mtp.checkpoint=FOLDER"):
        DRAFTER.backends["native"](4, {})


# ---- through the backend -------------------------------------------------------------------------------------------


def test_a_session_loads_a_head_once_for_all_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two draft lengths at two batch sizes: one checkpoint read."""
    home = tiny.folder(tmp_path / "target", tiny.model(dtype=torch.float32), tiny.tokenizer(size=64))
    publish.publish(heads.random(heads.spec("mtp", context=512)), tmp_path / "head", "t")
    read, asked = checkpoint.load, list[str]()
    monkeypatch.setattr(
        checkpoint, "load", lambda where, *args, **more: asked.append(where) or read(where, *args, **more)
    )
    with BACKEND.open(
        Runner(name="t", title="t", backend="native", model=str(home), engine={"device": "cpu"})
    ) as session:
        drafting = Drafting(label="mtp", drafter="mtp", settings={"checkpoint": str(tmp_path / "head")})
        for d in (2, 4):
            for concurrency in (1, 3):
                load = Load(sampling=Sampling(max_tokens=8), longest=64, widest=4)
                assert session.engine(drafting, d, concurrency, load).facts["parameters"] > 0
    assert asked == [str(tmp_path / "head")]


def test_a_target_whose_states_cannot_be_read_is_refused_before_the_run(tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "target", tiny.model("gpt_neox", dtype=torch.float32), tiny.tokenizer(size=64))
    publish.publish(heads.random(heads.spec("mtp", context=512)), tmp_path / "head", "t")
    drafting = Drafting(label="mtp", drafter="mtp", settings={"checkpoint": str(tmp_path / "head")})
    load = Load(sampling=Sampling(max_tokens=8), longest=64, widest=4)
    with BACKEND.open(
        Runner(name="t", title="t", backend="native", model=str(home), engine={"device": "cpu"})
    ) as session:
        session.target.model.gpt_neox.layers = torch.nn.Sequential(*session.target.model.gpt_neox.layers)
        with pytest.raises(UserError, match="GPTNeoXForCausalLM has no list of 2 layers"):
            session.engine(drafting, 4, 1, load)
