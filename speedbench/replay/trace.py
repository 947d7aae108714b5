"""The trace: what each drafter proposes along each answer, one row a token, in Parquet; every number follows from it.

Columns: `request`, `category`, `turn`, `prompt_tokens`, `prompt_sha`, `finish`, `cap` of the answer; `drafter`, and
`draft_length` where its table serves one D alone; `position` and `token` in the answer. Of a proposal that begins with
that token: `offered` drafts, of which `matched` are the answer's; or, where drafts are drawn, `log_p` and `log_q` of
the answer's own tokens from this one on. The prefill's token, position 0, was proposed by nobody. `differs`: the
target, given the tokens before, says another; null where it was not run along the answer, or tokens are drawn.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from speedbench.errors import Missing, UserError
from speedbench.files import dumps
from speedbench.types import Answer, Chances, Matches, Table

SCHEMA = 1
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
    parquet, pyarrow = _packages()
    kept = dumps({"schema": SCHEMA, "config": dict(config)})
    schema = _schema(pyarrow).with_metadata({"speedbench": kept.encode()})
    scratch = path.with_name(path.name + ".tmp")
    with parquet.ParquetWriter(scratch, schema, compression="zstd") as file:
        for one in labelled:
            file.write_table(pyarrow.Table.from_pylist(list(_rows(one)), schema=schema))
    os.replace(scratch, path)


def read(path: Path) -> tuple[dict[str, Any], list[Labelled]]:
    """The config and everything labelled. Raises `UserError` for what is no trace."""
    parquet, pyarrow = _packages()
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        raise UserError(f"no trace at '{path}'; name a {FILE}, or the folder of a replay that holds one")
    try:
        with parquet.ParquetFile(path) as file:
            told = json.loads((file.schema_arrow.metadata or {}).get(b"speedbench", b"{}"))
            if told.get("schema") != SCHEMA:
                raise UserError(f"{path} is no trace of this speedbench: schema {told.get('schema')}; {SCHEMA} is read")
            rows = (row for batch in file.iter_batches(batch_size=4096) for row in batch.to_pylist())
            return dict(told["config"]), [_labelled(list(group)) for _, group in groupby(rows, key=_key)]
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} does not read as Parquet: {str(error).splitlines()[0]}") from None


def merge(parts: Sequence[Path], path: Path, config: Mapping[str, Any]) -> None:
    """Many traces as one."""
    write(path, (one for part in parts for one in read(part)[1]), config)


def _packages() -> tuple[Any, Any]:
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


def _labelled(rows: list[dict[str, Any]]) -> Labelled:
    first, proposals = rows[0], rows[1:]
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
