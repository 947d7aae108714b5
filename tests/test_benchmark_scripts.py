"""benchmarks/fleet.py and benchmarks/advise.py on a tiny model: they run and add up; their figures mean nothing."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from scripts import Bench

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import advise as advising
import fleet as fleeting


@pytest.fixture
def native(bench: Bench) -> list[str]:
    """A tiny model and a task that copies, as options."""
    tiny.folder(bench.folder / "target", tiny.model(), tiny.tokenizer(size=64))
    recipe = {"title": "T", "backend": "native", "model": str(bench.folder / "target"), "engine": {"device": "cpu"}}
    rows = [{"id": f"q{i}", "turns": ["a b c a b c a b c " * (1 + i)] * (1 + i % 2)} for i in range(4)]
    asked = bench.write("q.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return ["--runner", bench.write("n.yaml", json.dumps(recipe)), "--task", asked, "--max-tokens", "12"]


def run(module: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *words])
    module.main()


def test_the_simulator_is_held_against_what_ran(
    native: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--drafter", "ngram", "-D", "2", "--concurrency", "1,2", "--minutes", "0.2"]
    run(fleeting, monkeypatch, *native, *words)
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("| ")]
    _, *found = rows
    assert [row[:2] for row in found] == [["none", "1"], ["none", "2"], ["ngram D=2", "1"], ["ngram D=2", "2"]]
    assert {row[2] for row in found[:2]} == {"1.00"}
    assert all(float(row[3]) > 0 and float(row[4]) > 0 for row in found)
    assert f"within 10 %: {sum(abs(float(row[5].split()[0])) <= 10 for row in found)} of 4" in said


def test_advice_is_followed_by_a_run_of_it(
    bench: Bench, native: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    asked: list[str] = []

    def command(*words: str) -> Any:
        asked.append(words[0])
        return bench(*words, "--json").document

    monkeypatch.setattr(advising, "speedbench", command)
    words = ["--drafter", "ngram", "-D", "1,2", "-B", "1", "--minutes", "0.2", "--out", str(bench.folder / "kept")]
    run(advising, monkeypatch, *native, *words)
    assert asked == ["replay", "profile", "advise", "run"]
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| 1 |"))
    assert "ngram D=" in row
    assert row.count("x") >= 2
