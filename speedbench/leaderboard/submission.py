"""A submission: entry.json says what was run on what, counts.jsonl what was counted; its folder is named by their hash.

leaderboards/submissions/<hardware>/<target>/<id>/{entry.json, counts.jsonl}
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from speedbench.errors import UserError
from speedbench.files import dumps, safe, write_whole
from speedbench.leaderboard import counts
from speedbench.results import Run, read
from speedbench.types import Cell, Sampling
from speedbench.untrusted import MEGABYTE, content, document

SCHEMA = 1
SUBMISSIONS = "submissions"
ENTRY, COUNTS, TIERS = "entry.json", "counts.jsonl", "tiers.json"

WEIGHTLESS = frozenset({"none", "ngram", "suffix", "oracle", "synthetic"})
"""Mechanisms that need no revision of weights."""


def _shown(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("should be printable text without space around it")
    return text


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_shown)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Real = Annotated[float, Field(ge=0, le=1e12)]
Settings = dict[Text, Any]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The task, as its run resolved it."""

    __pydantic_config__ = _STRICT

    name: Text
    version: Count
    licence: Text
    conversations: Count
    content_hash: Text
    """Of all prompts in order, so that equal hashes are equal prompts."""
    max_tokens: Count
    categories: dict[Text, Count]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    __pydantic_config__ = _STRICT

    name: Text
    model: Text
    revision: Text | None
    dtype: Text | None
    quant: Text | None
    parameters: Count | None
    template_sha: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    __pydantic_config__ = _STRICT

    name: Text
    version: Text | None
    settings: Settings
    prefix_cache: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    __pydantic_config__ = _STRICT

    label: Text
    method: Text
    revision: Text | None
    """None: it has no weights, or nobody said which."""
    parameters: Count | None
    bytes: Count | None
    acceptance: Text | None
    """The verification rule: greedy, rejection, or a lossy one; None: the engine does not say."""
    cross_request_state: Literal["none", "prompt", "requests", "corpus"] | None
    train_overlap: Literal["none_known", "declared", "unknown"]
    """Whether it was trained on prompts of the task."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    __pydantic_config__ = _STRICT

    name: Text
    memory: Count | None
    driver: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Hardware and software. Memory in bytes; None is what nobody could tell."""

    __pydantic_config__ = _STRICT

    gpus: tuple[Gpu, ...]
    cpu: Text | None
    cpu_threads: Count | None
    """CPUs that the run could use."""
    memory: Count | None
    system: Text | None
    python: Text | None
    packages: dict[Text, Text]
    thread_settings: dict[Text, Text]
    power_limit_w: Real | None
    clocks: Text | None

    @property
    def hardware(self) -> str:
        """What boards are named by: `2x NVIDIA H200`, or the processor with its usable CPUs."""
        if self.gpus:
            return f"{len(self.gpus)}x {self.gpus[0].name}"
        return f"{self.cpu or 'unknown CPU'}, {self.cpu_threads or '?'} CPU{'s' * (self.cpu_threads != 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """entry.json."""

    __pydantic_config__ = _STRICT

    schema: Literal[1]
    id: Text
    counts_sha256: Text
    submitter: Text
    date_utc: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    speedbench_version: Text
    speedbench_commit: Text | None
    dirty: bool
    """Measured by a checkout with changes that are not in the commit."""
    processes: Annotated[int, Field(ge=1, le=1000)]
    """More than one: the run was interrupted and gone on with."""
    repeats: Annotated[int, Field(ge=1, le=1000)]
    workload: Workload
    target: Target
    engine: EngineFacts
    drafts: tuple[Draft, ...]
    machine: Machine
    cells: tuple[Cell, ...]
    """Every cell that was planned."""
    noise: tuple[Real, ...]
    """Seconds of the noise probe, a median a block."""

    def draft(self, label: str) -> Draft | None:
        """None for the baseline."""
        return next((each for each in self.drafts if each.label == label), None)

    @property
    def folder(self) -> Path:
        """Where it lies, below the folder of all submissions."""
        return Path(slug(self.machine.hardware), slug(self.target.name), self.id)


_ENTRY = TypeAdapter(Entry)
_TIERS = TypeAdapter(dict[str, Literal["reproduced", "verified"]])


def slug(name: str) -> str:
    """A folder's name for the name of hardware, a target or a task."""
    words = "".join(each if re.match(r"[A-Za-z0-9._]", each) else " " for each in name).split()
    return safe("-".join(words) or "x").lower()


def identity(entry: Entry) -> str:
    """A hash of all that an entry says, its counts included."""
    said = {key: value for key, value in asdict(entry).items() if key != "id"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]


def identified(entry: Entry, counted: str) -> Entry:
    """The entry with the hash of its counts and its own."""
    entry = replace(entry, counts_sha256=hashlib.sha256(counted.encode()).hexdigest())
    return replace(entry, id=identity(entry))


def write(boards: Path, entry: Entry, counted: str) -> Path:
    """The submission's folder below `boards`, whole or not there. Raises `UserError` where it is there already."""
    folder = boards / SUBMISSIONS / entry.folder
    if folder.exists():
        raise UserError(f"'{folder}' is there already: this run was submitted before")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".submit-", dir=boards) as scratch:
        made = Path(scratch, entry.id)
        made.mkdir()
        write_whole(made / COUNTS, counted)
        write_whole(made / ENTRY, dumps(asdict(entry), indent=2) + "\n")
        made.rename(folder)
    return folder


# ---- and back --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A submission with its counts: `run` holds that part of a run which metrics and validation ask for."""

    entry: Entry
    run: Run


def load(folder: Path) -> Submission:
    """Read one within limits. Raises `UserError` naming file and line for whatever is not as it must be."""
    entry = _entry(folder / ENTRY)
    wanted = {ENTRY, COUNTS}
    odd = sorted(path.name for path in folder.iterdir() if path.name not in wanted)
    if odd:
        raise UserError(f"{folder / odd[0]}: a submission holds {' and '.join(sorted(wanted))}, nothing else")
    if folder.absolute().parts[-3:] != entry.folder.parts:
        raise UserError(f"{folder / ENTRY}: belongs into the folder {entry.folder}, by what it says")
    if identity(entry) != entry.id:
        raise UserError(f"{folder / ENTRY}: was changed after it was made: its id is not the hash of what it says")
    return of(entry, content(folder / COUNTS, counts.MOST), folder)


def of(entry: Entry, counted: bytes, folder: Path) -> Submission:
    """An entry with its counts. Raises `UserError` where they are not those that it was made with."""
    path = folder / COUNTS
    if hashlib.sha256(counted).hexdigest() != entry.counts_sha256:
        raise UserError(f"{path}: was changed after it was made: {ENTRY} has another hash of it")
    names = [counts.name(number) for number in range(entry.workload.conversations)]
    config = {"request_ids": names, "cells": [asdict(cell) for cell in entry.cells]}
    document = {"config": config, "finished": True}
    run = Run(path=folder, document=document, measured=counts.measured(counted, str(path)), noise=entry.noise)
    return Submission(entry=entry, run=run)


def _entry(path: Path) -> Entry:
    found = document(path, MEGABYTE)
    got = found.get("schema") if isinstance(found, dict) else None
    if isinstance(got, bool) or got != SCHEMA:
        raise UserError(f"{path} has schema {'none' if got is None else repr(got)}; this speedbench reads {SCHEMA}")
    return read(_ENTRY, found, str(path))


def folders(boards: Path) -> list[Path]:
    """Every submission's folder, sorted. Raises `UserError` for a link, or a file where none belongs."""
    root, found = boards / SUBMISSIONS, []
    if not root.is_dir():
        return []
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            raise UserError(f"{path} is a link; submissions are plain files")
        depth = len(path.relative_to(root).parts)
        if path.is_file() and depth < 4:
            raise UserError(f"{path}: submissions lie in {SUBMISSIONS}/<hardware>/<target>/<id>")
        if path.is_dir() and depth == 3:
            found.append(path)
    return found


def tiers(boards: Path) -> dict[str, str]:
    """Entries that a maintainer measured again, by id, with how far: `reproduced` or `verified`."""
    path = boards / TIERS
    if not path.is_file():
        return {}
    found = read(_TIERS, document(path, MEGABYTE), str(path))
    return {name: str(tier) for name, tier in found.items()}
