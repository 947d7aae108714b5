"""A trace that is not one, or not whole: a line names the file and what is wrong, and nothing is written."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def path(bench: Bench) -> Path:
    """Of a scripted run at D = 3."""
    assert bench.run().code == 0
    done = bench("replay", "--from-steps", str(bench.out), "--out", str(bench.folder / "replay"))
    assert done.code == 0, done.err
    return bench.folder / "replay" / "trace.parquet"


def column(name: str, value: int | None) -> Callable[[Any], Any]:
    def changed(table: Any) -> Any:
        at = table.schema.get_field_index(name)
        return table.set_column(at, table.schema.field(at), pyarrow.array([value] * len(table), pyarrow.int32()))

    return changed


def told(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    def changed(table: Any) -> Any:
        document = json.loads(table.schema.metadata[b"speedbench"])
        change(document)
        return table.replace_schema_metadata({b"speedbench": json.dumps(document)})

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop_columns(["token"]), "its columns are not a trace's"),
        (lambda table: table.slice(1), "a1 turn 0 under ngram: rows are missing, twice there or empty"),
        (lambda table: pyarrow.concat_tables([table, table]), "a1 turn 0 under ngram stands 2 times; once"),
        (lambda table: table.slice(0, 0), "holds no answer"),
        (column("matched", 9), "or match more than was offered"),
        (column("token", None), "rows are missing, twice there or empty"),
        (lambda table: table.replace_schema_metadata({b"speedbench": b"{"}), "its metadata are not JSON"),
        (
            lambda table: table.replace_schema_metadata({b"speedbench": b"[]"}),
            "no trace of this speedbench: schema None",
        ),
        (told(lambda document: document.update(schema=2)), "no trace of this speedbench: schema 2; 1 is read"),
        (told(lambda document: document.pop("config")), "config: should be an object (got NoneType)"),
        (told(lambda document: document.update(config={})), "config.task: Field required"),
        (told(lambda document: document["config"].pop("replay")), "config.replay: is missing"),
        (told(lambda document: document["config"].update(task=[])), "config.task: Input should be a dictionary"),
    ],
)
def test_a_trace_that_is_none_is_refused_and_nothing_is_written(
    bench: Bench, path: Path, change: Callable[[Any], Any], said: str
) -> None:
    parquet.write_table(change(parquet.read_table(path)), path)
    done = bench("replay", "--from-trace", str(path), "--out", str(bench.folder / "again"))
    assert done.code == 2
    assert done.err.startswith(f"error: {path}")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (bench.folder / "again").exists()


def test_without_pyarrow_nothing_is_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.run().code == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = bench("replay", "--from-steps", str(bench.out), "--out", str(bench.folder / "replay"))
    assert (done.code, 'pip install "speedbench[data]"' in done.err) == (2, True)
    assert not (bench.folder / "replay").exists()
