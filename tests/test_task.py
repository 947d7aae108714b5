"""Rows become requests: checked, with a balanced and repeatable subset."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speedbench import task as task_
from speedbench.errors import UserError
from speedbench.prepared import MARKER
from speedbench.types import Request, Task


def inline(*prompts: Any, system: str | None = None) -> Task:
    return Task(
        name="t",
        title="T",
        version=1,
        licence="CC0-1.0",
        source="inline",
        where={"prompts": list(prompts)},
        system=system,
    )


def jsonl(folder: Path, *lines: str, **where: Any) -> Task:
    (folder / "p.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    where = {"file": "p.jsonl", **where}
    return Task(name="t", title="T", version=1, licence="x", source="jsonl", where=where, folder=str(folder))


def complaint(task: Task, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        task_.requests(task, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def forty() -> Task:
    """Four categories of ten, one after the other."""
    rows = [{"id": f"{category}-{n}", "category": category, "turns": ["Go."]} for category in "abcd" for n in range(10)]
    return inline(*rows)


def test_a_row_is_a_prompt_turns_or_messages() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "A reference answer, which the model's own replaces."},
        {"role": "user", "content": "Two?"},
    ]
    plain, prompt, turns, chat = task_.requests(
        inline(
            "Hi.",
            {"id": 7, "prompt": "Hello."},
            {"id": "t", "category": "c", "turns": ["A", "B"]},
            {"messages": messages},
        )
    )
    assert plain == Request(id="1", category="all", turns=("Hi.",))
    assert prompt == Request(id="7", category="all", turns=("Hello.",))
    assert turns == Request(id="t", category="c", turns=("A", "B"))
    assert chat == Request(id="4", category="all", turns=("One?", "Two?"), system="Be brief.")


def test_the_system_prompt_of_a_row_goes_before_the_tasks() -> None:
    own, common = task_.requests(inline({"prompt": "A", "system": "row"}, "B", system="task"))
    assert (own.system, common.system) == ("row", "task")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a"}, "turns: needs one of turns, prompt, messages (got only id)"),
        ({"prompt": "A", "turns": ["B"]}, "(got turns and prompt)"),
        ({"turns": "A"}, "turns: should be a list of texts (got str)"),
        ({"turns": []}, "turns: holds no user turn"),
        ({"turns": ["A", 3]}, "turns: turn 2 should be text (got int)"),
        ({"turns": ["A", " \n"]}, "turns: turn 2 is empty"),
        ({"prompt": ""}, "prompt: turn 1 is empty"),
        ({"prompt": "A", "id": True}, "id: should be text or a whole number (got True)"),
        ({"prompt": "A", "category": ["x"]}, "category: should be text or a whole number"),
        ({"prompt": "A", "system": 1}, "system: should be text (got int)"),
        ({"messages": "A"}, "messages: should be a list of objects"),
        (
            {"messages": [{"role": "tool", "content": "A"}]},
            "role should be one of system, user, assistant (got 'tool')",
        ),
        ({"messages": [{"role": "system", "content": "A"}]}, "messages: holds no user turn"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages: turn 1 should be text (got list)",
        ),
        (3, "should be text or a mapping with turns (got int)"),
        (
            {"prompt": f"{MARKER}\n\nWhat is"},
            "prompt: turn 1 is a placeholder of SPEED-Bench, not its text; run: speed",
        ),
    ],
)
def test_a_malformed_row_is_named_with_its_place_and_key(row: Any, said: str) -> None:
    message = complaint(inline("Fine.", row))
    assert message.startswith("task 't': where.prompts, row 2: ")
    assert said in message


def test_an_empty_list_or_file_is_an_error(tmp_path: Path) -> None:
    assert complaint(inline()) == "task 't': has no prompts, its source is empty"
    assert "has no prompts" in complaint(jsonl(tmp_path, "", "  "))


def test_an_id_given_twice_is_an_error_with_both_places(tmp_path: Path) -> None:
    said = complaint(jsonl(tmp_path, '{"id": "a", "prompt": "A"}', "", '{"id": "a", "prompt": "B"}'))
    assert said == "task 't': p.jsonl, line 3: id: 'a' is taken already by p.jsonl, line 1"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "A"', "p.jsonl, line 2: not JSON: Expecting ',' delimiter, column 15"),
        ('"A"', "p.jsonl, line 2: should be an object with id, category and turns (got str)"),
        ('{"prompt": 5}', "p.jsonl, line 2: prompt: turn 1 should be text (got int)"),
    ],
)
def test_a_malformed_line_is_named_with_file_line_and_key(tmp_path: Path, line: str, said: str) -> None:
    assert said in complaint(jsonl(tmp_path, '{"prompt": "Fine."}', line))


def test_a_missing_file_of_prompts_is_named(tmp_path: Path) -> None:
    assert "no file 'absent.jsonl'" in complaint(jsonl(tmp_path, file="absent.jsonl"))


def test_unknown_keys_of_where_get_a_suggestion(tmp_path: Path) -> None:
    assert "Did you mean 'per_category'?" in complaint(jsonl(tmp_path, '{"prompt": "A"}', per_categroy=1))
    assert "where.per_category: should be a whole number from 1" in complaint(jsonl(tmp_path, per_category=0))


def test_per_category_keeps_the_first_of_each(tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "category": c, "prompt": "A"}) for i, c in enumerate("xxyxy")]
    assert [one.id for one in task_.requests(jsonl(tmp_path, *lines, per_category=1))] == ["0", "2"]


def test_line_separators_inside_a_string_do_not_end_the_row(tmp_path: Path) -> None:
    (one,) = task_.requests(jsonl(tmp_path, '{"prompt": "A\u2028B\u0085C, naïve 数学"}'))
    assert one.turns == ("A\u2028B\u0085C, naïve 数学",)


def test_a_filled_column_that_no_prompt_uses_is_warned_about_once() -> None:
    task = inline({"prompt": "A", "context": "needed", "note": ""}, {"prompt": "B", "context": "too"}, "C")
    with pytest.warns(UserWarning, match="column 'context' is filled in 2 of 3 rows") as caught:
        task_.requests(task)
    assert len(caught) == 1


def test_columns_are_kept_as_the_task_asks_and_then_not_warned_about() -> None:
    rows = inline({"prompt": "A", "difficulty": 3, "note": ""}, "B")
    with pytest.warns(UserWarning, match="column 'absent' is to be kept, but no row has it") as caught:
        one, two = task_.requests(replace(rows, columns=("difficulty", "absent", "note")))
    assert len(caught) == 1
    assert (one.columns, two.columns) == ({"difficulty": "3"}, {})


def test_the_id_may_be_called_question_id_and_id_goes_before_it() -> None:
    found = task_.requests(
        inline({"question_id": 81, "prompt": "A"}, {"id": "b", "question_id": 82, "prompt": "B"}, "C")
    )
    assert [one.id for one in found] == ["81", "b", "3"]


def test_columns_are_in_the_content_hash_and_without_them_it_is_what_it_was() -> None:
    plain = Request(id="1", category="c", turns=("A",))
    assert task_.content_hash([plain]) == "045af5648b8dd8df"
    kept = [replace(plain, columns=columns) for columns in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "2"})]
    hashes = [task_.content_hash([one]) for one in (plain, *kept)]
    assert hashes[1] == hashes[2]
    assert len(set(hashes)) == 3


def test_a_limit_of_twelve_over_four_categories_takes_three_of_each_in_the_order_of_the_source() -> None:
    found = task_.requests(forty(), limit=12)
    assert Counter(one.category for one in found) == {"a": 3, "b": 3, "c": 3, "d": 3}
    order = [one.id for one in task_.requests(forty())]
    assert [order.index(one.id) for one in found] == sorted(order.index(one.id) for one in found)


def test_the_subset_depends_on_the_seed_and_on_nothing_else() -> None:
    assert task_.requests(forty(), limit=12, seed=5) == task_.requests(forty(), limit=12, seed=5)
    assert task_.requests(forty(), limit=12, seed=5) != task_.requests(forty(), limit=12, seed=6)
    turned = inline(*reversed(forty().where["prompts"]))
    assert {one.id for one in task_.requests(turned, limit=12)} == {one.id for one in task_.requests(forty(), limit=12)}


def test_a_larger_limit_keeps_the_requests_of_a_smaller() -> None:
    taken: set[str] = set()
    for limit in range(1, 41):
        now = {one.id for one in task_.requests(forty(), limit=limit)}
        assert len(now) == limit
        assert now > taken
        counts = Counter(name[0] for name in now)
        assert max(counts.values()) - min([*counts.values(), *([0] if len(counts) < 4 else [])]) <= 1
        taken = now


def test_a_small_category_gives_all_it_has() -> None:
    rows = [{"id": f"{c}{n}", "category": c, "prompt": "A"} for c, many in (("a", 1), ("b", 9)) for n in range(many)]
    assert Counter(one.category for one in task_.requests(inline(*rows), limit=6)) == {"a": 1, "b": 5}
    assert len(task_.requests(inline(*rows), limit=1000)) == 10


def test_a_limit_below_one_is_refused() -> None:
    assert "--limit: should be a whole number from 1 (got 0)" in complaint(forty(), limit=0)


def test_the_content_hash_changes_with_one_byte_and_with_the_order() -> None:
    one, two = Request(id="1", category="c", turns=("A",)), Request(id="2", category="c", turns=("B",))
    changed = Request(id="1", category="c", turns=("a",))
    hashes = {task_.content_hash(rows) for rows in ([one, two], [two, one], [changed, two], [one])}
    assert len(hashes) == 4
    assert task_.content_hash([one, two]) == task_.content_hash((one, two))
    assert all(len(digest) == 16 for digest in hashes)


def test_a_clean_task_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task_.requests(forty())
