"""What costs follow from before anything is measured: a device's constants and a model's shapes."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device. Peaks are dense and as published; what a kernel reaches of them stands apart. None: not published."""

    name: str
    title: str
    bandwidth: float | None
    """Bytes a second of its memory."""
    memory: float | None
    """Bytes."""
    flops: Mapping[str, float]
    """Multiply and add counted as two, a second, by the elements' type: bfloat16, fp8, fp4, float32."""
    link: float | None
    """Bytes a second to other devices, one direction."""
    source: str
    tables: str | None = None
    """What AIConfigurator calls it; None: it has no tables of it."""
    measured: bool = False
    """Measured here rather than published: then nothing is taken off for what kernels do not reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The experts of a layer; `hidden` is the width that they work in."""

    experts: int
    active: int
    hidden: int
    inner: int
    shared: int
    """Inner size of what every token passes; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Shapes of a decoder, counted from its config. Bytes are as the config says."""

    name: str
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    full: int
    """Layers of full attention: the only ones whose cost grows with the context."""
    windowed: int
    window: int | None
    """Tokens that a windowed layer sees."""
    recurrent: int
    """Layers of linear attention or a state space: a state of fixed size, of which speculation keeps 1 + D."""
    latent: tuple[int, int] | None
    """Multi-head latent attention: (rank, rotary width) of the one entry per token; None: keys and values."""
    dense: int
    """Layers with a plain MLP."""
    mixtures: int
    """Layers with experts."""
    mixture: Mixture | None
    mixer_weights: float
    """Parameters of all attention and recurrent layers."""
    mlp_weights: float
    """Of all plain MLPs and shared experts."""
    expert_weights: float
    """Of one expert."""
    head_weights: float
    """Of the output matrix."""
    tied: bool
    state: float
    """Bytes of one sequence's recurrent state, all layers, as the config keeps it."""
    weight_bytes: float
    """Bytes of a weight inside the layers."""
    drafting: int
    """Layers of its own multi-token prediction; 0: none, or not said."""

    @property
    def layers(self) -> int:
        return self.full + self.windowed + self.recurrent

    @property
    def group(self) -> int:
        """Query heads on one KV entry: G. Of latent attention every head, for they share one entry."""
        return self.heads if self.latent else self.heads // self.kv_heads

    @property
    def experts_weights(self) -> float:
        """Of all experts of all layers."""
        return self.mixtures * self.mixture.experts * self.expert_weights if self.mixture else 0.0

    @property
    def parameters(self) -> float:
        ends = self.head_weights * (1 if self.tied else 2)
        return self.mixer_weights + self.mlp_weights + self.experts_weights + ends

    @property
    def active_parameters(self) -> float:
        """Of the parameters, those that one token is multiplied with; the embedding is only looked up."""
        routed = self.mixtures * self.mixture.active * self.expert_weights if self.mixture else 0.0
        return self.mixer_weights + self.mlp_weights + routed + self.head_weights
