"""What the cases are made of: tiny targets and heads whose weights are noise by name, and how a case is written.

Needs numpy, torch and transformers alone: it is read in the packages' environments too.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.metadata
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

VOCAB, HIDDEN, LAYERS = 24, 32, 4
PROMPT = [3, 17, 8, 21, 5, 11, 2, 14, 9]
KEPT = [0, 2, 3, 7, 8, 11, 12, 15, 20, 23]
"""The target's tokens that a reduced vocabulary has."""
TAPS = (1, 2, 3)
DEPTH = 4
"""Drafts of a serial head."""
SIZES = {"hidden_size": HIDDEN, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"head_dim": 8, "vocab_size": VOCAB, "rms_norm_eps": 1e-6, "max_position_embeddings": 128}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
CLEAR = 1e-3
"""Between the two best logits of every pick, so that rounding picks no other."""


def noise(name: str, shape: tuple[int, ...]) -> Tensor:
    """The same numbers for a name and shape on every machine: numpy's legacy generator never changes. A head's copy of
    the embedding is the target's."""
    name = "embed_tokens.weight" if name.endswith("embed_tokens.weight") else name
    drawn = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) == 1:
        drawn = 0.3 * drawn + (0 if name.endswith("bias") else 1)
    elif "embed" not in name and "markov_w1" not in name:
        drawn *= 1.5 / shape[-1] ** 0.5
    return torch.from_numpy(drawn).float()


def fill(model: Any) -> Any:
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(noise(name, tuple(tensor.shape)))
    return model.eval()


def target(kind: str = "qwen3") -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    rest = {"num_hidden_layers": LAYERS, "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None}
    return fill(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **rest)))


def states(made: Any, ids: list[int]) -> list[Tensor]:
    """transformers' hidden_states [N, H] of a sequence; the last is after the norm."""
    out = made(torch.tensor([ids]), output_hidden_states=True)
    return [h[0] for h in out.hidden_states]


def anchor_after(made: Any, ids: list[int]) -> int:
    return int(made(torch.tensor([ids])).logits[0, -1].argmax())


def picked(logits: Tensor) -> int:
    best = logits.topk(2)
    assert float(best.values[0] - best.values[1]) > CLEAR, "a near tie; take another prompt"
    return int(best.indices[0])


def numbers(x: Tensor) -> Any:
    return json.loads(json.dumps(x.tolist()), parse_float=lambda text: float(f"{float(text):.8g}"))


def write(folder: Path, name: str, package: str, made: Any, model: Any, found: dict[str, Any]) -> None:
    """Save a head with its class's own function, and what it says beside it."""
    model.save_pretrained(folder / name)
    note(folder, name, package, made, found)


_OF_THE_MAKING = ("transformers_version", "_name_or_path")
"""Of a target's config: nothing of the model."""


def note(folder: Path, name: str, package: str, made: Any, found: dict[str, Any]) -> None:
    versions = {each: importlib.metadata.version(each).partition("+")[0] for each in (package, "torch", "transformers")}
    config = {key: value for key, value in made.config.to_dict().items() if key not in _OF_THE_MAKING}
    case = {"case": name, "versions": versions, "target": config, "prompt": PROMPT, **found}
    (folder / name / "case.json").write_text(json.dumps(case), "utf-8")


class Helped:
    """Makes the first few drafts of every block right, so that what is accepted is ragged: logits [D, ids] in and out,
    block after block of one answer."""

    def __init__(self, answer: list[int]) -> None:
        self._answer, self._at, self._round = answer, 0, 0

    def __call__(self, logits: Tensor) -> Tensor:
        logits, right = logits.clone(), self._answer[self._at + 1 :][: len(logits)]
        for slot, token in enumerate(right[: (0, 2, 5, 1, 3)[self._round % 5]]):
            logits[slot, token] += 100
        accepted = 0
        for said, token in zip(logits.argmax(-1).tolist(), right, strict=False):
            if said != token:
                break
            accepted += 1
        self._at, self._round = self._at + accepted + 1, self._round + 1
        return logits


def greedy(made: Any, count: int) -> list[int]:
    ids = list(PROMPT)
    for _ in range(count):
        ids.append(anchor_after(made, ids))
    return ids[len(PROMPT) :]


def chained(first: Tensor, ids: list[int], step: Callable[[Tensor, list[int]], tuple[Tensor, Tensor]]) -> Any:
    """Drafts of an MTP head as engines serve it: what it says is fed behind the true pairs, its state with it.
    `step` takes states [N, H] and tokens [N] to the last state [H] and its logits."""
    hidden, tokens, logits, drafts = first, list(ids), [], []
    for _ in range(DEPTH):
        state, said = step(hidden, tokens)
        logits.append(said)
        drafts.append(picked(said))
        hidden, tokens = torch.cat([hidden, state[None]]), [*tokens, drafts[-1]]
    return {"logits": numbers(torch.stack(logits)), "drafts": drafts}
