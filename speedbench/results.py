"""A run on disk and back: run.json first, raw records and passes as they come, whole files by rename, one writer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from speedbench.environment import without_secrets
from speedbench.errors import UserError
from speedbench.files import append, document, drop_torn_line, dumps, finite, lines, safe, write_whole
from speedbench.locks import held
from speedbench.resuming import refuse_other_settings
from speedbench.runfile import RUN_FILE
from speedbench.types import Cell, Counted, Drafting, Measured, Mismatch, Pass, Record

SCHEMA = 1
"""Of run.json and summary.json; a reader refuses any other."""

WORKERS = "workers"
"""Folder within a run for what its workers are told and say, by unit; only where it ran on workers."""

_DIGITS = 7
"""Decimal places of a time: a tenth of a microsecond."""

Value = TypeVar("Value")
_RECORD, _PASS, _MISMATCH, _CELL = TypeAdapter(Record), TypeAdapter(Pass), TypeAdapter(Mismatch), TypeAdapter(Cell)
_COUNTED, _DRAFTING = TypeAdapter(Counted), TypeAdapter(Drafting)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probes:
    """A line of noise.jsonl."""

    cell: str
    seconds: tuple[float, ...]


_PROBES = TypeAdapter(_Probes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as read back."""

    path: Path
    document: Mapping[str, Any]
    """run.json."""
    measured: tuple[Measured, ...]
    noise: tuple[float, ...]
    """Per block, the median seconds of its noise probes; from workers, over the unit's own median, since machines
    that differ are no noise."""
    warned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By cell key, what its engine warned of."""

    @property
    def name(self) -> str:
        """As it was begun, wherever the folder has gone since."""
        return str(self.document.get("run", self.path.resolve().name))

    @property
    def missing(self) -> list[str]:
        """Of each planned cell that is not all there, by key: how many conversations it lacks."""
        ids = set(self.document["config"]["request_ids"])
        there = {each.cell.key: {record.request for record in each.records} for each in self.measured}
        lacking = {key: len(ids - there.get(key, set())) for key in map(_key, self.document["config"]["cells"])}
        return [f"{key}: {n} of {len(ids)} conversations are not there" for key, n in lacking.items() if n]


def _key(cell: Mapping[str, Any]) -> str:
    return Cell(**cell).key


# ---- writing -------------------------------------------------------------------------------------------------------


class Writer:
    """The one writer of a run's folder, or on a worker, of some of its cells."""

    def __init__(self, path: Path, document: dict[str, Any], process: int) -> None:
        """`process`: 0 for the first process of a run, one more for each resume and for a worker that was lost."""
        self.path, self.document, self.process = path, document, process
        self._waiting: dict[Path, list[Pass]] = {}

    def folder(self, cell: Cell) -> Path:
        return self.path / safe(cell.key)

    def facts(self, cell: Cell, facts: Mapping[str, Any]) -> None:
        """What an engine said of itself, in cell.json; its warnings in a file of their own, where they add up."""
        self.folder(cell).mkdir(exist_ok=True)
        kept = without_secrets(finite(dict(facts)))
        write_whole(self.folder(cell) / "cell.json", dumps({"cell": asdict(cell), "facts": kept}, indent=2) + "\n")
        self.warn(cell, kept.get("warnings", ()))

    def warn(self, cell: Cell, texts: Iterable[str]) -> None:
        """Kept with the cell, each once."""
        self.folder(cell).mkdir(exist_ok=True)
        new = [text for text in texts if text not in _warned(self.folder(cell))]
        if new:
            append(self.folder(cell) / "warnings.jsonl", [dumps(text) for text in new])

    def add_pass(self, cell: Cell, one: Pass) -> None:
        """Held back until the next record, with which it is written."""
        self._waiting.setdefault(self.folder(cell) / "passes.jsonl", []).append(one)

    def add_record(self, cell: Cell, record: Record) -> None:
        """Appended and flushed, with the passes before it."""
        self.flush()
        kept = asdict(record) | {"error": without_secrets(record.error), "raw": without_secrets(finite(record.raw))}
        append(self.folder(cell) / "records.jsonl", [dumps(_rounded(kept))])

    def add_counted(self, cell: Cell, counted: Counted) -> None:
        append(self.folder(cell) / "counted.jsonl", [dumps(_rounded(without_secrets(asdict(counted))))])

    def flush(self) -> None:
        for path, waiting in self._waiting.items():
            append(path, [dumps(_rounded(asdict(one))) for one in waiting])
        self._waiting.clear()

    def add_noise(self, cell: Cell, seconds: Sequence[float]) -> None:
        self.folder(cell).mkdir(exist_ok=True)
        line = dumps({"cell": cell.key, "seconds": [round(s, _DIGITS) for s in seconds]})
        append(self.folder(cell) / "noise.jsonl", [line])

    def mismatches(self, cell: Cell, found: Iterable[Mismatch]) -> None:
        """Compared: the file stands, empty when every output was equal."""
        write_whole(self.folder(cell) / "mismatches.jsonl", "".join(dumps(asdict(one)) + "\n" for one in found))

    def finish(self) -> None:
        self.document["finished"] = True
        self.save()

    def save(self) -> None:
        write_whole(self.path / "run.json", dumps(self.document, indent=2) + "\n")


def is_complete(path: Path, config: Mapping[str, Any], *, resume: bool) -> bool:
    """Whether there is nothing left to do; asked before a model is loaded, of a config without its `target`.

    Raises `UserError` for whatever `writing` would refuse.
    """
    refuse_occupied(path, resume)
    if not resume:
        return False
    run, wanted = load(path), as_kept(config)
    refuse_other_settings({key: run.document["config"].get(key) for key in wanted}, wanted, path)
    return bool(run.document["finished"]) and not run.missing


@contextmanager
def writing(path: Path, config: Mapping[str, Any], environment: Mapping[str, Any], *, resume: bool) -> Iterator[Writer]:
    """Begin a run in an empty folder, or go on with one of the same config. run.json is there before this yields.

    Raises `UserError` for a folder that holds something else, a run that another process writes, or another config.
    """
    refuse_occupied(path, resume)
    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            busy = f"another process is writing '{path}'; wait for it or choose another --out"
            stack.enter_context(held(path / ".lock", busy))
        except OSError as error:
            raise UserError(f"cannot write to '{path}': {error.strerror or error}; choose another --out") from None
        refuse_occupied(path, resume)  # another process may have come and gone before the lock was ours
        _call_back(path)
        yield _writer(path, config, environment)


def _call_back(path: Path) -> None:
    """Raises `UserError` where a worker of an earlier process still writes; one yet to begin finds its order gone."""
    for order in (path / WORKERS).glob("*.order"):
        with held(order.with_suffix(".lock"), f"a worker is still writing '{path}' ({order.stem}); wait for its end"):
            order.unlink()


def joining(path: Path, cells: Iterable[Cell], process: int) -> Writer:
    """Go on with some cells of a run whose run.json another process keeps. Nobody else may be writing these cells."""
    writer = Writer(path, dict(read_document(path)), process)
    for cell in cells:
        for raw in writer.folder(cell).glob("*.jsonl"):
            drop_torn_line(raw)
    return writer


def refuse_occupied(path: Path, resume: bool) -> None:
    """Raises `UserError` unless a run may begin in the folder or, with `resume`, go on in it."""
    if path.exists() and not path.is_dir():
        raise UserError(f"--out '{path}' is a file; name a folder")
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise UserError(f"cannot write to '{path}': '{there}' is no folder that can be written; choose another --out")
    inside = sorted(p.name for p in path.iterdir() if p.name != ".lock") if path.is_dir() else []
    if resume and "run.json" not in inside:
        raise UserError(f"--resume: no run in '{path}' (no run.json); leave --resume out to begin one")
    if inside and not resume:
        if "run.json" in inside:
            raise UserError(f"'{path}' holds a run already; add --resume to go on with it, or choose another --out")
        raise UserError(f"'{path}' is not empty and holds no run ({inside[0]} …); choose another --out")


def _writer(path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> Writer:
    wanted = as_kept(config)
    if (path / "run.json").is_file():
        stored = dict(read_document(path))
        refuse_other_settings(stored["config"], wanted, path)
        stored["processes"] = [*stored["processes"], dict(environment)]
        for raw in path.rglob("*.jsonl"):
            drop_torn_line(raw)
    else:
        stored = {"schema": SCHEMA, "run": path.resolve().name, "config": wanted, "processes": [dict(environment)]}
    stored["finished"] = False
    writer = Writer(path, stored, len(stored["processes"]) - 1)
    writer.save()
    return writer


def as_kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as run.json holds it."""
    return dict(json.loads(dumps(without_secrets(dict(config)))))


def _rounded(document: dict[str, Any]) -> dict[str, Any]:
    """Times to a tenth of a microsecond, in place."""
    for key, value in document.items():
        if isinstance(value, float):
            document[key] = round(value, _DIGITS)
        elif key == "steps" and value is not None and not isinstance(value, int):
            document[key] = [_rounded(step) for step in value]
    return document


# ---- reading -------------------------------------------------------------------------------------------------------


def read_document(path: Path) -> Mapping[str, Any]:
    """run.json of a run's folder, of this schema and with all that must be in it."""
    file = path / "run.json"
    if not file.is_file():
        raise UserError(f"'{path}' is no run: it has no run.json; name the folder that `speedbench run --out` wrote")
    found = document(file, SCHEMA)
    read(RUN_FILE, found, str(file))
    return found


def load(path: Path) -> Run:
    """A run with all that was measured so far; cells that were not begun are absent."""
    found = read_document(path)
    cells = [read(_CELL, cell, f"{path / 'run.json'}: config.cells") for cell in found["config"]["cells"]]
    asked = [read(_DRAFTING, each, f"{path / 'run.json'}: config.draftings") for each in found["config"]["draftings"]]
    by_label = {each.label: each for each in asked}
    with uncollected():
        measured = tuple(
            replace(load_cell(path, cell), drafting=by_label.get(cell.drafter))
            for cell in cells
            if (path / safe(cell.key)).is_dir()
        )
    warned = {each.cell.key: _warned(path / safe(each.cell.key)) for each in measured}
    noise = _noise(path, [each.cell for each in measured])
    return Run(path=path, document=found, measured=measured, noise=noise, warned=warned)


@contextmanager
def uncollected() -> Iterator[None]:
    """What is read has no cycles, nor has what is made of it, and Python would look for them again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _noise(path: Path, cells: Sequence[Cell]) -> tuple[float, ...]:
    """Earlier runs have all of it in one file."""
    here = [(cell.concurrency, each) for cell in cells for each in _medians(path / safe(cell.key))]
    if not (path / WORKERS).is_dir():
        return (*_medians(path), *(each for _, each in here))
    usual = {unit: median(each for of, each in here if of == unit) for unit, _ in here}
    return tuple(each / usual[unit] for unit, each in here if usual[unit])


def _medians(folder: Path) -> list[float]:
    return [median(probes.seconds) for probes in _values(_PROBES, folder / "noise.jsonl") if probes.seconds]


def load_cell(path: Path, cell: Cell) -> Measured:
    folder = path / safe(cell.key)
    compared = folder / "mismatches.jsonl"
    return Measured(
        cell=cell,
        records=_values(_RECORD, folder / "records.jsonl"),
        passes=_values(_PASS, folder / "passes.jsonl"),
        mismatches=_values(_MISMATCH, compared) if compared.is_file() else None,
        counted=_values(_COUNTED, folder / "counted.jsonl"),
    )


def _warned(folder: Path) -> tuple[str, ...]:
    return tuple(str(text) for _, text in lines(folder / "warnings.jsonl"))


def _values(kind: TypeAdapter[Value], path: Path) -> tuple[Value, ...]:
    return tuple(read(kind, line, f"{path} line {number}") for number, line in lines(path))


def read(kind: TypeAdapter[Value], document: Any, where: str) -> Value:
    """One value out of JSON, or a `UserError` that names file, line and key."""
    try:
        return kind.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"{where}: {key}: {first['msg']} (got {_short_repr(first['input'])})") from None


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
