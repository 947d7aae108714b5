"""An EAGLE-3 head to train: a draft vocabulary of the commonest ids, states fused by one matrix (native/eagle3.py)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor

from speedbench.native.training.parts import Frozen, Stack, noise, trainable
from speedbench.native.training.serial import Serial


class Eagle3:
    """g = fc(states, low layers first, each normed with fc_norm); layer 0 reads [norm(embedding) ; norm(g)]."""

    def __init__(self, taps: tuple[int, ...], *, fc_norm: bool) -> None:
        self._taps, self._fc_norm = taps, fc_norm

    def read(self, stack: Stack, states: dict[int, Tensor]) -> Tensor:
        parts = [states[tap] for tap in self._taps]
        if self._fc_norm:
            parts = [stack.norm(f"fc_norm.{k}", part) for k, part in enumerate(parts)]
        return stack.product("fc", torch.cat(parts, -1)).float()

    def enter(self, stack: Stack, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g, torch.cat([stack.norm("layers.0.input_layernorm", embedded), stack.norm("hidden_norm", g)], -1)


def eagle3(
    target: Frozen,
    taps: tuple[int, ...],
    commonest: Tensor,
    *,
    seed: int = 0,
    steps: int = 3,
    soft: bool = True,
    fc_norm: bool = True,
    train_head: bool = False,
) -> Serial:
    """Begins as the target's layer behind the highest tap: what that tap says passes through, all else is noise.

    `fc_norm` gives each state a norm of its own before they are fused (EAGLE-3.1): raw states of small Llamas differ a
    hundredfold in size. `train_head` trains the slice of the target's head that the draft vocabulary keeps.
    """
    dice, h = torch.Generator().manual_seed(seed), target.hidden
    layer = target.layer(min(taps[-1], target.layers - 1))
    tensors = {"fc.weight": noise((h, len(taps) * h), 0.02, dice), "norm.weight": target.norm}
    tensors["fc.weight"][:, -h:] += torch.eye(h)
    tensors["hidden_norm.weight"] = layer.pop("input_layernorm.weight")
    tensors["layers.0.input_layernorm.weight"] = torch.ones(h)
    for name, weight in layer.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            weight = torch.cat([noise(tuple(weight.shape), 0.02, dice), weight], 1)
        if not name.endswith(("q_norm.weight", "k_norm.weight")):
            tensors[f"layers.0.{name}"] = weight
    if fc_norm:
        tensors |= {f"fc_norm.{k}.weight": torch.ones(h) for k in range(len(taps))}
    head = {"lm_head.weight": target.head[commonest].clone()}
    kept = {"d2t": commonest - torch.arange(len(commonest))}
    if train_head:
        tensors |= head
    else:
        kept |= head
    spec = target.spec(
        "eagle3", "specforge", taps=taps, vocab=len(commonest), target_vocab=target.vocab, fc_norm=fc_norm
    )
    fusion = Eagle3(taps, fc_norm=fc_norm)
    return Serial(spec, target, trainable(tensors), fusion, steps=steps, soft=soft, ids=commonest, frozen=kept)
