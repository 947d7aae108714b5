"""The training of one learner: batches, optimiser, schedule, checkpoints to go on from, held-out acceptance, a log."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native.training.shards import Batch, Corpus

Told = Callable[[Mapping[str, Any]], None]
"""Given each line of the log as it is written."""

DRAFTED = 4
"""The D at which a learner is judged."""


class Learner(Protocol):
    """What is trained: weights that are leaves, a loss over a batch, and what it would draft."""

    weights: dict[str, Tensor]

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states that a batch must have."""

    def loss(self, batch: Batch, dice: torch.Generator) -> Tensor: ...

    def drafts(self, batch: Batch, count: int) -> Tensor:
        """[B, T, count] greedy drafts with the token at each position as the anchor."""

    def save(self, folder: Path, target_name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How it is trained."""

    steps: int | None = None
    """None: as many as `seconds` are thought to hold, timed beforehand, `epochs` at most."""
    seconds: float = 1800.0
    epochs: int = 10
    batch: int = 8
    rate: float = 1e-3
    least: float = 0.1
    """The cosine ends at this share of the rate."""
    warm_up: float = 0.04
    clip: float = 1.0
    decay: float = 0.0
    seed: int = 0
    every: int = 100
    """Steps between checkpoints."""
    judge: int = 200
    """Steps between looks at the held-out sequences."""
    judged: int = 24
    """Held-out greedy sequences looked at."""
    bfloat16: bool = False
    """Products in bfloat16 by autocast; weights and optimiser stay float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How a learner would do at D = 4 on greedy answers."""

    acceptance_length: float | None
    accepted_at: tuple[float, ...]
    """The share of positions of which at least the first i drafts are right."""


def judged(learner: Learner, corpus: Corpus, numbers: Sequence[int], count: int = DRAFTED) -> Judged:
    """Walk each sequence from the token that prefill yields, an accepted prefix and the target's own token a step."""
    committed = steps = 0
    right = torch.zeros(count)
    positions = 0
    for number in numbers:
        batch = corpus.batch([number], learner.taps)
        ids, first = batch.ids[0], int(batch.answers[0])
        leading = _leading(learner.drafts(batch, count)[0], ids)
        at, last = first, len(ids) - 1
        for i in range(count):
            right[i] += int((leading[first:last] > i).sum())
        positions += max(0, last - first)
        while at < last:
            taken = min(int(leading[at]) + 1, last - at)
            committed, steps, at = committed + taken, steps + 1, at + taken
    shares = tuple(round(float(r) / positions, 4) for r in right) if positions else ()
    return Judged(acceptance_length=round(committed / steps, 4) if steps else None, accepted_at=shares)


def _leading(drafts: Tensor, ids: Tensor) -> Tensor:
    """[T]: how many drafts behind each position are the tokens that came, from the first on."""
    count = drafts.shape[1]
    truth = torch.nn.functional.pad(ids, (0, count), value=-1)
    coming = torch.stack([truth[1 + i : 1 + i + len(ids)] for i in range(count)], 1)
    return (drafts == coming).long().cumprod(1).sum(1)


class Fit:
    """One training, in a folder of its own: `checkpoint.safetensors` and `log.jsonl`."""

    def __init__(self, learner: Learner, corpus: Corpus, recipe: Recipe, work: Path, told: Told | None = None) -> None:
        self.learner, self._corpus, self._recipe, self._work, self._told = learner, corpus, recipe, work, told
        self._params = dict(sorted(learner.weights.items()))
        self._adam = torch.optim.AdamW(
            list(self._params.values()), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=recipe.decay
        )
        self.step, self.steps, self.tokens, self.seconds = 0, recipe.steps or 0, 0, 0.0
        self._epoch: tuple[int, list[list[int]]] = -1, []
        self._losses: list[float] = []
        work.mkdir(parents=True, exist_ok=True)

    def run(self, *, resume: bool, until: int | None = None) -> Judged:
        """Train to the end (or to step `until`) and judge; `resume` goes on from the last checkpoint.

        Where the corpus has grown since, it begins another round: with the weights that there are, and a schedule and
        an optimiser of its own.
        """
        goes_on = resume and self._file.is_file()
        if not goes_on:
            (self._work / "log.jsonl").unlink(missing_ok=True)
        if not goes_on or not self._restore():
            self.steps = self._recipe.steps or self._planned()
        stop = self.steps if until is None else min(until, self.steps)
        began, before = time.perf_counter(), self.seconds
        while self.step < stop:
            self._advance()
            self.seconds = before + time.perf_counter() - began
            last = self.step == stop
            if self.step % self._recipe.judge == 0 and not last:
                self._log(self._judge())
            if self.step % self._recipe.every == 0 or last:
                self._store()
        found = self._judge()
        self._log(found)
        return found

    # ---- one step --------------------------------------------------------------------------------------------------

    def _batch(self, step: int) -> Batch:
        per_epoch = math.ceil(len(self._corpus.train) / self._recipe.batch)
        epoch, at = divmod(step, per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = epoch, self._corpus.order(epoch, self._recipe.batch, self._recipe.seed)
        return self._corpus.batch(self._epoch[1][at], self.learner.taps)

    def _loss(self, step: int) -> tuple[Tensor, int]:
        batch = self._batch(step)
        dice = torch.Generator().manual_seed(self._recipe.seed * 1_000_003 + step)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._recipe.bfloat16):
            loss = self.learner.loss(batch, dice)
        return loss, int((batch.lengths - batch.answers).sum())

    def _advance(self) -> None:
        recipe = self._recipe
        for group in self._adam.param_groups:
            group["lr"] = self._rate()
        loss, tokens = self._loss(self.step)
        if not bool(torch.isfinite(loss)):
            raise UserError(f"the loss is not finite at step {self.step}; train with a lower rate")
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._params.values(), recipe.clip)
        self._adam.step()
        self._losses = [*self._losses[-49:], float(loss.detach())]
        self.step, self.tokens = self.step + 1, self.tokens + tokens

    def _rate(self) -> float:
        recipe = self._recipe
        warm = max(1, round(recipe.warm_up * self.steps))
        if self.step < warm:
            return recipe.rate * (self.step + 1) / warm
        done = (self.step - warm) / max(1, self.steps - warm)
        return recipe.rate * (recipe.least + (1 - recipe.least) * 0.5 * (1 + math.cos(math.pi * done)))

    def _planned(self) -> int:
        """Steps that fit the time, by the time of four that change nothing, the first left out."""
        timed = []
        for step in range(4):
            began = time.perf_counter()
            self._loss(step)[0].backward()  # type: ignore[no-untyped-call]
            timed.append(time.perf_counter() - began)
        self._adam.zero_grad(set_to_none=True)
        per_epoch = math.ceil(len(self._corpus.train) / self._recipe.batch)
        each = 1.15 * sum(timed[1:]) / len(timed[1:])
        return max(1, min(int(self._recipe.seconds / each), self._recipe.epochs * per_epoch))

    # ---- what is told and kept -------------------------------------------------------------------------------------

    def _judge(self) -> Judged:
        greedy = [n for n in self._corpus.held if self._corpus.places[n].greedy]
        return judged(self.learner, self._corpus, greedy[: self._recipe.judged])

    def _log(self, found: Judged) -> None:
        line = {
            "step": self.step, "steps": self.steps, "tokens": self.tokens, "seconds": round(self.seconds, 1),
            "loss": round(sum(self._losses) / len(self._losses), 5) if self._losses else None,
            "val_al": found.acceptance_length, "val_accepted_at": list(found.accepted_at),
        }  # fmt: skip
        with (self._work / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._told:
            self._told(line)

    @property
    def _file(self) -> Path:
        return self._work / "checkpoint.safetensors"

    def _store(self) -> None:
        kept = {f"weights/{name}": p.detach() for name, p in self._params.items()}
        for name, p in self._params.items():
            state = self._adam.state[p]
            kept |= {f"mean/{name}": state["exp_avg"], f"square/{name}": state["exp_avg_sq"]}
        facts = {"step": self.step, "steps": self.steps, "tokens": self.tokens, "seconds": self.seconds,
                 "losses": self._losses, "sequences": len(self._corpus.train)}  # fmt: skip
        scratch = self._file.with_suffix(".tmp")
        save_file({name: t.contiguous() for name, t in kept.items()}, scratch, metadata={"facts": json.dumps(facts)})
        os.replace(scratch, self._file)

    @torch.no_grad()
    def _restore(self) -> bool:
        """Take the checkpoint's weights, tokens and seconds; False where its schedule was of a smaller corpus."""
        with safe_open(self._file, "pt") as file:
            facts = json.loads(file.metadata()["facts"])
            if facts["sequences"] > len(self._corpus.train):
                raise UserError(
                    f"the checkpoint '{self._file}' was trained on {facts['sequences']} sequences and the corpus has "
                    f"{len(self._corpus.train)}; train anew without --resume"
                )
            grown = facts["sequences"] < len(self._corpus.train)
            if {f"weights/{name}" for name in self._params} != {k for k in file.keys() if k.startswith("weights/")}:  # noqa: SIM118
                raise UserError(
                    f"the checkpoint '{self._file}' is of another kind of head; train anew without --resume"
                )
            for name, p in self._params.items():
                p.copy_(file.get_tensor(f"weights/{name}"))
                if grown:
                    continue
                self._adam.state[p] = {
                    "step": torch.tensor(float(facts["step"])),
                    "exp_avg": file.get_tensor(f"mean/{name}"),
                    "exp_avg_sq": file.get_tensor(f"square/{name}"),
                }
        self.tokens, self.seconds = facts["tokens"], facts["seconds"]
        if grown:
            return False
        self.step, self.steps, self._losses = facts["step"], facts["steps"], facts["losses"]
        self._trim()
        return True

    def _trim(self) -> None:
        """Lines of the log from after the checkpoint are written again."""
        path = self._work / "log.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        kept = [
            line for line in lines if json.loads(line)["step"] <= self.step and json.loads(line)["step"] < self.steps
        ]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
