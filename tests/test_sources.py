"""Files of prompts as tasks, and tasks mixed: the same keys whatever the file, and every fault with its place."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from speedbench import catalog, task
from speedbench.errors import UserError
from speedbench.types import Request, Task

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "A reference answer, which the model's own replaces."},
    {"role": "user", "content": "Two?"},
]


def written(folder: Path, text: str, name: str = "p.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return str(folder / name)


def complaint(name: str) -> str:
    with pytest.raises(UserError) as caught:
        task.requests(task.load(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- csv ------------------------------------------------------------------------------------------------------------


def test_a_csv_has_prompts_turns_or_messages_and_empty_fields_are_absent(tmp_path: Path) -> None:
    rows = [
        ("a", "math", "What is 17, squared?", "", ""),
        ("", "", "", json.dumps(["One?", "Two?"]), ""),
        ("c", "chat", "", "", json.dumps(CHAT)),
    ]
    lines = ["question_id,category,prompt,turns,messages"]
    lines += [",".join('"' + field.replace('"', '""') + '"' for field in row) for row in rows]
    found = task.requests(task.load(written(tmp_path, "\r\n".join(lines) + "\r\n")))
    assert found == (
        Request(id="a", category="math", turns=("What is 17, squared?",)),
        Request(id="2", category="all", turns=("One?", "Two?")),
        Request(id="c", category="chat", turns=("One?", "Two?"), system="Be brief."),
    )


def test_a_csv_keeps_line_breaks_quotes_and_other_scripts_and_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (one,) = task.requests(task.load(written(tmp_path, '\ufeffprompt\r\n"Say ""naïve"" 数学,\nthen stop."\r\n')))
    assert one.turns == ('Say "naïve" 数学,\nthen stop.',)


def test_a_prompt_longer_than_the_csv_modules_own_limit_is_read(tmp_path: Path) -> None:
    (one,) = task.requests(task.load(written(tmp_path, f"prompt\n{'word ' * 40_000}x\n")))
    assert len(one.turns[0]) == 200_001


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no prompts"),
        ("prompt,prompt\nA,B\n", "p.csv, line 1: should name each column once (got prompt, prompt)"),
        ("prompt,\nA,B\n", "p.csv, line 1: should name each column once"),
        ("id,prompt\n1,A\n2\n", "p.csv, line 3: should have 2 fields, as the header has (got 1)"),
        ("id,prompt\n1,A,B\n", "p.csv, line 2: should have 2 fields, as the header has (got 3)"),
        ('prompt\n"A\n', "p.csv, line 2: not CSV: unexpected end of data"),
        ("turns\nOne?\n", 'p.csv, line 2: turns: should be JSON, as ["One?", "Two?"] (got \'One?\')'),
        ('turns\n"[1]"\n', "p.csv, line 2: turns: turn 1 should be text (got int)"),
        ("question\nOne?\n", "p.csv, line 2: turns: needs one of turns, prompt, messages (got only question)"),
        ("id,prompt\n1,A\n1,B\n", "p.csv, line 3: id: '1' is taken already by p.csv, line 2"),
    ],
)
def test_a_malformed_csv_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(written(tmp_path, text))


def test_a_csv_may_have_another_separator(tmp_path: Path) -> None:
    written(tmp_path, "id;prompt\n1;A, B\n")
    made = Task(
        name="t", title="T", version=1, licence="x", source="csv", where={"file": "p.csv", "separator": ";"},
        folder=str(tmp_path),
    )  # fmt: skip
    assert task.requests(made)[0].turns == ("A, B",)


# ---- parquet --------------------------------------------------------------------------------------------------------


def parquet(folder: Path, rows: list[dict[str, Any]]) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    files.write_table(pyarrow.Table.from_pylist(rows), folder / "p.parquet")
    return str(folder / "p.parquet")


def test_a_parquet_has_the_same_keys(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question_id": 81, "category": "writing", "turns": ["One?", "Two?"], "messages": None},
        {"question_id": 82, "category": "chat", "turns": None, "messages": CHAT},
    ]
    assert task.requests(task.load(parquet(tmp_path, rows))) == (
        Request(id="81", category="writing", turns=("One?", "Two?")),
        Request(id="82", category="chat", turns=("One?", "Two?"), system="Be brief."),
    )


def test_a_filled_column_of_any_file_that_no_prompt_uses_is_warned_about(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="task 'p': column 'context' is filled in 1 of 2 rows but no prompt uses it"):
        task.requests(task.load(parquet(tmp_path, [{"prompt": "A", "context": "needed"}, {"prompt": "B"}])))
    with pytest.warns(UserWarning, match="task 'p': column 'context' is filled in 1 of 2 rows but no prompt uses it"):
        task.requests(task.load(written(tmp_path, "prompt,context\nA,needed\nB,\n")))


def test_what_is_no_parquet_is_said_so(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert "p.parquet does not read as Parquet" in complaint(written(tmp_path, "PAR1 not really", "p.parquet"))


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "absent.jsonl"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"no file '.*{name}'"):
        catalog.task(str(tmp_path / name))


# ---- mix ------------------------------------------------------------------------------------------------------------


def mixed(folder: Path, *parts: dict[str, Any], **more: Any) -> Task:
    return Task(
        name="m",
        title="T",
        version=1,
        licence="x",
        source="mix",
        where={"parts": list(parts)},
        folder=str(folder),
        **more,
    )


def rows_of(folder: Path, name: str, count: int, categories: str) -> str:
    lines = [{"id": i, "category": categories[i % len(categories)], "prompt": f"{name} {i}"} for i in range(count)]
    return written(folder, "".join(json.dumps(line) + "\n" for line in lines), f"{name}.jsonl")


def test_a_mix_has_as_many_conversations_as_its_weights_let_the_parts_give(tmp_path: Path) -> None:
    # 30 of one at 60 % allow 50 in all, 12 of the other at 40 % allow 30: 18 and 12
    long = {"task": rows_of(tmp_path, "long", 30, "ab"), "weight": 60}
    chat = {"task": rows_of(tmp_path, "chat", 12, "xyz"), "weight": 40, "name": "talk"}
    found = task.requests(mixed(tmp_path, long, chat, columns=("part_category",)))
    assert Counter(one.category for one in found) == {"long": 18, "talk": 12}
    assert Counter(one.columns["part_category"] for one in found) == {"a": 9, "b": 9, "x": 4, "y": 4, "z": 4}
    assert found[0].id == "long/0"
    assert len({one.id for one in found}) == 30


@pytest.mark.parametrize("limit", [5, 10, 20])
def test_a_limit_keeps_the_weights_and_a_larger_one_what_a_smaller_has(tmp_path: Path, limit: int) -> None:
    made = mixed(
        tmp_path, {"task": rows_of(tmp_path, "long", 30, "ab"), "weight": 60},
        {"task": rows_of(tmp_path, "chat", 12, "xyz"), "weight": 40}, columns=("part_category",),
    )  # fmt: skip
    found = task.requests(made, limit)
    assert Counter(one.category for one in found) == {"long": limit * 6 // 10, "chat": limit * 4 // 10}
    assert {one.id for one in found} < {one.id for one in task.requests(made, limit + 5)}


def test_a_part_may_be_some_categories_and_keeps_its_tasks_system_prompt(tmp_path: Path) -> None:
    rows_of(tmp_path, "long", 30, "ab")
    text = {
        "title": "T",
        "version": 1,
        "licence": "x",
        "source": "jsonl",
        "where": {"file": "long.jsonl"},
        "system": "Hm.",
    }
    some = {"task": written(tmp_path, json.dumps(text), "some.yaml"), "weight": 1, "categories": ["b"]}
    chat = {"task": rows_of(tmp_path, "chat", 15, "x"), "weight": 1}
    found = task.requests(mixed(tmp_path, some, chat, columns=("part_category",)))
    assert {(one.category, one.columns["part_category"], one.system) for one in found} == {
        ("some", "b", "Hm."), ("chat", "x", None),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([{"task": "demo", "weight": 1}], "where.parts: should be a list of two parts or more"),
        ([{"task": "demo", "weight": 1}] * 2, "where.parts: should have names of their own (got demo, demo)"),
        ([{"task": "demo"}, {"task": "repetitive", "weight": 1}], "should have a task and a weight above 0"),
        ([{"task": "dmo", "weight": 1}, {"task": "demo", "weight": 1}], "Did you mean 'demo'?"),
        ([{"task": "mix", "weight": 1}, {"task": "demo", "weight": 1}], "'mix' is a mix itself"),
        ([{"task": "demo", "weight": 1, "categories": ["codin"]}, {"task": "repetitive", "weight": 1}], "'coding'?"),
        ([{"task": "demo", "wieght": 1}, {"task": "repetitive", "weight": 1}], "Did you mean 'weight'?"),
    ],
)
def test_wrong_parts_are_named(tmp_path: Path, parts: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UserError) as caught:
        task.requests(mixed(tmp_path, *parts))
    assert said in str(caught.value)


def test_the_shipped_mix_is_sixty_percent_long_and_forty_percent_chat() -> None:
    found = task.requests(task.load("mix"))
    assert Counter(one.category for one in found) == {"long": 132, "chat": 88}  # the demo has 88: 88 / 0.4 = 220
    assert all(one.sized and not one.turns for one in found if one.category == "long")
    assert {one.columns["part_category"] for one in found if one.category == "long"} == {"low_entropy"}
