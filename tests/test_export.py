"""A run in the shapes that others read: golden AL, an acceptance profile, Parquet, and tables for pandas."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas
import pytest
import yaml
from scripts import Bench

import speedbench
from speedbench.results import load
from speedbench.stats import tallied


@pytest.fixture
def run(bench: Bench) -> Path:
    """Accepted 3, 0, 2, 1 of 3, 3, 3, 1 a turn at D = 3: AL 10/4, of 5 turns."""
    assert bench.run(d="2,3").code == 0
    return bench.out


def test_a_golden_curve_is_read_back_as_model_mode_and_d(bench: Bench, run: Path) -> None:
    done = bench("export", str(run), "--as", "golden-al", "--mode", "thinking_off")
    found = yaml.safe_load(done.out)
    # D = 3: 1 + 6 / 4. D = 2: 3, 0, 2, 1, 3 cut at D and at what is left, 2, 0, 2, 1, 0, the last without a draft
    assert found == {"_metadata": {"draft-model": "ngram"}, "none": {"thinking_off": {2: 2.25, 3: 2.5}}}
    assert "steps with a draft" in done.out.splitlines()[0]


def test_a_profile_has_marginal_conditional_pooled_and_per_request(bench: Bench, run: Path) -> None:
    done = bench("export", str(run), "--as", "profile", "-o", str(bench.folder / "p.json"))
    assert done.out == f"wrote {bench.folder / 'p.json'}\n"
    found = json.loads((bench.folder / "p.json").read_text("utf-8"))
    assert found["num_speculative_tokens"] == 3
    # of 4 steps: 3 accepted at least 1, 2 at least 2, 1 at least 3
    assert found["marginal_accept_rates"] == [0.75, 0.5, 0.25]
    # tried: 4, then the 2 of 3 that proposed a second, then the 2 that accepted it
    assert found["conditional_accept_rates"] == [0.75, 1.0, 0.5]
    assert found["mean_accept_length"] == 1 + sum(found["marginal_accept_rates"]) == 2.5
    assert (found["mean_accept_length_per_request"], found["pooled_accept_length"]["value"]) == (2.5, 2.5)
    assert found["acceptance_length_histogram"] == {"1": 5, "2": 5, "3": 5, "4": 5}
    assert found["accept_length_by_k"].keys() == {"2", "3"}
    assert found["per_category"]["a"] == {"pooled_accept_length": 2.5}


def test_a_profile_is_of_one_measured_d(bench: Bench, run: Path) -> None:
    assert json.loads(bench("export", str(run), "--as", "profile", "-D", "2").out)["num_speculative_tokens"] == 2
    done = bench("export", str(run), "--as", "profile", "-D", "7")
    assert (done.code, done.err) == (2, "error: -D 7: 'ngram' was measured at 2, 3\n")


def test_parquet_comes_whole_and_never_over_something(bench: Bench, run: Path) -> None:
    out = bench.folder / "tables"
    assert bench("export", str(run), "--as", "parquet", "-o", str(out)).code == 0
    assert sorted(path.name for path in out.iterdir()) == ["cells.parquet", "requests.parquet", "steps.parquet"]
    steps = pandas.read_parquet(out / "steps.parquet")
    drafted = steps[(steps["drafter"] == "ngram") & (steps["draft_length"] == 3)]
    assert drafted["committed"].sum() / len(drafted) == 2.5
    assert bench("export", str(run), "--as", "parquet", "-o", str(out)).code == 2
    assert "--out: Parquet needs a folder" in bench("export", str(run), "--as", "parquet").err


def test_a_folder_of_the_users_beside_the_tables_is_left_alone(bench: Bench, run: Path) -> None:
    (bench.folder / "tables.tmp").mkdir()
    (bench.folder / "tables.tmp" / "mine").write_text("x")
    before = {path.name for path in bench.folder.iterdir()}
    assert bench("export", str(run), "--as", "parquet", "-o", str(bench.folder / "tables")).code == 0
    assert (bench.folder / "tables.tmp" / "mine").read_text() == "x"
    assert {path.name for path in bench.folder.iterdir()} == before | {"tables"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--as", "golden"), "no kind of export named 'golden'. Did you mean 'golden-al'?"),
        ((), "--as: one of golden-al, parquet, profile"),
        (("--as", "profile", "--drafter", "ngrm"), "no drafter of this run named 'ngrm'. Did you mean 'ngram'?"),
        (("--as", "golden-al", "-D", "0"), "-D: has no effect with --as golden-al; leave it out"),
        (("--as", "profile", "--mode", "x"), "--mode: has no effect with --as profile; leave it out"),
        (("--as", "parquet", "-o", "x", "--drafter", "ngram"), "--drafter: has no effect with --as parquet"),
        (("--as", "profile", "-o", "no/such/folder/p.json"), "cannot write 'no/such/folder/p.json'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(bench: Bench, run: Path, words: tuple[str, ...], said: str) -> None:
    done = bench("export", str(run), *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_count_that_no_table_holds_is_no_fault_of_ours(bench: Bench, run: Path) -> None:
    file = run / "none-d0-b1-r0" / "records.jsonl"
    file.write_text(file.read_text("utf-8").replace('"committed":1', f'"committed":{10**30}', 1), encoding="utf-8")
    done = bench("export", str(run), "--as", "parquet", "-o", str(bench.folder / "tables"))
    assert (done.code, "beyond 64 bits" in done.err) == (2, True)
    assert not (bench.folder / "tables").exists()


def test_several_drafters_need_a_name(bench: Bench) -> None:
    assert bench.run(drafter="ngram,suffix").code == 0
    assert "--drafter: the run has ngram, suffix; name one" in bench("export", str(bench.out), "--as", "profile").err


def test_load_gives_cells_requests_and_steps(run: Path) -> None:
    found = speedbench.load(run)
    assert list(found.cells["draft_length"]) == [0, 2, 3]
    assert list(found.cells["al"]) == [1.0, pytest.approx(2.0), 2.5]
    measured = load(run).measured
    assert len(found.requests) == sum(len(each.records) for each in measured) == 15
    assert found.requests["committed"].sum() == sum(tallied(r)[0] for each in measured for r in each.records)
    assert found.steps.groupby(["drafter", "draft_length"])["committed"].mean()["ngram", 3] == 2.5
    assert not {"text", "output", "prompt"} & {*found.requests.columns, *found.steps.columns}


def test_import_speedbench_is_light_and_load_needs_no_torch(run: Path) -> None:
    code = (
        "import sys, speedbench; assert not {'pandas', 'numpy', 'pydantic', 'torch'} & set(sys.modules);"
        f"speedbench.load({str(run)!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
