"""Tiny random models, tokenizers and model folders, drafters with known faults, and a plain decoder to compare with."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speedbench.native.decode import Decoder, Relaxed
from speedbench.native.external import External
from speedbench.native.lean import LeanTarget
from speedbench.native.proposer import LookUp, Plan, Proposer, Row
from speedbench.native.slots import Slots
from speedbench.native.target import Seen, Target, TransformersTarget
from speedbench.types import Finish, Pass, Sampling, Step

torch.set_num_threads(1)

CPU = torch.device("cpu")
LENGTHS = (3, 9, 17, 30)
"""The ragged batch of the lossless tests."""


# ---- models --------------------------------------------------------------------------------------------------------


def config(kind: str = "llama", **given: Any) -> Any:
    """A two-layer config; `kind` is transformers' model type."""
    from transformers import AutoConfig

    sizes: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if kind == "gpt_neox":
        del sizes["num_key_value_heads"]
    if kind == "mistral":
        sizes["sliding_window"] = None
    if kind == "qwen3":
        sizes["head_dim"] = 12
    return AutoConfig.for_model(kind, **{**sizes, **given})


def model(kind: str = "llama", seed: int = 0, dtype: torch.dtype = torch.float64, **given: Any) -> Any:
    """A random causal LM, its weights five times the usual so that answers vary and top-2 gaps are wide."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    made = AutoModelForCausalLM.from_config(config(kind, **given)).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() > 1:
                weight.mul_(8 if "embed" in name else 5)
            else:
                weight.add_(0.2 * torch.randn_like(weight))
    return made.to(dtype)


def exact(made: Any) -> Any:
    """Transformers normalises in float32 whatever the dtype; this makes its norms float64, so that 1e-9 holds."""
    from types import MethodType

    from torch.nn import functional

    def forward(self: Any, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)

    for module in made.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(forward, module)
    return made


def lean(made: Any) -> LeanTarget:
    return LeanTarget(made.config, made.state_dict(), dtype=made.dtype, device=CPU)


def as_is(made: Any) -> TransformersTarget:
    return TransformersTarget(made)


def noisy(made: Any, amount: float, seed: int = 1) -> Any:
    """A copy whose weights are off by `amount` of their own size, so that it is right now and then."""
    import copy

    torch.manual_seed(seed)
    other = copy.deepcopy(made)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(amount * weight.std() * torch.randn_like(weight))
    return other


class Wrong:
    """Stands in for a target and says another token than it would: a drafter that is always wrong."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, *args: Any, **more: Any) -> Seen:
        seen = self._target.forward(*args, **more)
        return Seen(seen.logits.roll(1, -1), seen.features)


class Spy:
    """Stands in for a target and notes the positions each forward was given and the widths it ran."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.positions: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, slots: Slots, ids: Tensor, start: Sequence[int], **more: Any) -> Seen:
        self.positions.append(slots.window(start, ids.shape[1]).positions)
        return self._target.forward(slots, ids, start, **more)


# ---- prompts and plain decoding ------------------------------------------------------------------------------------


def prompt(length: int, vocab: int = 64, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng((seed, length)).integers(0, vocab, length)]


def plain(made: Any, ids: Sequence[int], count: int) -> tuple[list[int], float]:
    """Greedy answer by transformers' own forward from scratch for every token, and its smallest top-2 gap."""
    row, gap = list(ids), float("inf")
    with torch.inference_mode():
        for _ in range(count):
            best = made(torch.tensor([row])).logits[0, -1].topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            row.append(int(best.indices[0]))
    return row[len(ids) :], gap


def judged(made: Any, row: Sequence[int]) -> list[int]:
    """What transformers' own forward says behind each token of a row."""
    with torch.inference_mode():
        found: list[int] = made(torch.tensor([list(row)])).logits[0].argmax(-1).tolist()
    return found


# ---- the loop ------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What one row came to."""

    tokens: list[int]
    steps: list[Step]
    finish: Finish | None

    @property
    def commits(self) -> list[int]:
        return [s.committed for s in self.steps]

    @property
    def acceptance_length(self) -> float:
        return sum(self.commits) / len(self.steps)


def plan(draft_length: int, rows: int = 1, length: int = 320, **given: Any) -> Plan:
    fixed: dict[str, Any] = {"static": False, "sampling": Sampling(), "stops": frozenset(), "device": CPU, **given}
    return Plan(draft_length=draft_length, rows=rows, length=length, **fixed)


def external(drafter: Target, shape: Plan, shared: int | None = None, length: int | None = None) -> External:
    own = replace(shape, length=min(length or shape.length, drafter.context or shape.length))
    slots = drafter.slots(own.rows, own.length, static=own.static)
    return External(drafter, own, slots, drafter.vocab if shared is None else shared)


def decoded(
    target: Target,
    proposer: Proposer | None,
    shape: Plan,
    prompts: Sequence[Sequence[int]],
    cap: int,
    *,
    expected: Sequence[Sequence[int]] | None = None,
    caps: Sequence[int] | None = None,
    width: int | None = None,
    lossy: Relaxed | None = None,
    seed: int = 0,
    keys: Sequence[int] | None = None,
    passes: list[Pass] | None = None,
    before_step: Callable[[Decoder, int], None] | None = None,
) -> list[Answer]:
    """All prompts side by side until each is done; row i's luck comes from (seed, keys[i] or i)."""
    slots = target.slots(shape.rows, shape.length, static=shape.static)
    decoder = Decoder(target, proposer, shape, slots, width=width, lossy=lossy)
    answers: dict[int, Answer] = {}
    for i, ids in enumerate(prompts):
        dice = np.random.default_rng((seed, keys[i] if keys else i))
        row = Row(i, list(ids), len(ids), caps[i] if caps else cap, dice, expected[i] if expected else None)
        first, _ = decoder.admit(row)
        answers[i] = Answer([first], [], None)
        if first in shape.stops or row.cap == 1:
            answers[i].finish = "stop" if first in shape.stops else "length"
            decoder.release(row)
    index = 0
    while any(row is not None for row in decoder.rows):
        if before_step:
            before_step(decoder, index)
        passed, stepped = decoder.step()
        index += 1
        if passes is not None:
            passes.append(passed)
        for done in stepped:
            answer = answers[done.row.index]
            answer.steps.append(done.step)
            answer.tokens = done.row.ids[done.row.prompt :]
            if done.finish:
                answer.finish = done.finish
                decoder.release(done.row)
    return [answers[i] for i in range(len(prompts))]


@dataclass(slots=True)
class Scripted(LookUp):
    """Proposes the expected tokens, but a wrong one at the chosen (step, position); notes what commit was given."""

    wrong: Mapping[int, int] = field(default_factory=dict)
    """step → the first draft position that is wrong."""
    taps: tuple[int, ...] = ()
    asked: int = 0
    seen: list[dict[int, Tensor]] = field(default_factory=list)
    first: list[dict[int, Tensor]] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Per commit: tokens before it, and how many were accepted."""

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self.first.append({tap: state.clone() for tap, state in features.items()})
        self.spans.append((len(row.ids), 0))

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        assert row.expected is not None
        found = list(row.expected[row.generated : row.generated + room])
        at = self.wrong.get(self.asked)
        if at is not None and at < len(found):
            found[at] = (found[at] + 1) % 64
        self.asked += 1
        return found

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        self.seen.append({tap: state.clone() for tap, state in features.items()})
        row = batch[0]
        assert row is not None
        self.spans.append((len(row.ids), accepted[0]))


# ---- tokenizers and folders ----------------------------------------------------------------------------------------

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A template without BOS; `BOS_CHATML` emits it itself."""
BOS_CHATML = "{{ bos_token }}" + CHATML
SPECIALS = ("<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
LETTERS = "abcdefghijklmnopqrstuvwxyz .,?"


def tokenizer(
    *, template: str | None = CHATML, bos: bool = False, swap: tuple[int, int] | None = None, size: int = 0
) -> Any:
    """One token a letter after the five specials; its encoder puts `<s>` first when `bos`. `swap` exchanges two
    letters' ids, so that they differ in meaning; `size` fills up with made-up tokens to that many."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIALS, *LETTERS]
    words += [chr(0x4E00 + i) for i in range(len(words), size)]
    if swap:
        words[swap[0]], words[swap[1]] = words[swap[1]], words[swap[0]]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=" "))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    special: dict[str, Any] = {"eos_token": "<|end|>", "additional_special_tokens": [SPECIALS[0], *SPECIALS[2:]]}
    if bos or (template and "bos_token" in template):
        special["bos_token"] = "<s>"
    found = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False, **special)
    found.chat_template = template
    return found


def folder(where: Path, made: Any, words: Any = None) -> Path:
    """A model folder as the hub has them: config, generation config, safetensors and tokenizer."""
    made.save_pretrained(where, safe_serialization=True)
    (words or tokenizer()).save_pretrained(where)
    return where
