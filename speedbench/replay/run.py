"""A replay: label the answers under every drafter, keep that as the trace, and write what follows as a run's folder."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from speedbench.errors import UserError
from speedbench.files import safe
from speedbench.replay import trace
from speedbench.replay.outputs import Outputs, noted
from speedbench.replay.trace import Labelled
from speedbench.results import Writer, load_cell
from speedbench.types import Answer, Cell, Chances, Drafting, Labelling, Origin, Sampling
from speedbench.walk import plain, record

Notify = Callable[[int, int], None]
"""Told how many answers are done, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A cell that a replay writes, and what its numbers are worth."""

    cell: Cell
    """Its drafter is the label under which the trace has its tables."""
    origin: Origin
    route: str


def parts(like: Mapping[str, Any], routes: Mapping[str, str], lengths: Sequence[int], origin: Origin) -> list[Part]:
    """The baseline, then every drafter at every D; `like` names task and runner."""
    every = [("none", 0), *((label, d) for label in routes for d in lengths)]
    return [
        Part(
            cell=Cell(**like, drafter=label, draft_length=d, concurrency=1, repeat=0),
            origin=origin, route=routes.get(label, "no drafts"),
        )
        for label, d in every
    ]  # fmt: skip


def config(
    base: Mapping[str, Any],
    draftings: Sequence[Drafting],
    planned: Sequence[Part],
    sampling: Sampling,
    *,
    source: str,
    notes: Sequence[str] = (),
    drafters: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """run.json's config: the task, requests and runner of `base`, and under `replay` where the answers came from, by
    what route each drafter went and what each cell's numbers are worth."""
    kept = {key: base[key] for key in ("task", "request_ids", "columns", "runner", "target") if key in base}
    return {
        **kept,
        "draftings": [asdict(each) for each in draftings],
        "draft_lengths": sorted({part.cell.draft_length for part in planned if part.cell.draft_length}),
        "concurrency": sorted({part.cell.concurrency for part in planned}),
        "repeats": 1,
        "sampling": asdict(sampling),
        "cells": [asdict(part.cell) for part in planned],
        "drafters": dict(drafters or {}),
        "replay": {
            "source": source,
            "routes": {part.cell.drafter: part.route for part in planned},
            "origins": {part.cell.key: part.origin for part in planned},
            "notes": list(notes),
        },
    }


def like(base: Mapping[str, Any]) -> dict[str, str]:
    """Task and runner of the cells to come."""
    return {"task": base["task"]["name"], "runner": base["runner"]["name"]}


def planned(stored: Mapping[str, Any]) -> list[Part]:
    """The parts that a config says."""
    told = stored["replay"]
    cells = [Cell(**cell) for cell in stored["cells"]]
    return [Part(cell=cell, origin=told["origins"][cell.key], route=told["routes"][cell.drafter]) for cell in cells]


def at_lengths(stored: Mapping[str, Any], lengths: Sequence[int] | None) -> dict[str, Any]:
    """A trace's config with the cells at these D alone; None: all."""
    if lengths is None:
        return dict(stored)
    for d in lengths:
        if d not in stored["draft_lengths"]:
            have = ", ".join(map(str, stored["draft_lengths"]))
            raise UserError(f"-D {d}: the trace is of D {have}; label the outputs anew for others")
    cells = [cell for cell in stored["cells"] if cell["draft_length"] in (0, *lengths)]
    return {**stored, "cells": cells, "draft_lengths": list(lengths)}


def label(outputs: Outputs, labelling: Labelling, writer: Writer, notify: Notify) -> None:
    """Make the trace, some answers at a time; what a killed process had labelled is not labelled again, unless a
    drafter must see every answer."""
    path, folder = writer.path / trace.FILE, writer.path / "trace"
    if path.is_file():
        return
    folder.mkdir(exist_ok=True)
    stateful = any(each.stateful for each in labelling.drafters.values())
    files = [folder / f"{safe(f'{each.request}-{each.turn}')}.parquet" for each in outputs.answers]
    every = zip(outputs.answers, files, strict=True)
    waiting = [(answer, file) for answer, file in every if stateful or not file.is_file()]
    if labelling.rows > 1 and not stateful:  # rows of one length are little padded
        waiting.sort(key=lambda each: -len(each[0].prompt) - len(each[0].output))
    done = len(files) - len(waiting)
    for low in range(0, len(waiting), labelling.rows):
        some = waiting[low : low + labelling.rows]
        labelled = _labelled([answer for answer, _ in some], labelling)
        for number, ((_, file), tables) in enumerate(zip(some, labelled, strict=True), start=done + low + 1):
            trace.write(file, tables, {})
            notify(number, len(files))
    trace.merge(files, path, writer.document["config"])
    shutil.rmtree(folder)


def _labelled(answers: Sequence[Answer], labelling: Labelling) -> list[list[Labelled]]:
    """By answer."""
    tables = {name: one.tables(answers) for name, one in labelling.drafters.items()}
    differing = labelling.differing(answers)
    return [
        [
            Labelled(answer=answer, drafter=name, draft_length=key, table=table, differing=differing[k])
            for name, each in tables.items()
            for key, table in each[k].items()
        ]
        for k, answer in enumerate(answers)
    ]


def write(writer: Writer, labelled: Sequence[Labelled]) -> None:
    """The records of every cell that are not there yet."""
    for part in planned(writer.document["config"]):
        mine = [one for one in labelled if _serves(one, part.cell)]
        if part.cell.is_baseline:
            mine = list({(one.answer.request, one.answer.turn): one for one in labelled}.values())
        there = {(each.request, each.turn) for each in load_cell(writer.path, part.cell).records}
        lacking = [one for one in mine if (one.answer.request, one.answer.turn) not in there]
        if lacking:
            writer.facts(part.cell, _facts(part, mine))
        for one in lacking:
            table = plain(one.answer) if part.cell.is_baseline else one.table
            made = record(one.answer, table, part.cell.draft_length, part.origin)
            writer.add_record(part.cell, replace(made, off_target=_off_target(one)))


def _serves(one: Labelled, cell: Cell) -> bool:
    return one.drafter == cell.drafter and one.draft_length in (None, cell.draft_length)


def _facts(part: Part, mine: Sequence[Labelled]) -> dict[str, Any]:
    never = sum(
        row[0] == -math.inf
        for one in mine
        if isinstance(one.table, Chances) and not part.cell.is_baseline
        for row in one.table.target
        if row
    )
    warned = f"{never} tokens of the outputs have no chance under this temperature, top-k and top-p: sampled otherwise?"
    return {"route": part.route, "origin": part.origin, "warnings": [warned] * bool(never) + _told_off(mine)}


def _off_target(one: Labelled) -> int | None:
    return None if one.differing is None else len(one.differing)


def _told_off(mine: Sequence[Labelled]) -> list[str]:
    """Names the answers that the target would not give, those furthest from it first."""
    shares = {
        f"{one.answer.request} turn {one.answer.turn}": (_off_target(one) or 0, len(one.answer.output)) for one in mine
    }
    off = sorted((each for each in shares.items() if each[1][0]), key=lambda each: -each[1][0] / each[1][1])
    return noted(
        "answers have tokens that the target, given those before, would not say (near ties, other numerics, or another "
        "model's)", [f"{name} ({count} of {size})" for name, (count, size) in off],
    )  # fmt: skip


def refuse_lossy(engine: Mapping[str, Any]) -> None:
    if engine.get("acceptance", "lossless") != "lossless":
        raise UserError(
            f"engine.acceptance is '{engine['acceptance']}', a lossy rule: the answer then depends on D, so that "
            "nothing can be replayed; what ran with engine.acceptance=lossless can"
        )
