"""A lean forward for the Llama family (Llama, SmolLM2, Mistral, Qwen2, Qwen3 dense), built from the same weights.

Equal in logits to the transformers model by test. It fuses q, k, v and gate, up, packs the weights for few rows on
CPU, reads only the slots in use, and builds mask and rotary once a pass: most of what is left is reading weights.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.fused import Ends, Fused, Parts
from speedbench.native.kernels import WIDEST_HEAD, Kernels, kernels, place, window
from speedbench.native.packed import FEWEST, Product, can_pack, linear
from speedbench.native.slots import Slots, Window
from speedbench.native.target import Seen, refuse_state

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")

FEW = 64
"""Tokens of a forward up to which the C kernels serve; a longer one is a prefill, where torch's are as good."""

Run = Callable[[Slots, Tensor, Window, bool, Sequence[int]], Seen]


def fits(config: Any) -> str | None:
    """Why this config needs the transformers form; None when the lean form serves it."""
    if config.model_type not in FAMILIES:
        return f"model type {config.model_type} is not of the Llama family"
    if getattr(config, "quantization_config", None):
        return "the weights are quantised"
    if config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return "its MLP is not a plain SiLU gate"
    if rope(config).get("rope_type", "default") not in ("default", "linear", "llama3"):
        return f"rope type {rope(config)['rope_type']} changes with the length"
    return None


def rope(config: Any) -> dict[str, Any]:
    """The config's rotary settings under either of transformers' names (`rope_parameters` since 5.0)."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return {"rope_theta": getattr(config, "rope_theta", 10000.0), **found}


def inverse_frequencies(config: Any, width: int) -> Tensor:
    """[width/2] float32. Llama 3's rule as in its release: long wave lengths are divided by the factor, short ones
    kept, those between blended (transformers `modeling_rope_utils.py`)."""
    settings = rope(config)
    frequencies: Tensor = 1.0 / (
        settings["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    )
    kind = settings.get("rope_type", "default")
    if kind == "default":
        return frequencies
    stretched: Tensor = frequencies / settings["factor"]
    if kind == "llama3":
        low, high = settings["low_freq_factor"], settings["high_freq_factor"]
        turns = settings["original_max_position_embeddings"] * frequencies / (2 * torch.pi)
        smooth: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - smooth) * stretched + smooth * frequencies
    return stretched


class LeanTarget:
    """A dense Llama-family model over a slot cache."""

    form = "lean"

    def __init__(
        self,
        config: Any,
        tensors: Mapping[str, Tensor],
        *,
        dtype: torch.dtype,
        device: torch.device,
        pack: bool = True,
    ) -> None:
        refuse_state(config, config.model_type)
        self.dtype, self.device = dtype, device
        self.layers, self.vocab = config.num_hidden_layers, config.vocab_size
        self.hidden, self.config = config.hidden_size, config
        self.context: int | None = config.max_position_embeddings
        self._hidden, self._inner, self._eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        self._heads = config.num_attention_heads
        self._kv_heads = getattr(config, "num_key_value_heads", None) or self._heads
        self._width = getattr(config, "head_dim", None) or self._hidden // self._heads
        read = _Reader(tensors, dtype, device)
        self._embedding = read("model.embed_tokens.weight")
        head = self._embedding if config.tie_word_embeddings else read("lm_head.weight")
        self._norm = read("model.norm.weight")
        self._layers = [_layer(read, f"model.layers.{i}.", pack) for i in range(self.layers)]
        self._head = linear(head, pack=pack)
        self.parameters, self.bytes = read.parameters, read.parameters * dtype.itemsize
        angles = torch.outer(torch.arange(self.context or 0).float(), inverse_frequencies(config, self._width))
        half = torch.cat([-angles.sin(), angles.sin()], -1)
        self._cos = torch.cat([angles.cos()] * 2, -1).to(dtype).to(device)
        self._sin = half.to(dtype).to(device)
        self._packed = pack and device.type == "cpu" and can_pack(dtype)
        self._norm_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self._eps_there = torch.tensor(self._eps, dtype=self._norm_dtype)
        fits_kernels = device.type == "cpu" and pack and self._width <= WIDEST_HEAD
        self._kernels = kernels(dtype) if fits_kernels else None
        self._fused = self._fuse()
        self.run: Run = self._run
        """What a forward calls: replaced when the runner asks for torch.compile or CUDA graphs."""

    @property
    def lacks_kernels(self) -> bool:
        """Whether kernels.c would serve but could not be had."""
        return self._packed and self._width <= WIDEST_HEAD and self._kernels is None

    @property
    def uses_kernels(self) -> bool:
        """Whether passes of few rows run in kernels.c."""
        return self._fused is not None or (self._kernels is not None and self._layers[0].q_norm is None)

    def _fuse(self) -> Fused | None:
        """The forward as one call into C, where its products are ours."""
        if self._kernels is None or not isinstance(self._head, Product) or not all(x.is_ours for x in self._layers):
            return None
        ends = Ends(self._embedding, self._norm, self._head, self._cos, self._sin)
        sizes = {"heads": self._heads, "kv": self._kv_heads, "inner": self._inner}
        return Fused(self._kernels, self._layers, ends, **sizes, eps=self._eps)

    def slots(self, batch: int, length: int, *, static: bool = False) -> Slots:
        slots = Slots(self.layers, batch, length, self.dtype, self.device, static=static, context=self.context)
        entry = torch.empty(1, self._kv_heads, 1, self._width, dtype=self.dtype, device=self.device)
        for index in range(self.layers):
            slots.allocate(index, entry, entry)
        return slots

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._embedding)

    @torch.inference_mode()
    def head(self, x: Tensor) -> Tensor:
        return self._head(x.reshape(-1, self._hidden)).view(*x.shape[:-1], -1)

    def forward(
        self,
        slots: Slots,
        ids: Tensor,
        start: Sequence[int],
        *,
        last_only: bool = False,
        taps: Sequence[int] = (),
    ) -> Seen:
        if self._fused is not None:
            return self._fused(slots, ids, start, last_only, taps)
        with torch.inference_mode():
            if self._kernels is not None and self.uses_kernels and ids.numel() <= FEW:
                return self._run_few(self._kernels, slots, ids, start, last_only, taps)
            return self.run(slots, ids, slots.window(start, ids.shape[1]), last_only, taps)

    def _run_few(
        self, few: Kernels, slots: Slots, ids: Tensor, start: Sequence[int], last_only: bool, taps: Sequence[int]
    ) -> Seen:
        """The same forward for few rows, all but the matrix products in kernels.c; rows of padding stay zero."""
        batch, width = ids.shape
        real = batch * width
        seen = window(self._heads, self._kv_heads, self._cos, self._sin)
        place(seen, start, width, slots.length)
        x = F.embedding(self._padded(ids.reshape(-1)), self._embedding)
        h, mixed, y = torch.zeros_like(x), x.new_zeros(len(x), self._heads * self._width), None
        gated = x.new_zeros(len(x), self._inner)
        features: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            few.add_norm(x, y, layer.norm, h, real, self._eps)
            if index in taps:
                features[index] = x[:real].view(batch, width, -1).clone()
            few.attend(seen, layer.qkv(h), slots.both(index), mixed)
            few.add_norm(x, layer.out(mixed), layer.mlp_norm, h, real, self._eps)
            few.swiglu(layer.gate_up(h), gated, real)
            y = layer.down(gated)
        few.add_norm(x, y, self._norm, h, real, self._eps)
        if self.layers in taps:
            features[self.layers] = h[:real].view(batch, width, -1).clone()
        h = h[:real].view(batch, width, -1)[:, -1] if last_only else h
        return Seen(self._head(h)[: batch if last_only else real].view(batch, -1, self.vocab), features)

    def _run(self, slots: Slots, ids: Tensor, window: Window, last_only: bool, taps: Sequence[int]) -> Seen:
        batch, width = ids.shape
        real = batch * width
        cos, sin = self._angles(window.positions)
        mask = None if window.mask is None else window.mask.repeat(1, 1, self._heads // self._kv_heads, 1)
        x = F.embedding(self._padded(ids.reshape(-1)), self._embedding)
        features: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            if index in taps:
                features[index] = x[:real].view(batch, width, -1).clone()
            qkv = layer.qkv(self._normed(x, layer.norm))[:real]
            x[:real] += layer.out(self._attend(index, layer, qkv, slots, window, cos, sin, mask))
            gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, -1)
            x += layer.down(F.silu(gate) * up)
        x = self._normed(x, self._norm)
        if self.layers in taps:
            features[self.layers] = x[:real].view(batch, width, -1)
        if last_only:
            x = x[:real].view(batch, width, -1)[:, -1]
        logits = self._head(x)
        return Seen(logits.view(batch, 1, -1) if last_only else logits[:real].view(batch, width, -1), features)

    def _padded(self, ids: Tensor) -> Tensor:
        """At least FEWEST rows where weights are packed: products of fewer are slower. The rest are never read."""
        short = FEWEST - ids.shape[0] if self._packed else 0
        return F.pad(ids, (0, short)) if short > 0 else ids

    def _angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [B·W, heads + 2·kv heads, width] for q, k and v side by side; values are not turned: 1 and 0."""
        turned, still = self._heads + self._kv_heads, self._kv_heads
        flat = positions.reshape(-1)
        cos, sin = self._cos[flat][:, None].expand(-1, turned, -1), self._sin[flat][:, None].expand(-1, turned, -1)
        rest = (len(flat), still, self._width)
        return torch.cat([cos, cos.new_ones(rest)], 1), torch.cat([sin, sin.new_zeros(rest)], 1)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm; by hand on CPU, where the fused operator is nine small ones."""
        if x.device.type != "cpu":
            return F.rms_norm(x, weight.shape, weight, self._eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self._norm_dtype)
        scale = torch.addcmul(self._eps_there, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(weight).to(x.dtype)

    def _attend(
        self,
        index: int,
        layer: Parts,
        qkv: Tensor,
        slots: Slots,
        window: Window,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        """qkv [B·W, (heads + 2·kv heads)·width] → attention output [B·W, heads·width], storing keys and values.

        The G query heads of a KV head become G·W queries of it.
        """
        batch, width = window.positions.shape
        heads, kv, size = self._heads, self._kv_heads, self._width
        x = qkv.view(-1, heads + 2 * kv, size)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._normed(x[:, :heads], layer.q_norm), self._normed(x[:, heads:-kv], layer.k_norm)
            x = torch.cat([q, k, x[:, -kv:]], 1)
        x = torch.addcmul(x * cos, x.roll(size // 2, -1), sin)
        keys, values = slots.write_joint(index, window, x[:, heads:])
        query = x[:, :heads].view(batch, width, heads, size).transpose(1, 2).reshape(batch, kv, -1, size)
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return mixed.view(batch, heads, width, size).transpose(1, 2).reshape(batch * width, heads * size)


class _Reader:
    """Tensors by name in one dtype on one device, counting parameters as they are read."""

    def __init__(self, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device) -> None:
        self._tensors, self._dtype, self._device = tensors, dtype, device
        self.parameters = 0

    def __call__(self, *names: str) -> Tensor:
        """One tensor, or several stacked by rows."""
        try:
            parts = [self._tensors[name].to(device=self._device, dtype=self._dtype) for name in names]
        except KeyError as error:
            raise UserError(f"the weights lack tensor {error}: the model is incomplete") from None
        self.parameters += sum(p.numel() for p in parts)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def maybe(self, *names: str) -> Tensor | None:
        return self(*names) if names[0] in self._tensors else None


def _layer(read: _Reader, prefix: str, pack: bool) -> Parts:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    qkv = [f"{attention}{x}_proj" for x in "qkv"]
    return Parts(
        norm=read(prefix + "input_layernorm.weight"),
        qkv=linear(read(*(f"{x}.weight" for x in qkv)), read.maybe(*(f"{x}.bias" for x in qkv)), pack=pack),
        out=linear(read(attention + "o_proj.weight"), read.maybe(attention + "o_proj.bias"), pack=pack),
        mlp_norm=read(prefix + "post_attention_layernorm.weight"),
        gate_up=linear(read(mlp + "gate_proj.weight", mlp + "up_proj.weight"), pack=pack),
        down=linear(read(mlp + "down_proj.weight"), pack=pack),
        q_norm=read.maybe(attention + "q_norm.weight"),
        k_norm=read.maybe(attention + "k_norm.weight"),
    )
