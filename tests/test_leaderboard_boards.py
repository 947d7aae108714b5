"""Boards and their rules: what may be compared, who ranks where, what is refused, and the same bytes every time."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from builders import measured, mismatch, record, step, timed
from pydantic import TypeAdapter
from submissions import Boards, change

from speedbench import cli
from speedbench.cli.document import metrics
from speedbench.leaderboard import boards as made
from speedbench.leaderboard import checks, counts, rows, submission
from speedbench.leaderboard.boards import Line
from speedbench.leaderboard.rows import Row
from speedbench.leaderboard.submission import Entry, Submission, identified, of
from speedbench.report.leaderboard import page_of
from speedbench.results import read
from speedbench.summarise import results
from speedbench.types import Counts, Measured, Result

CHECKOUT = Path(__file__).parent.parent


@pytest.fixture
def boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Boards:
    return Boards(tmp_path, capsys)


# ---- by hand ---------------------------------------------------------------------------------------------------------


def entry(cells: list[Measured], /, **changed: Any) -> Entry:
    said: dict[str, Any] = {
        "schema": 1, "id": "x", "counts_sha256": "x", "submitter": "someone", "date_utc": "2026-11-30",
        "speedbench_version": "1", "speedbench_commit": None, "dirty": False, "processes": 1, "repeats": 1,
        "workload": {"name": "t", "version": 1, "licence": "CC0-1.0", "conversations": 20, "content_hash": "h",
                     "max_tokens": 64, "categories": {"chat": 20}, "sampling": {}},
        "target": {"name": "Org/M", "model": "Org/M", "revision": "r", "dtype": "float32", "quant": "none",
                   "parameters": 9, "template_sha": None},
        "engine": {"name": "native", "version": "1", "settings": {}, "prefix_cache": "off"},
        "drafts": [{"label": "ngram", "method": "ngram", "revision": None, "parameters": 0, "bytes": 0,
                    "acceptance": "greedy", "cross_request_state": "prompt", "train_overlap": "none_known",
                    "settings": {}}],
        "machine": {"gpus": [], "cpu": "CPU", "cpu_threads": 2, "memory": 2**33, "system": "Linux", "python": "3.11",
                    "packages": {}, "thread_settings": {}, "power_limit_w": None, "clocks": None},
        "cells": [asdict(replace(each.cell, runner="native")) for each in cells], "noise": [0.02] * 6,
    }  # fmt: skip
    for path, value in changed.items():
        inner = said
        *parents, last = path.split("__")
        for name in parents:
            inner = inner[int(name) if name.isdecimal() else name]  # type: ignore[call-overload]
        inner[last] = value
    return read(TypeAdapter(Entry), said, "entry")


def arms(tokens: int = 8, seconds: float = 1.0, *, n: int = 20, **drafted: Any) -> list[Measured]:
    """A baseline at 10 tokens/s; a drafted cell of as many tokens, AL 2, in `seconds` for each answer."""
    plain = [timed(tokens, tokens / 10, request=f"r{i:02d}") for i in range(n)]
    made_steps = [step(1)] * (tokens // 2)
    fast = [record(made_steps, request=f"r{i:02d}", first=1.0, last=1.0 + seconds) for i in range(n)]
    return [measured(*plain, d=0, mismatches=[]), replace(measured(*fast, mismatches=[]), **drafted)]


def submitted(cells: list[Measured], /, **changed: Any) -> tuple[Submission, list[Result]]:
    requests = {each.request for one in cells for each in one.records}
    text = counts.text([replace(each, cell=replace(each.cell, runner="native")) for each in cells], requests)
    found = of(identified(entry(cells, **changed), text), text.encode(), Path("x"))
    some = [replace(each, by_category=False) for each in metrics() if each.name in rows.METRICS]
    return found, results(found.run.measured, some)


def wrong(cells: list[Measured], /, **changed: Any) -> str:
    return "; ".join(checks.problems(*submitted(cells, **changed)))


def line(drafter: str = "ngram", d: int = 3, low: float = 1.0, high: float = 1.2, **more: Any) -> Line:
    """A line of a board whose speedup and AL have this interval."""
    marks = more.pop("marks", ())
    found, judged = submitted(arms())
    _, row = rows.of(found, judged, "self_reported")[1 if d else 0]
    numbers = {f"{name}_{end}": value for name in ("speedup", "al") for end, value in (("lo", low), ("hi", high))}
    middle = (low + high) / 2
    row = row.model_copy(
        update={"drafter": drafter, "draft_length": d, "speedup": middle, "al": middle, **numbers, **more}
    )
    return Line(row=row, marks=marks)


def ranks(*lines: Line, kind: made.Kind = made.SPEEDUP) -> dict[str, int | None]:
    return {each.row.drafter: each.rank for each in made._ranked(kind, lines)}


# ---- ranks -----------------------------------------------------------------------------------------------------------


def test_rows_whose_intervals_overlap_share_a_rank() -> None:
    # b lies wholly below a; c overlaps both: nobody is wholly above c, one is wholly above b
    found = ranks(line("a", low=2.0, high=2.2), line("b", low=1.5, high=1.8), line("c", low=1.7, high=2.1))
    assert found == {"a": 1, "b": 2, "c": 1}


def test_within_a_rank_names_order_and_not_points() -> None:
    assert list(ranks(line("b", low=1.9, high=2.2), line("a", low=1.8, high=2.1))) == ["a", "b"]


def test_a_baseline_stands_on_the_board_without_a_rank_and_a_slowdown_with_one() -> None:
    found = ranks(line("none", 0), line("slow", low=0.5, high=0.6))
    assert found == {"slow": 1, "none": None}


@pytest.mark.parametrize("mark", sorted(checks.UNRANKED_SPEED))
def test_a_row_that_cannot_be_trusted_stands_without_a_rank(mark: str) -> None:
    found = ranks(line("a", low=9.0, high=9.9, marks=(mark,)), line("b"))
    assert found == {"b": 1, "a": None}


def test_noise_says_nothing_against_an_acceptance_length() -> None:
    assert ranks(line("a", marks=("noisy",)), kind=made.LENGTH) == {"a": 1}
    assert ranks(line("a", marks=("AL estimated",)), kind=made.LENGTH) == {"a": None}


def test_what_is_not_alike_is_not_ranked_together() -> None:
    other = [{"concurrency": 4}, {"engine_version": "2"}, {"target_quant": "fp8"}, {"prompts_sha256": "z"},
             {"temperature": 1.0}, {"max_tokens": 9}, {"division": "lossy"}, {"target_revision": "s"}]  # fmt: skip
    for changed in other:
        files = made.files([line("a", low=2.0, high=2.2), line("b", **changed)])
        text = files[Path("cpu-2-cpus/org-m/t.csv")]
        assert [row["rank"] for row in csv.DictReader(io.StringIO(text))] == ["1", "1"], changed


def test_acceptance_lengths_of_any_hardware_and_engine_meet_at_equal_d() -> None:
    lines = [line("a", 3, low=2.0, high=2.2), line("b", 3, hardware="GPU", engine="vllm"), line("c", 4, low=1, high=2)]
    text = made.files(lines)[Path("al/org-m/t.csv")]
    found = {row["drafter"]: row["rank"] for row in csv.DictReader(io.StringIO(text))}
    assert found == {"a": "1", "b": "2", "c": "1"}  # c is alone at D = 4


def test_a_weak_baseline_makes_no_speedup() -> None:
    strong, weak = line("none", 0, decode_tps=100.0, entry="1"), line("none", 0, decode_tps=94.0, entry="2")
    fast, easy = line("a", entry="1"), line("b", entry="2", low=9.0, high=9.9)
    text = made.files([strong, weak, fast, easy])[Path("cpu-2-cpus/org-m/t.csv")]
    found = {(row["drafter"], row["entry"]): row for row in csv.DictReader(io.StringIO(text))}
    assert (found["a", "1"]["rank"], found["b", "2"]["rank"]) == ("1", "")
    assert found["b", "2"]["marks"] == "weak baseline"  # 94 tokens/s is below 95 % of 100


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_a_run_as_it_should_be_has_no_problem() -> None:
    cells = arms(seconds=0.4)
    assert wrong(cells) == ""
    found, judged = submitted(cells)
    (_, plain), (_, fast) = rows.of(found, judged, "verified")
    assert (plain.lossless, fast.lossless, fast.lossless_n, fast.tier) == ("baseline", "exact", 20, "verified")
    assert (fast.al, fast.decode_tps) == (pytest.approx(2.0), pytest.approx(20.0))  # 8 tokens in 0.4 s
    assert (fast.speedup, fast.step_cost) == (pytest.approx(2.0), pytest.approx(1.0))
    assert (fast.output_ratio, fast.noise, fast.drift) == (1.0, 0.0, 0.0)


def test_an_output_of_another_length_is_refused() -> None:
    cells = arms()
    short = [record([step(1)] * 3, request=f"r{i:02d}") for i in range(20)]  # 7 of 9 tokens
    said = wrong([cells[0], replace(cells[1], records=tuple(short))])
    assert "0.778 times as many output tokens against the baseline's; within 10% of as many" in said


def test_an_output_that_is_not_the_baselines_is_refused_and_a_near_tie_is_not() -> None:
    real = [mismatch("r03", "real")]
    assert "1 outputs differ from the baseline's beyond a near tie: not lossless" in wrong(arms(mismatches=tuple(real)))
    for kind, said in (("near_tie", "exact_modulo_ties"), ("unknown", "unexplained")):
        found, judged = submitted(arms(mismatches=(mismatch("r03", kind),)))
        assert checks.problems(found, judged) == []
        assert rows.of(found, judged, "verified")[1][1].lossless == said
        assert ("unexplained" in checks.marks(found, judged[1])) == (kind == "unknown")


def test_a_lossy_rule_has_a_division_of_its_own() -> None:
    how = {"drafts__0__acceptance": "relaxed (lossy): top 10, delta 0.6"}
    cells = arms(mismatches=(mismatch("r03", "real"),))
    found, judged = submitted(cells, **how)
    assert checks.problems(found, judged) == []
    assert rows.of(found, judged, "verified")[1][1].division == "lossy"


def test_a_speedup_that_its_own_clock_contradicts_is_refused() -> None:
    # AL 2 in steps that cost as much as the baseline's is 2x; the entry of a faster clock must show it in both
    found, judged = submitted(arms(seconds=0.4))
    number = replace(judged[1].metrics["speedup"], value=2.4)
    said = checks.problems(found, [judged[0], replace(judged[1], metrics={**judged[1].metrics, "speedup": number})])
    assert said == ["ngram-d3-b1-r0: speedup 2.4 is not AL / step cost = 2, to 5%"]


def test_a_baseline_must_be_there_and_be_one() -> None:
    cells = arms()
    assert "no baseline (D = 0) at concurrency 1" in wrong(cells[1:])
    sly = [record([step(1)] * 4, request=f"r{i:02d}") for i in range(20)]
    assert "a baseline's AL is 1, this is 2" in wrong([replace(cells[0], records=tuple(sly)), cells[1]])


def test_nothing_planned_may_be_missing_and_nothing_else_be_there() -> None:
    cells = arms()
    more = asdict(replace(cells[1].cell, draft_length=4, runner="native"))
    planned = [asdict(replace(each.cell, runner="native")) for each in cells]
    assert "ngram-d4-b1-r0: 20 of 20 conversations are not there" in wrong(cells, cells=[*planned, more])
    assert "ngram-d3-b1-r0: is in the counts, and was not planned" in wrong(cells, cells=planned[:1])
    assert "are not as many as the entry says" in wrong(cells, workload__categories={"chat": 19, "other": 1})
    lacking = replace(cells[1], records=cells[1].records[:-1])
    assert "ngram-d3-b1-r0: 1 of 20 conversations are not there" in wrong([cells[0], lacking])


def test_an_engines_sums_must_be_possible() -> None:
    def counted(**changed: int) -> list[Measured]:
        sums = replace(Counts(steps=4, committed=8, accepted=4, proposed=12, drafted=4), **changed)
        cells = arms()
        told = tuple(replace(each, steps=(), counts=sums, told="derived") for each in cells[1].records)
        return [cells[0], replace(cells[1], records=told)]

    assert wrong(counted()) == ""
    for changed in ({"accepted": 13}, {"proposed": 13}, {"drafted": 5}, {"committed": 17}, {"accepted": -1}):
        assert "cannot be with D = 3" in wrong(counted(**changed)), changed  # at most 3 · 4 drafts and 4 · 4 tokens


def test_an_acceptance_length_beyond_its_ceiling_is_refused(boards: Boards) -> None:
    folder = boards.submitted()
    text = (folder / "counts.jsonl").read_text("utf-8").replace('"draft_length":3', '"draft_length":1')
    found = submission.load(folder).entry
    cells = tuple(replace(c, draft_length=1) if c.draft_length == 3 else c for c in found.cells)
    forged = identified(replace(found, cells=cells), text)
    shutil.rmtree(folder)
    done = boards.check(submission.write(boards.root, forged, text))
    assert done.code == 1
    assert "proposed 3; D = 1 allows 0 to 1" in done.out
    assert "AL 2.5; with D = 1 from 1 to 2" in done.out


def test_a_restless_machine_is_marked() -> None:
    steady, restless = [0.02] * 12, [0.02, 0.03] * 6
    for noise, marks in ((steady, []), (restless, ["noisy"]), ([0.02] * 8 + [0.021] * 4, ["drift"]), ([], None)):
        found, judged = submitted(arms(), noise=noise)
        assert checks.marks(found, judged[1]) == (["noise not measured"] if marks is None else marks)


def test_an_entry_that_holds_a_path_or_lacks_a_revision_is_refused() -> None:
    assert "engine holds a path, URL, host, address or key" in wrong(arms(), engine__settings={"x": "/home/me/x"})
    assert "target_revision is not known" in wrong(arms(), target__revision=None)
    with_weights = {"drafts__0__method": "eagle3"}
    assert "drafter_revision of 'ngram' is not known" in wrong(arms(), **with_weights)
    assert "engine 'scripted' measures nothing" in wrong(arms(), engine__name="scripted")


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_build_is_the_same_bytes_and_a_changed_board_is_found(boards: Boards) -> None:
    folder = boards.submitted()
    done = boards.build()
    assert (done.code, done.out.count("wrote: ")) == (0, 4)
    files = {path: path.read_bytes() for path in boards.root.glob("*/*/*.*")}
    assert boards.build().out == "4 files of boards are up to date\n"
    assert boards.build("--check").code == 0
    board = boards.root / "test-cpu-2-cpus" / "small-1b" / "t.csv"
    board.write_text(board.read_text("utf-8").replace("2.5,", "2.6,"), encoding="utf-8")
    changed = boards.build("--check")
    assert (changed.code, changed.out) == (1, f"not as built: {board}\n")
    assert boards.build().code == 0
    assert {path: path.read_bytes() for path in boards.root.glob("*/*/*.*")} == files
    shutil.rmtree(folder)
    assert boards.build().out.count("removed: ") == 4


def test_a_build_takes_nothing_away_that_it_did_not_write(boards: Boards) -> None:
    boards.submitted()
    mine = boards.root / "test-cpu-2-cpus" / "small-1b"
    mine.mkdir(parents=True)
    (mine / "notes.md").write_text("my notes", encoding="utf-8")
    assert boards.build().code == 0
    assert (mine / "notes.md").read_text("utf-8") == "my notes"


def test_one_bad_submission_stops_the_build_and_changes_nothing(boards: Boards) -> None:
    folder = boards.submitted()
    (folder / "counts.jsonl").write_text("{}\n", encoding="utf-8")
    done = boards.build()
    assert done.code == 2
    assert done.err.startswith(f"error: {folder / 'counts.jsonl'}: was changed after it was made")
    assert sorted(path.name for path in boards.root.iterdir()) == ["submissions"]


def test_a_maintainer_says_what_was_reproduced(boards: Boards) -> None:
    folder = boards.submitted()
    tiers = boards.root / "tiers.json"
    tiers.write_text(json.dumps({folder.name: "reproduced"}), encoding="utf-8")
    assert boards.build().code == 0
    assert "reproduced" in (boards.root / "al" / "small-1b" / "t.md").read_text("utf-8")
    tiers.write_text(json.dumps({folder.name: "best"}), encoding="utf-8")
    assert boards.build().err.startswith(f"error: {tiers}: {folder.name}: Input should be 'reproduced' or 'verified'")


def test_the_numbers_of_a_board_are_those_of_the_runs_summary(boards: Boards) -> None:
    run = boards.ran()
    boards.submit(run)
    boards.build()
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    found = csv.DictReader((boards.root / "test-cpu-2-cpus" / "small-1b" / "t.csv").open(encoding="utf-8"))
    shown = {(row["drafter"], int(row["draft_length"])): row for row in found}
    for one in summary["cells"]:
        row = shown[one["drafter"], one["draft_length"]]
        for name in ("al", "speedup", "decode_tps", "acceptance_rate", "speedup_formula"):
            value = one["metrics"][name]["value"]
            assert row[name] == ("" if value is None else str(float(f"{value:.6g}"))), (one["drafter"], name)


def test_formulas_html_and_links_in_names_are_harmless() -> None:
    name = "=cmd|'x'<img src=x onerror=alert(1)> [a](http://h) @all"
    files = made.files([line(name)])
    (table,) = csv.DictReader(io.StringIO(files[Path("cpu-2-cpus/org-m/t.csv")]))
    assert table["drafter"] == "'" + name
    assert float(table["speedup"]) == pytest.approx(1.1)
    text = files[Path("cpu-2-cpus/org-m/t.md")]
    row = next(each for each in text.splitlines() if "cmd" in each)
    for live in ("<img", "://", " [a]", "@all", "=cmd|"):
        assert live not in row
    header = next(each for each in text.splitlines() if each.startswith("| rank"))
    assert row.replace("\\|", "").count("|") == header.count("|")


@pytest.mark.parametrize("number", [-0.5, -3])
def test_a_negative_number_stays_a_number(number: float) -> None:
    text = made.files([line("a", residual=float(number))])[Path("cpu-2-cpus/org-m/t.csv")]
    (row,) = csv.DictReader(io.StringIO(text))
    assert float(row["residual"]) == number


def test_a_speedup_board_says_how_many_threads_the_engine_was_told_to_use(tmp_path: Path) -> None:
    files = made.files([line("a", engine_threads=1)])
    assert " · CPU threads: 1 · " in files[Path("cpu-2-cpus/org-m/t.md")]
    assert "threads" not in files[Path("al/org-m/t.md")]
    (tmp_path / "t.csv").write_text(files[Path("cpu-2-cpus/org-m/t.csv")], "utf-8")
    assert " · CPU threads: 1 · " in page_of(tmp_path / "t.csv")
    assert "threads" not in made.files([line("a")])[Path("cpu-2-cpus/org-m/t.md")]


def test_every_column_of_the_schema_is_in_the_csv_and_is_explained() -> None:
    text = made.files([line()])[Path("cpu-2-cpus/org-m/t.csv")]
    assert text.splitlines()[0].split(",") == ["rank", *Row.model_fields, "marks"]


def test_the_committed_schema_is_that_of_the_code() -> None:
    committed = json.loads((CHECKOUT / "leaderboards" / "leaderboard-row.v1.json").read_text("utf-8"))
    assert committed == json.loads(rows.schema())


def test_the_committed_boards_are_as_they_are_built(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli._exit_code(["leaderboard", "build", "--check", "--boards", str(CHECKOUT / "leaderboards")])
    assert code == 0, capsys.readouterr().out
    assert cli._exit_code(["leaderboard", "check", "--boards", str(CHECKOUT / "leaderboards")]) == 0


def test_a_dirty_or_resumed_run_says_so(boards: Boards) -> None:
    run = boards.ran()

    def dirty(document: dict[str, Any]) -> None:
        document["processes"][0]["commit"]["dirty"] = True
        document["processes"].append(document["processes"][0])

    change(run, dirty)
    assert {"marked: dirty", "marked: resumed"} <= set(boards.submit(run).err.splitlines())


def test_a_folder_that_is_not_there_is_said(boards: Boards) -> None:
    done = boards("leaderboard", "build", "--boards", str(boards.folder / "nowhere"))
    assert (done.code, "name their folder with --boards" in done.err) == (2, True)
