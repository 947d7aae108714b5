"""Profiles on disk: one strict JSON file, whole or not at all, of a schema that is checked; and a run seen as one."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from speedbench import results
from speedbench.environment import without_secrets
from speedbench.errors import UserError
from speedbench.files import document, dumps, finite, write_whole
from speedbench.stats import answered, full_passes, percentile
from speedbench.types import Cell, Measured, Pass, Profile, Timed

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
    )  # fmt: skip


def _timed(measured: Measured, context: int) -> list[Timed]:
    cell = measured.cell
    passes = [each for each in full_passes(measured) if each.width == 1 + cell.draft_length and each.verify is not None]
    if len(passes) < 5:
        return []
    plain = _summed(cell, passes, context, None)
    return [plain] if cell.is_baseline else [_summed(cell, passes, context, cell.drafter), plain]


def _summed(cell: Cell, passes: Sequence[Pass], context: int, drafter: str | None) -> Timed:
    verify = [each.verify or 0.0 for each in passes]
    low, middle, high = (percentile(verify, q) or 0.0 for q in (10, 50, 90))
    return Timed(
        drafter=drafter, batch=cell.concurrency, draft_length=cell.draft_length, context=context, verify=middle,
        draft=None if drafter is None else percentile([each.draft or 0.0 for each in passes], 50),
        other=percentile([each.other or 0.0 for each in passes], 50) or 0.0,
        spread=(high - low) / middle, rounds=len(passes),
    )  # fmt: skip


def _context(measured: Sequence[Measured]) -> int:
    """Tokens before a pass, on the whole: of the prompts and half the answers."""
    records = [record for each in measured for record in answered(each)]
    return max(1, round(sum(r.prompt_tokens + r.size / 2 for r in records) / len(records))) if records else 1
