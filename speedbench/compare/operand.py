"""What may stand on either side: a run's folder, its summary, a cell of it, or a named baseline."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from speedbench import results
from speedbench.compare.stored import stored
from speedbench.compare.wording import clean
from speedbench.errors import UnknownName, UserError
from speedbench.files import append, dumps, lines, safe, write_whole
from speedbench.pairing import pooled
from speedbench.pairing.siblings import costed
from speedbench.results import Run
from speedbench.stats import tallied
from speedbench.types import Cell, Counts, Measured, Record, Result

BASELINES = Path("baselines")
"""Where named baselines lie, in the working directory, to be committed or cached: a folder each, read as a run's."""

_NAMED = "baseline:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side of a comparison."""

    label: str
    path: Path
    document: Mapping[str, Any]
    """run.json; empty for a summary that stands alone, of which nothing but its numbers is known."""
    measured: tuple[Measured, ...]
    """Every cell once, its repeats pooled; empty where only the summary is there."""
    chosen: tuple[Cell, ...]
    """The cells that are compared, without baselines."""
    summarised: tuple[Result, ...]
    """The numbers alone, where nothing was measured here."""
    blocks: Mapping[Cell, int]
    """Turns that a cell had, alternating with the others; by cell with its repeat."""
    noise: tuple[float, ...]
    missing: tuple[str, ...]

    def cell(self, cell: Cell) -> Measured | None:
        return next((each for each in self.measured if each.cell == cell), None)

    def result(self, cell: Cell) -> Result | None:
        return next((each for each in self.summarised if each.cell == cell), None)


def load(word: str) -> Operand:
    """`[LABEL=]PATH[#CELL]` or `[LABEL=]baseline:NAME[#CELL]`. Raises `UserError` for what is none or does not read."""
    label, place, pick = _parts(word)
    path = _baseline(place.removeprefix(_NAMED)) if place.startswith(_NAMED) else Path(place)
    if path.is_file() and path.name not in ("run.json", "summary.json"):
        found = _alone(path)
    elif (folder := path.parent if path.is_file() else path) and (folder / "run.json").is_file():
        found = _of_run(results.load(folder))
    elif (folder / "summary.json").is_file():
        found = _alone(folder / "summary.json")
    else:
        raise UserError(f"'{place}' is no run: name a folder with a run.json, a summary.json, or baseline:NAME")
    return replace(
        found,
        label=clean(label or (f"{found.label}#{pick}" if pick else found.label), 60),
        chosen=tuple(_picked(found.chosen, pick)),
    )


def _parts(word: str) -> tuple[str, str, str]:
    """Label, place and cell; a path that is there is taken as it is, whatever signs it has."""
    label, equals, rest = word.partition("=")
    if not equals or "/" in label or _there(word):
        label, rest = "", word
    place, _, pick = (rest, "", "") if Path(rest).exists() else rest.partition("#")
    return label.strip(), place, pick


def _there(word: str) -> bool:
    return Path(word).exists() or ("#" in word and Path(word.rpartition("#")[0]).exists())


def _of_run(run: Run) -> Operand:
    cells = costed(pooled(run.measured))
    turns = Counter(line["cell"] for _, line in lines(run.path / "noise.jsonl"))
    alone = () if cells else tuple(_pooled_only(stored(run.path / "summary.json")))
    return Operand(
        label=run.name,
        path=run.path,
        document=run.document,
        measured=tuple(cells),
        chosen=tuple(each.cell for each in (cells or alone) if not each.cell.is_baseline),
        summarised=alone,
        blocks={each.cell: turns[each.cell.key] for each in run.measured},
        noise=run.noise,
        missing=tuple(run.missing) if cells else (),
    )


def _alone(path: Path) -> Operand:
    found = tuple(_pooled_only(stored(path)))
    return Operand(
        label=path.stem if path.name != "summary.json" else path.resolve().parent.name,
        path=path,
        document={},
        measured=(),
        chosen=tuple(each.cell for each in found if not each.cell.is_baseline),
        summarised=found,
        blocks={},
        noise=(),
        missing=(),
    )


def _pooled_only(found: Sequence[Result]) -> Iterator[Result]:
    """Of a cell with several repeats the pooled one, of any other the only one, as if pooled."""
    together = [each for each in found if each.cell.repeat is None]
    for each in together or found:
        yield replace(each, cell=replace(each.cell, repeat=None))


def _picked(cells: Sequence[Cell], pick: str) -> list[Cell]:
    """Those of a drafter, `ngram`, of a D, `ngram-d4`, or the one, `ngram-d4-b1`."""
    names = {cell: (cell.drafter, f"{cell.drafter}-d{cell.draft_length}", key(cell)) for cell in cells}
    found = [cell for cell in cells if not pick or pick in names[cell]]
    if pick and not found:
        raise UnknownName("cell", pick, {name for every in names.values() for name in every})
    return found


def key(cell: Cell) -> str:
    """A cell without its repeat: `ngram-d4-b1`."""
    return f"{cell.drafter}-d{cell.draft_length}-b{cell.concurrency}"


# ---- named baselines ------------------------------------------------------------------------------------------------


def _baseline(name: str) -> Path:
    folder = BASELINES / _checked(name)
    if not folder.is_dir():
        have = [each.name for each in BASELINES.iterdir() if each.is_dir()] if BASELINES.is_dir() else []
        raise UnknownName("baseline", name, have, f" (in {BASELINES}/; --save-baseline makes one)")
    return folder


def _checked(name: str) -> str:
    if not name or safe(name) != name:
        raise UserError(f"a baseline's name is of letters, digits, '.', '_' and '-', at most 80 (got '{name}')")
    return name


def save_baseline(name: str, word: str) -> Path:
    """A run kept under a name, in place of what bore it: run.json and the counts of every answer, without its text,
    token ids, single steps and the engine's payloads. Returns the folder. Raises `UserError` for an unfinished run.
    """
    target = BASELINES / _checked(name)
    run = results.load(Path(word))
    if not run.document["finished"] or run.missing:
        raise UserError(f"'{word}' is not finished, so it is no baseline; go on with it by --resume")
    try:
        _replace(target, run)
    except OSError as error:
        raise UserError(f"cannot write '{target}': {error.strerror or error}") from None
    return target


def _replace(target: Path, run: Run) -> None:
    """The new folder is whole before the old one goes."""
    scratch, old = target.with_name(f".{target.name}.tmp"), target.with_name(f".{target.name}.old")
    for left in (scratch, old):
        shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir(parents=True)
    for each in run.measured:
        _write_slim(scratch / safe(each.cell.key), each)
    for kept in ("run.json", "noise.jsonl"):
        if (run.path / kept).is_file():
            shutil.copyfile(run.path / kept, scratch / kept)
    if target.exists():
        target.rename(old)
    scratch.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write_slim(folder: Path, measured: Measured) -> None:
    folder.mkdir()
    append(folder / "records.jsonl", [dumps(asdict(_slim(record))) for record in measured.records])
    if measured.mismatches is not None:
        write_whole(folder / "mismatches.jsonl", "".join(dumps(asdict(each)) + "\n" for each in measured.mismatches))
    if measured.counted:
        append(folder / "counted.jsonl", [dumps(asdict(replace(each, raw=None))) for each in measured.counted])


def _slim(record: Record) -> Record:
    """The same sums and times, without what was said."""
    counts = record.counts if record.counts is not None or not record.steps else _summed(record)
    return replace(record, output=(), steps=(), tokens=record.size, text=None, raw=None, counts=counts)


def _summed(record: Record) -> Counts:
    """The sums of an answer's steps; None of what a single step does not tell."""
    committed, steps = tallied(record)
    accepted = [step.accepted for step in record.steps if step.accepted is not None]
    proposed = [step.proposed for step in record.steps if step.proposed is not None]
    told = len(proposed) == steps
    return Counts(
        steps=steps,
        committed=committed,
        accepted=sum(accepted) if len(accepted) == steps else None,
        proposed=sum(proposed) if told else None,
        drafted=sum(map(bool, proposed)) if told else None,
        origin=record.told,
    )
