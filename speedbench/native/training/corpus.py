"""A corpus to train drafters on: the target's own answers and the hidden states it had while reading them.

A folder holds `corpus.json` (how it was made, what was dropped), `prompts.jsonl`, and shards of safetensors, each of
some sequences end to end: `ids`, `best` (the target's argmax after each token), `lengths`, `answers` (where each
answer begins) and `tap.{i}` in bfloat16. A corpus that was cut short goes on with the next shard it lacks.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.chat import Chat
from speedbench.native.target import Target
from speedbench.native.training.answers import answered, prompt, user_turns
from speedbench.native.training.prompts import LONGEST, Sieve, templated
from speedbench.native.training.shards import token_counts
from speedbench.types import Sampling

Told = Callable[[int, float], None]
"""(answer tokens there are, answer tokens a second)."""

BLOCK = 10
"""Shards made from one batch of prompts: the greedy ones of them first, then the sampled ones."""
_READ = 8
"""Sequences in a teacher-forced pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How a corpus is made. Equal but for the budget (tokens, rows), it may go on in the same folder."""

    tokens: int
    """Answer tokens wanted."""
    taps: tuple[int, ...]
    """Hidden states kept, by transformers' index; the last is the number of layers."""
    seed: int = 0
    self_written: float = 0.5
    """Share of prompts that the target writes itself."""
    sampled: float = 0.3
    """Share of answers that are sampled, by whole shards of a block."""
    temperature: float = 0.7
    longest: int = 192
    """Tokens of an answer."""
    rows: int = 32
    shard: int = 64
    """Sequences of a shard."""


def three_taps(layers: int) -> tuple[int, int, int]:
    """Low, middle, high: EAGLE's own choice (`eagle/model/modeling_llama_kv.py`)."""
    if layers < 7:
        raise UserError(f"training needs a target of 7 layers or more, to read three of its states (got {layers})")
    return 2, layers // 2, layers - 3


def make(
    target: Target, chat: Chat, folder: Path, making: Making, forbidden: Iterable[str], told: Told | None = None
) -> None:
    """Make shards until there are making.tokens answer tokens. `forbidden`: the turns of every shipped task."""
    assert making.taps[-1] == target.layers, making.taps
    folder.mkdir(parents=True, exist_ok=True)
    _Maker(target, chat, folder, making, list(forbidden), told).run()


class _Maker:
    def __init__(
        self, target: Target, chat: Chat, folder: Path, making: Making, forbidden: list[str], told: Told | None
    ) -> None:
        self._target, self._chat, self._folder, self._making, self._told = target, chat, folder, making, told
        self._prompts = _lines(folder / "prompts.jsonl")
        encode = chat.tokenizer
        self._sieve = Sieve(
            lambda text: encode(text, add_special_tokens=False)["input_ids"],
            forbidden,
            (p["text"] for p in self._prompts),
        )
        self._same_making()
        self._tokens = sum(token_counts(folder))
        self._fresh, self._spent = 0, 0.0

    def _same_making(self) -> None:
        """Refuse to go on with a corpus that was made otherwise; the counts of what was dropped go on."""
        path, own = self._folder / "corpus.json", asdict(self._making)
        self._facts = {key: own[key] for key in own if key not in ("tokens", "rows")}
        self._facts |= {"taps": list(self._making.taps), "layers": self._target.layers, "vocab": self._target.vocab}
        if path.is_file():
            there = json.loads(path.read_text("utf-8"))
            wrong = [key for key in self._facts if there["making"].get(key) != self._facts[key]]
            if wrong:
                raise UserError(
                    f"the corpus at '{self._folder}' was made with another {wrong[0]} "
                    f"({there['making'].get(wrong[0])}, not {self._facts[wrong[0]]}); give another folder, or remove it"
                )
            self._sieve.counts.update(there["prompts"])

    def run(self) -> None:
        block = 0
        while self._tokens < self._making.tokens:
            per_block = BLOCK * self._making.shard
            if len(self._prompts) < (block + 1) * per_block:
                self._write_prompts(block)
            sampled = round(self._making.sampled * BLOCK)
            split = (block + 1) * BLOCK - sampled
            self._answer(range(block * BLOCK, split), Sampling(max_tokens=self._making.longest))
            warm = Sampling(max_tokens=self._making.longest, temperature=self._making.temperature)
            self._answer(range(split, split + sampled), warm)
            block += 1

    # ---- prompts -------------------------------------------------------------------------------------------------

    def _write_prompts(self, block: int) -> None:
        """The prompts of a block, the same for the same seed: own turns and templates, shuffled."""
        making, wanted = self._making, BLOCK * self._making.shard
        dice = random.Random(f"{making.seed}/{block}")
        own = self._self_written(block, round(making.self_written * wanted))
        found = [{"text": text, "by": "target"} for text in own]
        tries = 0
        while len(found) < wanted:
            text, tries = templated(dice), tries + 1
            if self._sieve.keeps(text):
                found.append({"text": text, "by": "template"})
            if tries > 50 * wanted:
                raise UserError("the templates give no more prompts that are new and share no text with a shipped task")
        dice.shuffle(found)
        self._prompts += found
        _replace(self._folder / "corpus.json", json.dumps(self._described(), indent=2) + "\n")
        text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in self._prompts)
        _replace(self._folder / "prompts.jsonl", text)

    def _self_written(self, block: int, wanted: int) -> list[str]:
        """`wanted` turns, or fewer where the target repeats itself: five times as many are tried at most."""
        found: list[str] = []
        for attempt in range(5):
            if len(found) >= wanted:
                break
            luck = (self._making.seed, block, attempt)
            count = max(8, wanted - len(found))
            for said in user_turns(self._target, self._chat, count, self._making.rows, LONGEST, luck):
                if said is None:
                    self._sieve.counts["no stop"] += 1
                elif len(found) < wanted and self._sieve.keeps(said, longest=LONGEST):
                    found.append(said)
        return found

    def _described(self) -> dict[str, Any]:
        by = {"target": 0, "template": 0}
        for each in self._prompts:
            by[each["by"]] += 1
        return {"making": self._facts, "prompts": dict(self._sieve.counts), "by": by}

    # ---- answers -------------------------------------------------------------------------------------------------

    def _answer(self, shards: Sequence[int], sampling: Sampling) -> None:
        """Answer the prompts of the shards that are not there, writing each as its last answer ends."""
        size, lacking = self._making.shard, [s for s in shards if not shard_file(self._folder, s).exists()]
        numbers = [shard * size + i for shard in lacking for i in range(size)]
        if not numbers or self._tokens >= self._making.tokens:
            return
        prompts = [prompt(self._chat, self._prompts[n]["text"]) for n in numbers]
        luck = [(self._making.seed, n) for n in numbers]
        found: dict[int, dict[int, list[int]]] = {shard: {} for shard in lacking}
        began, before = time.perf_counter(), self._spent
        stream = answered(self._target, self._chat.stops, prompts, sampling, self._making.rows, luck)
        for index, answer, _ in stream:
            shard, at = divmod(numbers[index], size)
            found[shard][at] = answer
            self._fresh += len(answer)
            if len(found[shard]) < size:
                continue
            first = lacking.index(shard) * size
            rows = [(prompts[first + i], found[shard][i]) for i in range(size)]
            self._spent = before + time.perf_counter() - began
            self._write(shard, rows, greedy=sampling.temperature == 0)
            if self._tokens >= self._making.tokens:
                return

    def _write(self, shard: int, rows: Sequence[tuple[list[int], list[int]]], *, greedy: bool) -> None:
        read = _read(self._target, [[*asked, *said] for asked, said in rows], self._making.taps)
        read["lengths"] = torch.tensor([len(asked) + len(said) for asked, said in rows], dtype=torch.int32)
        read["answers"] = torch.tensor([len(asked) for asked, _ in rows], dtype=torch.int32)
        path, made = shard_file(self._folder, shard), sum(len(said) for _, said in rows)
        scratch = path.with_suffix(".tmp")
        save_file(read, scratch, metadata={"greedy": str(int(greedy)), "tokens": str(made)})
        os.replace(scratch, path)
        self._tokens += made
        if self._told:
            self._told(self._tokens, self._fresh / self._spent)


def shard_file(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.safetensors"


def _read(target: Target, rows: Sequence[list[int]], taps: tuple[int, ...]) -> dict[str, Tensor]:
    """One teacher-forced pass over each row, rows of like length together: ids, best and states, end to end."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    slots = target.slots(min(_READ, len(rows)), max(map(len, rows)))
    best: dict[int, Tensor] = {}
    states: dict[int, dict[int, Tensor]] = {}
    for at in range(0, len(rows), _READ):
        some = order[at : at + _READ]
        width = max(len(rows[i]) for i in some)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in some], device=target.device)
        seen = target.forward(slots.rows(0, len(some)), ids, [0] * len(some), taps=taps)
        picks = seen.logits.max(-1).indices
        for b, i in enumerate(some):
            size = len(rows[i])
            best[i] = picks[b, :size].int().cpu()
            states[i] = {tap: x[b, :size].to(torch.bfloat16).cpu() for tap, x in seen.features.items()}
    every = range(len(rows))
    found = {f"tap.{tap}": torch.cat([states[i][tap] for i in every]) for tap in sorted(set(taps))}
    found["ids"] = torch.tensor([t for row in rows for t in row], dtype=torch.int32)
    return {**found, "best": torch.cat([best[i] for i in every])}


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] if path.is_file() else []


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)
