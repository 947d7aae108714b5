"""TensorRT-LLM in a process of ours, end to end: a fake of its package in an interpreter of its own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trtllm_fake
from scripts import Said
from trtllm_fake import PASS, living

from speedbench import cli
from speedbench.results import load
from speedbench.serving import trtllm_worker
from speedbench.types import Measured

ANSWER = 10
DRAFTED = "mtp"
START = [sys.executable, "-c", "from speedbench.cli import main; main()"]
WARM = 48
"""Passes of the baseline before it is measured."""


class Fake:
    """A folder in which TensorRT-LLM is the fake, and runs of it as processes of their own."""

    def __init__(self, folder: Path, version: str = "1.4.0", **script: Any) -> None:
        self.engine, self.out = folder / "engine", folder / "out"
        self.environment = trtllm_fake.installed(self.engine, version, **script)
        self.task([{"id": f"r{i}", "turns": ["one two three"] * (1 + (i == 1))} for i in range(4)])

    def task(self, rows: list[Any]) -> None:
        (self.out.parent / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def words(self, **engine: Any) -> list[str]:
        told = {"api": "true", "python": sys.executable, "at_once": 2, "blocks": 1, "patience": 60, **engine}
        said = ["--runner", "trtllm-h200", "--task", f"{self.out.parent}/t.jsonl", "-D", "2", "--drafter", DRAFTED]
        said += ["--max-tokens", str(ANSWER), "--concurrency", "2", "--out", str(self.out)]
        sets = [word for key, value in told.items() for word in ("--set", f"engine.{key}={value}")]
        return ["run", *said, *sets]

    def run(self, *words: str, **engine: Any) -> Said:
        """`speedbench run` with the fake on the path of other interpreters."""
        return self.say(*self.words(**engine), *words)

    def say(self, *words: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.environment), redirect_stdout(out), redirect_stderr(err):
            code = cli._exit_code(list(words))
        return Said(code, out.getvalue(), err.getvalue())

    def cell(self, drafter: str = DRAFTED) -> Measured:
        return next(each for each in load(self.out).measured if each.cell.drafter == drafter)

    def metrics(self, drafter: str = DRAFTED) -> dict[str, Any]:
        cells = json.loads((self.out / "summary.json").read_text())["cells"]
        found = next(each for each in cells if each["drafter"] == drafter)
        return {name: each["value"] for name, each in found["metrics"].items()}

    def log(self, drafter: str = DRAFTED) -> str:
        cell = "none-d0-b2" if drafter == "none" else f"{drafter}-d2-b2"
        return (self.out / "servers" / cell / "server.log").read_text()

    @property
    def living(self) -> list[int]:
        return list(living(self.engine))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Fake:
    """A run in which all went well."""
    fake = Fake(tmp_path_factory.mktemp("done"))
    run = fake.run()
    assert run.code == 0, run.err
    return fake


def test_a_run_measures_acceptance_and_the_seconds_of_each_pass(done: Fake) -> None:
    found, base = done.metrics(), done.metrics("none")
    # 9 tokens after the prefill's: 3, 1, 2 and 3 in 4 steps, which proposed 2 each and accepted 2, 0, 1, 2
    assert found["al"] == pytest.approx(9 / 4)
    assert found["acceptance_rate"] == pytest.approx(5 / 8)
    assert base["al"] == 1.0
    assert (found["t_pass"], base["t_pass"]) == (pytest.approx(PASS), pytest.approx(PASS))
    assert found["break_even_al"] == pytest.approx(1.0)
    assert found["speedup_formula"] == pytest.approx(9 / 4)
    assert found["lossless"] == 1.0
    assert found["observed_batch"] == pytest.approx(2, abs=0.5)


def test_what_drafting_takes_is_unknown_in_one_model_mode(done: Fake) -> None:
    found = done.metrics()
    assert found["t_draft"] is found["t_verify"] is found["draft_overhead"] is None


def test_passes_are_decode_passes_with_their_batch_and_drafts_and_no_width(done: Fake) -> None:
    cell = done.cell()
    assert {each.width for each in cell.passes} == {None}
    assert {each.batch for each in cell.passes} <= {1, 2}
    assert all(each.proposed == 2 * each.batch for each in cell.passes)
    assert {round(each.whole or 0, 6) for each in cell.passes} == {PASS}
    assert {each.proposed for each in done.cell("none").passes} == {None}


def test_the_engines_counts_stand_beside_the_answers_own(done: Fake) -> None:
    (counted,) = done.cell().counted
    # 5 turns of 4 steps that proposed 2 and accepted 2, 0, 1, 2
    assert (counted.steps, counted.drafted, counted.proposed, counted.accepted) == (20, 20, 40, 25)
    assert counted.faults == ()
    facts = json.loads((done.out / f"{DRAFTED}-d2-b2-r0" / "cell.json").read_text())["facts"]
    assert facts["proof"]["speculates"] is True
    assert facts["server"]["version"] == "1.4.0"
    assert facts["warnings"] == ["TensorRT-LLM: untested on hardware"]


def test_a_record_keeps_what_the_engine_said_of_its_request(done: Fake) -> None:
    record = done.cell().records[0]
    assert record.raw["outputs"][0]["request_perf_metrics"]["speculative_decoding"]["total_draft_tokens"] == 8
    assert record.raw["decoding_iter"] == 5
    assert record.prompt_tokens == len("<user>one two three<assistant>")
    assert record.output == tuple(record.raw["outputs"][0]["token_ids"])
    assert done.say("validate", str(done.out)).code == 0


def test_later_turns_hold_the_earlier_answers(done: Fake) -> None:
    turns = [each for each in done.cell().records if each.request == "r1"]
    first, second = sorted(turns, key=lambda each: each.turn)
    said = f"<user>one two three<assistant>{first.text}<user>one two three<assistant>"
    ids = ",".join(str(ord(letter)) for letter in said)
    assert second.prompt_sha == hashlib.sha256(ids.encode()).hexdigest()[:16]
    assert second.prompt_tokens == len(said)
    assert len(first.text or "") == ANSWER


def test_what_the_engine_prints_goes_into_its_log_and_it_shuts_down_in_order(done: Fake) -> None:
    assert "a banner on standard output" in done.log()
    assert done.log().rstrip().endswith("shut down in order")
    assert done.living == []


def test_a_drafter_of_its_own_has_its_seconds_and_no_drafts_counted_are_no_zero(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "1.2.1", two_models=True, zeros=True)
    assert fake.run().code == 0
    found = fake.metrics()
    assert found["t_draft"] == pytest.approx(PASS / 4)
    assert found["t_verify"] is None
    assert found["al"] == pytest.approx(9 / 4)  # by the iterations of the answers
    assert found["acceptance_rate"] is None


def test_a_dry_run_shows_what_the_engine_would_be_told_and_starts_nothing(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    plan = json.loads(fake.run("--dry-run", "--json").out)["preflight"]["plans"][f"{DRAFTED}-d2-b2-r0"]
    assert plan["mode"] == "api"
    assert plan["kwargs"]["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 2}
    assert plan["kwargs"]["max_batch_size"] == 2
    assert plan["argv"][0] == sys.executable
    assert not (fake.engine / "pids").exists()


def test_the_other_interpreter_needs_nothing_of_ours() -> None:
    tree = ast.parse(Path(trtllm_worker.__file__).read_text(encoding="utf-8"))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= sys.stdlib_module_names | {"__future__"}


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def test_an_engine_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    fake = Fake(tmp_path, refuses="CUDA out of memory")
    run = fake.run()
    assert run.code == 2
    assert "TensorRT-LLM does not come up: RuntimeError: CUDA out of memory; see " in run.err
    assert fake.living == []


def test_a_keyword_that_its_classes_refuse_is_named(tmp_path: Path) -> None:
    run = Fake(tmp_path).run(options="{kv_cache_dtype: fp8}")
    assert run.code == 2
    assert "kv_cache_dtype" in run.err
    assert "Extra inputs are not permitted" in run.err


def test_an_interpreter_without_the_engine_is_told_apart(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    shutil.rmtree(fake.engine / "tensorrt_llm")
    run = fake.run()
    assert run.code == 2
    assert "ModuleNotFoundError: No module named 'tensorrt_llm'" in run.err


def test_a_request_that_fails_is_a_failed_record_and_the_others_go_on(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.task([{"id": f"r{i}", "turns": ["poison" if i == 1 else "one two"]} for i in range(4)])
    assert fake.run().code == 5
    for cell in load(fake.out).measured:
        errors = {each.request: each.error for each in cell.records if each.finish == "error"}
        assert errors == {"r1": "error event: ValueError: the prompt is longer than max_seq_len"}
        assert len(cell.records) == 4


def test_an_engine_that_crashes_ends_the_run_with_its_log_and_a_resume_goes_on(tmp_path: Path) -> None:
    fake = Fake(tmp_path, crash_at=WARM + 5)
    run = fake.run()
    assert run.code == 2
    assert "TensorRT-LLM's process ended with exit code 3; its log, " in run.err
    assert fake.living == []
    (fake.engine / "script.json").write_text(json.dumps({"pids": str(fake.engine / "pids")}))
    assert fake.run("--resume").code == 5  # the turns that were in flight stay failed
    assert load(fake.out).missing == []
    errors = {each.error for each in fake.cell("none").records if each.finish == "error"}
    assert errors == {"cut: TensorRT-LLM's process ended with exit code 3"}


def test_what_is_no_message_ends_the_run_and_is_quoted(tmp_path: Path) -> None:
    fake = Fake(tmp_path, garbage_at=WARM + 5)
    run = fake.run()
    assert run.code == 2
    assert "TensorRT-LLM's process said what is no message: 'what is this'" in run.err
    assert fake.living == []


def test_a_banner_of_the_interpreter_is_no_message_and_no_harm(tmp_path: Path) -> None:
    fake, wrapper = Fake(tmp_path), tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho "NVIDIA Release 26.01"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    assert fake.run(python=wrapper, version="1.4.0").code == 0
    assert "NVIDIA Release 26.01" in fake.log()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_run_leaves_no_process_behind(tmp_path: Path, sign: signal.Signals) -> None:
    fake = Fake(tmp_path)
    fake.task([{"id": f"r{i}", "turns": ["one two"]} for i in range(4000)])
    with subprocess.Popen(
        [*START, *fake.words()], env={**os.environ, **fake.environment}, stderr=subprocess.DEVNULL
    ) as run:
        records = fake.out / "none-d0-b2-r0" / "records.jsonl"
        _until(lambda: records.is_file() and records.stat().st_size > 0)
        run.send_signal(sign)
        run.wait(30)
    _until(lambda: not fake.living)


def _until(true: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
