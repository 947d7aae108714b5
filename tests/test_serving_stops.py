"""Runs against servers that are killed or interrupted, and gone on with: nothing twice, no warning lost."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from children import eventually
from scripts import Bench
from served import TOKENS, TURNS, numbers, pair, run, validated, warned
from speaking_server import Speaking

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")


def start(bench: Bench) -> subprocess.Popen[bytes]:
    words = ["run", "--task", f"{bench.folder}/t.jsonl", "--runner", f"{bench.folder}/s.yaml", "--drafter", "ngram"]
    words += ["-D", "3", "--max-tokens", str(TOKENS), "--out", str(bench.out)]
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's & would make it deaf
    return subprocess.Popen(
        [sys.executable, "-c", f"{heard}; from speedbench.cli import main; main()", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def stopped(bench: Bench, sign: int, *, after: int) -> tuple[int, str]:
    """(exit code, stderr) of a run that got a signal once so many of the drafter's turns were written."""
    process = start(bench)
    there = eventually(lambda: lines(bench.out / "ngram-d3-b1-r0" / "records.jsonl") >= after, 120)
    process.send_signal(sign)
    said = process.communicate()[1].decode()
    assert there, said
    return process.returncode, said


def test_after_kill_9_answers_are_replayed_and_nothing_is_asked_twice(bench: Bench) -> None:
    with pair(bench, Speaking(pause=0.0), Speaking(d=3, pause=0.03)) as (ours, theirs):
        assert stopped(bench, signal.SIGKILL, after=5)[0] == -signal.SIGKILL  # within b2, which has three turns
        there = lines(bench.out / "ngram-d3-b1-r0" / "records.jsonl")
        asked = len(ours.asked), len(theirs.asked)
        done = run(bench, "--resume")
        assert done.code == 0, done.err
        more = [each.body for each in theirs.asked[asked[1] :] if each.body]
        assert not [each for each in ours.asked[asked[0] :] if each.body]  # the baseline was done
    assert len(more) == 1 + TURNS - there  # the proof's request, and what was left
    first = more[1]["messages"]
    assert [message["content"].split()[0] for message in first][-3:] in (
        ["b2-turn0", "b2-turn00", "b2-turn1"], ["b2-turn1", "b2-turn10", "b2-turn2"],
    )  # fmt: skip
    found = numbers(done)
    assert (found["al"], found["lossless"]) == (2.5, 1)
    assert [w for w in warned(done) if w.startswith("times come from 2 processes: the run was interrupted and resumed")]
    assert "nothing wrong" in validated(bench)


def test_after_a_kill_counters_that_miss_answers_give_no_acceptance_length(bench: Bench) -> None:
    class Counting(Speaking):
        """Tells of its drafts in the counters alone."""

        def _stats(self, steps: Any) -> dict[str, Any]:
            return {}

    with pair(bench, Speaking(pause=0.0), Counting(d=3, pause=0.03)):
        stopped(bench, signal.SIGKILL, after=5)
        done = run(bench, "--resume")
        assert numbers(done)["al"] is None
        assert numbers(run(bench, out="whole"))["al"] == 2.5


def test_ctrl_c_ends_a_run_that_can_be_gone_on_with(bench: Bench) -> None:
    with pair(bench, Speaking(pause=0.0), Speaking(d=3, pause=0.2)) as (_, theirs):
        code, said = stopped(bench, signal.SIGINT, after=2)
        assert code == 130, said
        assert f"stopped; the same command with --resume --out {bench.out} goes on" in said
        assert "Traceback" not in said
        assert eventually(lambda: theirs.gone == 1)  # the answer under way was given up, not waited for
        theirs.pause = 0.0
        done = run(bench, "--resume")
    assert (done.code, numbers(done)["al"]) == (0, 2.5)


def test_warnings_outlive_the_process_that_they_arose_in(bench: Bench) -> None:
    with pair(bench, Speaking(pause=0.0), Speaking(d=3, pause=0.05, configured=5)) as (_, theirs):
        stopped(bench, signal.SIGINT, after=2)
        theirs.pause, theirs.configured = 0.0, 3
        done = run(bench, "--resume")
    assert done.code == 0, done.err
    assert "ngram-d3-b1-r0: vllm per step: the server is set to 5 drafts a step; D = 3" in warned(done)


def test_a_run_leaves_no_thread_behind(bench: Bench) -> None:
    before = set(threading.enumerate())
    with pair(bench):
        assert run(bench).code == 0
    assert set(threading.enumerate()) - before == set()
