"""A target that says what it is told, so that random drafters are right now and then; its states are a real model's."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tiny
import torch
from torch import Tensor

from speedbench.native.proposer import Plan, Proposer
from speedbench.native.replay.forced import Stage
from speedbench.native.replay.routes import labeller
from speedbench.native.slots import Slots
from speedbench.native.target import Seen, Target
from speedbench.types import Answer, Record, Sampling, Step, Tables
from speedbench.walk import record

Build = Callable[[Target, Plan], Proposer]


class Told:
    """Says script[position + 1] of each row; `agrees` is asked instead while a script is made: position, draft there →
    token."""

    def __init__(self, target: Target, *scripts: Sequence[int], agrees: Callable[[int, int], int] | None = None):
        self._target, self._scripts, self._agrees = target, scripts, agrees

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, slots: Slots, ids: Tensor, start: Sequence[int], *, last_only: bool = False, **more: Any) -> Seen:
        seen = self._target.forward(slots, ids, start, last_only=last_only, **more)
        low = ids.shape[1] - 1 if last_only else 0
        said = [
            [self._said(row, int(at) + j, ids[row, j + 1 :].tolist()) for j in range(low, ids.shape[1])]
            for row, at in enumerate(start)
        ]
        logits = torch.full_like(seen.logits, -1.0)
        return Seen(logits.scatter(2, torch.tensor(said)[:, :, None], 1.0), seen.features)

    def _said(self, row: int, position: int, drafts: Sequence[int]) -> int:
        if self._agrees is not None:
            return self._agrees(position, drafts[0] if drafts else -1)
        script = self._scripts[row]
        return script[position + 1] if position + 1 < len(script) else 0  # behind a row that is padded


def script(
    target: Target, build: Build, prompt: Sequence[int], d: int, cap: int, words: int, right: float = 0.75
) -> list[int]:
    """A row in which the drafter, at this D, is right three times of four; else one of so many words is said."""
    luck = np.random.default_rng(len(prompt)).random((512, 2))

    def agrees(at: int, draft: int) -> int:
        return draft if draft >= 0 and luck[at, 0] < right else int(words * luck[at, 1])

    told = Told(target, agrees=agrees)
    shape = tiny.plan(d)
    found = tiny.decoded(told, build(told, shape), shape, [prompt], cap)[0]  # type: ignore[arg-type]
    return [*prompt, *found.tokens]


def measured(
    row: Sequence[int], target: Target, build: Build, prompt: int, d: int, cap: int, stops: frozenset[int] = frozenset()
) -> list[Step]:
    """What the running engine did at one D."""
    told: Any = Told(target, row)
    shape = tiny.plan(d, stops=stops)
    found = tiny.decoded(told, build(told, shape), shape, [list(row[:prompt])], cap)[0]
    assert found.tokens == answer(row, prompt, cap, stops).output_list
    return found.steps


class Ended(Answer):
    """An answer whose output is wanted as a list too."""

    @property
    def output_list(self) -> list[int]:
        return list(self.output)


def answer(row: Sequence[int], prompt: int, cap: int, stops: frozenset[int] = frozenset(), turn: int = 0) -> Ended:
    output = list(row[prompt : prompt + cap])
    end = next((i + 1 for i, token in enumerate(output) if token in stops), None)
    return Ended(
        request="r", category="c", turn=turn, prompt=tuple(row[:prompt]), prompt_tokens=prompt, prompt_sha="s",
        output=tuple(output[:end]), cap=cap, finish="length" if end is None else "stop",
    )  # fmt: skip


def replayed(
    row: Sequence[int], target: Target, build: Build, asked: Answer, lengths: Sequence[int], **sampling: Any
) -> dict[int, Record]:
    """The records that a replay makes, by D."""
    tables = labelled([row] if row else [], target, build, [asked], lengths, **sampling)[0]
    return {d: record(asked, tables.get(d) or tables[None], d) for d in lengths}


def labelled(
    rows: Sequence[Sequence[int]],
    target: Target,
    build: Build,
    asked: Sequence[Answer],
    lengths: Sequence[int],
    at_once: int = 1,
    **sampling: Any,
) -> list[Tables]:
    """The tables of some answers, so many in one pass, of a target that says these rows; none: as it is."""
    told: Any = Told(target, *rows) if rows else target
    shape = tiny.plan(max(lengths), rows=at_once, sampling=Sampling(**sampling))
    longest = max(len(each.prompt) + len(each.output) for each in asked)
    stage = Stage(told, longest, max(lengths), shape.sampling, at_once)
    one = labeller("x", build(told, shape), stage, lengths)
    return [tables for low in range(0, len(asked), at_once) for tables in one.tables(asked[low : low + at_once])]


def shown(steps: Sequence[Step]) -> list[tuple[int | None, int | None, int]]:
    return [(step.proposed, step.accepted, step.committed) for step in steps]
