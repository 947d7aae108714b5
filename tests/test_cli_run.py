"""Whole runs through the command line, on the scripted engine: what is printed, what is kept, and what is refused."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from rich.console import Console
from scripts import Bench

from speedbench.cli import document, tables
from speedbench.results import load

CELL = ("task", "runner", "drafter", "draft_length", "concurrency", "repeat")


def changed(path: Path, old: str, new: str, *, count: int = 1) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


# ---- the result ----------------------------------------------------------------------------------------------------


def test_the_table_has_every_column_and_the_numbers_of_the_script(bench: Bench) -> None:
    done = bench.run()
    assert done.code == 0
    header, _, baseline, drafted = done.out.splitlines()[1:5]
    assert header.split() == [
        "drafter", "D", "B", "AL", "accept", "draft", "ovh", "verify", "ovh", "tok/s", "speedup", "formula",
        "residual", "lossless",
    ]  # fmt: skip
    # 10 tokens in 10 passes of 0.020 s: 50 tokens/s
    assert baseline.split() == ["none", "0", "1", "1.00", "-", "0.00", "1.00", "50.0", "1.00x", "1.00x", "+0.0%", "-"]
    # 3, 0, 2, 1 of 3, 3, 3, 1: AL 10/4, 6 of 10; 4 passes of 0.020 s and 10 drafts of 0.001 s: 0.090 s; 5 turns
    expected = ["ngram", "3", "1", "2.50", "60.0%", "0.12", "1.00", "111", "2.22x", "2.22x"]
    assert drafted.split()[:10] == expected
    assert drafted.split()[-1] == "5/5"
    assert "B=1: use ngram D=3: 2.22x" in done.out
    assert done.out.splitlines()[-1] == f"kept in {bench.out}; look closer with: speedbench show {bench.out}"


def test_a_scripted_run_says_that_nothing_was_measured(bench: Bench) -> None:
    assert "no number of this run was measured" in bench.run().out


def test_json_is_one_document_of_the_promised_shape(bench: Bench) -> None:
    found = bench.run("--json", d="0,2,3", drafter="ngram,oracle").document
    assert {"schema", "run", "cells", "warnings", "recommendation"} <= found.keys()
    assert (found["schema"], found["run"], found["finished"]) == (1, "out", True)
    named = [tuple(cell[key] for key in CELL) for cell in found["cells"]]
    assert named == [
        ("t", "s", "none", 0, 1, 0),
        ("t", "s", "ngram", 2, 1, 0),
        ("t", "s", "ngram", 3, 1, 0),
        ("t", "s", "oracle", 2, 1, 0),
        ("t", "s", "oracle", 3, 1, 0),
    ]
    for cell in found["cells"]:
        for metric in cell["metrics"].values():
            assert metric.keys() == {"value", "low", "high", "n", "origin"}
            assert (metric["value"] is None) == (metric["origin"] == "unavailable")
    al = found["cells"][2]["metrics"]["al"]
    assert (al["value"], al["n"], al["origin"]) == (2.5, 4, "exact")
    assert found["recommendation"][0]["drafter"] == "ngram"  # as fast as the oracle, with which nobody can serve
    assert all(isinstance(each, str) for each in found["warnings"])


def test_json_to_stdout_and_progress_to_stderr(bench: Bench) -> None:
    done = bench.run("--json")
    json.loads(done.out)
    assert "0/10 turns, 0 s: none-d0-b1-r0" in done.err
    assert "2 cells, 10 turns, 110 tokens at most in about " in done.err


def test_what_json_prints_is_what_is_kept(bench: Bench) -> None:
    assert bench.run("--json").out == (bench.out / "summary.json").read_text("utf-8")


def test_nothing_printed_to_a_pipe_has_a_control_character(bench: Bench) -> None:
    done = bench.run()
    for text in (done.out, done.err, bench("show", str(bench.out), "--by-category", "--by-position").out):
        assert all(each.isprintable() or each == "\n" for each in text)


def test_a_dry_run_tells_all_and_writes_nothing(bench: Bench) -> None:
    before = sorted(bench.folder.rglob("*"))
    found = bench.run("--dry-run", "--json").document
    assert sorted(bench.folder.rglob("*")) == before
    ahead = found["preflight"]
    assert (ahead["rows"], ahead["prompt_tokens"]) == (4, [3, 3, 3, 3])
    # 2 cells of 5 turns of 11 tokens at 0.020 s
    assert ahead["estimated_seconds"] == pytest.approx(2.2, abs=0.05)
    assert ahead["most_output_tokens"] == 110
    assert found["config"]["sampling"]["max_tokens"] == 11
    assert (found["schema"], found["run"], found["cells"]) == (1, "out", [])


def test_a_dry_run_prints_the_resolved_config(bench: Bench) -> None:
    done = bench.run("--dry-run", "--set", "ngram.max_n=3")
    assert done.document["draftings"] == [{"label": "ngram", "drafter": "ngram", "settings": {"max_n": 3}}]
    assert "110 tokens at most" in done.err


def test_options_may_stand_in_a_yaml_and_flags_win(bench: Bench) -> None:
    config = {
        "task": f"{bench.folder}/t.jsonl", "runner": f"{bench.folder}/s.yaml", "drafter": ["ngram", "oracle"],
        "draft_length": [1, 2], "concurrency": 1, "max_tokens": 9, "limit": 2, "set": ["engine.context=99"],
        "seed": 7, "repeats": 2, "temperature": 0, "top_k": None,
    }  # fmt: skip
    path = bench.write("c.yaml", json.dumps(config))
    found = bench("run", "--config", path, "-D", "4", "--dry-run").document
    assert found["draft_lengths"] == [4]
    assert [each["label"] for each in found["draftings"]] == ["ngram", "oracle"]
    assert (found["sampling"]["max_tokens"], found["sampling"]["seed"], found["repeats"]) == (9, 7, 2)
    assert found["runner"]["engine"] == {"context": 99}
    assert len(found["request_ids"]) == 2


def test_a_drafter_may_have_draft_lengths_of_its_own(bench: Bench) -> None:
    words = {"d": "1-2,oracle:3", "drafter": "ngram,oracle"}
    found = bench.run("--json", **words).document
    assert [(cell["drafter"], cell["draft_length"]) for cell in found["cells"]] == [
        ("none", 0), ("ngram", 1), ("ngram", 2), ("oracle", 3)
    ]  # fmt: skip
    assert "is complete already" in bench.run("--resume", **words).err
    assert bench.run("--resume", d="1-2,oracle:1-3", drafter="ngram,oracle").code == 2
    assert bench("validate", str(bench.out)).code == 0


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("1,suffix:2", "no drafter of this run in -D named 'suffix'"),
        ("1,none:2", "no drafter of this run in -D named 'none'"),
        ("1,ngram:x", "-D ngram: 'x' does not read"),
        ("oracle:2", "-D: is empty"),
    ],
)
def test_draft_lengths_of_a_drafters_own_that_do_not_read_are_refused(bench: Bench, lengths: str, said: str) -> None:
    done = bench.run(d=lengths, drafter="none,ngram,oracle")
    assert done.code == 2
    assert said in done.err


def test_without_out_a_run_gets_a_folder_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    assert bench.run(out=None).code == 0
    (made,) = (bench.folder / "results").iterdir()
    assert made.name.startswith("t-")


# ---- exit codes ----------------------------------------------------------------------------------------------------


def test_a_failed_request_exits_5_and_is_said_everywhere(bench: Bench) -> None:
    bench.runner(fails=["b1"])
    done = bench.run()
    assert done.code == 5
    assert "failed" in done.out.splitlines()[1]
    assert done.out.splitlines()[4].endswith("1/5 ")
    assert "ngram-d3-b1-r0: 1 of 5 turns failed, the first b1: ScriptedError: told to fail" in done.out
    assert "Not recommended: ngram D=3 (1 of 5 requests failed)" in done.out


def test_a_failed_first_turn_takes_the_second_with_it(bench: Bench) -> None:
    bench.runner(fails=["a2"])
    found = bench.run("--json").document
    # a2 has two turns, of which the second is never asked: 4 of 5 are
    assert [found["cells"][1]["metrics"]["failed_requests"][key] for key in ("value", "n")] == [1, 4]


def test_outputs_that_really_differ_exit_5(bench: Bench) -> None:
    bench.runner(flips=["b1"], gap=2.0)
    done = bench.run()
    assert done.code == 5
    assert "4/5 1 REAL" in done.out
    assert "NOT lossless" in done.out
    assert "Not recommended: ngram D=3 (not lossless: 1 of 5 outputs differ)" in done.out


def test_outputs_that_differ_at_a_near_tie_exit_0(bench: Bench) -> None:
    bench.runner(flips=["b1"], gap=1e-7)
    done = bench.run()
    assert done.code == 0
    assert "4/5 (1 near tie)" in done.out


def test_a_cell_without_a_single_step_exits_1_and_has_dashes_and_not_zeros(bench: Bench) -> None:
    done = bench.run("--max-tokens", "1")
    assert done.code == 1
    assert done.out.splitlines()[3].split() == ["none", "0", "1", *["-"] * 9]
    assert "ngram-d3-b1-r0: no step was measured" in done.out
    found = json.loads((bench.out / "summary.json").read_text("utf-8"))
    assert found["cells"][1]["metrics"]["al"]["value"] is None


def test_a_batch_that_is_never_full_has_no_pass_times(bench: Bench) -> None:
    done = bench.run("--concurrency", "2", "--json")
    metrics = done.document["cells"][1]["metrics"]
    assert metrics["t_verify"]["value"] is metrics["speedup_formula"]["value"] is metrics["residual"]["value"] is None
    assert any("the batch was never full" in each for each in done.document["warnings"])


def test_repeats_are_shown_each_and_pooled(bench: Bench) -> None:
    done = bench.run("--repeats", "2")
    assert [line.split()[:4] for line in done.out.splitlines()[3:9]] == [
        ["none", "0", "1", "0"], ["ngram", "3", "1", "0"], ["none", "0", "1", "1"], ["ngram", "3", "1", "1"],
        ["none", "0", "1", "all"], ["ngram", "3", "1", "all"],
    ]  # fmt: skip
    assert "10/10" in done.out.splitlines()[8]


def test_a_turn_more_or_less_is_no_matter(bench: Bench) -> None:
    bench.task([{"id": f"r{n}", "turns": ["x"] * n} for n in (1, 2, 3, 7)])
    bench.runner(fails=["r3"])
    found = bench.run("--json").document["cells"][1]["metrics"]
    assert found["al"]["n"] == 3
    assert [found["failed_requests"][key] for key in ("value", "n")] == [1, 11]  # 1 + 2 + 1 of 3 + 7


# ---- the files -----------------------------------------------------------------------------------------------------


def test_the_csv_reads_in_pandas_with_a_row_a_cell(bench: Bench) -> None:
    bench.run(d="1-3")
    table = pandas.read_csv(bench.out / "summary.csv")
    assert list(table["drafter"]) == ["none", "ngram", "ngram", "ngram"]
    assert list(table["draft_length"]) == [0, 1, 2, 3]
    assert table.loc[3, "al"] == 2.5
    assert table.loc[0, "acceptance_rate_origin"] == "unavailable"
    assert pandas.isna(table.loc[0, "acceptance_rate"])


def test_a_summary_made_again_is_the_same_to_the_byte(bench: Bench) -> None:
    bench.run("--repeats", "2", d="1-3")
    kept = {name: (bench.out / name).read_bytes() for name in ("summary.json", "summary.csv")}
    for name in kept:
        (bench.out / name).unlink()
    assert bench("summary", str(bench.out)).code == 0
    assert {name: (bench.out / name).read_bytes() for name in kept} == kept


def test_a_run_that_was_moved_keeps_its_name_and_validates(bench: Bench) -> None:
    bench.run()
    (bench.folder / "out").rename(bench.folder / "moved")
    assert bench("validate", str(bench.folder / "moved")).out == "out: 2 cells, 10 records, nothing wrong\n"


def test_a_run_may_be_named_by_one_of_its_files(bench: Bench) -> None:
    bench.run()
    assert bench("validate", str(bench.out / "run.json")).code == 0


def test_no_token_of_the_environment_is_in_any_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.setenv(name, "sk-TESTKEY12345")
    done = bench.run()
    every = b"".join(path.read_bytes() for path in bench.out.rglob("*") if path.is_file())
    assert b"TESTKEY" not in every
    assert "TESTKEY" not in done.out + done.err


def test_the_environment_and_the_full_names_are_in_run_json(bench: Bench) -> None:
    bench.run()
    found = json.loads((bench.out / "run.json").read_text("utf-8"))
    assert found["processes"][0]["packages"]["speedbench"]
    assert found["config"]["target"]["model"] == "scripted"
    assert found["config"]["task"]["content_hash"]
    assert len(found["config"]["cells"]) == 2


def test_a_c_locale_is_no_matter(bench: Bench) -> None:
    bench.task([{"id": "é日🦊", "category": "naïve", "turns": ["日本"]}])
    words = ["run", "--task", f"{bench.folder}/t.jsonl", "--runner", f"{bench.folder}/s.yaml", "--out", str(bench.out)]
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    start = [sys.executable, "-c", "from speedbench.cli import main; main()"]
    done = subprocess.run([*start, *words], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([*start, "show", str(bench.out), "--by-category"], env=environment, capture_output=True)
    assert (shown.returncode, b"na?ve" in shown.stdout) == (0, True)
    assert load(bench.out).measured[0].records[0].request == "é日🦊"
    assert "é日🦊" in (bench.out / "none-d0-b1-r0" / "records.jsonl").read_text("utf-8")


# ---- validate ------------------------------------------------------------------------------------------------------


def test_a_run_validates(bench: Bench) -> None:
    bench.runner(fails=["a1"], flips=["b2"], gap=1e-7)
    bench.run("--repeats", "2", d="1-3")
    assert bench("validate", str(bench.out)).code == 0
    assert bench("validate", str(bench.out), "--json").document == {"run": "out", "problems": []}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"accepted":3', '"accepted":2', "step 0: committed 4; accepted 2, so 3"),
        ('"proposed":3', '"proposed":5', "step 0: proposed 5; D = 3 allows 0 to 3"),
        ('"output":[0,', '"output":[', "11 with the prefill's token; the output has 10"),
        ('"output":[0,', '"output":[1,', "a1 turn 0: a mismatch at None is noted; the outputs part at 0"),
        ('"last":0.19', '"last":0.29', "ngram-d3-b1-r0: decode_tps value is "),
        ('"request":"a1"', '"request":"zz"', "ngram-d3-b1-r0: 1 of 4 conversations are not there"),
    ],
)
def test_a_tampered_record_is_caught(bench: Bench, old: str, new: str, said: str) -> None:
    bench.run()
    changed(bench.out / "ngram-d3-b1-r0" / "records.jsonl", old, new)
    done = bench("validate", str(bench.out))
    assert done.code == 1
    assert said in done.out


def test_a_line_taken_away_or_said_twice_is_caught(bench: Bench) -> None:
    bench.run()
    file = bench.out / "ngram-d3-b1-r0" / "records.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-1]), encoding="utf-8")
    assert "ngram-d3-b1-r0: 1 of 4 conversations are not there" in bench("validate", str(bench.out)).out
    file.write_text("".join([*lines, lines[0]]), encoding="utf-8")
    assert "a1 turn 0: recorded 2 times; once" in bench("validate", str(bench.out)).out


def test_a_cell_taken_away_is_caught(bench: Bench) -> None:
    bench.run()
    (bench.out / "ngram-d3-b1-r0").rename(bench.folder / "elsewhere")
    done = bench("validate", str(bench.out))
    assert "ngram-d3-b1-r0: 4 of 4 conversations are not there" in done.out
    assert "ngram-d3-b1-r0: in the summary, but not in the raw files" in done.out


def test_a_histogram_shifted_by_one_in_the_summary_is_caught(bench: Bench) -> None:
    bench.run()
    file = bench.out / "summary.json"
    found: Any = json.loads(file.read_text("utf-8"))
    metrics = found["cells"][1]["metrics"]
    shares = [metrics[f"accepted_histogram[{i}]"]["value"] for i in range(4)]
    assert shares == [0.25] * 4  # 0, 1, 2 and 3 once each in four steps
    for i, share in enumerate([0.5, 0.25, 0.25, 0.0]):
        metrics[f"accepted_histogram[{i}]"]["value"] = share
    file.write_text(json.dumps(found), encoding="utf-8")
    done = bench("validate", str(bench.out))
    assert done.code == 1
    # 0.25 + 2 · 0.25 against 0.6 · 10 / 4
    assert "accepted_histogram has a mean of 0.75; acceptance_rate · effective_d is 1.5 accepted per step" in done.out


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("recommendation", [], "summary: recommendation is not what the raw files give"),
        ("warnings", [], "summary: warnings is not what the raw files give"),
        ("finished", False, "summary: finished is not what the raw files give"),
    ],
)
def test_anything_else_changed_in_the_summary_is_caught(bench: Bench, key: str, value: Any, said: str) -> None:
    bench.run()
    file = bench.out / "summary.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), key: value}), encoding="utf-8")
    done = bench("validate", str(bench.out))
    assert (done.code, said in done.out) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "summary.json has schema none; this speedbench reads schema 1"),
        ('{"schema": 2}', "summary.json has schema 2; this speedbench reads schema 1"),
        ('{"schema": 1}', "summary.json: cells: the whole: "),
        ('{"schema": 1, "cells": [{}]}', "summary.json: cells: 0.task: "),
        ('{"schema": 1, "x": NaN}', "summary.json is not JSON: NaN is no number of strict JSON"),
        ("", "summary.json is not JSON"),
    ],
)
def test_a_summary_that_is_none_is_refused_by_name(bench: Bench, text: str, said: str) -> None:
    bench.run()
    (bench.out / "summary.json").write_text(text, encoding="utf-8")
    done = bench("validate", str(bench.out))
    assert done.code == 2
    assert said in done.err


def test_a_missing_summary_is_said(bench: Bench) -> None:
    bench.run()
    (bench.out / "summary.json").unlink()
    assert "no summary yet" in bench("validate", str(bench.out)).out


# ---- show ----------------------------------------------------------------------------------------------------------


def test_show_prints_the_table_again_and_looks_closer(bench: Bench) -> None:
    first = bench.run().out
    done = bench("show", str(bench.out), "--by-category", "--by-position", "--cell", "ngram-d3-b1-r0")
    assert done.code == 0
    assert done.out.splitlines()[3] == first.splitlines()[4]
    for category in ("a", "b"):  # each of its own two conversations
        (row,) = [line for line in done.out.splitlines() if line.split()[:1] == [category]]
        assert row.split()[:5] == [category, "2", "2.500", "0.600", "2.500"]
    rows = [line.split() for line in done.out.splitlines()[-5:-1]]
    # the steps accept 3, 0, 2, 1: at least 1 in 3 of 4; the second draft in 2 of the 2 that proposed it after one
    assert rows == [
        ["0", "-", "-", "0.250"], ["1", "0.750", "0.750", "0.250"], ["2", "0.500", "1.000", "0.250"],
        ["3", "0.250", "0.500", "0.250"],
    ]  # fmt: skip


def test_show_json_holds_the_chosen_cell_alone(bench: Bench) -> None:
    bench.run()
    found = bench("show", str(bench.out), "--cell", "ngram-d3-b1-r0", "--json").document
    assert [cell["drafter"] for cell in found["cells"]] == ["ngram"]


def test_an_unfinished_run_can_be_shown_and_says_so(bench: Bench) -> None:
    bench.run()
    file = bench.out / "ngram-d3-b1-r0" / "records.jsonl"
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:1]), encoding="utf-8")
    changed(bench.out / "run.json", '"finished": true', '"finished": false')
    done = bench("show", str(bench.out))
    assert done.code == 0
    assert "the run is not finished" in done.out
    assert "conversations are missing in 1 cells: ngram-d3-b1-r0: 3 of 4 conversations are not there" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "error: which run?"),
        (("show", "nowhere"), "error: 'nowhere' is no run: it has no run.json"),
        (("summary", "nowhere"), "error: 'nowhere' is no run"),
        (("validate", "nowhere"), "error: 'nowhere' is no run"),
    ],
)
def test_no_run_is_said_to_be_none(bench: Bench, words: tuple[str, ...], said: str) -> None:
    done = bench(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_an_unknown_cell_gets_the_nearest(bench: Bench) -> None:
    bench.run()
    done = bench("show", str(bench.out), "--cell", "ngram-d4-b1-r0")
    assert done.code == 2
    assert "no cell named 'ngram-d4-b1-r0'. Did you mean 'ngram-d3-b1-r0'?" in done.err


# ---- what is refused -----------------------------------------------------------------------------------------------

REFUSED: list[tuple[list[str], str]] = [
    (["--task", "demo-quck"], "no task named 'demo-quck'. Did you mean 'demo-quick'?"),
    (["--task", "prompts.txt"], "; or a path ending in .yaml, .yml, .jsonl, .csv or .parquet"),
    (["--task", "nowhere.jsonl"], "no file 'nowhere.jsonl'"),
    (["--task", "nowhere.yaml"], "no file 'nowhere.yaml'"),
    (["--task", ""], "--task: should be a name or a path (got '')"),
    (["--runner", "smollm2"], "no runner named 'smollm2'. Did you mean 'smollm2-135m'?"),
    (["--drafter", "ngrm"], "no drafter named 'ngrm'. Did you mean 'ngram'?"),
    (["--drafter", ""], "--drafter: is empty"),
    (["--drafter", "external"], "'external' does not run on 'scripted'; it runs on: llamacpp, native, openai, sglang"),
    (["-D", "-1"], "-D: '-1' does not read (got '-1'); needs whole numbers from 0, as 8 or 1-4,8"),
    (["-D", "1.5"], "-D: '1.5' does not read"),
    (["-D", "x"], "-D: 'x' does not read"),
    (["-D", ""], "-D: is empty"),
    (["-D", "4-2"], "-D: '4-2' runs backwards"),
    (["-D", "1000000000"], "-D 1000000000: beyond the target's context of 4096 tokens; use less"),
    (["-D", "0-1000000000"], "-D: '0-1000000000' is more than 10000 values"),
    (["--concurrency", "0"], "--concurrency: '0' is out of range"),
    (["--repeats", "0"], "--repeats: should be a whole number from 1 to 1000 (got 0)"),
    (["-D", "1-900", "--repeats", "2"], "1802 cells (drafters × D × concurrency × repeats); at most 1000 in one run"),
    (["--limit", "0"], "--limit: should be a whole number from 1 (got 0)"),
    (["--limit", "few"], "Invalid value for '--limit'"),
    (["--max-tokens", "0"], "--max-tokens: should be a whole number from 1 (got 0)"),
    (["--max-tokens", "5000"], "4 of 4 conversations could exceed the target's context of 4096 tokens"),
    (["--temperature", "-1"], "--temperature: should be a number from 0 (got -1.0)"),
    (["--temperature", "nan"], "--temperature: should be a number from 0 (got nan)"),
    (["--top-k", "4"], "--top-k and --top-p have no effect at --temperature 0"),
    (["--top-p", "2", "--temperature", "1"], "--top-p: above 0 and at most 1 (got 2.0)"),
    (["--seed", "-1"], "--seed: should be a whole number from 0 (got -1)"),
    (["--set", "ngram.max_m=3"], "no setting of ngram named 'max_m'. Did you mean 'max_n'?"),
    (["--set", "ngram.max_n=many"], "ngram.max_n: should be an integer (got 'many')"),
    (["--set", "ngram.min_n=9"], "ngram.min_n: at most ngram.max_n = 4 (got 9)"),
    (["--set", "ngrm.max_n=3"], "no --set target in this run named 'ngrm'. Did you mean 'ngram'?"),
    (["--set", "engine.contxt=9"], "no setting of engine named 'contxt'. Did you mean 'context'?"),
    (["--set", "engine.verify_seconds=.inf"], "engine.verify_seconds: should be a finite number (got inf)"),
    (["--set", "max_n=3"], "--set: 'max_n=3' does not read; needs DRAFTER.KEY=VALUE"),
    (["--set", "ngram.max_n=3", "--set", "ngram.max_n=4"], "--set: ngram.max_n is given twice"),
    (["--config", "nowhere.yaml"], "no file 'nowhere.yaml'"),
    (["--config", ""], "error: "),
    (["--resume"], "--resume: no run in"),
    (["--nope"], "No such option: --nope"),
    (["demo"], "Got unexpected extra argument"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_bad_input_is_one_line_exit_2_and_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(bench.folder)
    before = sorted(bench.folder.rglob("*"))
    done = bench.run(*words)
    assert said in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("error: ")
    assert sorted(bench.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "task 't': has no prompts, its source is empty"),
        ("\n\n", "task 't': has no prompts, its source is empty"),
        ('{"id": "a", "turns": ["x"]}\n{"id": "b" "turns": []}\n', "t.jsonl, line 2: not JSON: "),
        ('{"id": "a"}\n', "t.jsonl, line 1: turns: needs one of turns, prompt, messages (got only id)"),
        ('{"id": "a", "turns": []}\n', "t.jsonl, line 1: turns: holds no user turn"),
        ('{"id": "a", "turns": ["x", 3]}\n', "t.jsonl, line 1: turns: turn 2 should be text (got int)"),
        ('{"id": "a", "turns": ["\\ud83d"]}\n', "t.jsonl, line 1: turns: turn 1 holds half a surrogate pair"),
        ('{"id": "\\ud83d", "turns": ["x"]}\n', "t.jsonl, line 1: id holds half a surrogate pair"),
        ('{"id": "a", "system": "\\ud83d", "turns": ["x"]}\n', "t.jsonl, line 1: system holds half a surrogate pair"),
        ('{"id": "a", "turns": ["x"]}\n' * 2, "t.jsonl, line 2: id: 'a' is taken already by t.jsonl, line 1"),
        ("[]\n", "t.jsonl, line 1: should be an object with id, category and turns (got list)"),
    ],
)
def test_a_task_that_does_not_read_names_file_line_and_key(bench: Bench, text: str, said: str) -> None:
    bench.write("t.jsonl", text)
    done = bench.run()
    assert said in done.err
    assert (done.code, done.out, done.err.count("\n"), bench.out.exists()) == (2, "", 1, False)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"draft_lenght": 3}, "named 'draft_lenght'. Did you mean 'draft_length'?"),
        ({"limit": "many"}, "--limit: should be a whole number from 1 (got 'many')"),
        ({"limit": ""}, "--limit: should be a whole number from 1 (got '')"),
        ({"limit": False}, "--limit: should be a whole number from 1 (got False)"),
        ({"draft_length": [1, "x"]}, "-D: 'x' does not read"),
        ({"draft_length": {"a": 1}}, "--draft-length: should be a list, as [1, 2] or 1,2 (got {'a': 1})"),
        ({"draft_length": None}, "--draft-length: should be a list"),
        ({"draft_length": 1.5}, "--draft-length: should be a list"),
        (
            {"set": "ngram.max_n=3"},
            "--set: should be a list, as [ngram.max_n=3, engine.threads=2] (got 'ngram.max_n=3')",
        ),
        ({"task": None}, "--task: should be a name or a path (got None)"),
        ({"out": 3}, "--out: should be a name or a path (got 3)"),
        ({"temperature": "hot"}, "--temperature: should be a number from 0 (got 'hot')"),
        ([1], "should hold keys and values (got list)"),
    ],
)
def test_a_config_that_does_not_read_is_named(bench: Bench, config: Any, said: str) -> None:
    path = bench.write("c.yaml", json.dumps(config))
    done = bench("run", "--runner", f"{bench.folder}/s.yaml", "--config", path)
    assert said in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_folder_that_is_taken_is_refused_before_the_model_is_loaded(bench: Bench) -> None:
    bench.run()
    files = {path: path.read_bytes() for path in bench.out.rglob("*") if path.is_file()}
    bench.write("s.yaml", json.dumps({"title": "T", "backend": "native", "model": "no-such-model"}))
    for words in ([], ["--dry-run"]):
        done = bench.run(*words)
        assert done.err == (
            f"error: '{bench.out}' holds a run already; add --resume to go on with it, or choose another --out\n"
        )
        assert (done.code, done.out) == (2, "")
    assert {path: path.read_bytes() for path in bench.out.rglob("*") if path.is_file()} == files


def test_resume_without_out_says_what_it_needs(bench: Bench) -> None:
    assert bench.run("--resume", out=None).err == "error: --resume: needs --out, the folder of the run to go on with\n"


def test_a_label_that_would_pass_for_the_baseline_is_refused(bench: Bench) -> None:
    text = {"title": "T", "backend": "scripted", "model": "m", "drafters": {"none": {"drafter": "ngram"}}}
    bench.write("s.yaml", json.dumps(text))
    assert "drafters.none: is the name of the baseline; choose another" in bench.run().err


# ---- odd names, odd terminals --------------------------------------------------------------------------------------

ODD = ["[red]x[/red]", "[/]", "x\x1b[31m\x07", ":smile:", "a\nb", "日本", "\u202eabc", "x" * 60]


def test_names_are_shown_as_they_are_and_obeyed_by_no_terminal(bench: Bench) -> None:
    bench.task([{"id": f"i{name}", "category": name, "turns": [f"{name} [bold]"]} for name in ODD])
    assert bench.run().code == 0
    done = bench("show", str(bench.out), "--by-category")
    for shown in ("[red]x[/red]", "[/]", "x\\x1b[31m\\x07", ":smile:", "a\\nb", "日本", "\\u202eabc", "x" * 60):
        assert f"\n {shown} " in done.out
    assert bench("validate", str(bench.out)).code == 0


def test_a_failed_request_with_an_odd_name_is_shown_too(bench: Bench) -> None:
    bench.task([{"id": name, "category": name, "turns": ["x"]} for name in ODD])
    bench.runner(fails=ODD)
    done = bench.run()
    assert (done.code, "\x1b" in done.out) == (5, False)
    assert "the first [red]x[/red]: ScriptedError" in done.out


def test_an_error_line_holds_no_escape_either(bench: Bench) -> None:
    done = bench.run("--task", "x\x1b[31m")
    assert "no task named 'x\\x1b[31m'" in done.err
    assert "\x1b" not in done.err


def test_a_task_file_with_an_odd_name_runs(bench: Bench) -> None:
    (bench.folder / "t.jsonl").rename(bench.folder / "[red] \x1b[31m日.jsonl")
    done = bench.run("--task", str(bench.folder / "[red] \x1b[31m日.jsonl"))
    assert done.code == 0
    assert "[red] \\x1b[31m日 on s: 4 conversations" in done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_narrow_terminal_gets_every_column_and_every_digit(bench: Bench, width: int) -> None:
    bench.run("--repeats", "2", d="2,3")
    results = document.evaluate(load(bench.out))
    wide = Console(width=1000, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    narrow = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    for console in (wide, narrow):
        for table in tables.cells(results, console.width):
            console.print(table)
    whole, parts = wide.export_text(), narrow.export_text()
    assert set(whole.split()) - {"─"} <= set(parts.split()) | {word for word in whole.split() if "─" in word}
    assert "…" not in parts
    assert max(len(line) for line in parts.splitlines()) <= width


def test_a_closed_pipe_is_no_fault_of_ours(bench: Bench) -> None:
    bench.run()
    start = f"{sys.executable} -c 'from speedbench.cli import main; main()'"
    done = subprocess.run(
        ["bash", "-c", f"{start} show {bench.out} --json | head -c 1"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("{", "")
