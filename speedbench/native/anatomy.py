"""Where a transformers model keeps what drafters read: its layers, its last norm, and how its logits are made.

Families name these in their own ways (`layers`, `h`, `decoder.layers`; `norm`, `ln_f`, `final_layer_norm`) and some
scale their logits, so they are found by what one forward does, and held against it.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from speedbench.errors import UserError

Scaled = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Of one model: tap i < the number of layers is what `layers[i]` is given, the last what `last` gives."""

    layers: Sequence[nn.Module]
    last: nn.Module
    scaled: Scaled
    """Products of the output embedding → logits. Raises where nobody can tell how."""


def anatomy(model: Any) -> Anatomy:
    """Look at a causal LM at work on two made-up tokens. Raises for one whose states cannot be told."""
    count = int(model.config.get_text_config().num_hidden_layers)
    stacks = [each for each in model.modules() if isinstance(each, nn.ModuleList) and len(each) == count]
    given: dict[nn.Module, Tensor] = {}
    gave: dict[nn.Module, Any] = {}

    def before(module: nn.Module, args: tuple[Any, ...], more: Mapping[str, Any]) -> None:
        given[module] = first(args, more)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        gave[module] = output

    inside = {module for stack in stacks for module in stack.modules()}
    handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for stack in stacks for layer in stack]
    handles += [each.register_forward_hook(after) for each in model.modules() if each not in inside]
    ids = torch.tensor([[0, 1]], device=model.device)
    try:
        with torch.inference_mode():
            out = model(ids, output_hidden_states=True, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return _told(model, count, stacks, given, gave, out)


def first(args: tuple[Any, ...], more: Mapping[str, Any]) -> Tensor:
    """The states that a decoder layer is called with."""
    states: Tensor = args[0] if args else more["hidden_states"]
    return states


def _told(
    model: Any,
    count: int,
    stacks: Sequence[nn.ModuleList],
    given: Mapping[nn.Module, Tensor],
    gave: Mapping[nn.Module, Any],
    out: Any,
) -> Anatomy:
    states, name = out.hidden_states, type(model).__name__
    if states is None or len(states) != count + 1:
        raise UserError(f"{name} tells no hidden state for each of its {count} layers, so no drafter can read them")
    layers = next((s for s in stacks if all(_same(given.get(m), h) for m, h in zip(s, states, strict=False))), None)
    if layers is None:
        raise UserError(
            f"{name} has no list of {count} layers that read its hidden states, so no drafter can read them"
        )
    last = next((m for m, output in gave.items() if _same(output, states[-1])), None)
    if last is None:
        raise UserError(f"no part of {name} gives its last hidden state, so no drafter can read it")
    return Anatomy(list(layers), last, _scaled(model, states[-1], out.logits))


def _scaled(model: Any, state: Tensor, logits: Tensor) -> Scaled:
    """What of the config's keys turns the head's product into the model's own logits."""
    product: Tensor = model.get_output_embeddings()(state)
    scaled = min(_scales(model.config.get_text_config()), key=lambda scale: _apart(scale(product), logits))
    if _apart(scaled(product), logits) <= 0.01:
        return scaled

    def refuse(x: Tensor) -> Tensor:
        raise UserError(
            f"the logits of {type(model).__name__} are not its output embedding's product with its last hidden state, "
            f"nor that product capped or scaled as its config says ({', '.join(_SCALES)}); only drafters with a head "
            "of their own can draft for it"
        )

    return refuse


def _same(found: Any, state: Tensor) -> bool:
    return isinstance(found, Tensor) and found.shape == state.shape and torch.equal(found, state)


def _apart(found: Tensor, logits: Tensor) -> float:
    """The largest difference, relative to the largest logit."""
    return float((found - logits).abs().max() / logits.abs().max().clamp(min=1e-30))


_SCALES: Mapping[str, Callable[[float], Scaled]] = {
    "final_logit_softcapping": lambda cap: lambda x: torch.tanh(x / cap) * cap,
    "logits_scaling": lambda by: lambda x: x / by,
    "logit_scale": lambda by: lambda x: x * by,
    "lm_head_multiplier": lambda by: lambda x: x * by,
}
"""Keys of configs and what they do to logits: Gemma's and NanoChat's, Granite's, Cohere's, Falcon-H1's."""


def _scales(config: Any) -> list[Scaled]:
    """The product under each key that the config has, and as it is."""
    values = {key: getattr(config, key, None) for key in _SCALES}
    return [*(_SCALES[key](float(value)) for key, value in values.items() if value), lambda x: x]
