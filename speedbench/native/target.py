"""What the engine needs of a model, and the form of it that works for any transformers causal LM as it is."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers.cache_utils import Cache

from speedbench.errors import UserError
from speedbench.native.anatomy import Anatomy, anatomy, first
from speedbench.native.slots import Slots, Window

PREFILL_CHUNK = 512


@dataclass(slots=True)
class Seen:
    """What one forward gave: logits [B, W, V] (W = 1 with `last_only`) and hidden states [B, W, H] by tap."""

    logits: Tensor
    features: dict[int, Tensor] = field(default_factory=dict)


class Target(Protocol):
    """A causal LM over a slot cache. A tap i is transformers' `hidden_states[i]`: 0 the embeddings, i the output of
    layer i-1, and the number of layers the final state after the last norm."""

    form: str
    dtype: torch.dtype
    device: torch.device
    layers: int
    hidden: int
    vocab: int
    context: int | None
    parameters: int
    bytes: int
    config: Any
    """The text model's transformers config, for what a drafter's checkpoint must agree with."""

    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the embedding table: ids [...] → [..., H]."""

    def head(self, x: Tensor) -> Tensor:
        """Logits of normed final states: [..., H] → [..., V]."""

    def slots(self, batch: int, length: int, *, static: bool = False) -> Slots:
        """An empty cache of `batch` rows of `length` slots."""

    def forward(
        self,
        slots: Slots,
        ids: Tensor,
        start: Sequence[int],
        *,
        last_only: bool = False,
        taps: Sequence[int] = (),
    ) -> Seen:
        """Run ids [B, W] int64, row b at positions start[b] …, writing their slots."""


def prefill(
    model: Target, slots: Slots, ids: Sequence[int], taps: Sequence[int] = ()
) -> tuple[Tensor, dict[int, Tensor]]:
    """Run one prompt in chunks through row 0 of slots: logits [1, 1, V] of its last token, features [1, N, H]."""
    tokens = torch.tensor([list(ids)], dtype=torch.int64, device=model.device)
    seen = [
        model.forward(slots, tokens[:, at : at + PREFILL_CHUNK], [at], last_only=True, taps=taps)
        for at in range(0, tokens.shape[1], PREFILL_CHUNK)
    ]
    return seen[-1].logits, {tap: torch.cat([s.features[tap] for s in seen], 1) for tap in taps}


class _SlotCache(Cache):
    """A transformers cache that writes into `Slots`, so that rows roll back by length."""

    def __init__(self, slots: Slots, start: Sequence[int], width: int) -> None:
        super().__init__(layers=[])
        self._slots = slots
        self._first = max(start)
        self.window: Window = slots.window(start, width)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._slots.write(layer_idx, self.window, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0, *args: Any, **kwargs: Any) -> int:
        return self._first


class TransformersTarget:
    """Any transformers causal LM with a cache that can be cut by length; full attention, no recurrent state."""

    form = "transformers"

    def __init__(self, model: Any) -> None:
        refuse_state(model.config, type(model).__name__, stateful=bool(getattr(model, "_is_stateful", False)))
        self.model = model.eval()
        config = model.config.get_text_config()
        self.dtype, self.device = model.dtype, model.device
        self.layers, self.vocab = int(config.num_hidden_layers), int(model.get_output_embeddings().weight.shape[0])
        self.hidden, self.config = int(config.hidden_size), config
        self.context = getattr(config, "max_position_embeddings", None)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        names = inspect.signature(type(model).forward).parameters
        if "position_ids" not in names or getattr(config, "alibi", False):
            raise UserError(
                f"{type(model).__name__} cannot run in the native backend yet: it places tokens by counting its mask "
                "or cache, so rows of different lengths cannot share a pass; models that take position_ids work"
            )
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._shapes = self._kv_shapes()

    @cached_property
    def anatomy(self) -> Anatomy:
        """Found when a drafter first asks. Raises for a model whose states cannot be told."""
        return anatomy(self.model)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.model.get_input_embeddings().weight)

    @torch.inference_mode()
    def head(self, x: Tensor) -> Tensor:
        return self.anatomy.scaled(self.model.get_output_embeddings()(x))

    def _kv_shapes(self) -> list[tuple[Tensor, Tensor]]:
        """The shape of each layer's key and value, read off one real token: MLA and odd head widths come out right."""
        with torch.inference_mode():
            out = self.model(torch.zeros(1, 1, dtype=torch.int64, device=self.device), use_cache=True)
        layers = getattr(getattr(out, self._cache_name, None), "layers", None)
        if layers is None or len({layer.keys.shape[1] for layer in layers}) != 1:
            raise UserError(
                f"{type(self.model).__name__} cannot run in the native backend yet: it keeps no transformers cache "
                "with as many key heads in every layer"
            )
        return [(layer.keys, layer.values) for layer in layers]

    def slots(self, batch: int, length: int, *, static: bool = False) -> Slots:
        slots = Slots(self.layers, batch, length, self.dtype, self.device, static=static, context=self.context)
        for index, (key, value) in enumerate(self._shapes):
            slots.allocate(index, key, value)
        return slots

    @torch.inference_mode()
    def forward(
        self,
        slots: Slots,
        ids: Tensor,
        start: Sequence[int],
        *,
        last_only: bool = False,
        taps: Sequence[int] = (),
    ) -> Seen:
        cache = _SlotCache(slots, start, ids.shape[1])
        mask = cache.window.mask
        if mask is None:
            mask = torch.zeros(len(start), 1, ids.shape[1], cache.window.end, dtype=self.dtype, device=self.device)
        with self._tapped(taps) as features:
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=cache.window.positions,
                use_cache=True,
                logits_to_keep=1 if last_only else 0,
                **{self._cache_name: cache},
            )
        return Seen(out.logits, features)

    @contextmanager
    def _tapped(self, taps: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        """Hooks for the duration of one forward; only the tapped states are kept."""
        features: dict[int, Tensor] = {}

        def hooked(tap: int) -> RemovableHandle:
            if tap == self.layers:
                return self.anatomy.last.register_forward_hook(lambda module, args, out: keep(tap, out))
            layer = self.anatomy.layers[tap]
            return layer.register_forward_pre_hook(
                lambda module, args, more: keep(tap, first(args, more)), with_kwargs=True
            )

        def keep(tap: int, state: Tensor) -> None:
            features[tap] = state

        handles = [hooked(tap) for tap in taps]
        try:
            yield features
        finally:
            for handle in handles:
                handle.remove()


def refuse_state(config: Any, name: str, *, stateful: bool = False) -> None:
    """Raise for a model whose cache cannot be rolled back by length: recurrent, convolutional or windowed state."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    kinds = {k for k in (getattr(text, "layer_types", None) or ()) if k != "full_attention"}
    if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True) and not kinds:
        kinds = {f"sliding window of {text.sliding_window}"} if not getattr(text, "layer_types", None) else kinds
    if "local" in (getattr(text, "attention_layers", None) or ()):
        kinds.add("local attention")
    if stateful:
        kinds.add("recurrent state")
    if getattr(config, "is_encoder_decoder", False):
        kinds.add("encoder-decoder")
    if kinds:
        raise UserError(
            f"{name} cannot be speculated on by the native backend yet: its cache holds {', '.join(sorted(kinds))}, "
            "which cannot be rolled back by length; models with full attention in every layer work"
        )
