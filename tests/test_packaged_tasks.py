"""Every shipped task reads, its rows are sound, and the demo has the shape that its numbers rest on."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import warnings
from collections import Counter

import pytest

from speedbench import catalog, task

CATEGORIES = [
    "coding",
    "humanities",
    "math",
    "multilingual",
    "qa",
    "rag",
    "reasoning",
    "roleplay",
    "stem",
    "summarization",
    "writing",
]
LOCAL = [name for name in catalog.names("tasks") if catalog.task(name).source in ("jsonl", "inline")]


@pytest.mark.parametrize("name", LOCAL)
def test_every_shipped_task_reads_with_sound_rows_and_no_warning(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = task.requests(task.load(name))
    assert found
    for one in found:
        assert one.id.rpartition("-")[0] == one.category, f"{one.id} should begin with its category"
        assert all(turn == turn.strip() for turn in one.turns), f"{one.id} has spaces around a turn"


def test_the_demo_has_eight_conversations_in_each_of_eleven_categories_and_some_have_two_turns() -> None:
    found = task.requests(task.load("demo"))
    assert Counter(one.category for one in found) == dict.fromkeys(CATEGORIES, 8)
    assert any(len(one.turns) > 1 for one in found)


def test_the_quick_demo_is_the_first_of_each_category_of_the_demo() -> None:
    quick = task.requests(task.load("demo-quick"))
    assert [one.category for one in quick] == CATEGORIES
    assert set(quick) <= set(task.requests(task.load("demo")))


def test_prompts_differ_from_each_other() -> None:
    for name in ("demo", "repetitive"):
        turns = [one.turns for one in task.requests(task.load(name))]
        assert len(set(turns)) == len(turns)


def test_the_repetitive_task_is_balanced() -> None:
    counts = Counter(one.category for one in task.requests(task.load("repetitive")))
    assert len(set(counts.values())) == 1
    assert len(counts) >= 3
