"""Random EAGLE-3 and MTP heads for tests, and what they draft computed from scratch."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
        side = torch.cat(states, 1)
        side = self._norm(side, self.t["input_norm.weight"]) if self.of.norm_before_fc else side
        if self.of.fc_norm:
            parts = side.chunk(len(states), 1)
            side = torch.cat([self._norm(x, self.t[f"fc_norm.{k}.weight"]) for k, x in enumerate(parts)], 1)
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
        self._dice = np.random.default_rng(0)
        plain = self.body.logits

        def noting(output: Tensor) -> Tensor:
            self._said.append(plain(output))
            return self._said[-1]

        self.body.logits = noting  # type: ignore[method-assign]

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        self._said.clear()
        draft = super().propose(batch, room)
        tokens = draft.tokens.clone()
        for b, row in enumerate(batch):
            count = draft.counts[b]
            if row is None or not count:
                continue
            logits = torch.stack([said[b] for said in self._said[:count]])
            self.rounds.append(Round(list(row.ids), draft.tokens[b, :count].tolist(), logits))
            assert row.expected is not None
            right = int(self._dice.integers(count + 1))
            told = list(row.expected[row.generated : row.generated + count])
            told[right:] = [(t + 1) % 64 for t in told[right:]]
            tokens[b, :count] = torch.tensor(told)
        return Draft(tokens, draft.counts)


def forced_rounds(head: Head, made: Any, target: Target, *, d: int = 4, cap: int = 24, **shaped: Any) -> list[Round]:
    """Four ragged prompts side by side under `Forced`, their answers checked against plain greedy."""
    prompts = [tiny.prompt(n) for n in tiny.LENGTHS]
    expected = [tiny.plain(made, ids, cap)[0] for ids in prompts]
    shape = tiny.plan(d, rows=4, **shaped)
    own = serial(head, target, shape, Forced)
    width = 1 + d if shape.static else None
    answers = tiny.decoded(target, own, shape, prompts, cap, expected=expected, width=width)
    assert [a.tokens for a in answers] == expected
    assert {s.accepted for a in answers for s in a.steps} == set(range(d + 1))
    return list(own.rounds)


def furthest(head: Head, target: Target, rounds: Sequence[Round]) -> float:
    """The largest difference between logits as drafted and as recomputed."""
    scratch = Scratch(head, target)
    return max(float((scratch.logits(r.ids, r.drafts) - r.logits).abs().max()) for r in rounds)
