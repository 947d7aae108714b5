"""External drafters: vocabularies of other sizes, other tokenizers, shorter contexts, and the target as its own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from speedbench.backends.native import BACKEND
from speedbench.drafters.external import DRAFTER
from speedbench.errors import UserError
from speedbench.native.chat import shared_vocab
from speedbench.native.external import External
from speedbench.native.proposer import Draft, Row
from speedbench.types import Conversation, Drafting, Load, Record, Request, Runner, Sampling


class Noted(External):
    """Notes the ids of every draft that counts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.proposed: list[list[int]] = []

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        draft = super().propose(batch, room)
        self.proposed += [ids[:n] for ids, n in zip(draft.tokens.tolist(), draft.counts, strict=True)]
        return draft


def noted(drafter: Any, shape: Any, shared: int) -> Noted:
    return Noted(drafter, shape, drafter.slots(shape.rows, shape.length), shared)


# ---- vocabularies --------------------------------------------------------------------------------------------------


@functools.cache
def sized(rows: int) -> Any:
    """Models that agree on the first 140 ids, as far as random models can."""
    made = tiny.model(vocab_size=152, seed=4)
    with torch.no_grad():
        made.lm_head.weight[140:] = 0
    if rows == 152:
        return made
    smaller = tiny.model(vocab_size=rows, seed=4)
    kept = {k: v[:rows] if v.shape[:1] == (152,) else v for k, v in made.state_dict().items()}
    smaller.load_state_dict(kept)
    return smaller


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("target_rows", "drafter_rows"), [(152, 144), (144, 152)])
def test_vocabularies_that_differ_by_padding_pair_and_padding_is_never_proposed(
    target_rows: int, drafter_rows: int, temperature: float
) -> None:
    words = tiny.tokenizer(size=140)
    shared = shared_vocab(words, tiny.tokenizer(size=140), target_rows, drafter_rows)
    assert shared == 140
    made, ids = sized(target_rows), tiny.prompt(9, 140)
    shape = tiny.plan(4, sampling=Sampling(temperature=temperature))
    drafter = tiny.lean(sized(drafter_rows))
    with torch.inference_mode():
        drafter._head = functools.partial(lambda head, x: pushed(head(x)), drafter._head)
    own = noted(drafter, shape, shared)
    answer = tiny.decoded(tiny.lean(made), own, shape, [ids], 40)[0]
    if not temperature:
        assert answer.tokens == tiny.plain(made, ids, 40)[0]
    assert own.proposed
    assert max(t for draft in own.proposed for t in draft) < 140


def pushed(logits: torch.Tensor) -> torch.Tensor:
    """A drafter that would say nothing but padding."""
    logits[..., 140:] += 1e3
    return logits


def test_a_drafter_with_the_same_weights_but_other_padding_is_always_right() -> None:
    made, ids = sized(152), tiny.prompt(9, 140)
    expected, _ = tiny.plain(made, ids, 41)
    assert max(expected) < 140
    shape = tiny.plan(4)
    answer = tiny.decoded(tiny.lean(made), noted(tiny.lean(sized(144)), shape, 140), shape, [ids], 41)[0]
    assert answer.commits == [5] * 8


def test_a_tokenizer_that_means_something_else_is_refused_with_the_first_ids_that_differ() -> None:
    with pytest.raises(UserError, match=r"2 ids differ in meaning, first 10: 'f' ≠ 'p', 20: 'p' ≠ 'f'"):
        shared_vocab(tiny.tokenizer(), tiny.tokenizer(swap=(10, 20)), 64, 64)


def test_a_tokenizer_with_more_tokens_is_refused_with_the_first_that_is_lacking() -> None:
    with pytest.raises(UserError, match=r"5 ids differ.*first 35: None ≠ '丣', 36"):
        shared_vocab(tiny.tokenizer(), tiny.tokenizer(size=40), 64, 64)
    with pytest.raises(UserError, match=r"5 ids differ.*first 35: '丣' ≠ None, 36"):
        shared_vocab(tiny.tokenizer(size=40), tiny.tokenizer(), 64, 64)


def test_a_model_with_fewer_rows_than_tokens_bounds_what_is_shared() -> None:
    words = tiny.tokenizer(size=140)
    assert shared_vocab(words, words, 152, 100) == 100


# ---- contexts ------------------------------------------------------------------------------------------------------


def test_a_row_longer_than_the_drafters_context_drafts_no_more_and_the_others_go_on() -> None:
    """A drafter of 24 positions, the target's own weights: rows of 9, 17 and 30 tokens and 20 to come."""
    made = tiny.model()
    prompts = [tiny.prompt(n) for n in (9, 17, 30)]
    shape = tiny.plan(3, rows=3)
    own = tiny.external(tiny.lean(made), shape, length=24)
    answers = tiny.decoded(tiny.lean(made), own, shape, prompts, 20)
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer.tokens == tiny.plain(made, ids, 20)[0]
        length = len(ids) + 1
        for step in answer.steps:
            left = 20 - (length - len(ids))
            assert step.proposed == max(0, min(3, left - 1, 24 - length + 1))
            assert step.accepted == step.proposed
            length += step.committed
    assert [s.proposed for s in answers[2].steps] == [0] * 19


def test_the_drafter_never_looks_beyond_its_own_positions() -> None:
    made = tiny.model(max_position_embeddings=24)
    spy = tiny.Spy(tiny.lean(made))
    shape = tiny.plan(5, rows=2)
    own = External(spy, shape, spy.slots(2, 24), 64)
    tiny.decoded(tiny.lean(tiny.model()), own, shape, [tiny.prompt(9), tiny.prompt(17)], 30)
    assert max(int(p.max()) for p in spy.positions) == 23


# ---- through the backend -------------------------------------------------------------------------------------------

LOAD = Load(sampling=Sampling(max_tokens=24), longest=64, widest=4)
ASKED = [
    Conversation(request=Request(id=str(i), category="x", turns=(t,))) for i, t in enumerate(["hi", "why is it so"])
]


def answers(model: Path, drafting: Drafting, draft_length: int, dtype: str = "float64") -> list[Record]:
    engine = {"dtype": dtype, "device": "cpu"}
    with BACKEND.open(Runner(name="t", title="t", backend="native", model=str(model), engine=engine)) as session:
        served = session.engine(drafting, draft_length, 2, LOAD).serve(ASKED)
        return sorted((r for r in served if isinstance(r, Record)), key=lambda r: r.request)


def drafting(**settings: Any) -> Drafting:
    return Drafting(label="external", drafter="external", settings=settings)


@pytest.mark.parametrize("drafter_dtype", [None, "float32", "float64"])
def test_the_target_as_its_own_drafter_keeps_its_own_cache(
    drafter_dtype: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32), tiny.tokenizer(size=64))
    caches: list[int | None] = []
    made = External.__init__

    def noting(self: External, model: Any, shape: Any, slots: Any, shared: int) -> None:
        made(self, model, shape, slots, shared)
        caches.append(slots.keys[0].data_ptr())

    monkeypatch.setattr(External, "__init__", noting)
    from speedbench.native.decode import Decoder

    started = Decoder.__init__

    def noting_too(self: Decoder, *args: Any, **more: Any) -> None:
        started(self, *args, **more)
        caches.append(self.slots.keys[0].data_ptr() if self.slots.keys[0] is not None else None)

    monkeypatch.setattr(Decoder, "__init__", noting_too)
    own = answers(home, drafting(model=str(home), dtype=drafter_dtype), 4)
    assert len(caches) == 2
    assert caches[0] != caches[1]
    plain = answers(home, Drafting(label="none", drafter="none"), 0)
    assert [r.output for r in own] == [r.output for r in plain]
    assert all(s.accepted == s.proposed for r in own for s in r.steps)


def test_a_pair_of_other_tokenizers_is_refused_before_anything_runs(tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "target", tiny.model(dtype=torch.float32))
    other = tiny.folder(tmp_path / "drafter", tiny.model(dtype=torch.float32), tiny.tokenizer(swap=(10, 20)))
    with pytest.raises(UserError, match="10: 'f' ≠ 'p'"):
        answers(home, drafting(model=str(other)), 4)


def test_a_drafter_without_a_model_or_of_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "target", tiny.model(dtype=torch.float32))
    with pytest.raises(UserError, match=r"external.model: name the draft model"):
        answers(home, drafting(), 4)
    for dtype in ("float8", 32, ["float32"]):
        with pytest.raises(UserError, match="dtype: one of float32"):
            answers(home, drafting(model=str(home), dtype=dtype), 4)


def test_the_drafters_settings() -> None:
    chosen = DRAFTER.backends["native"](4, {"model": "x"})
    assert chosen == {"module": "speedbench.native.external", "model": "x", "dtype": None, "form": "auto"}
    with pytest.raises(UserError, match="form: one of auto, lean, transformers"):
        DRAFTER.backends["native"](4, {"model": "x", "form": "fat"})


def test_what_the_drafter_is_is_told(tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32))
    runner = Runner(name="t", title="t", backend="native", model=str(home), engine={"device": "cpu"})
    with BACKEND.open(runner) as session:
        facts = session.engine(drafting(model=str(home)), 4, 1, LOAD).facts
    assert facts["parameters"] == sum(p.numel() for p in tiny.model().parameters())
    assert facts["bytes"] == 4 * facts["parameters"]
    assert facts["bytes_per_token"] == 2 * 2 * 2 * 8 * 4  # K and V, layers, KV heads, width, float32
    assert facts["acceptance"] == "greedy"
    assert facts["context"] == 512
