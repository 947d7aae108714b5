"""A sweep: its cells, what they will take, and the running of them, the baseline interleaved with the others."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from speedbench import sizing
from speedbench.environment import without_secrets
from speedbench.errors import UserError
from speedbench.measure import mismatches, outputs, texts
from speedbench.results import Writer, load_cell
from speedbench.task import content_hash, preparations
from speedbench.types import (
    Cell,
    Conversation,
    Counted,
    Drafting,
    Engine,
    Fit,
    Load,
    Pass,
    Record,
    Request,
    Runner,
    Sampling,
    Session,
    Task,
)
from speedbench.workload import Held, Limit, Preflight, qualified

BASELINE = Drafting(label="none", drafter="none")
_BLOCK = 4
"""Conversations per row of the batch that a cell holds before the next cell has its turn."""
_PROBES, _PROBING = 5, 0.2
"""How often the noise probe runs before a block, and for how many seconds at least: what stops a virtual CPU for some
milliseconds is averaged out over a block, and is not the machine's speed."""
_MOST_PROBES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was asked for."""

    task: Task
    requests: tuple[Request, ...]
    runner: Runner
    draftings: tuple[Drafting, ...]
    lengths: tuple[int, ...]
    concurrencies: tuple[int, ...]
    repeats: int
    sampling: Sampling
    own_lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By label, the draft lengths of a drafter that has its own in place of `lengths`."""

    def lengths_of(self, drafting: Drafting) -> list[int]:
        """The D at which it drafts; none for the baseline."""
        own = self.own_lengths.get(drafting.label, self.lengths)
        return [] if drafting.drafter == "none" else [length for length in own if length]

    @property
    def pairs(self) -> list[tuple[Drafting, int]]:
        """The baseline, then every drafter at every D."""
        return [(BASELINE, 0), *((each, length) for each in self.draftings for length in self.lengths_of(each))]

    @property
    def widest(self) -> int:
        """The largest D."""
        return max(length for _, length in self.pairs)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return len(self.concurrencies) * self.repeats * len(self.pairs)

    def cells(self) -> list[tuple[Cell, Drafting]]:
        """By concurrency and repeat the baseline, then every drafter at every D."""
        return [
            (
                Cell(
                    task=self.task.name, runner=self.runner.name, drafter=drafting.label, draft_length=length,
                    concurrency=concurrency, repeat=repeat,
                ),
                drafting,
            )
            for concurrency in self.concurrencies
            for repeat in range(self.repeats)
            for drafting, length in self.pairs
        ]  # fmt: skip

    def config(self) -> dict[str, Any]:
        """Everything that must be equal for a run to be gone on with."""
        task = {key: value for key, value in asdict(self.task).items() if key != "folder"}
        return {
            "task": {**task, "requests": len(self.requests), "content_hash": content_hash(self.requests)},
            "request_ids": [request.id for request in self.requests],
            **({"columns": columns} if (columns := _columns(self.requests)) else {}),
            **({"prepared": found} if (found := preparations(self.task)) else {}),
            "runner": asdict(self.runner),
            "draftings": [asdict(drafting) for drafting in self.draftings],
            "draft_lengths": list(self.lengths),
            **({"own_draft_lengths": self.own_lengths} if self.own_lengths else {}),
            "concurrency": list(self.concurrencies),
            "repeats": self.repeats,
            "sampling": asdict(self.sampling),
            "cells": [asdict(cell) for cell, _ in self.cells()],
        }


def _columns(requests: Sequence[Request]) -> dict[str, dict[str, str]]:
    """What the rows are told apart by beside their category, by request."""
    return {request.id: dict(request.columns) for request in requests if request.columns}


def preflight(sweep: Sweep, session: Session, *, skip_long: bool = False) -> Preflight:
    """Measure the prompts in the target's tokens, and bring every drafter up once, so that what is wrong is found here.

    Raises `UserError` for prompts too long (unless `skip_long` leaves them out), a D that cannot fit, and a drafter
    that does not go with the target.
    """
    found = sizing.measured(sweep.requests, session, sweep.runner, sweep.sampling.max_tokens)
    held = Held(requests=found[0], fits=found[1]).within(_limits(sweep, session), skip=skip_long)
    if session.context is not None and sweep.widest >= session.context:
        raise UserError(f"-D {sweep.widest}: beyond the target's context of {session.context} tokens; use less")
    load, few = _load(sweep, held.fits), sweep.concurrencies[0]
    drafters = {
        drafting.label: session.engine(drafting, max(lengths), few, load).facts
        for drafting in sweep.draftings
        if (lengths := sweep.lengths_of(drafting))
    }
    held = held.within_drafters(drafters, skip=skip_long)
    cells, turns = sweep.cells(), sum(len(request.turns) for request in held.requests)
    tokens = turns * sweep.sampling.max_tokens
    told = {cell.key: session.plan(drafting, cell.draft_length, cell.concurrency) for cell, drafting in cells}
    return Preflight(
        requests=held.requests, fits=held.fits, cells=len(cells), turns=turns * len(cells),
        most_tokens=tokens * len(cells), drafters=drafters, plans={key: plan for key, plan in told.items() if plan},
        estimated_seconds=_seconds(sweep, session, held.fits, tokens), skipped=held.skipped,
        warnings=(*qualified(sweep.task, held.requests), *held.notes),
    )  # fmt: skip


def _limits(sweep: Sweep, session: Session) -> list[Limit]:
    """What the target and the engine can hold, where they say."""
    told = {"the target's context": session.context, "engine.max_model_len": sweep.runner.engine.get("max_model_len")}
    return [Limit(of=of, tokens=tokens) for of, tokens in told.items() if tokens]


def _seconds(sweep: Sweep, session: Session, fits: Sequence[Fit], tokens: int) -> float | None:
    total, prompts = 0.0, sum(fit.prompt_tokens or 0 for fit in fits)
    for concurrency in sweep.concurrencies:
        pace = session.pace(concurrency)
        if pace is None:
            return None
        cells = sum(1 for cell, _ in sweep.cells() if cell.concurrency == concurrency)
        total += cells * (prompts * pace[0] + tokens * pace[1] / concurrency)
    return round(total, 1)


# ---- running -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lane:
    """A cell under way: its engine, once it is up, and its records so far."""

    cell: Cell
    drafting: Drafting
    records: list[Record] = field(default_factory=list)
    engine: Engine | None = None
    failed: bool = False
    warmed: Callable[[], None] = lambda: None
    """Called once the engine is up, before anything is measured."""

    def done(self, request: Request) -> bool:
        own = [record for record in self.records if record.request == request.id]
        return len(own) >= len(request.turns) or any(record.finish == "error" for record in own)


Notify = Callable[[Cell, Record | None], None]
"""Told of each record as it is written, and of each block with None as it begins."""


def run(sweep: Sweep, session: Session, fits: Sequence[Fit], writer: Writer, notify: Notify) -> bool:
    """Run every cell that is not there yet, block by block, then compare the outputs; False: cells were given up."""
    session.keep_in(writer.path / "servers")
    load = _load(sweep, fits)
    lanes = [_lane(writer, cell, drafting) for cell, drafting in sweep.cells()]
    groups: dict[tuple[int, int | None], list[_Lane]] = {}
    for lane in lanes:
        groups.setdefault((lane.cell.concurrency, lane.cell.repeat), []).append(lane)
    if session.context is None:  # no server is up yet
        for baseline, *_ in groups.values():
            baseline.warmed = partial(_refuse_long, sweep, session, fits)
    for group in groups.values():
        _run_group(sweep, session, load, writer, group, notify)
        for lane in group:
            lane.engine = None
    if sweep.sampling.temperature == 0:
        _compare(sweep, session, writer, groups.values())
    return not any(lane.failed for lane in lanes)


def _refuse_long(sweep: Sweep, session: Session, fits: Sequence[Fit]) -> None:
    """Raises `UserError` for what is too long for a server, which had to come up for this to be seen."""
    if any(fit.most_tokens is None for fit in fits):
        fits = session.fits(sweep.requests, sweep.sampling.max_tokens)
    for limit in _limits(sweep, session):
        over = limit.beyond(fits)
        if over:
            raise UserError(
                f"{limit.said(over, len(fits))}; shorten them, lower --max-tokens, or name the runner's tokenizer: "
                "with it --skip-long can leave them out"
            )


def _load(sweep: Sweep, fits: Sequence[Fit]) -> Load:
    most = [fit.most_tokens for fit in fits if fit.most_tokens is not None]
    longest = max(most) if len(most) == len(fits) else None
    return Load(sampling=sweep.sampling, longest=longest, widest=sweep.widest)


def _lane(writer: Writer, cell: Cell, drafting: Drafting) -> _Lane:
    return _Lane(cell, drafting, list(load_cell(writer.path, cell).records))


def _run_group(
    sweep: Sweep, session: Session, load: Load, writer: Writer, group: Sequence[_Lane], notify: Notify
) -> None:
    """All cells of one concurrency and repeat: the baseline first in every block, the others forth and back."""
    size = _BLOCK * group[0].cell.concurrency
    if session.blocks is not None:
        size = max(size, -(-len(sweep.requests) // session.blocks))
    for number, at in enumerate(range(0, len(sweep.requests), size)):
        block = sweep.requests[at : at + size]
        others = group[1:] if number % 2 == 0 else group[:0:-1]
        for lane in (group[0], *others):
            waiting = [request for request in block if not lane.done(request)]
            if not waiting or lane.failed:
                continue
            try:
                _run_block(session, load, writer, lane, group[0], waiting, notify)
            except UserError as error:  # its server does not come up, or does not draft: the others can go on
                lane.failed = True
                if lane is group[0] or all(other.failed for other in group[1:]):
                    raise
                writer.warn(lane.cell, [without_secrets(f"this cell was given up: {error}")])


def _run_block(
    session: Session,
    load: Load,
    writer: Writer,
    lane: _Lane,
    baseline: _Lane,
    waiting: Sequence[Request],
    notify: Notify,
) -> None:
    notify(lane.cell, None)
    if lane.engine is None:
        lane.engine = session.engine(lane.drafting, lane.cell.draft_length, lane.cell.concurrency, load)
        lane.engine.warm_up()
        lane.warmed()
        writer.facts(lane.cell, lane.engine.facts)
    writer.add_noise(lane.cell, list(_probes(session)))
    work = [
        Conversation(
            request=request,
            done=outputs(lane.records, request.id),
            said=texts(lane.records, request.id),
            expected=None if lane is baseline else outputs(baseline.records, request.id),
        )
        for request in waiting
    ]
    events = lane.engine.serve(work)
    try:
        for event in events:
            _keep(writer, lane, event, notify)
    finally:
        getattr(events, "close", lambda: None)()  # what is under way ends now, not when its last reference goes
        writer.flush()
        writer.facts(lane.cell, lane.engine.facts)


def _probes(session: Session) -> Iterator[float]:
    """Nothing where there is nothing to time."""
    total = 0.0
    for number in range(_MOST_PROBES):
        seconds = session.probe() if number < _PROBES or total < _PROBING else None
        if seconds is None:
            return
        total += seconds
        yield seconds


def _keep(writer: Writer, lane: _Lane, event: Record | Pass | Counted, notify: Notify) -> None:
    if isinstance(event, Pass):
        writer.add_pass(lane.cell, event)
    elif isinstance(event, Counted):
        writer.add_counted(lane.cell, replace(event, process=writer.process))
    else:
        record = replace(event, process=writer.process)
        writer.add_record(lane.cell, record)
        lane.records.append(record)
        notify(lane.cell, record)


def _compare(sweep: Sweep, session: Session, writer: Writer, groups: Iterable[Sequence[_Lane]]) -> None:
    requests = {request.id: request for request in sweep.requests}
    for group in groups:
        for lane in group:
            writer.mismatches(lane.cell, mismatches(lane.records, group[0].records, requests, session))
