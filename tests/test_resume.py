"""A run that was killed goes on where it stood: nothing twice, nothing lost but the turn in flight."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench

from speedbench.results import load

TURNS = 26
"""20 conversations, of which every third has two turns: 20 + 6."""


@pytest.fixture
def twenty(bench: Bench) -> Bench:
    rows = [{"id": f"r{i:02d}", "category": "ab"[i % 2], "turns": ["one two"] * (1 + (i % 3 == 2))} for i in range(20)]
    assert sum(len(row["turns"]) for row in rows) == TURNS  # type: ignore[arg-type]
    bench.task(rows)
    return bench


def killed(bench: Bench, *, after: int, d: str = "2,3") -> int:
    """Start a run in another process, `kill -9` it once so many turns are written, and count what is there."""
    words = ["run", "--task", f"{bench.folder}/t.jsonl", "--runner", f"{bench.folder}/s.yaml", "--drafter", "ngram"]
    words += ["-D", d, "--max-tokens", "11", "--out", str(bench.out)]
    start = [sys.executable, "-c", "from speedbench.cli import main; main()"]
    process = subprocess.Popen([*start, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while turns(bench.out) < after:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return turns(bench.out)


def turns(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("*/records.jsonl"))


def numbers(out: Path, *names: str) -> list[dict[str, Any]]:
    """These metrics of every cell, as summary.json has them."""
    cells = json.loads((out / "summary.json").read_text("utf-8"))["cells"]
    return [{name: cell["metrics"][name] for name in names} for cell in cells]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")
@pytest.mark.parametrize("after", [1, 40])
def test_after_kill_9_a_resume_does_what_is_left_and_nothing_else(twenty: Bench, after: int) -> None:
    twenty.runner(real_seconds=0.004)
    there = killed(twenty, after=after)
    before = {file: file.read_bytes() for file in twenty.out.glob("*/records.jsonl")}
    done = twenty.run("--resume", d="2,3")
    assert done.code == 0
    assert f"{there}/{3 * TURNS} turns, 0 s: " in done.err
    for file, content in before.items():  # what was written stays as it was
        assert file.read_bytes().startswith(content[: content.rfind(b"\n") + 1])
    run = load(twenty.out)
    for measured in run.measured:
        once = Counter((record.request, record.turn) for record in measured.records)
        assert (len(once), set(once.values())) == (TURNS, {1})
    by_process = Counter(record.process for measured in run.measured for record in measured.records)
    assert by_process == {0: there, 1: 3 * TURNS - there}
    assert "times come from 2 processes: the run was interrupted and resumed" in done.out
    assert twenty("validate", str(twenty.out)).code == 0

    uninterrupted = twenty.run(d="2,3", out="whole")
    assert uninterrupted.code == 0
    names = ("al", "al_complete", "al_per_request", "al_macro", "acceptance_rate", "lossless", "failed_requests")
    assert numbers(twenty.out, *names) == numbers(twenty.folder / "whole", *names)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")
def test_a_run_killed_twice_and_a_torn_line_are_no_matter(twenty: Bench) -> None:
    twenty.runner(real_seconds=0.004)
    killed(twenty, after=5)
    with (twenty.out / "none-d0-b1-r0" / "records.jsonl").open("ab") as file:
        file.write('{"request":"日'.encode()[:-1])
    with (twenty.out / "noise.jsonl").open("ab") as file:
        file.write(b'{"cell":"no')
    assert twenty("show", str(twenty.out)).code == 0
    assert twenty.run("--resume", d="2,3").code == 0
    assert twenty("validate", str(twenty.out)).code == 0
    assert {len(each.records) for each in load(twenty.out).measured} == {TURNS}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")
def test_a_killed_run_can_be_looked_at_and_says_what_it_is(twenty: Bench) -> None:
    twenty.runner(real_seconds=0.004)
    killed(twenty, after=30)
    done = twenty("summary", str(twenty.out))
    assert done.code == 0
    shown = twenty("show", str(twenty.out)).out
    assert "the run is not finished; the same command with --resume goes on with it" in shown
    assert "conversations are missing" in shown
    assert twenty("validate", str(twenty.out)).code == 0


def test_ctrl_c_says_how_to_go_on(twenty: Bench) -> None:
    twenty.runner(real_seconds=0.02)
    words = ["run", "--task", f"{twenty.folder}/t.jsonl", "--runner", f"{twenty.folder}/s.yaml", "--drafter", "ngram"]
    start = [sys.executable, "-c", "from speedbench.cli import main; main()", *words, "--out", str(twenty.out)]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while turns(twenty.out) < 1 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert f"stopped; the same command with --resume --out {twenty.out} goes on\ninterrupted\n" in err
    assert "Traceback" not in err
    assert not (twenty.out / ".lock").exists()


def test_resuming_a_complete_run_prints_it_again_without_loading_the_model(
    twenty: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = twenty.run()

    def refuse(*_: object) -> None:
        raise AssertionError("the model was loaded")

    from speedbench.backends import scripted

    files = {path: path.read_bytes() for path in twenty.out.rglob("*") if path.is_file()}
    monkeypatch.setattr(scripted._Scripted, "open", refuse)
    again = twenty.run("--resume")
    assert (again.code, again.out) == (0, first.out)
    assert again.err == f"'{twenty.out}' is complete already\n"
    assert {path: path.read_bytes() for path in twenty.out.rglob("*") if path.is_file()} == files


def test_resuming_a_complete_run_keeps_its_exit_code(twenty: Bench) -> None:
    twenty.runner(fails=["r00"])
    assert twenty.run().code == 5
    assert twenty.run("--resume").code == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-D", "2,4"], "(draft_lengths is [3] there, [2,4] here)"),
        (["--max-tokens", "12"], "(sampling.max_tokens is 11 there, 12 here)"),
        (["--temperature", "0.5"], "(sampling.temperature is 0.0 there, 0.5 here)"),
        (["--seed", "1"], "(sampling.seed is 0 there, 1 here)"),
        (["--drafter", "oracle"], "(draftings is [{"),
        (["--set", "ngram.max_n=3"], "(draftings is [{"),
        (["--set", "engine.context=99"], "(runner.engine.context is absent there, 99 here)"),
        (["--task", "demo-quick"], '(task.name is "t" there, "demo-quick" here; '),
        (["--limit", "3"], "task.requests is 20 there, 3 here"),
        (["--repeats", "2"], "(repeats is 1 there, 2 here)"),
        (["--concurrency", "1,2"], "(concurrency is [1] there, [1,2] here)"),
    ],
)
def test_resuming_with_something_changed_is_refused_and_what_it_is_named(
    twenty: Bench, words: list[str], said: str
) -> None:
    twenty.run()
    files = {path: path.read_bytes() for path in twenty.out.rglob("*") if path.is_file()}
    done = twenty.run("--resume", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"error: --resume: '{twenty.out}' was run with other settings" in done.err
    assert said in done.err
    assert "use the same or another --out" in done.err
    assert {path: path.read_bytes() for path in twenty.out.rglob("*") if path.is_file()} == files


def test_a_prompt_that_was_edited_is_another_task(twenty: Bench) -> None:
    twenty.run()
    file = twenty.folder / "t.jsonl"
    file.write_text(file.read_text("utf-8").replace("one two", "one  two", 1), encoding="utf-8")
    assert "(task.content_hash is " in twenty.run("--resume").err


def test_a_conversation_that_was_lost_from_a_complete_run_is_held_again(twenty: Bench) -> None:
    twenty.run()
    file = twenty.out / "ngram-d3-b1-r0" / "records.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-1]), encoding="utf-8")
    assert twenty.run("--resume").code == 0
    assert Counter(each.process for each in load(twenty.out).measured[1].records) == {0: TURNS - 1, 1: 1}


def test_a_run_that_another_process_is_writing_is_left_alone(twenty: Bench) -> None:
    twenty.runner(real_seconds=0.02)
    words = ["run", "--task", f"{twenty.folder}/t.jsonl", "--runner", f"{twenty.folder}/s.yaml", "--drafter", "ngram"]
    words += ["-D", "3", "--max-tokens", "11", "--out", str(twenty.out)]
    start = [sys.executable, "-c", "from speedbench.cli import main; main()", *words]
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        until = time.monotonic() + 30
        while turns(twenty.out) < 1 and time.monotonic() < until:
            time.sleep(0.01)
        done = twenty.run("--resume")
        assert done.code == 2
        assert f"another process is writing '{twenty.out}'; wait for it or choose another --out" in done.err
    finally:
        process.kill()
        process.wait()
