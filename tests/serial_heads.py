"""EAGLE-3 and MTP heads for tests: random ones, ones that are always right, and their drafts computed from scratch."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tiny
import torch
from torch import Tensor
from torch.nn import functional

from speedbench.native.eagle3 import Eagle3
from speedbench.native.head import Head, HeadSpec
from speedbench.native.mtp import Mtp
from speedbench.native.proposer import Draft, Plan, Row
from speedbench.native.serial import Serial
from speedbench.native.target import Target, prefill

FUSIONS = {"eagle3": Eagle3, "mtp": Mtp}


def serial(head: Head, target: Target, shape: Plan, kind: type[Serial] = Serial) -> Any:
    return kind(head, FUSIONS[head.spec.mechanism](head, target.dtype, target.device), target, shape)


# ---- random heads --------------------------------------------------------------------------------------------------


def spec(mechanism: str, **given: Any) -> HeadSpec:
    """For tiny's two-layer target: EAGLE-3 reads its embeddings, its middle and its end, MTP its end."""
    made: dict[str, Any] = {
        "mechanism": mechanism, "dialect": "tiny", "hidden": 32, "target_hidden": 32, "intermediate": 40, "heads": 4,
        "kv_heads": 2, "head_dim": 12, "layers": 1, "eps": 1e-6, "vocab": 64, "rope": {"rope_theta": 500.0},
        "taps": (0, 1, 2) if mechanism == "eagle3" else (2,), "recycle_normed": mechanism == "mtp",
    }  # fmt: skip
    return HeadSpec(**{**made, **given})


def shapes(of: HeadSpec, *, own_head: bool, own_embedding: int = 0) -> dict[str, tuple[int, ...]]:
    """The contract's tensors; `own_embedding` is its rows, 0 for none."""
    h, q, kv = of.hidden, of.heads * of.head_dim, of.kv_heads * of.head_dim
    found: dict[str, tuple[int, ...]] = {"norm.weight": (h,)}
    if of.mechanism == "eagle3":
        taps = len(of.taps)
        found |= {"fc.weight": (h, taps * of.target_hidden), "hidden_norm.weight": (h,)}
        found |= {"input_norm.weight": (taps * of.target_hidden,)} if of.norm_before_fc else {}
        found |= {f"fc_norm.{k}.weight": (of.target_hidden,) for k in range(taps)} if of.fc_norm else {}
    else:
        found |= {"fc.weight": (h, 2 * h), "enorm.weight": (h,), "hnorm.weight": (h,)}
    found |= {"lm_head.weight": (of.vocab, h)} if own_head else {}
    found |= {"embed_tokens.weight": (own_embedding, h)} if own_embedding else {}
    for i in range(of.layers):
        reads = 2 * h if of.mechanism == "eagle3" and i == 0 else h
        widths = {"q_proj": (q, reads), "k_proj": (kv, reads), "v_proj": (kv, reads), "o_proj": (h, q)}
        found |= {f"layers.{i}.self_attn.{name}.weight": shape for name, shape in widths.items()}
        found |= {f"layers.{i}.mlp.{name}_proj.weight": (of.intermediate, h) for name in ("gate", "up")}
        found |= {f"layers.{i}.mlp.down_proj.weight": (h, of.intermediate)}
        found |= {f"layers.{i}.{name}.weight": (h,) for name in ("input_layernorm", "post_attention_layernorm")}
    return found


def random(of: HeadSpec, seed: int = 0, *, d2t: Sequence[int] | None = None, own_embedding: int = 0) -> Head:
    """Matrices that keep the size of what they multiply, norms about their neutral value."""
    torch.manual_seed(seed)
    neutral = 0.0 if of.zero_centred else 1.0
    tensors = {}
    for name, shape in shapes(of, own_head=of.mechanism == "eagle3", own_embedding=own_embedding).items():
        noise = torch.randn(shape, dtype=torch.float64)
        tensors[name] = neutral + 0.3 * noise if len(shape) == 1 else 1.5 * noise / shape[1] ** 0.5
    if d2t is not None:
        tensors["d2t"] = torch.tensor(d2t)
    return Head(of, tensors)


# ---- from scratch --------------------------------------------------------------------------------------------------


class Scratch:
    """The formulas of `reference/drafters.md` §4.1 and §5.1 over one whole row, with no cache."""

    def __init__(self, head: Head, target: Target) -> None:
        self.of, self.t, self.target = head.spec, head.tensors, target

    def logits(self, ids: Sequence[int], drafts: Sequence[int]) -> Tensor:
        """[drafts, ids of the head]: what each of a row's drafts was picked from, given those before it."""
        slots = self.target.slots(1, len(ids))
        _, features = prefill(self.target, slots, ids[:-1], self.of.taps)
        g, tokens, found = self._read([features[tap][0] for tap in self.of.taps]), list(ids[1:]), []
        for draft in drafts:
            output = self._layers(torch.tensor(tokens), g)[-1:]
            normed = self._norm(output, self.t["norm.weight"])
            head = self.t.get("lm_head.weight")
            found.append(self.target.head(normed) if head is None else normed @ head.T)
            g = torch.cat([g, normed if self.of.recycle_normed else output])
            tokens.append(draft)
        return torch.cat(found)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        scale = weight + 1 if self.of.zero_centred else weight
        return x / (x.pow(2).mean(-1, keepdim=True) + self.of.eps).sqrt() * scale

    def _read(self, states: list[Tensor]) -> Tensor:
        if self.of.mechanism == "mtp":
            return states[0]
        if self.of.fc_norm:
            states = [self._norm(x, self.t[f"fc_norm.{k}.weight"]) for k, x in enumerate(states)]
        side = torch.cat(states, 1)
        side = self._norm(side, self.t["input_norm.weight"]) if self.of.norm_before_fc else side
        return side @ self.t["fc.weight"].T

    def _layers(self, tokens: Tensor, g: Tensor) -> Tensor:
        own = self.t.get("embed_tokens.weight")
        e = self.target.embed(tokens) if own is None else own[tokens]
        if self.of.zero_first_embedding:
            e = torch.cat([torch.zeros_like(e[:1]), e[1:]])
        first = self.t["layers.0.input_layernorm.weight"]
        if self.of.mechanism == "eagle3":
            state = self._norm(g, self.t["hidden_norm.weight"])
            x, z = (state if self.of.norm_before_residual else g), torch.cat([self._norm(e, first), state], 1)
        else:
            parts = [self._norm(e, self.t["enorm.weight"]), self._norm(g, self.t["hnorm.weight"])]
            x = torch.cat(parts if self.of.embedding_first else parts[::-1], 1) @ self.t["fc.weight"].T
            z = self._norm(x, first)
        for i in range(self.of.layers):
            z = self._norm(x, self.t[f"layers.{i}.input_layernorm.weight"]) if i else z
            x = x + self._attention(f"layers.{i}.self_attn.", z)
            normed, mlp = self._norm(x, self.t[f"layers.{i}.post_attention_layernorm.weight"]), f"layers.{i}.mlp."
            gate, up = (normed @ self.t[f"{mlp}{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (functional.silu(gate) * up) @ self.t[f"{mlp}down_proj.weight"].T
        return x

    def _attention(self, prefix: str, z: Tensor) -> Tensor:
        def heads(name: str) -> Tensor:
            return (z @ self.t[f"{prefix}{name}_proj.weight"].T).view(len(z), -1, self.of.head_dim).transpose(0, 1)

        group = self.of.heads // self.of.kv_heads
        q, k = self._turned(heads("q")), self._turned(heads("k")).repeat_interleave(group, 0)
        scores = (q @ k.transpose(1, 2)) / self.of.head_dim**0.5
        hidden = torch.ones(len(z), len(z), dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ heads("v").repeat_interleave(group, 0)
        return mixed.transpose(0, 1).flatten(1) @ self.t[f"{prefix}o_proj.weight"].T

    def _turned(self, x: Tensor) -> Tensor:
        half = self.of.head_dim // 2
        frequencies = 1 / self.of.rope["rope_theta"] ** (torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(x.shape[1]).float(), frequencies)
        cos, sin = angles.cos().double(), angles.sin().double()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@dataclass
class Round:
    """One row's drafting in one pass: what was committed, what it drafted, and from which logits."""

    ids: list[int]
    drafts: list[int]
    logits: Tensor


class Forced(Serial):
    """Notes every round, then has its drafts replaced so that from none to all of them are right, row by row: most of
    what is committed is not what the drafter fed itself."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rounds: list[Round] = []
        self._said: list[Tensor] = []
        plain = self.body.logits

        def noting(output: Tensor) -> Tensor:
            self._said.append(plain(output))
            return self._said[-1]

        self.body.logits = noting  # type: ignore[method-assign]

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        self._said.clear()
        draft = super().propose(batch, room)
        for b, row in enumerate(batch):
            count = draft.counts[b]
            if row is None or not count:
                continue
            logits = torch.stack([said[b] for said in self._said[:count]])
            self.rounds.append(Round(list(row.ids), draft.tokens[b, :count].tolist(), logits))
            assert row.expected is not None
            right = (row.generated * 7 + row.index * 3 + len(self.rounds)) % (count + 1)
            told = list(row.expected[row.generated : row.generated + count])
            told[right:] = [(t + 1) % 64 for t in told[right:]]
            draft.tokens[b, :count] = torch.tensor(told)
        return draft


def forced_rounds(head: Head, made: Any, target: Target, *, d: int = 4, cap: int = 24, **shaped: Any) -> list[Round]:
    """Four ragged prompts side by side under `Forced`, their answers checked against plain greedy."""
    prompts = [tiny.prompt(n) for n in tiny.LENGTHS]
    expected = [tiny.plain(made, ids, cap)[0] for ids in prompts]
    shape = tiny.plan(d, rows=4, **shaped)
    own = serial(head, target, shape, Forced)
    width = 1 + d if shape.static else None
    answers = tiny.decoded(target, own, shape, prompts, cap, expected=expected, width=width)
    assert [a.tokens for a in answers] == expected
    for answer in answers:
        assert len({s.accepted for s in answer.steps}) > 2
    return list(own.rounds)


def furthest(head: Head, target: Target, rounds: Sequence[Round]) -> float:
    """The largest difference between logits as drafted and as recomputed."""
    scratch = Scratch(head, target)
    return max(float((scratch.logits(r.ids, r.drafts) - r.logits).abs().max()) for r in rounds)


# ---- a target that is easy to foretell, and heads that do ----------------------------------------------------------

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
    return Head(of, {
        **head.tensors,
        "fc.weight": torch.cat([nothing, nothing, eye], 1),
        "layers.0.input_layernorm.weight": ones,
        "hidden_norm.weight": ones,
        "layers.0.self_attn.q_proj.weight": sharp,
        "layers.0.self_attn.k_proj.weight": sharp,
        "layers.0.self_attn.v_proj.weight": torch.cat([eye, -eye] if reads == "embedding" else [nothing, step_on() - eye], 1),
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
    """Row 1 drafts nothing in the passes told."""

    resting: Callable[[int], bool] = staticmethod(lambda index: 2 <= index < 5)  # type: ignore[assignment]
    index = -1

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        self.index += 1
        still = [0 if r is not None and r.index == 1 and self.resting(self.index) else n
                 for r, n in zip(batch, room, strict=True)]  # fmt: skip
        return super().propose(batch, still)


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
