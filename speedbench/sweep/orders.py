"""What a worker is told and what it answers: files in a folder that both sides must see, each proven by a token."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from speedbench.errors import UserError
from speedbench.files import dumps, loads, write_whole
from speedbench.results import read
from speedbench.sweep import Sweep
from speedbench.types import Fit
from speedbench.workload import Preflight

VISIBLE = 30.0
"""Seconds until a file that another machine wrote must be seen here; network file systems remember what was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a run that is measured on one machine: all cells of one concurrency."""

    run: str
    """The run's folder."""
    concurrency: int
    process: int
    """What its records are to be marked with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one worker is to do."""

    token: str
    """New each time it is handed out: a worker that holds another was replaced."""
    cwd: str
    work: str
    """A file that holds `Work`."""
    skip_long: bool = False
    unit: Unit | None = None
    """None: look at the prompts and the drafters, measure nothing, and write an `Answer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every order of a run shares."""

    sweep: Sweep
    fits: tuple[Fit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker found before anything ran."""

    token: str
    preflight: Preflight
    target: Mapping[str, Any]
    environment: Mapping[str, Any]


Value = TypeVar("Value", Order, Work, Answer)


def write(path: Path, value: Order | Work | Answer) -> None:
    write_whole(path, dumps(asdict(value)) + "\n")


def hand_out(path: Path, work: Path, *, skip_long: bool = False, unit: Unit | None = None) -> list[str]:
    """Write an order, in place of one before it, and say how a worker is told of it."""
    token = secrets.token_hex(8)
    write(path, Order(token=token, cwd=os.getcwd(), work=str(work), skip_long=skip_long, unit=unit))
    return ["work", str(path), token]


def order(path: Path, token: str) -> Order:
    """The order as handed out with this token. Raises `UserError` where it is not there any more, or another's."""
    found = _read(Order, path) if _appears(path) else None
    if found is None or found.token != token:
        raise UserError(f"'{path}' is no order for this worker: the run was stopped, or gave it to another")
    return found


def work(order: Order) -> Work:
    return _read(Work, Path(order.work))


def answered(path: Path, token: str) -> Answer:
    """What a worker wrote. Raises `UserError` where nothing of this token is seen here."""
    found = _read(Answer, path) if _appears(path) else None
    if found is None or found.token != token:
        raise UserError(f"what a worker wrote to '{path.parent}' is not seen here: --out must be on a shared disk")
    return found


def _appears(path: Path) -> bool:
    until = time.monotonic() + VISIBLE
    while not path.is_file() and path.parent.is_dir() and time.monotonic() < until:
        time.sleep(0.05)
    return path.is_file()


def _read(kind: type[Value], path: Path) -> Value:
    return read(TypeAdapter(kind), loads(path.read_bytes()), str(path))
