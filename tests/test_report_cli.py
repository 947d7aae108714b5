"""`speedbench report` through the command line: what it writes, and what it refuses before it writes anything."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from reported import Page
from scripts import Bench

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_run_becomes_one_file_with_its_summarys_numbers(bench: Bench) -> None:
    bench.run(d="2,3")
    done = bench("report", str(bench.out), "-o", str(bench.folder / "r.html"))
    assert (done.code, done.out) == (0, f"wrote {bench.folder / 'r.html'}\n")
    found = Page((bench.folder / "r.html").read_text("utf-8"))
    summary = json.loads((bench.out / "summary.json").read_text("utf-8"))
    al = [cell["metrics"]["al"]["value"] for cell in summary["cells"] if cell["draft_length"]]
    assert [row["AL"] for row in found.table("Acceptance length against D")] == [f"{value:.4g}" for value in al]
    for warning in summary["warnings"]:
        assert warning in found.words
    assert "one two three" not in found.text  # the prompts


def test_pictures_are_written_beside_the_page(bench: Bench) -> None:
    bench.run()
    folder = bench.folder / "made" / "pictures"
    words = ("report", str(bench.out), "-o", str(bench.folder / "r.html"))
    done = bench(*words, "--png", str(folder), "--svg", str(folder))
    assert done.code == 0
    assert (folder / "al.png").read_bytes().startswith(PNG)
    svg = (folder / "speedup.svg").read_text("utf-8")
    assert svg.startswith("<svg")
    assert "speedup over no drafting" in svg
    assert f"charts in {folder}" in done.out
    assert not (folder / "batch.png").exists()  # one concurrency


def test_several_runs_stand_on_one_page_and_their_pictures_have_their_names(bench: Bench) -> None:
    bench.run(out="one")
    bench.run(out="two", d="2")
    runs = [str(bench.folder / name) for name in ("one", "two", "one")]
    done = bench("report", *runs, "-o", str(bench.folder / "r.html"), "--svg", str(bench.folder / "svg"))
    assert done.code == 0
    assert {"one-al.svg", "two-al.svg"} <= {path.name for path in (bench.folder / "svg").iterdir()}
    found = Page((bench.folder / "r.html").read_text("utf-8"))
    assert found.tags["nav"] == 1
    assert [caption for caption, _ in found.tables].count("All cells; in brackets 95% intervals") == 2


def test_prompts_are_included_when_asked_for_and_only_the_ones_measured(bench: Bench) -> None:
    bench.task([{"id": "x", "category": "a", "turns": ["<i>first</i> prompt", "and then?"]}])
    bench.run()
    words = ("report", str(bench.out), "-o", str(bench.folder / "r.html"), "--include-text")
    task = ("--task", f"{bench.folder}/t.jsonl")
    unknown = bench(*words)
    assert unknown.code == 2
    assert "name the prompts' file with --task" in unknown.err
    assert bench(*words, *task).code == 0
    found = Page((bench.folder / "r.html").read_text("utf-8"))
    assert "<i>first</i> prompt" in found.words
    assert found.tags["i"] == 0
    before = (bench.folder / "r.html").read_bytes()
    bench.task([{"id": "x", "category": "a", "turns": ["another prompt", "and then?"]}])
    other = bench(*words, *task)
    assert other.code == 2
    assert "are not those that run 'out' measured" in other.err
    assert (bench.folder / "r.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which run? name the folder"),
        (["nowhere"], "'nowhere' is no run: it has no run.json"),
        (["{run}", "-o", "{folder}"], "is a folder; name a file, as report.html"),
        (["{run}", "-o", "{folder}/no/such/r.html"], "is in a folder that does not exist"),
        (["{run}", "--png", "{folder}/t.jsonl"], "is a file; --png and --svg take a folder"),
        (["{run}", "--task", "demo"], "--task: has no effect without --include-text"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(bench.folder)
    bench.run()
    before = sorted(bench.folder.rglob("*"))
    done = bench("report", *(word.format(run=bench.out, folder=bench.folder) for word in words))
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert sorted(bench.folder.rglob("*")) == before


def test_a_page_that_cannot_be_written_is_the_users_to_mend(bench: Bench) -> None:
    bench.run()
    done = bench("report", str(bench.out), "-o", f"{bench.folder}/{'x' * 300}.html")
    assert (done.code, "File name too long" in done.err, done.err.count("\n")) == (2, True, 1)
    os.mkfifo(bench.folder / "pipe")  # what is no file is written to, and not replaced by one
    with ThreadPoolExecutor() as pool:
        read = pool.submit((bench.folder / "pipe").read_text, "utf-8")
        assert bench("report", str(bench.out), "-o", str(bench.folder / "pipe")).code == 0
        assert read.result(10).startswith("<!doctype html>")
    assert (bench.folder / "pipe").is_fifo()


def test_without_the_extra_it_says_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vl_convert" else there(name))
    done = bench("report", str(bench.out), "-o", str(bench.folder / "r.html"))
    assert done.code == 2
    assert 'report needs vl_convert: pip install "speedbench[report]"' in done.err
    assert not (bench.folder / "r.html").exists()


def test_an_altair_that_is_too_new_for_the_converter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import altair

    from speedbench.errors import Missing
    from speedbench.report import images

    monkeypatch.setattr(altair, "SCHEMA_VERSION", "v99.1.0")
    with pytest.raises(Missing, match=r"writes Vega-Lite 99\.1, and this vl-convert reads .*pip install --upgrade"):
        images._version()
