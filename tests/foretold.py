"""A target that is easy to foretell, EAGLE-3 and MTP heads that do, and what the loop owes to a head that is right."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tiny
import torch
from serial_heads import random, serial, spec
from torch import Tensor

from speedbench.native.head import Head, HeadSpec
from speedbench.native.proposer import Draft, Row
from speedbench.native.serial import Serial

# ---- the target ----------------------------------------------------------------------------------------------------

WORDS, WIDE = 16, 32
"""Tokens and hidden size: tokens' embeddings are independent, of equal length, and share their first coordinate."""
COPY_LAYERS = 3
SIGNS = torch.tensor(
    [1.0, *(-1.0 if (x // 2) % 2 else 1.0 for x in range(WORDS)), *[1.0] * (WIDE - WORDS - 1)]
).double()
"""The gain of the target's last norm: a head that mistakes the states before and after it errs on half the tokens."""


def following(token: int) -> int:
    """What the copying target says after a token: the next but one, so that even tokens stay among themselves."""
    return (token + 2) % WORDS


def words() -> Tensor:
    """[WORDS, WIDE], each of root mean square 1."""
    found = torch.zeros(WORDS, WIDE, dtype=torch.float64)
    found[:, 0] = found[torch.arange(WORDS), torch.arange(WORDS) + 1] = (WIDE / 2) ** 0.5
    return found


def step_on() -> Tensor:
    """[WIDE, WIDE]: takes a token's embedding to that of the token that follows it."""
    found = torch.zeros(WIDE, WIDE, dtype=torch.float64)
    found[0, 0] = 1
    for token in range(WORDS):
        found[1 + following(token), 1 + token] = 1
    return found


def says() -> Tensor:
    """[WORDS, WIDE]: an output head that after a token's embedding, normed with SIGNS, says what follows it."""
    found = torch.zeros(WORDS, WIDE, dtype=torch.float64)
    for token, row in enumerate(words()):
        found[following(token)] = SIGNS * row
    return found


def copying() -> Any:
    """A transformers model whose layers add nothing, so that its states are the embeddings of its tokens."""
    made = tiny.model(vocab_size=WORDS, num_hidden_layers=COPY_LAYERS, tie_word_embeddings=False)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
        made.model.embed_tokens.weight.copy_(words())
        made.model.norm.weight.copy_(SIGNS)
        made.lm_head.weight.copy_(says())
    return tiny.exact(made)


# ---- the heads -----------------------------------------------------------------------------------------------------


def perfect(mechanism: str, reads: str, **given: Any) -> Head:
    """Foretells the copying target from the `embedding` of the newest token alone, or from the `state` before it."""
    given = {"vocab": WORDS, "kv_heads": 4, "head_dim": 8, **given}
    if mechanism == "eagle3":
        return _perfect_eagle3(spec("eagle3", **{"taps": (0, 1, 2), **given}), reads)
    head = random(spec("mtp", **{"taps": (COPY_LAYERS,), **given}))
    quiet = {f"layers.0.{name}.weight": torch.zeros_like(head.tensors[f"layers.0.{name}.weight"]) for name in SILENT}
    nothing = torch.zeros(WIDE, WIDE, dtype=torch.float64)
    halves = (torch.eye(WIDE).double(), nothing) if reads == "embedding" else (nothing, step_on() * SIGNS)
    ones = dict.fromkeys(("enorm.weight", "hnorm.weight"), torch.ones(WIDE, dtype=torch.float64))
    own = {"fc.weight": torch.cat(halves, 1), "norm.weight": SIGNS}
    return Head(head.spec, {**head.tensors, **quiet, **ones, **own})


SILENT = ("self_attn.o_proj", "mlp.down_proj")


def _perfect_eagle3(of: HeadSpec, reads: str) -> Head:
    """g is the state of the last tap; attention sees its own slot alone and adds what turns g into the answer."""
    head, eye = random(of), torch.eye(WIDE, dtype=torch.float64)
    nothing = torch.zeros(WIDE, WIDE, dtype=torch.float64)
    sharp = torch.zeros(WIDE, 2 * WIDE, dtype=torch.float64)
    sharp[:, 0] = (
        5.0  # equal queries and keys: with rotary, the nearest slot is the likest, and e^-60 is left for others
    )
    ones = torch.ones(WIDE, dtype=torch.float64)
    value = [eye, -eye] if reads == "embedding" else [nothing, step_on() - eye]
    return Head(of, {
        **head.tensors,
        "fc.weight": torch.cat([nothing, nothing, eye], 1),
        "layers.0.input_layernorm.weight": ones,
        "hidden_norm.weight": ones,
        "layers.0.self_attn.q_proj.weight": sharp,
        "layers.0.self_attn.k_proj.weight": sharp,
        "layers.0.self_attn.v_proj.weight": torch.cat(value, 1),
        "layers.0.self_attn.o_proj.weight": eye,
        "layers.0.mlp.down_proj.weight": torch.zeros_like(head.tensors["layers.0.mlp.down_proj.weight"]),
        "norm.weight": SIGNS,
        "lm_head.weight": says(),
    })  # fmt: skip


def halved(head: Head) -> Head:
    """The same head over the even tokens alone: its id k is the target's 2k."""
    tensors = {**head.tensors, "lm_head.weight": says()[::2], "d2t": torch.arange(WORDS // 2)}
    return Head(replace(head.spec, vocab=WORDS // 2), tensors)


def even_prompt(length: int) -> list[int]:
    return [2 * t for t in tiny.prompt(length, WORDS // 2)]


def answer_to(ids: Sequence[int], count: int) -> list[int]:
    found = [following(ids[-1])]
    while len(found) < count:
        found.append(following(found[-1]))
    return found


class Late(Serial):
    """Pairs each state with its own token: the shift left out."""

    def _tokens(self, row: Row, at: int, end: int) -> list[int]:
        return row.ids[at:end]


def acceptance_length(head: Head, d: int = 4, kind: type[Serial] = Serial) -> float:
    """Over four even prompts to the copying target, 40 tokens each; the answers are checked."""
    target, shape = tiny.lean(copying()), tiny.plan(d, rows=4)
    prompts = [even_prompt(n) for n in tiny.LENGTHS]
    answers = tiny.decoded(target, serial(head, target, shape, kind), shape, prompts, 41)
    assert [a.tokens for a in answers] == [answer_to(ids, 41) for ids in prompts]
    return sum(sum(a.commits) for a in answers) / sum(len(a.steps) for a in answers)


# ---- what every serial drafter must do -----------------------------------------------------------------------------


def accepts_everything(head: Head, d: int, rows: int) -> None:
    target, shape = tiny.lean(copying()), tiny.plan(d, rows=rows)
    prompts = [even_prompt(n) for n in tiny.LENGTHS[:rows]]
    full, rest = divmod(48, d + 1)
    for answer, ids in zip(tiny.decoded(target, serial(head, target, shape), shape, prompts, 49), prompts, strict=True):
        assert answer.tokens == answer_to(ids, 49)
        assert answer.commits == [d + 1] * full + [rest] * (rest > 0)


def misses_nothing_while_d_is_zero(head: Head) -> None:
    """Draft lengths 3, 3, 0, 0, 0, 3, 3 commit 4, 4, 1, 1, 1, 4, 4 (vllm-metal#716)."""
    lengths = [3, 3, 0, 0, 0, 3, 3]

    def change(decoder: Any, step: int) -> None:
        decoder.plan = replace(decoder.plan, draft_length=lengths[step])

    target, shape = tiny.lean(copying()), tiny.plan(3, rows=2)
    prompts = [even_prompt(n) for n in (9, 3)]
    own = serial(head, target, shape)
    for answer in tiny.decoded(target, own, shape, prompts, 20, before_step=change):
        assert answer.commits == [4, 4, 1, 1, 1, 4, 4]


class Resting(Serial):
    """Row 1 drafts nothing in three passes."""

    rests = (2, 3, 4)
    index = -1

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        self.index += 1
        resting = [row is not None and row.index == 1 and self.index in self.rests for row in batch]
        return super().propose(batch, [0 if rests else n for rests, n in zip(resting, room, strict=True)])


def a_row_rests_and_others_leave(head: Head) -> None:
    """Row 1 rests for three passes, row 0 ends after one and row 2 after three, so that rows are missing at both an
    end and the middle of the batch; whoever drafts is right."""
    target, shape = tiny.lean(copying()), tiny.plan(3, rows=4)
    prompts = [even_prompt(n) for n in tiny.LENGTHS]
    caps = [5, 40, 13, 41]
    answers = tiny.decoded(target, serial(head, target, shape, Resting), shape, prompts, 41, caps=caps)
    assert [a.tokens for a in answers] == [answer_to(i, n) for i, n in zip(prompts, caps, strict=True)]
    assert answers[0].commits == [4]
    assert answers[1].commits == [4, 4, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4]
    assert answers[2].commits == [4, 4, 4]
    assert answers[3].commits == [4] * 10


def keeps_within_its_positions(make: Callable[[Mapping[str, Any]], Head], context: int = 24, d: int = 3) -> None:
    """Prompts short of the limit, at limit less D, at the limit, one and many over it. Draft j of a row of n tokens
    comes from slot n - 3 + j, so the last that fits is j = context - n + 2; all are right, and the rest go on."""
    head = make({"context": context})
    target, shape = tiny.lean(copying()), tiny.plan(d, rows=5)
    prompts = [even_prompt(n) for n in (9, context - d, context, context + 1, 40)]
    answers = tiny.decoded(target, serial(head, target, shape), shape, prompts, 20)
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer.tokens == answer_to(ids, 20)
        length = len(ids) + 1
        for step in answer.steps:
            left = 20 - (length - len(ids))
            assert step.proposed == max(0, min(d, left - 1, context - length + 2))
            assert step.accepted == step.proposed
            length += step.committed
    assert answers[2].steps[0].proposed == 1
    assert {s.proposed for a in answers[3:] for s in a.steps} == {0}
