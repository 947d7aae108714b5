"""A replay out of a run's own steps: which cells they give, and what those are worth."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from speedbench.errors import UserError
from speedbench.replay import steps
from speedbench.replay.run import Part, refuse_lossy
from speedbench.replay.trace import Labelled
from speedbench.results import Run
from speedbench.types import Drafting, Measured, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSteps:
    """What a run's own steps give."""

    draftings: tuple[Drafting, ...]
    parts: tuple[Part, ...]
    labelled: tuple[Labelled, ...]
    notes: tuple[str, ...]


def from_steps(run: Run, lengths: Sequence[int] | None) -> FromSteps:
    """Of every drafter's cell at its largest D, the cells at smaller ones (`lengths`; None: all of them)."""
    refuse_lossy(run.document["config"]["runner"]["engine"])
    widest: dict[str, Measured] = {}
    for each in run.measured:
        have = widest.get(each.cell.drafter)
        if steps.usable(each) and (have is None or have.cell.draft_length < each.cell.draft_length):
            widest[each.cell.drafter] = each
    if not widest:
        raise UserError(f"'{run.path}': no cell tells the drafts of every step; replay its outputs instead: --outputs")
    first = next(iter(widest.values()))
    told = run.document["config"]
    mechanisms = {each["label"]: Drafting(**each) for each in told["draftings"]}
    parts = [_baseline(first)]
    draftings, labelled, notes = list[Drafting](), list[Labelled](), list[str]()
    for label, measured in widest.items():
        found = _of_cell(measured, mechanisms[label], _asked(lengths, measured), told["sampling"]["max_tokens"])
        draftings += found.draftings
        parts += found.parts
        labelled += found.labelled
        notes += found.notes
    return FromSteps(
        draftings=tuple(draftings), parts=tuple(parts), labelled=tuple(labelled), notes=tuple(notes)
    )  # fmt: skip


def _asked(lengths: Sequence[int] | None, measured: Measured) -> list[int]:
    most = measured.cell.draft_length
    beyond = [d for d in lengths or () if d > most]
    if beyond:
        raise UserError(f"-D {beyond[0]}: {measured.cell.key} ran at D = {most}; its steps tell of D up to that")
    return [d for d in lengths or range(1, most + 1) if d]


def _baseline(measured: Measured) -> Part:
    cell = replace(measured.cell, drafter="none", draft_length=0, repeat=0)
    return Part(cell=cell, origin="exact", route="no drafts")


def _of_cell(measured: Measured, drafting: Drafting, lengths: Sequence[int], cap: int) -> FromSteps:
    """At D whose D + 1 divides the run's, one cell; at another two, `-least` and `-most`, between which it lies."""
    longest = measured.cell.draft_length
    positional = drafting.drafter in steps.POSITIONAL
    known = [d for d in lengths if steps.divides(d, longest)]
    route = f"the steps of {measured.cell.key}"
    sides = {drafting.label: (False, known, route)}
    rest = [d for d in lengths if d not in known]
    if rest:
        sides[f"{drafting.label}-least"] = (False, rest, f"{route}, what they do not tell taken for misses")
        sides[f"{drafting.label}-most"] = (True, rest, f"{route}, what they do not tell taken for hits")
    records = steps.records(measured)
    return FromSteps(
        draftings=tuple(replace(drafting, label=label) for label, (_, some, _) in sides.items() if some),
        parts=tuple(
            Part(
                cell=replace(measured.cell, drafter=label, draft_length=d, repeat=0), route=text,
                origin=_origin(d, longest, label == drafting.label, positional),
            )
            for label, (_, some, text) in sides.items()
            for d in some
        ),
        labelled=tuple(
            Labelled(
                answer=steps.answer(record, cap), drafter=label, draft_length=None,
                table=steps.table(record, longest, unknown=unknown),
            )
            for label, (unknown, some, _) in sides.items()
            for record in records
            if some
        ),
        notes=() if positional else (_assumed(drafting),),
    )  # fmt: skip


def _origin(d: int, longest: int, known: bool, positional: bool) -> Origin:
    """Exact: the run's own steps, and those of a positional drafter that never ask for what is not known."""
    return "exact" if known and (positional or d == longest) else "estimated"


def _assumed(drafting: Drafting) -> str:
    return (
        f"{drafting.label}: whether a draft is right is taken not to depend on where its proposal began, which does "
        f"not hold of {drafting.drafter}; check a D by `speedbench run`, or replay the outputs"
    )
