"""What `run` says of a workload before it runs, what it leaves out when told to, and how `show` takes it apart."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench


def config(bench: Bench) -> Any:
    return json.loads((bench.out / "run.json").read_text("utf-8"))["config"]


def summary(bench: Bench) -> Any:
    return json.loads((bench.out / "summary.json").read_text("utf-8"))


@pytest.fixture
def long(bench: Bench) -> Bench:
    """A context of 100 and a prompt of 95 words among the others: with its 11 to answer it is too long."""
    bench.runner(context=100)
    rows: list[dict[str, Any]] = [
        {"id": f"{c}{n}", "category": c, "prompt": f"{n} words {c}"} for c in "ab" for n in "12"
    ]
    bench.task([*rows, {"id": "long", "category": "b", "prompt": "word " * 95}])
    return bench


def test_a_dry_run_tells_rows_categories_lengths_and_what_is_left_out(long: Bench) -> None:
    said = long.run("--dry-run", "--json", "--skip-long", out=None)
    assert said.code == 0, said.err
    found = said.document["preflight"]
    assert (found["rows"], found["categories"], found["skipped"]) == (4, {"a": 2, "b": 2}, ["long"])
    assert found["lengths"] == {"≤128": 4}
    assert [w for w in found["warnings"] if w.startswith("left out: 1 of 5 conversations could exceed the target's")]
    assert "conversations: a 2, b 2" in said.err
    assert "warning: left out: 1 of 5" in said.err


def test_too_long_a_prompt_is_an_error_unless_told(long: Bench) -> None:
    said = long.run()
    assert said.code == 2
    assert "long (106); shorten them, lower --max-tokens, or leave them out with --skip-long" in said.err
    assert not long.out.exists()


def test_what_was_left_out_is_in_the_result_and_a_resume_leaves_out_the_same(long: Bench) -> None:
    assert long.run("--skip-long").code == 0
    assert config(long)["request_ids"] == ["a1", "a2", "b1", "b2"]
    assert config(long)["workload"]["skipped"] == ["long"]
    records = (long.out / "ngram-d3-b1-r0" / "records.jsonl").read_text("utf-8")
    again = long.run("--skip-long", "--resume")
    assert again.code == 0, again.err
    assert (long.out / "ngram-d3-b1-r0" / "records.jsonl").read_text("utf-8") == records


def test_skip_long_may_stand_in_the_config(long: Bench) -> None:
    yaml = long.write("c.yaml", "skip_long: true\n")
    assert long.run("--config", yaml).code == 0
    wrong = long.run("--config", long.write("d.yaml", "skip_long: some\n"), out="other")
    assert wrong.code == 2
    assert "--skip-long: should be true or false (got 'some')" in wrong.err


def test_a_csv_runs_as_a_task(bench: Bench) -> None:
    table = bench.write("t.csv", 'id,category,turns\nx,c,"[""one two"", ""three""]"\n')
    said = bench.run("--task", table, "--json")
    assert said.code == 0, said.err
    assert [cell["metrics"]["al"]["n"] for cell in said.document["cells"]] == [1, 1]


def test_a_run_is_shown_by_a_column_of_its_rows(bench: Bench) -> None:
    bench.task(
        [{"id": f"r{i}", "category": "c", "prompt": "one two", "level": "hard" if i else "easy"} for i in range(3)]
    )
    text = {
        "title": "T",
        "version": 1,
        "licence": "x",
        "source": "jsonl",
        "where": {"file": "t.jsonl"},
        "columns": ["level"],
    }
    task = bench.write("t.yaml", json.dumps(text))
    assert bench.run("--task", task).code == 0
    assert config(bench)["columns"] == {"r0": {"level": "easy"}, "r1": {"level": "hard"}, "r2": {"level": "hard"}}
    cells = bench("show", str(bench.out), "--by", "level", "--json").document["cells"]
    assert {name: each["al"]["n"] for name, each in cells[1]["by_level"].items()} == {"easy": 1, "hard": 2}
    assert cells[1]["by_category"]["c"]["al"]["n"] == 3
    table = bench("show", str(bench.out), "--by", "level", "--cell", "ngram-d3-b1-r0")
    assert "ngram-d3-b1-r0 by level" in table.out
    unknown = bench("show", str(bench.out), "--by", "levle")
    assert unknown.code == 2
    assert "Did you mean 'level'?" in unknown.err


def test_acceptance_by_tokens_before_a_step_is_in_the_summary_and_shown(bench: Bench) -> None:
    assert bench.run().code == 0
    cells = {cell["drafter"]: cell for cell in json.loads((bench.out / "summary.json").read_text("utf-8"))["cells"]}
    metrics = cells["ngram"]["metrics"]
    # every prompt and answer is short: all steps are in the first classes, whose number is the whole one
    assert metrics["al_by_context[1]"]["value"] == metrics["al_by_position[1]"]["value"] == metrics["al"]["value"]
    assert metrics["al_by_context[1025]"] == {"value": None, "low": None, "high": None, "n": 0, "origin": "unavailable"}
    shown = bench("show", str(bench.out), "--by-context").out
    assert "ngram-d3-b1-r0 by context" in shown
    assert "context 1 to 1024" in shown
    assert "position 1025 and more" in shown
    assert bench("validate", str(bench.out)).code == 0


def test_a_mix_has_each_part_as_a_category_and_the_whole_as_the_cell(bench: Bench, tmp_path: Path) -> None:
    bench.write("long.jsonl", "".join(f'{{"id": {i}, "prompt": "a long one {i}"}}\n' for i in range(6)))
    bench.write("chat.jsonl", "".join(f'{{"id": {i}, "prompt": "hello {i}"}}\n' for i in range(4)))
    parts = [{"task": str(tmp_path / "long.jsonl"), "weight": 60}, {"task": str(tmp_path / "chat.jsonl"), "weight": 40}]
    text = {
        "title": "T",
        "version": 1,
        "licence": "x",
        "source": "mix",
        "where": {"parts": parts},
        "columns": ["part_category"],
    }
    assert bench.run("--task", bench.write("m.yaml", json.dumps(text))).code == 0
    cell = json.loads((bench.out / "summary.json").read_text("utf-8"))["cells"][1]
    assert {name: each["al"]["n"] for name, each in cell["by_category"].items()} == {"long": 6, "chat": 4}
    assert cell["metrics"]["al"]["n"] == 10


def test_throughput_prompts_run_at_their_size_and_are_said_to_be_no_real_traffic(bench: Bench) -> None:
    said = bench.run("--task", "throughput-1k", "--limit", "3")
    assert said.code == 0, said.err
    records = [
        json.loads(line) for line in (bench.out / "ngram-d3-b1-r0" / "records.jsonl").read_text("utf-8").splitlines()
    ]
    assert all(abs(record["prompt_tokens"] - 1000) <= 10 for record in records)
    assert config(bench)["workload"]["warnings"][0].startswith("task 'throughput-1k' is synthetic or repetitive")
    assert [each for each in summary(bench)["warnings"] if "acceptance not representative" in each]
    assert {each["kind"] for each in config(bench)["columns"].values()} <= {
        "complete",
        "sort",
        "find",
        "choose",
        "write",
    }
    again = bench.run("--task", "throughput-1k", "--limit", "3", "--resume")
    assert "is complete already" in again.err


def test_an_engine_that_deals_in_text_is_sized_by_the_tokenizer_that_its_runner_names(
    bench: Bench, tmp_path: Path
) -> None:
    tiny = pytest.importorskip("tiny")
    tiny.tokenizer().save_pretrained(tmp_path / "words")
    text = {"title": "T", "backend": "openai", "model": "m", "engine": {"url": "http://127.0.0.1:9"}}
    named = {**text, "tokenizer": str(tmp_path / "words")}
    words = ["--drafter", "none", "-D", "0", "--dry-run", "--json", "--limit", "3"]
    without = bench.run(*words, "--runner", bench.write("o.yaml", json.dumps(text)), out=None)
    assert "prompt tokens: not counted" in without.err
    assert without.document["preflight"]["prompt_tokens"] == [None] * 3
    refused = bench.run(*words, "--runner", str(tmp_path / "o.yaml"), "--task", "throughput-1k", out=None)
    assert refused.code == 2
    assert "name its tokenizer in the runner" in refused.err
    said = bench.run(*words, "--runner", bench.write("n.yaml", json.dumps(named)), "--task", "throughput-1k", out=None)
    assert said.code == 0, said.err
    assert all(abs(tokens - 1000) <= 10 for tokens in said.document["preflight"]["prompt_tokens"])
