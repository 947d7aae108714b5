"""Prompts made on this machine: three tiers, every one another, the same each time, and of the size asked for."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speedbench import library, task
from speedbench.backends.scripted import BACKEND
from speedbench.errors import UserError
from speedbench.sizing import measured
from speedbench.sources import throughput
from speedbench.types import Request, Runner, Sized, Task

RUNNER = Runner(name="u", title="T", backend="scripted", model="none")
TIERS = ["low_entropy", "mixed", "high_entropy"]


def rows(**where: Any) -> list[Mapping[str, Any]]:
    return list(throughput.rows({"tokens": 1000, "rows": 16, **where}, ""))


def sized(row: Mapping[str, Any]) -> Sized:
    found = row["_sized"]
    assert isinstance(found, Sized)
    return found


def of(name: str, limit: int | None = None) -> tuple[Request, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return task.requests(task.load(name), limit)


def test_each_size_has_three_tiers_of_512_and_every_row_another_beginning() -> None:
    found = of("throughput-32k")
    assert Counter(one.category for one in found) == dict.fromkeys(TIERS, 512)
    assert len({one.id for one in found}) == 3 * 512
    assert {one.sized.tokens for one in found if one.sized} == {32_000}
    begins = Counter((one.category, one.sized.pieces[:3]) for one in found if one.sized)
    assert max(begins.values()) == 1


@pytest.mark.parametrize("name", ["throughput-1k", "throughput-2k", "throughput-8k", "throughput-16k"])
def test_every_shipped_size_reads_and_is_marked_as_not_representative(name: str) -> None:
    made = task.load(name)
    assert made.where["tokens"] == 1000 * int(re.findall(r"\d+", name)[0])
    assert (made.representative, made.columns) == (False, ("kind", "material"))


def test_a_limit_takes_as_many_of_each_tier() -> None:
    assert Counter(one.category for one in of("throughput-1k", 12)) == dict.fromkeys(TIERS, 4)


def test_the_same_seed_gives_the_same_rows_and_another_gives_others() -> None:
    assert rows() == rows()
    again = {sized(row) for row in rows()} & {sized(row) for row in rows(seed=1)}
    assert not {each for each in again if each.needle or "reading" in each.after}


def test_a_row_asks_the_same_at_every_size_with_more_material() -> None:
    for short, long in zip(rows(), rows(tokens=8000), strict=True):
        a, b = sized(short), sized(long)
        assert (short["id"], a.before, a.after, a.needle, a.depth) == (long["id"], b.before, b.after, b.needle, b.depth)
        assert b.pieces[: len(a.pieces)] == a.pieces


def test_the_note_to_find_is_nowhere_else_in_the_material() -> None:
    for row in rows(tokens=32_000, rows=8):
        each = sized(row)
        if each.needle:
            assert each.needle not in each.pieces
            name = each.needle.splitlines()[0].removeprefix("### ")
            assert name in each.after


def test_kinds_take_turns_within_a_tier() -> None:
    assert Counter((row["category"], row["kind"]) for row in rows()) == {
        ("low_entropy", "complete"): 8, ("low_entropy", "sort"): 8, ("mixed", "find"): 8, ("mixed", "choose"): 8,
        ("high_entropy", "write"): 16,
    }  # fmt: skip


def test_what_the_text_was_is_a_column_and_so_in_the_hash() -> None:
    found = of("throughput-1k", 3)
    (said,) = {one.columns["material"] for one in found}
    assert re.fullmatch(r"Python 3\.\d+\.\d+\S*, text [0-9a-f]{16}", said)
    other = [replace(one, columns={**one.columns, "material": "Python 3.99.0, text 0"}) for one in found]
    assert task.content_hash(other) != task.content_hash(found)


@pytest.mark.parametrize("name", ["throughput-1k", "throughput-8k"])
def test_a_prompt_has_its_size_in_the_targets_tokens(name: str) -> None:
    found, wanted = of(name, 12), task.load(name).where["tokens"]
    with BACKEND.open(RUNNER) as session:
        made, fits = measured(found, session, RUNNER, 10)
    assert all(abs((fit.prompt_tokens or 0) - wanted) <= 0.01 * wanted for fit in fits)
    assert all(one.sized and one.turns[0].endswith(one.sized.after) for one in made)
    assert all(one.sized and one.sized.needle in one.turns[0] for one in made)
    assert task.content_hash(made) == task.content_hash(found)


def test_a_ring_is_read_from_anywhere_and_round() -> None:
    ring = throughput.Ring(["aa", "bbb", "c", "dddd"])  # 10 characters
    assert ring.read(0, 4) == ("aa", "bbb")
    assert ring.read(1, 3) == ("bbb",)
    assert ring.read(2, 6) == ("c", "dddd", "aa")
    assert ring.read(3, 12) == ("dddd", "aa", "bbb", "c", "dddd")
    assert all(sum(map(len, ring.read(s, n))) >= n for s in range(4) for n in range(1, 45))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"tokens": None}, "where.tokens: should be a whole number from 500 (got None)"),
        ({"tokens": True}, "where.tokens: should be a whole number from 500 (got True)"),
        ({"tokens": 499}, "where.tokens: at least 500 (got 499)"),
        ({"rows": 0}, "where.rows: at least 1 (got 0)"),
        ({"rows": 99_999}, "where.rows: the text on this machine gives at most"),
        ({"token": 5}, "Did you mean 'tokens'?"),
    ],
)
def test_wrong_settings_are_named(where: dict[str, Any], said: str) -> None:
    made = Task(name="t", title="T", version=1, licence="x", source="throughput", where={"tokens": 1000, **where})
    with pytest.raises(UserError) as caught:
        task.requests(made)
    assert said in str(caught.value)


# ---- the library ----------------------------------------------------------------------------------------------------


def test_the_library_is_code_notes_names_and_prose_without_tests_tables_and_other_peoples_packages() -> None:
    found = library.library()
    assert all(len(kind) >= 512 for kind in (found.code, found.notes, found.names, found.prose))
    assert max(map(len, found.code)) <= 2 * library.LARGEST
    assert any(note.name == "textwrap.shorten" for note in found.notes)
    assert not any(note.name.startswith(("test.", "encodings.", "idlelib.")) for note in found.notes)
    assert not any('"""' in note.text or len(note.text) > library.LONGEST for note in found.notes)
    assert len(found.sha) == 16


def test_the_long_turns_of_the_shipped_tasks_are_among_the_prose() -> None:
    turns = [turn for one in of("demo") for turn in one.turns if len(turn) > 1300]
    prose = "\n".join(library.library().prose)
    assert turns
    assert all(turn.split("\n\n")[0] in prose for turn in turns)


def test_a_python_without_its_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(UserError, match="this Python has no sources of its standard library"):
        library.library.__wrapped__()
