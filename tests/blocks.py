"""Random block heads under the contract's names, and what they draft recomputed from scratch in plain torch."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tiny
import torch
from torch import Tensor

from speedbench.native import dspark
from speedbench.native.decode import Decoder
from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Head, HeadSpec
from speedbench.native.proposer import Draft, Row
from speedbench.native.target import Target

CAP = 20
PROMPTS = [tiny.prompt(n) for n in tiny.LENGTHS]
KEPT = tuple(range(1, 64, 3))
"""A reduced vocabulary: these ids of the target's."""


@functools.cache
def made() -> Any:
    return tiny.exact(tiny.model(num_hidden_layers=4))


@functools.cache
def target(form: str = "lean") -> Target:
    return tiny.lean(made()) if form == "lean" else tiny.as_is(made())


@functools.cache
def baseline() -> tuple[list[int], ...]:
    found = [tiny.plain(made(), ids, CAP) for ids in PROMPTS]
    assert min(gap for _, gap in found) > 1e-4
    return tuple(tokens for tokens, _ in found)


# ---- heads ---------------------------------------------------------------------------------------------------------


def head_of(
    *,
    seed: int = 0,
    sharp: float = 3.0,
    target_vocab: int = 64,
    kept: Sequence[int] = (),
    own: bool = False,
    **given: Any,
) -> Head:
    """A random head of two Qwen3-like layers under the contract's names; `kept` are the ids of a reduced vocabulary."""
    fixed: dict[str, Any] = {
        "mechanism": "dflash", "dialect": "z-lab", "hidden": 32, "target_hidden": 32, "intermediate": 48, "heads": 4,
        "kv_heads": 2, "head_dim": 12, "layers": 2, "eps": 1e-6, "taps": (3, 1), "vocab": len(kept) or target_vocab,
        "rope": {"rope_theta": 5000.0}, "block": 5, "mask_token": 7,
    }  # fmt: skip
    spec = HeadSpec(**{**fixed, **given})
    noise = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, scale: float = 1.5) -> Tensor:
        return torch.randn(rows, columns, generator=noise, dtype=torch.float64) * scale / columns**0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.3 * torch.randn(size, generator=noise, dtype=torch.float64)

    size, width = spec.hidden, spec.head_dim
    tensors = {"fc.weight": matrix(size, len(spec.taps) * spec.target_hidden)}
    tensors |= {"hidden_norm.weight": norm(size), "norm.weight": norm(size)}
    for i in range(spec.layers):
        tensors |= {
            f"layers.{i}.{name}.weight": norm(n)
            for name, n in (
                ("input_layernorm", size), ("post_attention_layernorm", size),
                ("self_attn.q_norm", width), ("self_attn.k_norm", width),
            )
        }  # fmt: skip
        tensors |= {
            f"layers.{i}.{name}.weight": matrix(*shape)
            for name, shape in (
                ("self_attn.q_proj", (spec.heads * width, size)), ("self_attn.k_proj", (spec.kv_heads * width, size)),
                ("self_attn.v_proj", (spec.kv_heads * width, size)), ("self_attn.o_proj", (size, spec.heads * width)),
                ("mlp.gate_proj", (spec.intermediate, size)), ("mlp.up_proj", (spec.intermediate, size)),
                ("mlp.down_proj", (size, spec.intermediate)),
            )
        }  # fmt: skip
    if own or kept:
        tensors["lm_head.weight"] = matrix(spec.vocab, size, sharp)
    if own:
        tensors["embed_tokens.weight"] = matrix(target_vocab, size, 3.0)
    if kept:
        tensors["d2t"] = torch.tensor(kept) - torch.arange(len(kept))
    if spec.markov != "none":
        rank = spec.markov_rank
        tensors |= {
            "markov_w1.weight": matrix(target_vocab, rank, 3.0),
            "markov_w2.weight": matrix(spec.vocab, rank, 3),
        }
        if spec.markov == "gated":
            tensors |= {"gate_proj.weight": matrix(rank, size + rank), "gate_proj.bias": norm(rank)}
        if spec.markov == "rnn":
            tensors |= {"joint_proj.weight": matrix(3 * rank, 2 * rank + size), "joint_proj.bias": norm(3 * rank)}
    if spec.confidence:
        reads = size + spec.markov_rank * spec.confidence_reads_markov
        tensors |= {"confidence.weight": matrix(1, reads, 2.0), "confidence.bias": norm(1)}
    return Head(spec, tensors)


# ---- the same from scratch -----------------------------------------------------------------------------------------


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """x [N, heads, d] by rotary embedding, angles in float32 as everywhere."""
    half = x.shape[-1] // 2
    angles = torch.outer(positions.float(), 1.0 / base ** (torch.arange(0, 2 * half, 2).float() / (2 * half)))
    cos, sin = angles.cos().double()[:, None], angles.sin().double()[:, None]
    return torch.cat([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


@torch.inference_mode()
def block(
    model: Any, head: Head, ids: Sequence[int], slots: int | None = None, wrong: str = ""
) -> tuple[Tensor, Tensor]:
    """States and logits [slots, ·] of the block behind `ids`, whose last is the anchor: no cache, no batch, one head
    and one query at a time. `wrong` makes one of the known mistakes."""
    spec, t, s = head.spec, head.tensors, len(ids) - 1
    seen = ids if wrong == "context holds the anchor" else ids[:-1]
    hidden = model(torch.tensor([list(seen)]), output_hidden_states=True).hidden_states
    taps = [tap + (wrong == "layer id") for tap in spec.taps]
    c = rms(torch.cat([hidden[tap][0] for tap in taps], -1) @ t["fc.weight"].T, t["hidden_norm.weight"])
    table = t.get("embed_tokens.weight", model.get_input_embeddings().weight)
    n = slots or spec.block or 0
    x = table[[ids[-1], *[spec.mask_token or 0] * (n - 1)]]
    base, group = spec.rope["rope_theta"], spec.heads // spec.kv_heads
    at = torch.cat([torch.arange(len(seen)), torch.arange(s, s + n)])
    for i in range(spec.layers):
        w = {name[len(f"layers.{i}.") : -7]: x for name, x in t.items() if name.startswith(f"layers.{i}.")}
        z = rms(x, w["input_layernorm"])
        both = torch.cat([rms(c, w["input_layernorm"]) if wrong == "input_layernorm on context" else c, z])
        q = (z @ w["self_attn.q_proj"].T).view(n, spec.heads, -1)
        k = (both @ w["self_attn.k_proj"].T).view(len(at), spec.kv_heads, -1)
        v = (both @ w["self_attn.v_proj"].T).view(len(at), spec.kv_heads, -1)
        q, k = turned(rms(q, w["self_attn.q_norm"]), at[-n:], base), turned(rms(k, w["self_attn.k_norm"]), at, base)
        mixed = torch.zeros_like(q)
        for h in range(spec.heads):
            for j in range(n):
                scores = k[:, h // group] @ q[j, h] / spec.head_dim**0.5
                if spec.causal:
                    scores = scores.masked_fill(at > s + j, -torch.inf)
                mixed[j, h] = scores.softmax(0) @ v[:, h // group]
        x = x + mixed.flatten(1) @ w["self_attn.o_proj"].T
        m = rms(x, w["post_attention_layernorm"])
        x = x + (torch.nn.functional.silu(m @ w["mlp.gate_proj"].T) * (m @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    states = rms(x, t["norm.weight"])
    return states, states @ t.get("lm_head.weight", model.get_output_embeddings().weight).T


def first_slot(head: Head) -> int:
    return 0 if head.spec.anchor_predicts else 1


@torch.inference_mode()
def serial(
    head: Head, states: Tensor, logits: Tensor, anchor: int, dropped: Tensor | None = None
) -> tuple[list[int], list[float]]:
    """Greedy picks of one row in the target's ids and the confidence of each, slot by slot. `dropped` is the state of
    a slot 0 that predicts nothing: an rnn's own state has passed it."""
    spec, t, before = head.spec, head.tensors, anchor
    tokens, sure = [], []
    state = torch.zeros(spec.markov_rank, dtype=torch.float64)
    if dropped is not None and spec.markov == "rnn":
        state, _ = _rnn(head, state, t["markov_w1.weight"][anchor], dropped)
    for h, scores in zip(states, logits, strict=True):
        if spec.markov != "none":
            e = t["markov_w1.weight"][before]
        if spec.confidence:
            reads = torch.cat([h, e]) if spec.confidence_reads_markov else h
            sure.append(float(torch.sigmoid(t["confidence.weight"][0] @ reads + t["confidence.bias"][0])))
        if spec.markov == "gated":
            e = torch.sigmoid(t["gate_proj.weight"] @ torch.cat([h, e]) + t["gate_proj.bias"]) * e
        if spec.markov == "rnn":
            state, e = _rnn(head, state, e, h)
        if spec.markov != "none":
            scores = scores + t["markov_w2.weight"] @ e
        best = int(scores.argmax())
        before = best + int(t["d2t"][best]) if "d2t" in t else best
        tokens.append(before)
    return tokens, sure


def _rnn(head: Head, state: Tensor, e: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The next state, and what W2 reads."""
    rank = head.spec.markov_rank
    joint = head.tensors["joint_proj.weight"] @ torch.cat([state, e, h]) + head.tensors["joint_proj.bias"]
    keep = torch.sigmoid(joint[:rank])
    return keep * state + (1 - keep) * torch.tanh(joint[rank : 2 * rank]), torch.tanh(joint[2 * rank :])


class Watched:
    """A proposer whose every round is checked against the recomputation. Rows sit out now and then, and the first few
    drafts of each are made right, so that acceptance is ragged."""

    def __init__(self, inner: DFlash, head: Head, *, helped: bool = True, skips: bool = True) -> None:
        self._inner, self.head, self._helped, self._skips = inner, head, helped, skips
        self.pick, inner.pick = inner.pick, self
        self.facts: Any = inner.facts
        self.rounds = 0
        for both in inner.back.slots.joint:
            assert both is not None
            both.copy_(1e3 * torch.randn_like(both))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, filled: Filled) -> Draft:
        self.filled, self.own = filled, self.pick(filled)
        return self.own

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        sits = [r is None or (self._skips and (r.index + len(r.ids)) % 4 == 0) for r in batch]
        draft = self._inner.propose(batch, [0 if sit else n for sit, n in zip(sits, room, strict=True)])
        for b, row in enumerate(batch):
            if row is not None and draft.counts[b]:
                self.check(b, row.ids, draft)
                self.rounds += 1
                right = baseline()[row.index][row.generated :][: (row.index + 3 * len(row.ids)) % (draft.counts[b] + 1)]
                if self._helped:
                    draft.tokens = draft.tokens.clone()
                    draft.tokens[b, : len(right)] = torch.tensor(right, dtype=torch.int64)
        return draft

    def check(self, b: int, ids: Sequence[int], draft: Draft) -> None:
        used = slice(first_slot(self.head), first_slot(self.head) + draft.tokens.shape[1])
        states, logits = block(made(), self.head, ids, self._inner.back.width)
        assert torch.allclose(self.filled.logits[b], logits[used], atol=1e-5, rtol=0)
        assert torch.allclose(self.filled.states[b], states[used], atol=1e-5, rtol=0)
        dropped = states[0] if first_slot(self.head) else None
        tokens, _ = serial(self.head, states[used], logits[used], ids[-1], dropped)
        assert draft.tokens[b].tolist() == tokens


def dflash(head: Head, shape: Any, form: str = "lean", **more: Any) -> DFlash:
    return (dspark.of if head.spec.mechanism == "dspark" else DFlash)(head, shape, target(form), **more)


def drafted(
    own: DFlash, prompts: Sequence[Sequence[int]] = PROMPTS, seed: int = 0, room: Sequence[int] | None = None
) -> Draft:
    """What is drafted right behind the prompts, on top of the first token that the target says."""
    shape = own.plan
    decoder = Decoder(target(), own, shape, target().slots(shape.rows, shape.length))
    for i, ids in enumerate(prompts):
        decoder.admit(Row(i, list(ids), len(ids), CAP, np.random.default_rng((seed, i))))
    return own.propose(decoder.rows, room or [shape.draft_length] * len(prompts))


def proposal(head: Head, d: int, prompts: Sequence[Sequence[int]] = PROMPTS, **more: Any) -> list[list[int]]:
    found: list[list[int]] = drafted(dflash(head, tiny.plan(d, rows=len(prompts)), **more), prompts).tokens.tolist()
    return found
