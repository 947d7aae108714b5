"""A run's raw counts without its text: what every number of a board can be made from again, and nothing to read.

counts.jsonl: a line a cell, then a line for each of its turns. A turn's steps are a histogram; passes at full batch are
sums over at most twenty runs of neighbours, which is how intervals resample them. No prompt, answer, token id, hash of
a prompt, payload or clock is in it: requests are numbers in the order of their names, times count from a cell's first.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from speedbench.errors import UserError
from speedbench.files import dumps
from speedbench.results import read
from speedbench.stats import full_passes
from speedbench.types import Cell, Counted, Counts, Finish, Measured, Mismatch, Origin, Pass, Record, Step
from speedbench.untrusted import MEGABYTE, lines

MOST = 64 * MEGABYTE
"""Bytes of a counts.jsonl."""

MOST_STEPS = 20_000_000
"""Steps and passes that one may stand for."""

FAULT = "left out"
"""Stands for each fault of an engine's counters, whose words are not published."""

_BLOCKS = 20
"""As `stats.block_shares` has them."""
_DIGITS = 7

Number = Annotated[int, Field(ge=0, le=10**9)]
Known = Number | None
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Name = Annotated[str, Field(min_length=1, max_length=120)]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sums over `passes` neighbouring passes at full batch; None where one of them does not say."""

    __pydantic_config__ = _STRICT

    passes: Annotated[int, Field(ge=1, le=10**7)]
    draft: Seconds | None
    verify: Seconds | None
    other: Seconds | None
    whole: Seconds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where a drafted output left the baseline's, without the tokens."""

    __pydantic_config__ = _STRICT

    request: Number
    turn: Number
    index: Number
    gap: float | None
    kind: Literal["near_tie", "real", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """The first line of a cell."""

    __pydantic_config__ = _STRICT

    cell: Cell
    blocks: tuple[Block, ...]
    partly: Annotated[int, Field(ge=0, le=10**7)]
    """Passes with a place of the batch empty, in which no time is measured."""
    parts: tuple[Part, ...] | None
    """None: outputs were not compared."""
    counted: tuple[Counted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """One answered turn."""

    __pydantic_config__ = _STRICT

    request: Number
    category: Name
    turn: Number
    prompt_tokens: Number
    tokens: Number
    first_tokens: Number
    steps: tuple[tuple[Known, Known, Number, Annotated[int, Field(ge=1, le=10**6)]], ...]
    """(proposed, accepted, committed, how many such steps)."""
    sent: Seconds
    first: Seconds | None
    last: Seconds | None
    finish: Finish
    prompt: Number = 0
    """Another number where the prompt is another one than the first cell's, after answers that differed."""
    counts: Counts | None = None
    told: Origin = "exact"
    process: Annotated[int, Field(ge=0, lt=1000)] = 0


_DEFAULTS = {"prompt": 0, "counts": None, "told": "exact", "process": 0, "counted": ()}
"""What a line leaves out."""

_CELL, _TURN = TypeAdapter(CellLine), TypeAdapter(TurnLine)


# ---- a run → its counts ----------------------------------------------------------------------------------------------


def text(cells: Sequence[Measured], requests: Iterable[str]) -> str:
    """counts.jsonl of these cells; `requests` are the names of all conversations."""
    number = {name: index for index, name in enumerate(sorted(requests))}
    prompts: dict[tuple[str, int], dict[str, int]] = {}
    written: list[Any] = []
    for each in cells:
        clocks = {record.process for record in each.records}
        begun = {clock: min(record.sent for record in each.records if record.process == clock) for clock in clocks}
        written.append(_cell_line(each, number))
        written += [_turn_line(record, number, prompts, begun[record.process]) for record in each.records]
    return "".join(dumps(_without_defaults(asdict(line))) + "\n" for line in written)


def _without_defaults(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in _DEFAULTS or value != _DEFAULTS[key]}


def _cell_line(measured: Measured, number: Mapping[str, int]) -> CellLine:
    full = full_passes(measured)
    runs = np.array_split(np.arange(len(full)), min(_BLOCKS, len(full))) if full else []
    parts = [
        Part(request=number[each.request], turn=each.turn, index=each.index, gap=each.gap, kind=each.kind)
        for each in measured.mismatches or ()
    ]
    return CellLine(
        cell=measured.cell,
        blocks=tuple(_block([full[int(i)] for i in run]) for run in runs),
        partly=len(measured.passes) - len(full),
        parts=None if measured.mismatches is None else tuple(parts),
        counted=tuple(replace(each, raw=None, faults=(FAULT,) * len(each.faults)) for each in measured.counted),
    )


def _block(passes: Sequence[Pass]) -> Block:
    def total(name: str) -> float | None:
        told = [getattr(each, name) for each in passes]
        return None if None in told else round(sum(told), _DIGITS + 2)

    return Block(
        passes=len(passes), draft=total("draft"), verify=total("verify"), other=total("other"), whole=total("whole")
    )


def _turn_line(
    record: Record, number: Mapping[str, int], prompts: dict[tuple[str, int], dict[str, int]], begun: float
) -> TurnLine:
    seen = prompts.setdefault((record.request, record.turn), {})
    tally = Counter((step.proposed, step.accepted, step.committed) for step in record.steps)
    return TurnLine(
        request=number[record.request],
        category=record.category,
        turn=record.turn,
        prompt=seen.setdefault(record.prompt_sha, len(seen)),
        prompt_tokens=record.prompt_tokens,
        tokens=record.size,
        first_tokens=record.first_tokens,
        steps=tuple((*key, tally[key]) for key in sorted(tally, key=repr)),
        counts=record.counts,
        told=record.told,
        sent=round(record.sent - begun, _DIGITS),
        first=None if record.first is None else round(record.first - begun, _DIGITS),
        last=None if record.last is None else round(record.last - begun, _DIGITS),
        finish=record.finish,
        process=record.process,
    )


# ---- and back --------------------------------------------------------------------------------------------------------


def _refuse_large(where: str) -> NoReturn:
    """A line of a few bytes may stand for more than the memory holds."""
    raise UserError(f"{where}: more than {MOST_STEPS} steps and passes in one submission")


def _refuse_odd(path: str, found: Sequence[CellLine]) -> None:
    """What each line may be by itself, and yet not here."""
    keys = [line.cell.key for line in found]
    if len(set(keys)) < len(keys):
        raise UserError(f"{path}: a cell stands twice")
    for line in found:
        if line.partly and line.cell.concurrency == 1:
            raise UserError(f"{path}: {line.cell.key}: a batch of one is never partly full")
        if any(each.raw is not None or set(each.faults) - {FAULT} for each in line.counted):
            raise UserError(f"{path}: {line.cell.key}: holds an engine's own payload; a submission holds counts only")


def measured(whole: bytes, path: str) -> tuple[Measured, ...]:
    """The cells of a counts.jsonl, with all that their numbers are made from. Raises `UserError` naming file, line."""
    found: list[tuple[CellLine, list[Record]]] = []
    size = 0
    for where, line in lines(whole, path):
        if isinstance(line, dict) and "cell" in line:
            cell = read(_CELL, line, where)
            size += cell.partly + sum(block.passes for block in cell.blocks)
            found.append((cell, []))
        elif found:
            turn = read(_TURN, line, where)
            size += sum(each[3] for each in turn.steps)
            found[-1][1].append(_record(turn) if size <= MOST_STEPS else _refuse_large(where))
        else:
            raise UserError(f"{where}: a turn before its cell; a cell's line comes first")
    if size > MOST_STEPS:
        _refuse_large(path)
    _refuse_odd(path, [line for line, _ in found])
    return tuple(_measured(line, records) for line, records in found)


def name(number: int) -> str:
    """What a conversation is called: its number, in the order of the run's own names."""
    return f"{number:06d}"


def _measured(line: CellLine, records: Sequence[Record]) -> Measured:
    full = [one for block in line.blocks for one in _passes(block, line.cell.concurrency)]
    partly = [_pass(0, None, None, None, None)] * line.partly
    mismatches = None if line.parts is None else tuple(_mismatch(part) for part in line.parts)
    return Measured(
        cell=line.cell, records=tuple(records), passes=(*full, *partly), mismatches=mismatches, counted=line.counted
    )


def _passes(block: Block, batch: int) -> list[Pass]:
    """As many passes as there were, all of the mean's seconds: their sums are the block's."""
    sums = (block.draft, block.verify, block.other, block.whole)
    return [_pass(batch, *(None if each is None else each / block.passes for each in sums))] * block.passes


def _pass(batch: int, draft: float | None, verify: float | None, other: float | None, whole: float | None) -> Pass:
    return Pass(
        at=0.0, batch=batch or 1, width=None, proposed=None, draft=draft, verify=verify, other=other, whole=whole
    )


def _mismatch(part: Part) -> Mismatch:
    return Mismatch(
        request=name(part.request), turn=part.turn, index=part.index, expected=None, got=None, gap=part.gap,
        kind=part.kind,
    )  # fmt: skip


def _record(line: TurnLine) -> Record:
    return Record(
        request=name(line.request), category=line.category, turn=line.turn, prompt_tokens=line.prompt_tokens,
        prompt_sha=str(line.prompt), output=(), steps=tuple(_steps(line)), sent=line.sent, first=line.first,
        last=line.last, first_tokens=line.first_tokens, prefill=None, finish=line.finish, process=line.process,
        tokens=line.tokens, counts=line.counts, told=line.told,
    )  # fmt: skip


def _steps(line: TurnLine) -> Iterator[Step]:
    """The steps, the one that a stop or the cap cut short last, where it was."""
    for proposed, accepted, committed, n in sorted(line.steps, key=lambda each: each[2] < (each[1] or 0) + 1):
        yield from [Step(at=None, proposed=proposed, accepted=accepted, committed=committed)] * n
