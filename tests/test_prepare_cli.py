"""`speedbench prepare` as a user meets it: licences once, lines that say what is there, exit codes."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from miniature import fill
from preparation import Kitchen, kitchen
from scripts import Said
from stub_hub import StubHub

from speedbench import cli, prepared
from speedbench.prepare import speed_bench


@pytest.fixture
def cook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    with fill(StubHub()) as stub:
        yield kitchen(stub, tmp_path, monkeypatch)


def say(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    capsys.readouterr()
    return Said(cli._exit_code(["prepare", *words]), *capsys.readouterr())


def test_licences_are_shown_and_accepted_once(cook: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    refused = say(capsys, "speed-bench")
    assert refused.code == 2
    assert "SPEED-Bench itself: NVIDIA Evaluation Dataset License" in refused.err
    assert "HLE: gated; asks that its questions stay off the open web" in refused.err
    assert "error: read them, then accept them: speedbench prepare speed-bench --accept-licence" in refused.err
    assert cook.stub.asked == []
    accepted = say(capsys, "speed-bench", "--accept-licence")
    assert (accepted.code, "NVIDIA Evaluation" in accepted.err) == (0, True)
    again = say(capsys, "speed-bench")
    assert (again.code, "NVIDIA Evaluation" in again.err) == (0, False)
    assert "speed-bench qualitative: 13 of 13 rows resolved, content " in again.out
    assert say(capsys, "gsm8k").code == 2, "each set has its own"


def test_a_partial_set_exits_1_until_it_is_accepted_as_it_is(cook: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    cook.stub.faults["cais/hle"] = 403
    cook.accept("speed-bench")
    said = say(capsys, "speed-bench")
    assert said.code == 1
    assert "11 of 13 rows resolved, partial" in said.out
    assert "missing 2 of cais/hle: access is gated (403)" in said.out
    assert say(capsys, "speed-bench", "--check").code == 1
    assert say(capsys, "speed-bench", "--partial").code == 0
    assert say(capsys, "speed-bench", "--check").code == 0


def test_check_looks_at_every_row_and_asks_nobody(cook: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    absent = say(capsys, "speed-bench", "--check")
    assert absent.code == 1
    assert "not prepared; run: speedbench prepare speed-bench --config qualitative" in absent.out
    cook("speed-bench", "qualitative")
    cook.stub.asked.clear()
    fine = say(capsys, "speed-bench", "--check")
    assert (fine.code, "every row is as it was written" in fine.out) == (0, True)
    path = cook.folder / prepared.ROWS
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(bytes(content))
    changed = say(capsys, "speed-bench", "--check")
    assert (changed.code, "rows.parquet is not the file that was written" in changed.out) == (1, True)
    assert cook.stub.asked == []


def test_json_is_one_document_with_the_manifests(cook: Kitchen, capsys: pytest.CaptureFixture[str]) -> None:
    cook.accept("speed-bench")
    (said,) = say(capsys, "speed-bench", "--json").document["prepared"]
    assert said["revision"] == speed_bench.REVISION
    assert said["folder"] == str(cook.folder)
    (checked,) = say(capsys, "speed-bench", "--check", "--json").document["prepared"]
    assert checked["problems"] == []


def test_another_folder_is_prepared_in_and_said_to_tasks(
    cook: Kitchen, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    said = say(capsys, "speed-bench", "--accept-licence", "--out", str(other))
    assert said.code == 0
    assert f"export SPEEDBENCH_DATA={other}" in said.err
    assert (other / "speed-bench" / "qualitative" / prepared.MANIFEST).is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "prepare: needs one of aime, alpaca, "),
        (("speed-bnch",), "no prompt set named 'speed-bnch'. Did you mean 'speed-bench'?"),
        (("speed-bench", "--config", "qualitativ"), "Did you mean 'qualitative'?"),
        (("gsm8k", "--config", "main"), "--config is for speed-bench"),
        (("gsm8k", "--compat"), "--compat is for speed-bench"),
        (("speed-bench", "--revision", "main"), "--revision: should be a whole commit"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    cook: Kitchen, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    got = say(capsys, *words)
    assert got.code == 2
    assert said in got.err
    assert cook.stub.asked == []


def test_the_network_code_is_imported_without_the_packages_that_it_uses() -> None:
    """`datasets` is never needed; the rest only when something is fetched, read or cut."""
    code = """
import sys
import speedbench.prepare.preparing, speedbench.prepared
loaded = {"datasets", "huggingface_hub", "pyarrow", "tiktoken", "numpy", "pandas", "torch"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_that_is_not_there_is_named_with_the_command(
    cook: Kitchen, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    cook.accept("speed-bench")
    said = say(capsys, "speed-bench")
    assert said.code == 2
    assert 'needs the package huggingface_hub: pip install "speedbench[data]"' in said.err


@pytest.mark.filterwarnings("ignore:speed-bench qualitative")
def test_a_run_on_part_of_a_set_says_so_in_its_config_and_its_summary(
    cook: Kitchen, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cook.stub.faults["cais/hle"] = 403
    cook.accept("speed-bench")
    assert say(capsys, "speed-bench", "--partial").code == 0
    runner = tmp_path / "s.yaml"
    runner.write_text(json.dumps({"title": "T", "backend": "scripted", "model": "none"}), encoding="utf-8")
    words = [
        "--task",
        "speed-qualitative",
        "--runner",
        str(runner),
        "--drafter",
        "ngram",
        "-D",
        "3",
        "--max-tokens",
        "9",
    ]
    code = cli._exit_code(["run", *words, "--out", str(tmp_path / "out"), "--json"])
    said = Said(code, *capsys.readouterr())
    assert said.code == 0, said.err
    data = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["config"]["prepared"]["speed-qualitative"]
    assert data["rows"] == {"total": 13, "resolved": 11, "missing": 2}
    assert (data["partial"], data["revision"]) == (True, speed_bench.REVISION)
    assert [each for each in said.document["warnings"] if "11 of 13 rows resolved" in each]
