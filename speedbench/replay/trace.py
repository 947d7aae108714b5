"""The trace: what each drafter proposes along each answer, one row a token, in Parquet; every number follows from it.

Columns: `request`, `category`, `turn`, `prompt_tokens`, `prompt_sha`, `finish`, `cap` of the answer; `drafter`, and
`draft_length` where its table serves one D alone; `position` and `token` in the answer. Of a proposal that begins with
that token: `offered` drafts, of which `matched` are the answer's; or, where drafts are drawn, `log_p` and `log_q` of
the answer's own tokens from this one on. The prefill's token, position 0, was proposed by nobody. `differs`: the
target, given the tokens before, says another; null where it was not run along the answer, or tokens are drawn.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from speedbench import results
from speedbench.errors import Missing, UserError
from speedbench.files import dumps, loads
from speedbench.runfile import RUN_FILE
from speedbench.types import Answer, Chances, Matches, Table

SCHEMA = 1
_NEEDED = ("request", "category", "turn", "prompt_tokens", "prompt_sha", "finish", "drafter", "token")
FILE = "trace.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An answer under one drafter."""

    answer: Answer
    drafter: str
    draft_length: int | None
    """The only D that its table serves; None: all."""
    table: Table
    differing: tuple[int, ...] | None = None
    """Positions of the output where the target says another token; None: not looked."""


def write(path: Path, labelled: Iterable[Labelled], config: Mapping[str, Any]) -> None:
    """A whole file or none, with the replay's config in its metadata."""
    parquet, pyarrow = packages()
    kept = dumps({"schema": SCHEMA, "config": dict(config)})
    schema = _schema(pyarrow).with_metadata({"speedbench": kept.encode()})
    scratch = path.with_name(path.name + ".tmp")
    with parquet.ParquetWriter(scratch, schema, compression="zstd") as file:
        for one in labelled:
            file.write_table(pyarrow.Table.from_pylist(list(_rows(one)), schema=schema))
    os.replace(scratch, path)


def read(path: Path) -> tuple[dict[str, Any], list[Labelled]]:
    """The config and everything labelled. Raises `UserError` for what is no whole trace."""
    path = path / FILE if path.is_dir() else path
    config, found = _read(path)
    _refuse_odd(config, path)
    return config, found


def _read(path: Path) -> tuple[dict[str, Any], list[Labelled]]:
    """Of a part too, which has no config."""
    parquet, pyarrow = packages()
    if not path.is_file():
        raise UserError(f"no trace at '{path}'; name a {FILE}, or the folder of a replay that holds one")
    try:
        with parquet.ParquetFile(path) as file:
            config = _config(file.schema_arrow.metadata or {}, path)
            if not file.schema_arrow.equals(_schema(pyarrow)):
                raise UserError(f"{path} is no trace of this speedbench: its columns are not a trace's")
            rows = (row for batch in file.iter_batches(batch_size=4096) for row in batch.to_pylist())
            found = [_labelled(list(group), path) for _, group in groupby(rows, key=_key)]
            _refuse_twice(found, path)
            return config, found
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} does not read as Parquet: {str(error).splitlines()[0]}") from None


def _config(metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Any]:
    try:
        told = loads(metadata.get(b"speedbench", b"{}"))
    except ValueError as error:
        raise UserError(f"{path}: its metadata are not JSON: {error}") from None
    got = told.get("schema") if isinstance(told, dict) else None
    if got != SCHEMA:
        raise UserError(f"{path} is no trace of this speedbench: schema {got}; {SCHEMA} is read")
    config = told.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{path}: its metadata: config: should be an object (got {type(config).__name__})")
    return config


def _refuse_odd(config: Mapping[str, Any], path: Path) -> None:
    """What is made a run of must be as a run's."""
    results.read(RUN_FILE, {"config": config, "processes": [], "finished": True}, f"{path}: its metadata")
    if config.get("replay") is None:
        raise UserError(f"{path}: its metadata: config.replay: is missing")


def _refuse_twice(found: Sequence[Labelled], path: Path) -> None:
    if not found:
        raise UserError(f"{path} holds no answer")
    times = Counter((one.answer.request, one.answer.turn, one.drafter, one.draft_length) for one in found)
    (request, turn, drafter, _), most = times.most_common(1)[0]
    if most > 1:
        raise UserError(f"{path}: {request} turn {turn} under {drafter} stands {most} times; once")


def merge(parts: Sequence[Path], path: Path, config: Mapping[str, Any]) -> None:
    """Many traces as one."""
    write(path, (one for part in parts for one in _read(part)[1]), config)


def packages() -> tuple[Any, Any]:
    """Parquet's reader and writer, and pyarrow. Raises `Missing` where it is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise Missing('a replay writes Parquet; run: pip install "speedbench[data]"') from None
    return parquet, pyarrow


def _schema(arrow: Any) -> Any:
    words, whole = arrow.dictionary(arrow.int32(), arrow.string()), arrow.int32()
    logs = arrow.list_(arrow.float32())
    kinds = {
        "request": words, "category": words, "turn": whole, "prompt_tokens": whole, "prompt_sha": words,
        "finish": words, "cap": whole, "drafter": words, "draft_length": whole, "position": whole, "token": whole,
        "offered": whole, "matched": whole, "log_p": logs, "log_q": logs, "differs": arrow.bool_(),
    }  # fmt: skip
    return arrow.schema(list(kinds.items()))


def _rows(one: Labelled) -> Iterator[dict[str, Any]]:
    answer, table = one.answer, one.table
    same = {
        "request": answer.request, "category": answer.category, "turn": answer.turn,
        "prompt_tokens": answer.prompt_tokens, "prompt_sha": answer.prompt_sha, "finish": answer.finish,
        "cap": answer.cap, "drafter": one.drafter, "draft_length": one.draft_length,
    }  # fmt: skip
    for position, token in enumerate(answer.output):
        differs = None if one.differing is None else position in one.differing
        proposal = _proposal(table, position - 1) if position else {}
        yield {**same, "position": position, "token": token, "differs": differs, **proposal}


def _proposal(table: Table, k: int) -> dict[str, Any]:
    if isinstance(table, Matches):
        return {"offered": table.offered[k], "matched": table.matched[k]}
    logs = {"log_p": table.target[k], "log_q": table.drafter[k]}
    return {"offered": table.offered[k], **{name: list(map(_finite, each)) for name, each in logs.items()}}


def _finite(log: float) -> float | None:
    return log if math.isfinite(log) else None


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["request"], row["turn"], row["drafter"], row["draft_length"]


def _labelled(rows: list[dict[str, Any]], path: Path) -> Labelled:
    first, proposals = rows[0], rows[1:]
    if any(row["position"] != at or None in (row[name] for name in _NEEDED) for at, row in enumerate(rows)) or any(
        row["offered"] is None or not 0 <= (row["matched"] or 0) <= row["offered"] for row in proposals
    ):
        where = f"{first['request']} turn {first['turn']} under {first['drafter']}"
        raise UserError(f"{path}: {where}: rows are missing, twice there or empty, or match more than was offered")
    answer = Answer(
        request=first["request"], category=first["category"], turn=first["turn"], prompt=(),
        prompt_tokens=first["prompt_tokens"], prompt_sha=first["prompt_sha"],
        output=tuple(row["token"] for row in rows), cap=first["cap"], finish=first["finish"],
    )  # fmt: skip
    offered = tuple(row["offered"] for row in proposals)
    table: Table
    if any(row["matched"] is None for row in proposals):
        table = Chances(
            offered=offered, target=tuple(_logs(row["log_p"]) for row in proposals),
            drafter=tuple(_logs(row["log_q"]) for row in proposals),
        )  # fmt: skip
    else:
        table = Matches(offered=offered, matched=tuple(row["matched"] for row in proposals))
    known = first.get("differs") is not None  # a trace of before has no such column
    return Labelled(
        answer=answer, drafter=first["drafter"], draft_length=first["draft_length"], table=table,
        differing=tuple(row["position"] for row in rows if row["differs"]) if known else None,
    )  # fmt: skip


def _logs(given: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(-math.inf if log is None else log for log in given)
