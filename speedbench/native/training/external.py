"""A small external drafter: some layers of the target, its last norm and its embedding, distilled on its answers."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from speedbench.native.head import HeadSpec
from speedbench.native.training.parts import Frozen, Stack, Weights, labels, trainable, wide
from speedbench.native.training.serial import Unrolled, best
from speedbench.native.training.shards import Batch

_COPIED = ("tokenizer*", "special_tokens_map.json", "chat_template*", "generation_config.json", "vocab.*", "merges.txt",
           "added_tokens.json")  # fmt: skip


@dataclass(slots=True)
class External:
    """A language model being trained; embedding and head stay the target's."""

    spec: HeadSpec
    """Its layers' shape; it is no head."""
    target: Frozen
    weights: Weights
    commonest: Tensor
    home: Path
    """The target's folder, whose tokenizer and config are copied."""
    soft: bool = True

    @property
    def taps(self) -> tuple[int, ...]:
        return (self.target.layers,)

    def _step(self, stack: Stack, attend: Unrolled, ids: Tensor, positions: Tensor) -> Tensor:
        x = F.embedding(ids, self.target.embedding)
        for layer in range(self.spec.layers):
            z = stack.norm(f"layers.{layer}.input_layernorm", x)
            key, value = stack.key_value(layer, z, positions)
            x = stack.finish(layer, x, attend(layer, stack.query(layer, z, positions), key, value))
        return stack.norm("norm", x)

    def loss(self, batch: Batch, dice: torch.Generator) -> Tensor:
        """Every answer token from what is before it."""
        ids, size = wide(batch, self.commonest), batch.ids.shape[1]
        said, at = labels(batch, self.target, ids, soft=self.soft), torch.arange(size).expand(len(batch.ids), -1)
        out = self._step(Stack(self.spec, self.weights, size), Unrolled(self.spec.layers), batch.ids, at)
        rows, valid = said.at(at + 1)
        return said.loss(out[valid] @ self.target.head[ids].T, rows[valid]).mean()

    @torch.no_grad()
    def drafts(self, batch: Batch, count: int) -> Tensor:
        """[B, T, count]: what is drafted with the token at a position as the anchor."""
        size, ids, found = batch.ids.shape[1], batch.ids, list[Tensor]()
        stack, attend = Stack(self.spec, self.weights, size + count), Unrolled(self.spec.layers)
        at = torch.arange(size).expand(len(ids), -1)
        for step in range(count):
            out = self._step(stack, attend, ids, at + step)
            ids = best(out, self.target.head)
            found.append(ids)
        return torch.stack(found, -1)

    def save(self, folder: Path, target_name: str) -> None:
        """An ordinary model folder, in bfloat16."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"model.{name}": weight for name, weight in self.weights.items()}
        tensors["model.embed_tokens.weight"] = self.target.embedding
        config = copy.deepcopy(self.target.config)
        config.num_hidden_layers = self.spec.layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: self.spec.layers]
        config.dtype = torch.bfloat16
        if not config.tie_word_embeddings:
            tensors["lm_head.weight"] = self.target.head
        scratch = folder / "model.safetensors.tmp"
        whole = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in tensors.items()}
        save_file(whole, scratch, metadata={"format": "pt"})
        os.replace(scratch, folder / "model.safetensors")
        config.architectures = self.target.config.architectures or ["LlamaForCausalLM"]
        config.save_pretrained(folder)
        for pattern in _COPIED:
            for path in self.home.glob(pattern):
                shutil.copyfile(path, folder / path.name)


def external(
    target: Frozen, commonest: Tensor, home: Path, *, layers: tuple[int, ...] = (0, 1, 2), soft: bool = True
) -> External:
    """Begins as these layers of the target and its last norm."""
    tensors = {"norm.weight": target.norm}
    for index, layer in enumerate(layers):
        tensors |= {f"layers.{index}.{name}": weight for name, weight in target.layer(layer).items()}
    spec = target.spec("mtp", "external", taps=(), layers=len(layers))
    return External(spec, target, trainable(tensors), commonest, home, soft=soft)
