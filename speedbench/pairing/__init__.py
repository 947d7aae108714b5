"""Which cell is whose baseline, repeats put together, and what makes two arms a poor comparison."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speedbench.stats import REPEAT_STRIDE, paired
from speedbench.types import Cell, Measured, Mismatch, Record

LENGTH_LIMIT = 0.1
"""Relative difference in tokens above which two arms did not do the same work."""


def baseline_of(measured: Measured, among: Sequence[Measured]) -> Measured | None:
    """The D = 0 cell of the same task, runner, concurrency and repeat; a baseline is its own."""
    return next((each for each in among if each.cell.is_baseline and square(each.cell) == square(measured.cell)), None)


def pooled(measured: Sequence[Measured]) -> list[Measured]:
    """Every cell once, with repeat None and the records of all its repeats; in the order of their first appearance.

    A request keeps its name, so its repeats are one cluster. Repeats and clocks stay apart in `process`.
    """
    groups: dict[Cell, list[Measured]] = {}
    for each in measured:
        if each.cell.repeat is not None:
            groups.setdefault(replace(each.cell, repeat=None), []).append(each)
    return [_together(cell, sorted(group, key=_repeat)) for cell, group in groups.items()]


def warnings(measured: Sequence[Measured]) -> list[str]:
    """What a reader must know before comparing the cells: no baseline, or arms that wrote different amounts of text."""
    found = []
    for each in measured:
        baseline = baseline_of(each, measured)
        if baseline is None:
            found.append(f"{each.cell.key}: no baseline (D = 0) at concurrency {each.cell.concurrency}, so no speedup")
        elif baseline is not each:
            found += _length_warning(each, baseline)
    return found


def square(cell: Cell) -> tuple[str, str, int, int | None]:
    """What cells share that one baseline is for."""
    return cell.task, cell.runner, cell.concurrency, cell.repeat


def _repeat(measured: Measured) -> int:
    return measured.cell.repeat or 0


def _together(cell: Cell, group: Sequence[Measured]) -> Measured:
    return Measured(
        cell=cell,
        records=tuple(_moved(record, _repeat(each)) for each in group for record in each.records),
        passes=tuple(one for each in group for one in each.passes),
        mismatches=_all_mismatches(group),
        counted=tuple(one for each in group for one in each.counted),
        drafting=group[0].drafting,
    )


def _moved(record: Record, repeat: int) -> Record:
    assert record.process < REPEAT_STRIDE, f"process {record.process} of {record.request}"
    return replace(record, process=repeat * REPEAT_STRIDE + record.process)


def _all_mismatches(group: Sequence[Measured]) -> tuple[Mismatch, ...] | None:
    """None when one repeat was not compared: a share over the others would count its outputs as equal."""
    found: list[Mismatch] = []
    for each in group:
        if each.mismatches is None:
            return None
        found += each.mismatches
    return tuple(found)


def _length_warning(measured: Measured, baseline: Measured) -> list[str]:
    both = paired(measured, baseline)
    ours = sum(record.size for record, _ in both)
    theirs = sum(record.size for _, record in both)
    if abs(ours - theirs) <= LENGTH_LIMIT * max(ours, theirs):
        return []
    return [
        f"{measured.cell.key}: {ours} tokens against the baseline's {theirs} on the same {len(both)} prompts; "
        "tokens/s may still be compared, times may not"
    ]
