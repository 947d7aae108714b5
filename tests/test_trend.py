"""`speedbench trend`: a history of runs, and the first that fell."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench

GOOD, LOW, HIGH = [3, 0, 2, 1], [3, 0, 2, 0, 0], [3, 3, 3]


@pytest.fixture
def history(bench: Bench) -> Callable[..., str]:
    """A folder of runs, a day apart, each with what its drafts have accepted."""
    bench.task([{"id": f"a{i}", "category": "a", "turns": ["one two"]} for i in range(20)])

    def make(*accepted: list[int]) -> str:
        (bench.folder / "h").mkdir()
        for day, script in enumerate(accepted, start=1):
            if (made := bench.folder / f"made{script}").is_dir() is False:
                bench.runner(accepted=script)
                assert bench.run(out=made.name).code == 0
            run = bench.folder / "h" / f"run-{9 - day}"  # names in another order than days
            shutil.copytree(made, run)
            edit(run, day)
        return str(bench.folder / "h")

    return make


def edit(run: Path, day: int) -> None:
    document = json.loads((run / "run.json").read_text("utf-8"))
    document["run"] = run.name
    document["processes"][0] |= {
        "time": f"2026-11-0{day}T10:00:00+00:00",
        "commit": {"sha": f"c0ffee{day}", "dirty": False},
    }
    (run / "run.json").write_text(json.dumps(document), encoding="utf-8")


def marks(found: Any) -> list[str]:
    return [point["mark"] for point in found["cells"][0]["points"]]


def test_the_first_significant_drop_is_marked_once(bench: Bench, history: Callable[..., str]) -> None:
    done = bench("trend", history(GOOD, GOOD, LOW, LOW, GOOD), "--json")
    assert done.code == 1
    assert marks(done.document) == ["reference", "ok", "drop", "still lower", "ok"]
    points = done.document["cells"][0]["points"]
    assert [point["time"][:10] for point in points] == [f"2026-11-0{day}" for day in range(1, 6)]
    assert points[2]["change"]["value"] == pytest.approx(-0.2)  # 2.5 to 2.0
    assert "engine" in points[2]["changed"]


def test_the_table_names_the_commit_of_each_run(bench: Bench, history: Callable[..., str]) -> None:
    done = bench("trend", history(GOOD, GOOD, LOW))
    fallen = next(line for line in done.out.splitlines() if "first significant drop" in line)
    assert fallen.split()[:3] == ["2026-11-03", "10:00", "run-6"]
    assert "c0ffee3" in fallen
    assert "-20.0% [-20.0, -20.0]" in fallen
    assert "engine" in fallen


def test_a_gain_is_the_new_level(bench: Bench, history: Callable[..., str]) -> None:
    done = bench("trend", history(GOOD, HIGH, GOOD), "--json")
    assert marks(done.document) == ["reference", "better", "drop"]


def test_a_steady_history_is_fine(bench: Bench, history: Callable[..., str]) -> None:
    assert bench("trend", history(GOOD, GOOD)).code == 0


def test_other_prompts_begin_a_new_level(bench: Bench, history: Callable[..., str]) -> None:
    folder = history(GOOD, GOOD, LOW, LOW)
    for name in ("run-6", "run-5"):
        path = Path(folder, name, "run.json")
        document = json.loads(path.read_text("utf-8"))
        document["config"]["task"]["content_hash"] = "other"
        path.write_text(json.dumps(document), encoding="utf-8")
    done = bench("trend", folder, "--json")
    assert (done.code, marks(done.document)) == (0, ["reference", "ok", "not comparable", "ok"])


def test_a_run_that_does_not_read_is_told_of_and_left_out(bench: Bench, history: Callable[..., str]) -> None:
    folder = history(GOOD, GOOD)
    Path(folder, "broken").mkdir()
    Path(folder, "broken", "run.json").write_text("{")
    done = bench("trend", folder)
    assert done.code == 0
    assert f"warning: left out: {folder}/broken/run.json is not JSON" in done.err


def test_a_folder_of_which_no_run_reads_is_no_history(bench: Bench, history: Callable[..., str]) -> None:
    folder = history(GOOD)
    for path in Path(folder).glob("*/run.json"):
        path.write_text("{")
    done = bench("trend", folder)
    assert (done.code, done.out) == (2, "")
    assert f"error: no run in '{folder}' reads" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no runs in ''"),
        (("absent",), "no runs in 'absent'"),
        (("absent", "--gate", "al:>=2"), "a drop is relative"),
        (("absent", "--gate", "ak:-2%"), "Did you mean 'al'"),
    ],
)
def test_what_is_asked_wrongly_gets_one_line(bench: Bench, words: tuple[str, ...], said: str) -> None:
    done = bench("trend", *words)
    assert done.code == 2
    assert said in done.err
