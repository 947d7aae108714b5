"""`speedbench compare` on whole runs of the scripted engine: verdicts, exit codes, files, baselines, and bad input."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scripts import Bench, Said

ALL = ("--vary", "drafter,D,engine,hardware")
"""The script is a setting of the engine; and whether a GPU is known depends on what else was imported."""


MADE: dict[str, Path] = {}
"""Runs are made once, by what was asked for, and copied."""


@pytest.fixture
def runs(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A run of 24 conversations in two categories, by the name of its folder."""
    rows = [{"id": f"{c}{i}", "category": c, "turns": ["one two three"]} for c in ("code", "talk") for i in range(12)]

    def run(name: str, *words: str, d: str = "3", **engine: Any) -> str:
        asked = json.dumps([words, d, engine])
        if asked not in MADE:
            MADE[asked] = tmp_path_factory.mktemp("made") / "run"
            bench.task(rows)
            bench.runner(**engine)
            done = bench.run(*words, out=str(MADE[asked]), d=d)
            assert done.code in (0, 5), done.err
        shutil.copytree(MADE[asked], bench.folder / name)
        edited(str(bench.folder / name), lambda document: document.update(run=name))
        return str(bench.folder / name)

    return run


def edited(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = Path(path, "run.json")
    document = json.loads(file.read_text("utf-8"))
    change(document)
    file.write_text(json.dumps(document), encoding="utf-8")


def refused(done: Said) -> str:
    """The one line that says what is wrong."""
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    return done.err


# ---- verdicts and exit codes ---------------------------------------------------------------------------------------


def test_equal_runs_pass(bench: Bench, runs: Callable[..., str]) -> None:
    done = bench("compare", runs("a"), runs("b"))
    assert done.code == 0
    assert "OK: 1 ok (exit 0)" in done.out
    assert "ngram D=3, B=1" in done.out


def test_a_drop_of_ten_percent_is_a_regression_told_with_its_numbers(bench: Bench, runs: Callable[..., str]) -> None:
    # 10 tokens: 4 + 1 + 3 + 2 in 4 steps; or 4 + 1 + 3 + 1 + 1 in 5: 2.5 and 2.0
    base, cand = runs("a"), runs("b", accepted=[3, 0, 2, 0, 0])
    done = bench("compare", base, cand, *ALL)
    assert done.code == 1
    assert "2.50   2.00  -20.0% [-20.0, -20.0]  24 conv." in done.out
    assert "REGRESSION (-2%)" in done.out
    assert "AL fell most in code -20.0%" in done.out
    assert "engine    accepted" in done.out
    # 10 tokens take 4 · 0.02 + 10 · 0.001 s = 0.090, then 5 steps; speedup = AL ÷ step cost holds to the digit
    assert "= AL -20.0% ÷ step cost" in done.out


def test_what_costs_time_and_no_acceptance_is_told_as_step_cost(bench: Bench, runs: Callable[..., str]) -> None:
    # drafts at twice the price: from 0.090 s to 0.100 s: −10 %
    base, cand = runs("a"), runs("b", draft_per_token=0.002)
    done = bench("compare", base, cand, *ALL, "--gate", "speedup:-5%", "--gate", "al:-2%")
    assert done.code == 1
    assert "speedup -10.0% = AL +0.0% ÷ step cost +11.1%" in done.out
    bound = bench("compare", base, cand, *ALL, "--gate", "al:>=2", "--gate", "al[category=code]:-2%")
    assert (bound.code, "speedup -10.0% = AL +0.0%" in bound.out) == (0, True)
    assert "itself [2.50, 2.50]" in bound.out
    assert "6 blocks" in done.out  # 24 conversations, four at a time


def test_repeats_bring_more_blocks_and_no_more_conversations(bench: Bench, runs: Callable[..., str]) -> None:
    done = bench("compare", runs("a", "--repeats", "2"), runs("b", "--repeats", "2"), *ALL)
    assert done.code == 0
    assert "24 conv." in done.out
    assert "12 blocks" in done.out


def test_what_makes_the_baseline_slower_too_is_drift_and_no_verdict(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b", verify_seconds=0.03)
    done = bench("compare", base, cand, *ALL, "--gate", "decode_tps:-5%")
    assert done.code == 3
    assert "inconclusive (-5%), drifted" in done.out
    assert "baseline at B=1: -33.3%" in done.out
    assert bench("compare", base, cand, *ALL, "--gate", "decode_tps:-5%", "--drift", "50").code == 1
    assert bench("compare", base, cand, *ALL, "--gate", "decode_tps:-5%", "--inconclusive", "ok").code == 0


def test_a_changed_engine_is_not_comparable_until_it_is_what_is_compared(
    bench: Bench, runs: Callable[..., str]
) -> None:
    base, cand = runs("a"), runs("b", accepted=[0])
    done = bench("compare", base, cand)
    assert done.code == 4
    assert "engine differ; if that is what you compare, say --vary drafter,D,engine" in done.out
    assert "AL " not in done.out


def test_other_prompts_are_refused_whatever_may_vary(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")
    edited(cand, lambda document: document["config"]["task"].update(content_hash="another"))
    done = bench("compare", base, cand, "--vary", "drafter,D,target,engine,sampling,hardware")
    assert done.code == 4
    assert "the prompts are not the same" in done.out
    assert "data      content_hash" in done.out


def test_acceptance_is_compared_across_machines_and_times_are_not(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")
    edited(cand, lambda run: run["processes"][0]["cpu"].update(model="Another"))
    done = bench("compare", base, cand)
    assert done.code == 0
    assert "not known to be the same machine: acceptance is compared, times are not" in done.out
    assert "speedup" not in done.out
    assert bench("compare", base, cand, "--gate", "speedup:-5%").code == 4
    assert bench("compare", base, cand, "--gate", "speedup:>=1.1").code == 0  # which is its own affair


def test_a_cell_that_is_gone_is_not_comparable(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a", d="2,3"), runs("b", d="3")
    done = bench("compare", base, cand)
    assert done.code == 4
    assert "ngram-d2-b1 is only in a" in done.out
    assert bench("compare", base, cand, "--missing", "ok").code == 0
    assert bench("compare", cand, base).code == 0  # one more is no loss


def test_an_output_that_is_not_the_baselines_beats_every_verdict(bench: Bench, runs: Callable[..., str]) -> None:
    done = bench("compare", runs("a"), runs("b", flips=["code3"], accepted=[0]), *ALL)
    assert done.code == 5
    assert "WRONG: 1 of 24 outputs are not the baseline's" in done.out


def test_a_failed_request_is_wrong_too(bench: Bench, runs: Callable[..., str]) -> None:
    done = bench("compare", runs("a"), runs("b", fails=["code3"]), *ALL)
    assert done.code == 5
    assert "1 of 24 requests failed" in done.out
    assert "not compared: 1 of 24 turns were answered on one side only" in done.out


def test_without_leave_drafters_must_be_the_same(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a", "--set", "ngram.max_n=4"), runs("b", "--set", "ngram.max_n=3")
    done = bench("compare", base, cand, "--vary", "hardware")
    assert done.code == 4
    assert "not compared: the drafters differ: settings.max_n 4 → 3" in done.out
    told = bench("compare", base, cand)
    assert (told.code, "drafter   settings.max_n 4 → 3" in told.out) == (0, True)


def test_two_drafters_of_one_run_are_compared_where_they_took_turns(bench: Bench, runs: Callable[..., str]) -> None:
    run = runs("a", "--drafter", "ngram,oracle")
    done = bench("compare", f"{run}#ngram", f"new={run}#oracle-d3", "--gate", "speedup:-5%")
    assert done.code == 0
    assert "a#ngram → new" in done.out
    assert "ngram D=3 → oracle D=3, B=1" in done.out
    assert "control" not in done.out


def test_several_candidates_stand_against_one_base(bench: Bench, runs: Callable[..., str]) -> None:
    base, same, worse = runs("a"), runs("b"), runs("c", accepted=[0])
    done = bench("compare", base, same, worse, *ALL, "--json")
    assert done.code == 1
    assert [each["code"] for each in done.document["comparisons"]] == [0, 1]


def test_gates_and_acknowledgements_come_from_a_file(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b", accepted=[3, 0, 2, 0, 0])
    known = "acknowledged: [{gate: al:-2%, until: 2999-12-31, reason: new template, by: me}]\n"
    open_, closed = bench.write("g.yaml", "gates: [al:-2%]\n"), bench.write("k.yaml", f"gates: [al:-2%]\n{known}")
    assert bench("compare", base, cand, *ALL, "--gates", open_).code == 1
    done = bench("compare", base, cand, *ALL, "--gates", closed)
    assert done.code == 0
    assert "acknowledged (-2%)" in done.out
    assert "until 2999-12-31, me: new template" in done.out


# ---- files ---------------------------------------------------------------------------------------------------------


def test_every_file_says_the_same(bench: Bench, runs: Callable[..., str], tmp_path: Path) -> None:
    names = {kind: str(tmp_path / f"o.{kind}") for kind in ("md", "json", "xml", "gha.json")}
    words = [each for name in names.values() for each in ("--write", name)]
    done = bench("compare", runs("a"), runs("b", accepted=[3, 0, 2, 0, 0]), *ALL, *words)
    assert done.code == 1
    kept = json.loads(Path(names["json"]).read_text("utf-8"))
    finding = kept["comparisons"][0]["pairs"][0]["findings"][0]
    assert (kept["schema"], kept["verdict"], kept["code"]) == (1, "regression", 1)
    change = finding["of"]["change"]
    assert [change[key] for key in ("value", "low", "high")] == pytest.approx([-0.2] * 3)
    assert (change["n"], change["origin"]) == (24, "derived")
    assert (finding["verdict"], finding["gate"]) == ("regression", "al:-2%")
    suite = ElementTree.fromstring(Path(names["xml"]).read_text("utf-8"))[0]  # noqa: S314  our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    message = suite.find("testcase/failure").get("message")  # type: ignore[union-attr]
    assert "AL 2.50 → 2.00, change -20.0% [-20.0, -20.0], on 24 conv." in str(message)
    told = json.loads(Path(names["gha.json"]).read_text("utf-8"))
    assert told[0]["name"] == "b: ngram D=3, B=1: AL"
    assert (told[0]["unit"], told[0]["value"]) == ("tokens/step", 2.0)
    assert "| AL | 2.50 | 2.00 | -20.0%" in Path(names["md"]).read_text("utf-8")
    rendered = bench("compare", "--render", names["json"])
    assert (rendered.code, rendered.out) == (0, Path(names["md"]).read_text("utf-8"))


def test_a_file_of_unknown_kind_is_refused_before_anything_is_read(bench: Bench) -> None:
    said = refused(bench("compare", "no", "where", "--write", "o.html"))
    assert "'o.html': the name ends in one of .gha.json, .json, .md, .xml" in said


# ---- operands ------------------------------------------------------------------------------------------------------


def test_a_baseline_is_kept_by_name_without_what_was_said(
    bench: Bench, runs: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base, cand = runs("a"), runs("b", accepted=[3, 0, 2, 0, 0])
    assert bench("compare", base, "--save-baseline", "main").code == 0
    kept = Path("baselines", "main", "ngram-d3-b1-r0", "records.jsonl").read_text("utf-8")
    assert all(json.loads(line)["output"] == [] for line in kept.splitlines())
    full, slim = (bench("compare", f"x={word}", cand, *ALL, "--json").document for word in (base, "baseline:main"))
    assert full["comparisons"][0]["pairs"] == slim["comparisons"][0]["pairs"]
    assert bench("compare", cand, "--save-baseline", "main").code == 0  # the new level, by an act of its own
    assert bench("compare", "baseline:main", cand).code == 0
    assert [each.name for each in Path("baselines").iterdir()] == ["main"]
    assert "Did you mean 'main'" in refused(bench("compare", "baseline:mian", cand))


@pytest.mark.parametrize("name", ["../x", "a/b", "", "CON", "x" * 81, "."])
def test_a_baseline_has_a_plain_name(bench: Bench, runs: Callable[..., str], name: str) -> None:
    before = sorted(bench.folder.rglob("*"))
    run = runs("a")
    done = bench("compare", f"baseline:{name}", run)
    assert "a baseline's name is of letters" in refused(done)
    assert len(sorted(bench.folder.rglob("*"))) > len(before)


def test_a_run_that_is_not_finished_is_no_baseline(bench: Bench, runs: Callable[..., str]) -> None:
    run = runs("a")
    edited(run, lambda document: document.update(finished=False))
    assert "is not finished" in refused(bench("compare", run, "--save-baseline", "main"))


def test_summaries_with_their_run_json_are_compared_unpaired(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")
    for run in (base, cand):
        for cell in Path(run).glob("*-r0"):
            shutil.rmtree(cell)
    done = bench("compare", f"{base}/summary.json", cand)
    assert done.code == 0
    assert "a has no raw records: nothing is paired" in done.out


def test_of_a_summary_alone_nothing_is_known_so_nothing_is_compared(bench: Bench, runs: Callable[..., str]) -> None:
    alone = bench.write("alone.json", Path(runs("a"), "summary.json").read_text("utf-8"))
    done = bench("compare", alone, runs("b"))
    assert done.code == 4
    assert "data      content_hash unknown →" in done.out


def broken(run: str, file: str, content: str | bytes) -> Path:
    path = Path(run, file)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def changed(**config: object) -> str:
    """A run.json with these keys of its config."""
    least = {"task": {"name": "t", "requests": 1}, "request_ids": [], "draftings": [], "cells": [], "sampling": {}}
    whole = least | {"runner": {"name": "u", "engine": {}}} | config
    return json.dumps({"schema": 1, "processes": [], "finished": True, "config": whole})


RECORDS = "ngram-d3-b1-r0/records.jsonl"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("run.json", "", "run.json is not JSON"),
        ("run.json", "[]", "run.json has schema none; this speedbench reads schema 1"),
        ("run.json", '{"schema": 2}', "run.json has schema 2; this speedbench reads schema 1"),
        ("run.json", '{"schema": 1}', "run.json: config: Field required"),
        ("run.json", '{"cells": [], "date": "20261130"}', "has schema none"),  # of another tool
        ("run.json", '{"schema": NaN}', "NaN is no number of strict JSON"),
        ("run.json", "[" * 100_000, "nested too deeply"),
        ("run.json", b"\xff\xfe", "run.json is not JSON"),
        ("run.json", changed(task=[]), "config.task: Input should be a dictionary or an instance"),
        ("run.json", changed(task={"name": "t"}), "config.task.requests: Field required"),
        ("run.json", changed(request_ids=[7]), "config.request_ids.0: Input should be a valid string (got 7)"),
        ("run.json", changed(workload={"warnings": 7}), "config.workload.warnings: Input should be a valid list"),
        ("run.json", changed(drafters={"ngram": False}), "config.drafters.ngram: Input should be a dictionary"),
        ("run.json", changed(sampling="hot"), "config.sampling: Input should be a dictionary"),
        ("run.json", changed(draftings=[{"label": "x"}]), "config.draftings.0.drafter: Field required"),
        (RECORDS, "{}\n", "records.jsonl line 1: request: Field required"),
        (RECORDS, "\n", "records.jsonl line 1 is not JSON"),
        (RECORDS, '{"sent": 1e999}\n', "records.jsonl line 1 is not JSON: 1e999 is no number of strict JSON"),
        (RECORDS, "[" * 100_000 + "\n", "records.jsonl line 1 is not JSON: nested too deeply"),
        (RECORDS, "1" * 5000 + "\n", "records.jsonl line 1 is not JSON"),
    ],
)
def test_a_file_that_does_not_read_gets_one_line_naming_it(
    bench: Bench, runs: Callable[..., str], file: str, content: str | bytes, said: str
) -> None:
    base, cand = runs("a"), runs("b")
    path = broken(cand, file, content)
    line = refused(bench("compare", base, cand))
    assert str(path) in line
    assert said in line
    assert "see: speedbench validate" not in line


def test_a_file_without_end_is_not_read(
    bench: Bench, runs: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, cand = runs("a"), runs("b")
    monkeypatch.setattr("speedbench.files.LARGEST", 100)
    assert "too large" in refused(bench("compare", base, cand))


def test_numbers_that_cannot_be_are_compared_with_nothing(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")
    lines = Path(cand, RECORDS).read_text("utf-8").splitlines()
    first = json.loads(lines[0])
    first["steps"][0]["committed"] = 40
    broken(cand, RECORDS, "\n".join([json.dumps(first), *lines[1:]]) + "\n")
    line = refused(bench("compare", base, cand))
    assert "ngram-d3-b1: code0 turn 0: steps committed" in line
    assert f"see: speedbench validate {cand}" in line


def test_empty_and_absent_folders_are_no_runs(bench: Bench, runs: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    run = runs("a")
    for place in (str(tmp_path / "nothing"), str(tmp_path / "absent")):
        assert f"'{place}' is no run" in refused(bench("compare", run, place))


def test_a_run_without_a_record_says_so(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")
    for cell in Path(cand).glob("*-r0"):
        shutil.rmtree(cell)
    Path(cand, "summary.json").unlink()
    assert "has neither raw records nor a summary.json" in refused(bench("compare", base, cand))


def test_a_partial_run_is_compared_where_both_have_answers_or_not_at_all(
    bench: Bench, runs: Callable[..., str]
) -> None:
    base, cand = runs("a"), runs("b")
    file = Path(cand, RECORDS)
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")
    done = bench("compare", base, cand)
    assert done.code == 4
    assert "b is not whole: ngram-d3-b1-r0: 4 of 24 conversations are not there" in done.out
    assert "4 of 24 turns were answered on one side only" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "compare needs a base and a candidate (got 0)"),
        (("a",), "compare needs a base and a candidate (got 1)"),
        (("a", "b", "--gate", "ak:-2%"), "Did you mean 'al'"),
        (("a", "b", "--gate", "al[category=cod]:-2%"), "Did you mean 'code'"),
        (("a", "b", "--gate", "al[D=9]:-2%"), "asks of no cell; the candidate has ngram-d3-b1"),
        (("a", "b", "--vary", "data"), "no dimension named 'data'"),
        (("a", "b", "--missing", "maybe"), "--missing: is fail or ok (got 'maybe')"),
        (("a#nrgam", "b"), "no cell named 'nrgam'. Did you mean 'ngram'"),
        (("a", "b", "--gates", "absent.yaml"), "no file 'absent.yaml'"),
        (("--render", "absent.json"), "no file 'absent.json'"),
        (("--save-baseline", "x"), "--save-baseline keeps one run (got 0)"),
        (("a", "b", "--write", "no/where.md"), "cannot write 'no/where.md'"),
    ],
)
def test_what_is_asked_wrongly_gets_one_line(
    bench: Bench, runs: Callable[..., str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(bench.folder)
    runs("a")
    runs("b")
    assert said in refused(bench("compare", *words))


def test_nothing_is_written_into_the_operands(bench: Bench, runs: Callable[..., str]) -> None:
    base, cand = runs("a"), runs("b")

    def state() -> dict[str, tuple[int, int]]:
        return {
            str(each): (os.stat(each).st_mtime_ns, os.stat(each).st_size)
            for run in (base, cand)
            for each in sorted(Path(run).rglob("*"))
        }

    before = state()
    bench("compare", base, cand)
    bench("trend", str(bench.folder))
    assert state() == before


def test_the_exit_codes_stand_in_the_help(bench: Bench) -> None:
    shown = bench("compare", "-h").out
    for said in ("5   an output", "4   not comparable", "1   a regression", "3   inconclusive", "0   fine"):
        assert said in shown
    assert "al[category=coding]:-4%" in " ".join(shown.replace("│", " ").split())


def test_help_and_gates_need_no_heavy_package() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import speedbench.cli.compare, speedbench.cli.trend; print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
