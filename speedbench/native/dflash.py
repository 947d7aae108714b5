"""DFlash: a small transformer that fills a block of masked slots in one pass, its context made of target features.

The math is that of z-lab/dflash (`dflash/model.py`, DFlashDraftModel and dflash_generate), with vLLM's batching idea
(`model_executor/models/qwen3_dflash.py`): one context vector a token, hidden_norm(fc(features)), goes straight into
every layer's k_proj and v_proj (no input_layernorm); queries come from the block [anchor, MASK, …] alone. DSpark runs
the same block and picks its tokens otherwise (dspark.py).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.head import Attend, Head, Layer, Rotary, attention, rms_norm
from speedbench.native.packed import linear
from speedbench.native.proposer import Draft, Near, Plan, Row, uniforms
from speedbench.native.slots import Slots, Window
from speedbench.native.target import PREFILL_CHUNK, Target
from speedbench.native.verify import best, draw, probabilities
from speedbench.types import Sampling


class Vocabulary:
    """Draft ids and the target's, of which there are `size`: target = draft + d2t[draft] (EAGLE-3's offsets)."""

    def __init__(self, d2t: Tensor | None, size: int) -> None:
        self._ids = None if d2t is None else d2t.long() + torch.arange(len(d2t), device=d2t.device)
        self._size = size

    def target(self, ids: Tensor) -> Tensor:
        return ids if self._ids is None else self._ids[ids]

    def spread(self, q: Tensor) -> Tensor:
        """Probabilities over draft ids → over the target's: what the draft cannot say has none."""
        if self._ids is None:
            return q
        wide = q.new_zeros(*q.shape[:-1], self._size)
        wide[..., self._ids] = q
        return wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A block as the backbone filled it, the slots that predict and no others."""

    states: Tensor
    """[B, D, H] after the last norm: what the head reads."""
    logits: Tensor
    """[B, D, draft vocabulary]."""
    anchors: Tensor
    """[B] int64: the token before the first prediction."""
    counts: list[int]
    """Drafts wanted of each row."""
    luck: Tensor | None
    """[B, ≥ D] in [0, 1); None: pick the best."""
    sampling: Sampling
    vocabulary: Vocabulary
    dropped: Tensor | None = None
    """[B, H] after the last norm: the anchor's own slot, where it predicts nothing; None where it does."""
    told: Tensor | None = None
    """[B, ≥ D] the target's ids that stand for whatever would be drawn, where only the chances are wanted."""

    def drawn(self, k: int, q: Tensor) -> Tensor:
        """The target's id for slot k, out of chances q [B, draft vocabulary]."""
        if self.told is not None:
            return self.told[:, k]
        assert self.luck is not None, "nothing was to be drawn"
        return self.vocabulary.target(draw(q, self.luck[:, k]))

    @property
    def picks(self) -> bool:
        """Whether each slot's best is taken, and nothing drawn."""
        return self.luck is None and self.told is None


class Pick(Protocol):
    """How a filled block becomes a proposal."""

    facts: Mapping[str, Any]
    cuts: bool
    """Whether it may end a proposal before it has as many drafts as were wanted."""

    def __call__(self, filled: Filled) -> Draft: ...


@dataclass(frozen=True, slots=True)
class Independent:
    """DFlash's own: every slot for itself."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    cuts: bool = False

    def __call__(self, filled: Filled) -> Draft:
        words = filled.vocabulary
        if filled.picks:
            return Draft(words.target(best(filled.logits)), filled.counts)
        q = probabilities(filled.logits, filled.sampling)
        tokens = torch.stack([filled.drawn(k, q[:, k]) for k in range(q.shape[1])], 1)
        return Draft(tokens, filled.counts, words.spread(q))


class Backbone:
    """The weights, and the context they keep: keys and values of position p in slot p, the block's own behind them.

    A pass writes its block over the slots from the anchor on; commit writes what was verified there before anyone can
    look, so that no entry that the draft fed itself outlives its pass.
    """

    def __init__(self, head: Head, plan: Plan, target: Target, width: int) -> None:
        """`width`: slots of a block as run."""
        spec, dtype, device = head.spec, target.dtype, target.device

        def get(name: str) -> Tensor:
            return head.tensors[name].to(device=device, dtype=dtype)

        def maybe(name: str) -> Tensor | None:
            return get(name) if name in head.tensors else None

        self.spec, self.width, self.target = spec, width, target
        self.reach = min(plan.length, spec.context or plan.length)
        """Tokens of context that the slots hold."""
        self._fc = linear(get("fc.weight"), maybe("fc.bias"))
        self._hidden_norm, self._norm = get("hidden_norm.weight"), get("norm.weight")
        self._layers = [Layer(head, i, dtype, device) for i in range(spec.layers)]
        self._embedding, own_head = maybe("embed_tokens.weight"), maybe("lm_head.weight")
        self._head = None if own_head is None else linear(own_head)
        self.slots = Slots(spec.layers, plan.rows, self.reach + width, dtype, device, static=plan.static)
        entry = torch.empty(1, spec.kv_heads, 1, spec.head_dim, dtype=dtype, device=device)
        for i in range(spec.layers):
            self.slots.allocate(i, entry, entry)
        self._rotary = Rotary(spec, self.slots.length, dtype, device)

    @torch.inference_mode()
    def remember(self, slots: Slots, features: Mapping[int, Tensor], start: Sequence[int]) -> None:
        """Write the context of tokens seen by the target, features [B, W, H] by tap, from position start[b] on."""
        taps = torch.cat([features[tap] for tap in self.spec.taps], -1)
        fused = self._fc(taps.flatten(0, 1)).view(*taps.shape[:2], -1)
        context = rms_norm(fused, self._hidden_norm, self.spec)
        window = self._window(slots, start, taps.shape[1])
        for i, layer in enumerate(self._layers):
            slots.write_joint(i, window, self._entries(layer, context, window.positions))

    @torch.inference_mode()
    def fill(self, slots: Slots, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """States [B, width, H] after the last norm of the block whose anchor [B] stands at position start[b]."""
        window = self._window(slots, start, self.width)
        mask = self._mask(slots, start, window)

        def attend(index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            entries = torch.cat([key, value], 2).flatten(0, 1)
            return attention(query, *slots.write_joint(index, window, entries), mask)

        return self.through(anchors, window.positions, attend)

    def through(self, anchors: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The same wherever keys and values are kept, for blocks as wide as positions [B, width]."""
        masks = torch.full((len(anchors), positions.shape[1] - 1), self.spec.mask_token or 0, device=anchors.device)
        x = self._embed(torch.cat([anchors[:, None], masks], 1))
        for index, layer in enumerate(self._layers):
            z = rms_norm(x, layer.input_norm, self.spec)
            key, value = layer.key_value(z)
            query = self._rotary(layer.query(z), positions)
            x = layer.finish(x, attend(index, query, self._rotary(key, positions), value))
        return rms_norm(x, self._norm, self.spec)

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """[B, D, H] → [B, D, draft vocabulary], never more than the target's own."""
        if self._head is None:
            return self.target.head(states)
        return self._head(states.flatten(0, 1)).view(*states.shape[:2], -1)[..., : self.target.vocab]

    def _embed(self, ids: Tensor) -> Tensor:
        if self._embedding is None:
            return self.target.embed(ids)
        return F.embedding(ids.clamp(max=len(self._embedding) - 1), self._embedding)

    def _entries(self, layer: Layer, z: Tensor, positions: Tensor) -> Tensor:
        key, value = layer.key_value(z)
        return torch.cat([self._rotary(key, positions), value], 2).flatten(0, 1)

    def _window(self, slots: Slots, start: Sequence[int], width: int) -> Window:
        """Slots.window without its mask; what lies beyond the last slot goes there, where no row that drafts looks."""
        at = torch.tensor(start, dtype=torch.int64)[:, None] + torch.arange(width)
        at, heads = at.clamp(max=slots.length - 1), 2 * self.spec.kv_heads
        lines = torch.arange(len(start))[:, None, None] * heads + torch.arange(heads)
        flat = (lines * slots.length + at[:, :, None]).reshape(-1)
        end = slots.length if slots.static else min(max(start) + width, slots.length)
        there = at.to(slots.device)
        return Window(positions=there, slots=there, flat=flat.to(slots.device), mask=None, end=end)

    def _mask(self, slots: Slots, start: Sequence[int], window: Window) -> Tensor | None:
        """A slot sees its row's context and the whole block, or of the block only itself and what is before it."""
        if not self.spec.causal and not slots.static and min(start) == max(start):
            return None
        first = torch.tensor(start, dtype=torch.int64)[:, None]
        last = first + (torch.arange(self.width) if self.spec.causal else torch.full((self.width,), self.width - 1))
        hidden = torch.arange(window.end)[None, None, :] > last[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=slots.dtype).masked_fill_(hidden, torch.finfo(slots.dtype).min)
        return mask[:, None].to(slots.device, non_blocking=True)


class DFlash:
    """Block drafting at any D up to the block's: the trained block is run whole and cut, or `short`, just as many
    slots as D needs (vLLM's way: 1 + D queries), which the draft was not trained for."""

    stateful = False

    def __init__(self, head: Head, plan: Plan, target: Target, *, block: str = "trained", pick: Pick | None = None):
        spec = head.spec
        assert spec.block is not None, "a block drafter says how long its block is"
        assert spec.block == 1 or spec.mask_token is not None, "a block drafter says what it masks with"
        self.taps, self.limit = spec.taps, spec.longest
        self.depends_on_block_length = block == "short"
        self.first = 0 if spec.anchor_predicts else 1
        """The first slot that predicts: z-lab throws slot 0 away, DSpark and DeepSpec's DFlash use it."""
        self._block = spec.block
        width = self.width(plan.draft_length)
        self.plan, self.back, self.pick = plan, Backbone(head, plan, target, width), pick or Independent()
        d2t = head.tensors.get("d2t")
        self.words = Vocabulary(None if d2t is None else d2t.to(target.device), target.vocab)
        self._held: dict[int, int] = {}
        """Row → tokens of it whose context the slots hold: all but the anchor."""
        self.facts: Mapping[str, Any] = {
            **_facts(head, self.back), "block": spec.block, "block_run": block, "slots_run": width, **self.pick.facts
        }  # fmt: skip
        self._smoke()

    def width(self, draft_length: int) -> int:
        """Slots of a block as run for this D."""
        return min(draft_length + self.first, self._block) if self.depends_on_block_length else self._block

    def fits(self, start: int, width: int) -> bool:
        """Whether the draft has positions for a block from `start` on, and slots for the context before it."""
        context = self.back.spec.context
        return start <= self.back.reach and (context is None or start + width <= context)

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self._held[row.index] = row.prompt
        if row.prompt > self.back.reach:
            return
        slots = self.back.slots.rows(row.index, row.index + 1)
        for at in range(0, row.prompt, PREFILL_CHUNK):
            self.back.remember(slots, {t: features[t][:, at : at + PREFILL_CHUNK] for t in set(self.taps)}, [at])

    def propose(self, batch: Sequence[Row | None], room: Sequence[int]) -> Draft:
        fits = [row is not None and self._fits(row) for row in batch]
        counts = [n if fit else 0 for fit, n in zip(fits, room, strict=True)]
        device, longest = self.back.target.device, max(counts)
        if not longest:
            return Draft(torch.zeros(len(batch), 0, dtype=torch.int64, device=device), counts)
        anchors = torch.tensor([0 if row is None else row.ids[-1] for row in batch], device=device)
        # A row that no longer fits never will again: its block may lie anywhere. One that sits out keeps its context.
        start = [self._held[row.index] if row and fit else 0 for row, fit in zip(batch, fits, strict=True)]
        whole = self.back.fill(self._slots(batch), anchors, start)
        states = whole[:, self.first : self.first + longest]
        filled = Filled(
            states=states, logits=self.back.logits(states), anchors=anchors, counts=counts,
            luck=self._luck(batch, counts), sampling=self.plan.sampling, vocabulary=self.words,
            dropped=whole[:, 0] if self.first else None,
        )  # fmt: skip
        return self.pick(filled)

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        """The window's anchor and accepted drafts have true features now; the added token has none yet."""
        start = [0 if row is None else self._held[row.index] for row in batch]
        width = None if self.plan.static else 1 + max(n for row, n in zip(batch, accepted, strict=True) if row)
        self.back.remember(self._slots(batch), {t: features[t][:, :width] for t in set(self.taps)}, start)
        for row, count in zip(batch, accepted, strict=True):
            if row is not None:
                self._held[row.index] += 1 + count

    def end(self, row: Row) -> None:
        self._held.pop(row.index, None)

    def _slots(self, batch: Sequence[Row | None]) -> Slots:
        low = next(row.index - b for b, row in enumerate(batch) if row is not None)
        return self.back.slots.rows(low, low + len(batch))

    def _fits(self, row: Row) -> bool:
        start = self._held[row.index]
        assert start == len(row.ids) - 1, f"context of {start} tokens for a row of {len(row.ids)}"
        return self.fits(start, self.back.width)

    def _luck(self, batch: Sequence[Row | None], counts: Sequence[int]) -> Tensor | None:
        """[B, D]: a row that drafts throws D dice however many are used, one that does not throws none."""
        if self.plan.sampling.temperature == 0:
            return None
        rows = [row if n else None for row, n in zip(batch, counts, strict=True)]
        return uniforms(rows, self.plan.draft_length, self.back.target.device)

    def _smoke(self) -> None:
        """One block behind one token, whose embedding stands in for its features: broken weights show here."""
        back = self.back
        anchor = torch.zeros(1, dtype=torch.int64, device=back.target.device)
        token, slots = back.target.embed(anchor[None]), back.slots.rows(0, 1)
        back.remember(slots, dict.fromkeys(self.taps, token), [0])
        logits = back.logits(back.fill(slots, anchor, [1])).float()
        if not bool(logits.isfinite().all()) or bool((logits == logits[..., :1]).all()):
            said = "equal" if bool(logits.isfinite().all()) else "not finite"
            raise UserError(f"the drafter's smoke step gave logits that are {said}: its weights are broken")


def _facts(head: Head, back: Backbone) -> dict[str, Any]:
    """What the table and the pre-flight line say; the target's embedding and head are borrowed, not counted."""
    return {
        "parameters": head.parameters,
        "bytes": head.parameters * back.target.dtype.itemsize,
        "bytes_per_token": back.slots.bytes_per_token,
        "dialect": head.spec.dialect,
        "taps": list(head.spec.taps),
        "mask_token": head.spec.mask_token,
        "draft_vocabulary": head.spec.vocab,
        "context": head.spec.context,
        "warnings": list(head.warnings),
    }


def build(plan: Plan, near: Near, *, checkpoint: str, allow_bin: bool = False, block: str = "trained") -> DFlash:
    head = near.head(checkpoint, "dflash", allow_bin)
    return DFlash(head, plan, near.target, block=block)
