"""Profiles on disk: one strict JSON file, whole or not at all, of a schema that is checked; and a run seen as one."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from speedbench import results
from speedbench.environment import without_secrets
from speedbench.errors import UserError
from speedbench.files import document, dumps, finite, write_whole
from speedbench.stats import answered, full_passes, percentile
from speedbench.types import Cell, Measured, Pass, Prefill, Profile, Timed

SCHEMA = 1

_PROFILE = TypeAdapter(Profile)


def write(path: Path, profile: Profile) -> None:
    """Raises `UserError` where the file cannot be written."""
    try:
        write_whole(path, dumps({"schema": SCHEMA, "profile": to_json(profile)}, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}; choose another --out") from None


def to_json(profile: Profile) -> dict[str, object]:
    return dict(without_secrets(finite(asdict(profile))))


def read(path: Path) -> Profile:
    """A profile's file, or a run's folder as far as it is one. Raises `UserError` naming what is wrong."""
    if path.is_dir():
        return of_run(results.load(path))
    if not path.is_file():
        raise UserError(f"no profile '{path}'; name the file that `speedbench profile --out` wrote, or a run's folder")
    found = results.read(_PROFILE, document(path, SCHEMA).get("profile"), str(path))
    for each in found.timed:
        if min(each.batch, each.context, each.rounds) < 1 or each.draft_length < 0 or each.verify <= 0:
            raise UserError(f"{path}: a pass of B={each.batch}, D={each.draft_length} in {each.verify} s cannot be")
    return found


# ---- a run as a profile ---------------------------------------------------------------------------------------------


def of_run(run: results.Run) -> Profile:
    """The full-batch passes of a run's cells. A pass narrower than 1 + D, of a drafter that held back, is left out."""
    config = run.document["config"]
    context = _context(run.measured)
    timed = [each for measured in run.measured for each in _timed(measured, context)]
    if not timed:
        raise UserError(f"'{run.path}' tells no pass times; write a profile with: speedbench profile")
    return Profile(
        target=config.get("target", {}), config={}, environment=run.document["processes"][-1], timed=tuple(timed),
        drafters=config.get("drafters", {}), notes=(f"the passes of the run {run.name}",),
        prefills=tuple(_prefills(run.measured)),
    )  # fmt: skip


def _timed(measured: Measured, context: int) -> list[Timed]:
    cell = measured.cell
    passes = [each for each in full_passes(measured) if each.width == 1 + cell.draft_length and each.verify is not None]
    if len(passes) < 5:
        return []
    plain = _summed(cell, passes, context, None)
    return [plain] if cell.is_baseline else [_summed(cell, passes, context, cell.drafter), plain]


def _summed(cell: Cell, passes: Sequence[Pass], context: int, drafter: str | None) -> Timed:
    """Means, as a run's own T_verif and T_draft are, so that they explain its speedups."""
    verify = [each.verify or 0.0 for each in passes]
    low, high = (percentile(verify, q) or 0.0 for q in (10, 90))
    return Timed(
        drafter=drafter, batch=cell.concurrency, draft_length=cell.draft_length, context=context, verify=fmean(verify),
        draft=None if drafter is None else fmean(each.draft or 0.0 for each in passes),
        other=fmean(each.other or 0.0 for each in passes), spread=(high - low) / fmean(verify), rounds=len(passes),
    )  # fmt: skip


def _prefills(measured: Sequence[Measured]) -> Iterator[Prefill]:
    """Of each drafter and of the baselines, whose prefills are the target's alone: a mean prompt."""
    for drafter in dict.fromkeys(each.cell.drafter for each in measured):
        cells = [each for each in measured if each.cell.drafter == drafter]
        told = [record for each in cells for record in answered(each) if record.prefill is not None]
        if told:
            yield Prefill(
                tokens=max(1, round(fmean(record.prompt_tokens for record in told))),
                seconds=fmean(record.prefill or 0.0 for record in told),
                drafter=None if cells[0].cell.is_baseline else drafter,
            )


def _context(measured: Sequence[Measured]) -> int:
    """Tokens before a pass, on the whole: of the prompts and half the answers."""
    records = [record for each in measured for record in answered(each)]
    return max(1, round(sum(r.prompt_tokens + r.size / 2 for r in records) / len(records))) if records else 1
