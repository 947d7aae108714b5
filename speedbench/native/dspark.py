"""DSpark: DFlash's block, whose slots are then corrected one by one for the token before them, and a confidence.

DSpark_paper.pdf §3 and deepseek-ai/DeepSpec (`deepspec/modeling/dspark/markov_head.py`, `common.py`,
`deepspec/eval/dspark/`): logits of slot k gain W2·(something of W1[token before it]). With W1 and the bias over a
reduced vocabulary as vllm-project/speculators has them: W1 by the target's ids, the bias in the draft's.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.dflash import DFlash, Filled
from speedbench.native.head import Head
from speedbench.native.packed import Linear, linear
from speedbench.native.proposer import Draft, Near, Plan
from speedbench.native.target import Target
from speedbench.native.verify import best, probabilities


class Markov:
    """The serial half: for every slot a bias from the token before it, the pick, and whether to go on."""

    def __init__(self, head: Head, target: Target, threshold: float = 0.0) -> None:
        """`threshold`: the proposal ends before the first slot whose confidence is below it; 0 is never."""
        spec = head.spec
        if threshold > 0 and not spec.confidence:
            raise UserError(f"dspark.confidence_threshold is {threshold}, but this checkpoint has no confidence head")

        def product(name: str) -> Linear | None:
            kept = [head.tensors.get(f"{name}.{part}") for part in ("weight", "bias")]
            weight, bias = (None if t is None else t.to(device=target.device, dtype=target.dtype) for t in kept)
            return None if weight is None else linear(weight, bias)

        w1 = head.tensors.get("markov_w1.weight")
        assert (w1 is None) == (spec.markov == "none"), f"a {spec.markov} Markov head and its W1 go together"
        self._spec, self._threshold, self.cuts = spec, threshold, threshold > 0
        self._w1 = None if w1 is None else w1.to(device=target.device, dtype=target.dtype)
        self._w2, self._confidence = product("markov_w2"), product("confidence")
        self._gate, self._joint = product("gate_proj"), product("joint_proj")
        self.facts: Mapping[str, Any] = {
            "markov": spec.markov, "markov_rank": spec.markov_rank,
            "confidence_head": spec.confidence, "confidence_threshold": threshold,
        }  # fmt: skip

    @torch.inference_mode()
    def __call__(self, filled: Filled) -> Draft:
        before, words = filled.anchors, filled.vocabulary
        wanted = torch.tensor(filled.counts, device=before.device)
        kept, going = torch.zeros_like(wanted), torch.ones_like(wanted, dtype=torch.bool)
        tokens, tables, state = [], [], self._begun(filled)
        for k in range(filled.logits.shape[1]):
            h, e = filled.states[:, k], self._embed(before)
            if self._threshold:
                going = going & (self.confidence(h, e) >= self._threshold) & (k < wanted)
                kept += going
                if not bool(going.any()):
                    break
            bias, state = self.bias(h, e, state)
            logits = filled.logits[:, k] if bias is None else filled.logits[:, k] + bias[:, : filled.logits.shape[2]]
            if filled.picks:
                before = words.target(best(logits))
            else:
                q = probabilities(logits, filled.sampling)
                before = filled.drawn(k, q)
                tables.append(words.spread(q))
            tokens.append(before)
        counts = kept.tolist() if self._threshold else filled.counts
        if not tokens:
            return Draft(torch.zeros(len(counts), 0, dtype=torch.int64, device=before.device), counts)
        return Draft(torch.stack(tokens, 1), counts, torch.stack(tables, 1) if tables else None)

    def _begun(self, filled: Filled) -> Tensor | None:
        """An rnn's state before the first slot that predicts: it runs from slot 0 in training, with the anchor before
        it, also where that slot predicts nothing (vllm-project/speculators 0.9.0 `models/dspark/core.py`)."""
        if filled.dropped is None or self._spec.markov != "rnn":
            return None
        return self.bias(filled.dropped, self._embed(filled.anchors), None)[1]

    def bias(self, h: Tensor, e: Tensor | None, state: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """What the logits of a slot gain, [B, draft vocabulary], and the rnn's next state. h [B, H] is the slot's
        state after the last norm, e [B, rank] the row of W1 for the token before it.

        vanilla: W2 e;  gated: W2 (σ(gate [h ; e]) · e);
        rnn: g, c, o = joint [state ; e ; h];  state ← σ(g)·state + (1 - σ(g))·tanh c;  W2 tanh o
        """
        if e is None or self._w2 is None:
            return None, None
        if self._spec.markov == "gated":
            assert self._gate is not None, "a gated Markov head has gate_proj"
            e = self._gate(torch.cat([h, e], -1)).sigmoid() * e
        elif self._spec.markov == "rnn":
            assert self._joint is not None, "an rnn Markov head has joint_proj"
            state = torch.zeros_like(e) if state is None else state
            gate, candidate, out = self._joint(torch.cat([state, e, h], -1)).chunk(3, -1)
            state = gate.sigmoid() * state + (1 - gate.sigmoid()) * candidate.tanh()
            e = out.tanh()
        return self._w2(e), state

    def confidence(self, h: Tensor, e: Tensor | None) -> Tensor:
        """[B]: how likely the draft of this slot is to be accepted if all before it are. It reads the token before the
        slot and never the slot's own, so that where a proposal ends says nothing about the token that it leaves out:
        what is kept still has its q, and the answer the target's distribution (paper §3.2.2, appendix A)."""
        assert self._confidence is not None, "a confidence was asked of a head without one"
        if self._spec.confidence_reads_markov:
            assert e is not None, "this confidence head reads the Markov embedding"
            h = torch.cat([h, e], -1)
        return self._confidence(h)[:, 0].sigmoid()

    def _embed(self, ids: Tensor) -> Tensor | None:
        """Rows of W1; the target may say an id of its padding that W1 has no row for, and any row stands in."""
        return None if self._w1 is None else F.embedding(ids.clamp(max=len(self._w1) - 1), self._w1)


def build(
    plan: Plan,
    near: Near,
    *,
    checkpoint: str,
    allow_bin: bool = False,
    block: str = "trained",
    confidence_threshold: float = 0.0,
) -> DFlash:
    head = near.head(checkpoint, "dspark", allow_bin)
    return of(head, plan, near.target, block=block, threshold=confidence_threshold)


def of(head: Head, plan: Plan, target: Target, *, block: str = "trained", threshold: float = 0.0) -> DFlash:
    """The proposer: DFlash's block and loop, with this way to pick."""
    return DFlash(head, plan, target, block=block, pick=Markov(head, target, threshold))
