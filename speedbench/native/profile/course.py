"""A whole profile within a time: passes, drafters, prefill, and the studies of kernels."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from speedbench.native.decode import Decoder
from speedbench.native.profile import studies
from speedbench.native.profile.forced import text
from speedbench.native.profile.passes import (
    BURST,
    ROUNDS,
    Arm,
    Grid,
    alone,
    drafted_arms,
    fits,
    free_memory,
    measure,
    plain_arms,
)
from speedbench.native.proposer import Row
from speedbench.native.target import Target
from speedbench.types import Kernel, Peaks, Prefill, Timed

Notify = Callable[[str], None]

STUDIES = 0.25
"""Share of the time that the studies of kernels may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What to measure beyond the grid, and for how long."""

    grid: Grid
    seconds: float
    gemm: int
    """Size of the square layer; 0: no studies."""
    attention_context: int
    shape: studies.Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that was measured, and what was left out."""

    timed: tuple[Timed, ...]
    kernels: tuple[Kernel, ...]
    peaks: Peaks | None
    prefills: tuple[Prefill, ...]
    noise: float | None
    notes: tuple[str, ...]


def estimate(target: Target, course: Course) -> float:
    """Seconds that all rounds of all points would take, from two forwards: the smallest and the largest."""
    grid = course.grid
    sizes = [b * (1 + d) for b in grid.batches for d in (0, *grid.lengths)]
    few, many = min(sizes), max(sizes)
    low, high = (_forward(target, n) for n in (few, many))
    slope = (high - low) / (many - few) if many > few else 0.0
    drafted = [b * (1 + d) for b in grid.batches for d in grid.lengths if d] * len(grid.drafters)
    passes = [low + slope * (n - few) for n in sizes * len(grid.contexts) + drafted]
    return (ROUNDS + 1) * BURST * sum(passes)


def _forward(target: Target, tokens: int) -> float:
    slots = target.slots(1, tokens + 1)
    ids = torch.tensor([text(tokens, target.vocab)], device=target.device)
    return studies.seconds(target.device, [lambda: target.forward(slots, ids, [0])])


def run(target: Target, course: Course, notify: Notify) -> Measured:
    """Groups of points share the time that is left; a group that the time does not reach is noted, never guessed."""
    grid, began = course.grid, time.perf_counter()
    until = began + course.seconds * (1 - STUDIES if course.gemm else 1.0)
    groups = [(batch, context) for context in grid.contexts for batch in grid.batches]
    jobs: list[tuple[str, int, int, Callable[[Target, Grid, int, int], list[Arm]]]] = [
        ("target", batch, context, plain_arms) for batch, context in groups
    ]
    jobs += [("drafters", batch, min(grid.contexts), drafted_arms) for batch in grid.batches if grid.drafters]
    timed: list[Timed] = []
    notes: list[str] = []
    for done, (what, batch, context, arms) in enumerate(jobs):
        now = time.perf_counter()
        if now > until:
            notes.append(f"no time for {what} at B={batch}, context {context}")
            continue
        if not fits(target, batch, context + 512, free_memory(target.device)):
            notes.append(f"{what} at B={batch}, context {context} would not fit into memory")
            continue
        notify(f"{done + 1}/{len(jobs)} {what}: B={batch}, context {context}, {now - began:.0f} s")
        level = next((t.verify for t in timed if (t.batch, t.context, t.draft_length) == (batch, context, 0)), None)
        deadline = now + (until - now) / (len(jobs) - done)
        timed += measure(arms(target, grid, batch, context), batch, context, deadline, level)
    filled = _prefills(target, grid, until, notes)
    reached, kernels = _studies(target, course, notify, began + course.seconds, notes) if course.gemm else (None, [])
    return Measured(
        timed=tuple(timed), kernels=tuple(kernels), peaks=reached, prefills=tuple(filled), noise=noise(timed),
        notes=tuple(notes),
    )  # fmt: skip


def noise(timed: Sequence[Timed]) -> float | None:
    """The largest relative difference between a baseline and itself again; None where none was repeated."""
    ratios = [abs(each.verify / each.again - 1) for each in timed if each.again is not None]
    return max(ratios, default=None)


def _prefills(target: Target, grid: Grid, until: float, notes: list[str]) -> list[Prefill]:
    """Of the shortest and the longest context: by the target alone, and with what each drafter reads of a prompt."""
    found = []
    for tokens in sorted({min(grid.contexts), max(grid.contexts)}):
        found.append(Prefill(tokens=tokens, seconds=_reading(alone(target, tokens), tokens)))
        for label, build in grid.drafters if max(grid.lengths) else ():
            if time.perf_counter() > until:
                notes.append(f"no time for the prefill of {label} at {tokens} tokens")
                continue
            decoder = build(max(grid.lengths), 1, tokens + max(grid.lengths) + 2)
            found.append(Prefill(tokens=tokens, seconds=_reading(decoder, tokens), drafter=label))
    return found


def _reading(decoder: Decoder, tokens: int) -> float:
    """Seconds to admit a prompt, the mean of two; the first time is not counted."""
    ids, taken = text(tokens, decoder.target.vocab), []
    for _ in range(3):
        row = Row(0, list(ids), tokens, 2, np.random.default_rng(0))
        taken.append(decoder.admit(row)[1])
        decoder.release(row)
    return fmean(taken[1:])


def _studies(
    target: Target, course: Course, notify: Notify, until: float, notes: list[str]
) -> tuple[Peaks, list[Kernel]]:
    """What the machine reaches, always; the kernels as far as half of the time left each goes."""
    device, dtype, grid = target.device, target.dtype, course.grid
    cuda = device.type == "cuda"
    notify("peaks: a large product and a large copy")
    reached = studies.peaks(device, dtype, product=8192 if cuda else 1024, copied=(1 << 30) if cuda else (128 << 20))
    notify(f"a linear layer of {course.gemm}² over B·(1+D) rows")
    lengths = (0, *(d for d in grid.lengths if d))
    batches = tuple(2**k for k in range(0, 10 if cuda else 6))
    half = (time.perf_counter() + until) / 2
    kernels = studies.products(device, dtype, course.gemm, batches, lengths, reached, half)
    wanted = len(batches) * len(lengths)
    notify(f"decode attention over G·(1+D) queries, context {course.attention_context}")
    group = course.shape.group
    rows = (group, 16, 32, 64, 96, 128, 144, 192, 256, 272, 384)
    lengths = tuple(sorted({max(0, -(-n // group) - 1) for n in rows}))
    context = course.attention_context
    kernels += studies.attention(device, dtype, course.shape, grid.batches[-1], context, lengths, reached, until)
    wanted += len(lengths)
    if len(kernels) < wanted:
        notes.append(f"no time for {wanted - len(kernels)} of the {wanted} kernels to be studied")
    return reached, kernels
