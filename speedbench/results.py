"""A run on disk and back: run.json first, raw records and passes as they come, whole files by rename, one writer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from speedbench.errors import UserError
from speedbench.types import Cell, Measured, Mismatch, Pass, Record

SCHEMA = 1
"""Of run.json and summary.json; a reader refuses any other."""

_DIGITS = 7
"""Decimal places of a time: a tenth of a microsecond."""

_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)

Value = TypeVar("Value")
_RECORD, _PASS, _MISMATCH, _CELL = (TypeAdapter(kind) for kind in (Record, Pass, Mismatch, Cell))


def safe(name: str, longest: int = 80) -> str:
    """A short file name for any name; one that had to change carries a hash of the whole, so that none collide."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")
    if slug == name and len(slug) <= longest and not _RESERVED.fullmatch(slug):
        return slug
    return f"{slug[: longest - 9] or 'x'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def dumps(document: Any, *, indent: int | None = None) -> str:
    """Strict JSON: NaN and infinity are refused, other alphabets stay readable."""
    separators = None if indent else (",", ":")
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def write_whole(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as read back."""

    path: Path
    document: Mapping[str, Any]
    """run.json."""
    measured: tuple[Measured, ...]
    noise: tuple[float, ...]
    """Seconds of every noise probe."""

    @property
    def name(self) -> str:
        return self.path.name


# ---- writing -------------------------------------------------------------------------------------------------------


class Writer:
    """The one writer of a run's folder."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path, self.document = path, document
        self._waiting: dict[Path, list[str]] = {}

    @property
    def process(self) -> int:
        """0 for the first process of a run, one more for each resume."""
        return len(self.document["processes"]) - 1

    def folder(self, cell: Cell) -> Path:
        return self.path / safe(cell.key)

    def facts(self, cell: Cell, facts: Mapping[str, Any]) -> None:
        """What an engine said of itself, in cell.json."""
        self.folder(cell).mkdir(exist_ok=True)
        write_whole(
            self.folder(cell) / "cell.json", dumps({"cell": asdict(cell), "facts": dict(facts)}, indent=2) + "\n"
        )

    def add_pass(self, cell: Cell, one: Pass) -> None:
        """Held back until the next record, with which it is written."""
        self._waiting.setdefault(self.folder(cell) / "passes.jsonl", []).append(dumps(_rounded(asdict(one))))

    def add_record(self, cell: Cell, record: Record) -> None:
        """Appended and flushed, with the passes before it."""
        self.flush()
        _append(self.folder(cell) / "records.jsonl", [dumps(_rounded(asdict(record)))])

    def flush(self) -> None:
        for path, lines in self._waiting.items():
            _append(path, lines)
        self._waiting.clear()

    def add_noise(self, cell: Cell, seconds: Sequence[float]) -> None:
        _append(self.path / "noise.jsonl", [dumps({"cell": cell.key, "seconds": [round(s, _DIGITS) for s in seconds]})])

    def mismatches(self, cell: Cell, found: Iterable[Mismatch]) -> None:
        """Compared: the file stands, empty when every output was equal."""
        lines = [dumps(asdict(one)) + "\n" for one in found]
        write_whole(self.folder(cell) / "mismatches.jsonl", "".join(lines))

    def finish(self) -> None:
        self.document["finished"] = True
        self._save()

    def _save(self) -> None:
        write_whole(self.path / "run.json", dumps(self.document, indent=2) + "\n")


@contextmanager
def writing(path: Path, config: Mapping[str, Any], environment: Mapping[str, Any], *, resume: bool) -> Iterator[Writer]:
    """Begin a run in an empty folder, or go on with one of the same config. run.json is there before this yields.

    Raises `UserError` for a folder that holds something else, a run that another process writes, or another config.
    """
    _refuse_occupied(path, resume)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(path / ".lock"), timeout=0)
        lock.acquire()
    except Timeout:
        raise UserError(f"another process is writing '{path}'; wait for it or choose another --out") from None
    except OSError as error:
        raise UserError(f"cannot write to '{path}': {error.strerror or error}; choose another --out") from None
    try:
        yield _writer(path, config, environment)
    finally:
        lock.release()
        (path / ".lock").unlink(missing_ok=True)


def _refuse_occupied(path: Path, resume: bool) -> None:
    if path.exists() and not path.is_dir():
        raise UserError(f"--out '{path}' is a file; name a folder")
    inside = sorted(p.name for p in path.iterdir() if p.name != ".lock") if path.is_dir() else []
    if resume and "run.json" not in inside:
        raise UserError(f"--resume: no run in '{path}' (no run.json); leave --resume out to begin one")
    if inside and not resume:
        if "run.json" in inside:
            raise UserError(f"'{path}' holds a run already; add --resume to go on with it, or choose another --out")
        raise UserError(f"'{path}' is not empty and holds no run ({inside[0]} …); choose another --out")


def _writer(path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> Writer:
    wanted = json.loads(dumps(config))
    if (path / "run.json").is_file():
        document = dict(read_document(path))
        _refuse_other_config(document["config"], wanted, path)
        document["processes"] = [*document["processes"], dict(environment)]
        for raw in path.glob("*/*.jsonl"):
            _drop_torn_line(raw)
    else:
        document = {"schema": SCHEMA, "run": path.name, "config": wanted, "processes": [dict(environment)]}
    document["finished"] = False
    writer = Writer(path, document)
    writer._save()
    return writer


def _refuse_other_config(stored: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    differ = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
    if differ:
        shown = "; ".join(f"{k}: {_short(stored.get(k))} there, {_short(wanted.get(k))} asked for" for k in differ[:3])
        raise UserError(f"--resume: '{path}' was run with other settings ({shown}); use the same or another --out")


def _short(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()


def _drop_torn_line(path: Path) -> None:
    """What a killed process left half-written at the end is forgotten."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _rounded(document: dict[str, Any]) -> dict[str, Any]:
    """Times to a tenth of a microsecond, in place."""
    for key, value in document.items():
        if isinstance(value, float):
            document[key] = round(value, _DIGITS)
        elif key == "steps":
            document[key] = [_rounded(step) for step in value]
    return document


# ---- reading -------------------------------------------------------------------------------------------------------


def read_document(path: Path) -> Mapping[str, Any]:
    """run.json of a run's folder, of this schema."""
    file = path / "run.json"
    if not file.is_file():
        raise UserError(f"'{path}' is no run: it has no run.json; name the folder that `speedbench run --out` wrote")
    try:
        document = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{file} has schema {schema}; this speedbench reads schema {SCHEMA}")
    return dict(document)


def load(path: Path) -> Run:
    """A run with all that was measured so far; cells that were not begun are absent."""
    document = read_document(path)
    cells = [read(_CELL, cell, path / "run.json", 0) for cell in document["config"]["cells"]]
    noise = [line["seconds"] for _, line in _lines(path / "noise.jsonl")]
    measured = tuple(load_cell(path, cell) for cell in cells if (path / safe(cell.key)).is_dir())
    return Run(path=path, document=document, measured=measured, noise=tuple(s for group in noise for s in group))


def load_cell(path: Path, cell: Cell) -> Measured:
    folder = path / safe(cell.key)
    compared = folder / "mismatches.jsonl"
    return Measured(
        cell=cell,
        records=_values(_RECORD, folder / "records.jsonl"),
        passes=_values(_PASS, folder / "passes.jsonl"),
        mismatches=_values(_MISMATCH, compared) if compared.is_file() else None,
    )


def _values(kind: TypeAdapter[Value], path: Path) -> tuple[Value, ...]:
    return tuple(read(kind, line, path, number) for number, line in _lines(path))


def read(kind: TypeAdapter[Value], document: Any, path: Path, number: int) -> Value:
    """One value out of JSON, or a `UserError` that names file, line and key."""
    try:
        return kind.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} line {number}: {key}: {first['msg']} (got {_short_repr(first['input'])})") from None


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line's number and JSON; a torn last line is left out, as a run may still be writing it."""
    if not path.is_file():
        return
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise UserError(f"{path} line {number} is not JSON: {error}") from None
