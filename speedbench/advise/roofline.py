"""T_verif and T_draft from published peaks and a model's shapes: a first guess, which nothing has calibrated."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from speedbench.costs.linear import Place, Refused
from speedbench.costs.passes import TILE, distinct_experts, tiles
from speedbench.types import Hardware, ModelFacts, Priced

MEMORY_SHARE, COMPUTE_SHARE = 0.8, 0.7
"""Of the published peaks, what kernels are taken to reach. The first is AIConfigurator's empirical factor too."""

LAUNCH, KERNELS = 2.5e-6, 12
"""Seconds from one kernel to the next in a CUDA graph, and kernels of a layer."""

HOP = 8e-6
"""Seconds of an all-reduce of nothing, of which a layer has two."""

BLOCK_LAYERS, MARKOV_RANK, PRUNED = 5, 256, 32_768
"""What is taken of heads nobody described: DFlash's layers, DSpark's rank, EAGLE-3's draft vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model on `gpus` devices, its weights and KV heads shared out among them (tensor and expert parallel)."""

    facts: ModelFacts
    hardware: Hardware
    gpus: int = 1
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    """Of one element of a key or value."""
    usable: float = 0.9
    """Share of the memory that weights, caches and states may take."""

    @property
    def memory_rate(self) -> float:
        """Bytes a second that one device is taken to reach."""
        return self.bandwidth * (1.0 if self.hardware.measured else MEMORY_SHARE)

    @property
    def bandwidth(self) -> float:
        if self.hardware.bandwidth is None:
            raise Refused(f"the memory bandwidth of {self.hardware.name} is not known: profile with its studies")
        return self.hardware.bandwidth

    @property
    def format(self) -> str:
        """What the products run in: the widest peak that the weights' format allows."""
        wanted = "fp4" if self.weight_bytes < 1 else "fp8" if self.weight_bytes < 2 else "bfloat16"
        order = {"fp4": ("fp4", "fp8", "bfloat16"), "fp8": ("fp8", "bfloat16"), "bfloat16": ("bfloat16", "float32")}
        known = [dtype for dtype in order[wanted] if dtype in self.hardware.flops]
        if not known:
            raise Refused(
                f"the FLOPS of {self.hardware.name} for {wanted} are not known; measure them with speedbench profile"
            )
        return known[0]

    @property
    def peak(self) -> float:
        return self.hardware.flops[self.format]

    @property
    def compute_rate(self) -> float:
        return self.peak * (1.0 if self.hardware.measured else COMPUTE_SHARE)

    @property
    def turning_rows(self) -> float:
        """M* = F·w / (2·BW): rows at which a product stops waiting for its weights; of the peaks themselves."""
        return self.peak * self.weight_bytes / (2 * self.bandwidth)

    @property
    def local_group(self) -> int:
        """G on one device: with more devices than KV heads each head is kept several times over."""
        facts = self.facts
        if facts.latent:
            return max(1, facts.heads // self.gpus)
        return max(1, round(facts.heads / self.gpus / max(1.0, facts.kv_heads / self.gpus)))

    @property
    def entry_bytes(self) -> float:
        """Bytes that all devices read for one token in one layer's cache."""
        facts = self.facts
        if facts.latent:
            return sum(facts.latent) * self.kv_bytes * self.gpus
        return 2 * max(facts.kv_heads, self.gpus) * facts.head_dim * self.kv_bytes

    def cache_bytes(self, tokens: float) -> float:
        """Of one sequence of so many tokens, over all devices."""
        seen = min(tokens, self.facts.window or tokens)
        return self.entry_bytes * (self.facts.full * tokens + self.facts.windowed * seen)

    @property
    def weights(self) -> float:
        """Bytes of all weights; embedding and output matrix are left at 16 bits where the layers are narrower."""
        facts = self.facts
        ends = facts.head_weights * (1 if facts.tied else 2)
        return (facts.parameters - ends) * self.weight_bytes + ends * max(2.0, self.weight_bytes)


@dataclass(frozen=True)
class Roofline:
    """The costs of a deployment; `externals` are the small models that draft for it, by label."""

    on: Deployment
    mechanisms: Mapping[str, str]
    externals: Mapping[str, ModelFacts] = field(default_factory=dict)
    rho: float | None = None
    """Seconds to draft one token for the batch / seconds of a plain pass; None: by the mechanism's shapes."""

    @property
    def name(self) -> str:
        return f"constants of {self.on.hardware.name}"

    @property
    def trust(self) -> str:
        """How far these times are to be trusted."""
        return (
            f"times are guessed from the published peaks of {self.on.hardware.title}, at {self.on.gpus} of them, and "
            "nothing measured how wrong they are: profile before relying on a ratio near 1"
        )

    def verify(self, place: Place) -> Priced:
        return Priced(seconds=sum(self.parts(place).values()), doubt=None, origin="estimated")

    def other(self, place: Place) -> Priced:
        """Sampling and bookkeeping overlap or are in the launches; nothing is added."""
        return Priced(seconds=0.0, doubt=None, origin="estimated")

    def parts(self, place: Place) -> dict[str, float]:
        """Seconds of a pass by what takes them."""
        facts, x = self.on.facts, place.tokens
        mixture, experts = facts.mixture, 0.0
        if mixture:
            woken = facts.mixtures * distinct_experts(mixture.experts, mixture.active, x) * facts.expert_weights
            experts = self._product(woken, x * mixture.active * facts.mixtures * facts.expert_weights)
        plain = facts.mixer_weights + facts.mlp_weights
        near = replace(place, context=min(place.context, facts.window or place.context))
        return {
            "linear layers": self._product(plain, x * plain),
            **({"experts": experts} if mixture else {}),
            "attention": facts.full * self._attention(place),
            **({"windowed attention": facts.windowed * self._attention(near)} if facts.windowed else {}),
            **({"recurrent state": self._state(place)} if facts.state else {}),
            "head": self._head(x, facts.head_weights),
            "communication": self._communication(x),
            "launches": facts.layers * KERNELS * LAUNCH,
        }

    def draft(self, label: str, place: Place) -> Priced:
        """Seconds to draft D tokens; raises `Refused` for a mechanism whose cost nothing tells."""
        if not place.draft_length:
            return Priced(seconds=0.0, doubt=None, origin="estimated")
        return Priced(seconds=self._draft(label, place), doubt=None, origin="estimated")

    def _draft(self, label: str, place: Place) -> float:
        d, b, facts = place.draft_length, place.batch, self.on.facts
        one = Place(batch=b, draft_length=0, context=place.context)
        mechanism = self.mechanisms.get(label, label)
        if self.rho is not None and mechanism not in FREE:
            return self.rho * d * self.verify(one).seconds
        if mechanism in FREE:
            return 0.0
        if mechanism == "mtp":
            return d * (self._layer(one) + self._head(b, facts.head_weights))
        if mechanism == "eagle3":
            pruned = min(facts.head_weights, PRUNED * facts.hidden)
            return d * (self._plain_layers(b, 1) + self._head(b, pruned))
        if mechanism in ("dflash", "dspark"):
            block = self._plain_layers(b * (1 + d), BLOCK_LAYERS) + self._head(b * d, facts.head_weights)
            step = facts.vocab * MARKOV_RANK * 2 / self.on.memory_rate + 3 * LAUNCH
            return block + (d * step if mechanism == "dspark" else 0.0)
        if label in self.externals:
            return d * self._small(self.externals[label]).verify(one).seconds
        raise Refused(f"what '{label}' costs is not known; give --rho, its config with --external, or a profile")

    def _small(self, facts: ModelFacts) -> Roofline:
        on = Deployment(
            facts=facts, hardware=self.on.hardware, gpus=self.on.gpus, weight_bytes=facts.weight_bytes,
            kv_bytes=self.on.kv_bytes,
        )  # fmt: skip
        return Roofline(on, {})

    def _product(self, weights: float, products: float) -> float:
        """Weights read once, `products` multiplications done: whichever takes longer, shared among the devices."""
        read = weights * self.on.weight_bytes / (self.on.gpus * self.on.memory_rate)
        return max(read, 2 * products / (self.on.gpus * self.on.compute_rate))

    def _attention(self, place: Place) -> float:
        """Of one layer: reading the cache, or multiplying by it in whole tiles of queries."""
        on, facts = self.on, self.on.facts
        seen = place.batch * (place.context + place.draft_length)
        width = sum(facts.latent) if facts.latent else facts.head_dim
        heads = 1 if facts.latent else max(facts.kv_heads, on.gpus)
        queries = TILE * tiles(on.local_group, place.draft_length)
        shared = 1 if facts.latent else on.gpus
        read = on.entry_bytes * seen / (on.gpus * on.memory_rate)
        return max(read, 4 * seen * heads * width * queries / (shared * on.compute_rate))

    def _state(self, place: Place) -> float:
        """A recurrent state read once and kept after each of the 1 + D tokens, so that any can be gone back to."""
        return self.on.facts.state * place.batch * (2 + place.draft_length) / (self.on.gpus * self.on.memory_rate)

    def _head(self, rows: float, weights: float) -> float:
        """The output matrix, and the logits written and read in 32 bits."""
        logits = rows * weights / self.on.facts.hidden * 8 / (self.on.gpus * self.on.memory_rate)
        wide = max(2.0, self.on.weight_bytes) / self.on.weight_bytes
        return self._product(weights * wide, rows * weights) + logits + 3 * LAUNCH

    def _communication(self, x: float) -> float:
        on = self.on
        if on.gpus == 1:
            return 0.0
        if not on.hardware.link:
            raise Refused(f"{on.hardware.name} has no link_gbs; say how fast its devices reach each other, or use one")
        moved = 2 * (on.gpus - 1) / on.gpus * x * on.facts.hidden * 2 / on.hardware.link
        return 2 * on.facts.layers * (HOP + moved)

    def _layer(self, place: Place) -> float:
        """One full-attention layer of the target's own shape, as its multi-token prediction has."""
        facts = self.on.facts
        whole, layers = self.parts(place), facts.layers
        ffn = whole["linear layers"] / layers + whole.get("experts", 0.0) / max(1, facts.mixtures)
        return ffn + self._attention(place) + (whole["communication"] + whole["launches"]) / layers

    def _plain_layers(self, rows: float, count: int) -> float:
        """Plain decoder layers of the target's width: 4·h² of attention and an MLP of 3·h·4h."""
        weights = count * 16.0 * self.on.facts.hidden**2
        shared = self._communication(rows) / self.on.facts.layers * count
        return self._product(weights, rows * weights) + shared + count * KERNELS * LAUNCH


FREE = ("ngram", "suffix", "oracle", "synthetic", "none")
"""No work of the device's own; microseconds of the host's, which are not known and left out."""


def assumptions(mechanisms: Mapping[str, str], rho: float | None) -> list[str]:
    """What was taken for granted of drafters, in words."""
    said = []
    used = set(mechanisms.values())
    if rho is None and "eagle3" in used:
        said.append(f"EAGLE-3: one layer of the target's width, a draft vocabulary of {PRUNED}")
    if rho is None and used & {"dflash", "dspark"}:
        said.append(f"DFlash, DSpark: {BLOCK_LAYERS} layers of the target's width; DSpark's rank {MARKOV_RANK}")
    if used & set(FREE):
        said.append("look-up drafting is taken to cost no time")
    return said
