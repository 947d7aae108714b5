"""What was prepared is what its manifest says, and a preparation that was stopped goes on to the same end."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from miniature import QUALITATIVE, fill, parquet, qualitative
from preparation import Kitchen, kitchen, short, speed_task
from stub_hub import StubHub

from speedbench import prepared, task
from speedbench.errors import UserError
from speedbench.prepare import preparing, speed_bench


@pytest.fixture
def cook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    with fill(StubHub()) as stub:
        yield kitchen(stub, tmp_path, monkeypatch)


# ---- revisions and hashes -------------------------------------------------------------------------------------------


def test_the_manifest_says_what_each_file_was(cook: Kitchen) -> None:
    said = cook("speed-bench", "throughput_1k")
    assert said["revision"] == speed_bench.REVISION
    files = said["files"]
    assert all(len(each["sha256"]) == 64 for each in files.values())
    assert files["nvidia/SPEED-Bench/throughput_1k/test-00000-of-00001.parquet"]["revision"] == speed_bench.REVISION
    assert files["http://opencompass.openxlab.space/utils/AdaLEval/textsort_1k.json"]["revision"] is None
    (hle,) = [each for each in said["sources"] if each["source"] == "cais/hle"]
    assert hle["licences"] == {"cais/hle": "mit"}


def test_one_changed_byte_of_a_source_changes_the_content_hash(cook: Kitchen) -> None:
    before = cook("speed-bench", "qualitative")["content"]
    cook.stub.hub["abisee/cnn_dailymail"]["3.0.0/test-00000-of-00001.parquet"] = parquet(
        [{"id": "n2", "article": "News 2!"}]
    )
    cook.forget()
    assert cook("speed-bench", "qualitative", again=True)["content"] != before
    assert cook.facts()["content"] != before


def test_a_changed_row_is_refused_and_named(cook: Kitchen) -> None:
    cook("speed-bench", "qualitative")
    rows = cook.rows()
    rows[2]["turns"] = ["Sum up: News 2!"]
    (cook.folder / prepared.ROWS).write_bytes(parquet(rows))
    assert prepared.problems(cook.folder) == [
        "rows.parquet is not the file that was written",
        f"row {rows[2]['id']} was changed",
        "the rows together are not those that the manifest was written for",
    ]
    with pytest.raises(UserError, match="was changed since it was prepared"):
        task.requests(speed_task("qualitative"))


def test_a_whole_preparation_is_not_made_again(cook: Kitchen) -> None:
    said = cook("speed-bench", "qualitative")
    cook.stub.asked.clear()
    assert cook("speed-bench", "qualitative") == said
    assert cook.stub.asked == []


def test_another_revision_is_another_preparation(cook: Kitchen) -> None:
    other = "ab" * 20
    cook("speed-bench", "qualitative")
    assert cook("speed-bench", "qualitative", revision=other)["revision"] == other
    with pytest.raises(UserError, match="should be a whole commit, 40 hex digits"):
        preparing.orders("speed-bench", "qualitative", revision="main")


# ---- stopping and going on ------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from speedbench.prepare import preparing, wording
wording.SHA256 = sys.argv[2]
(order,) = preparing.orders("speed-bench", "qualitative")
preparing.prepare(order, Path(sys.argv[1]), print)
"""


def test_a_preparation_killed_in_the_middle_goes_on_and_is_equal_in_the_end(cook: Kitchen) -> None:
    cook.accept("speed-bench")
    cook.stub.faults["deepmind/code_contests"], cook.stub.stall = "slow", 60
    environment = {**os.environ, **cook.stub.environment, "HF_HOME": str(cook.base / "killed"), "HF_HUB_OFFLINE": ""}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(cook.base), cook.wording_sha],
        env={**environment, "HF_HUB_ETAG_TIMEOUT": "60", "HF_HUB_DOWNLOAD_TIMEOUT": "60"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _until(lambda: any("code_contests" in line and "resolve" in line for line in cook.stub.asked))
    child.kill()
    child.wait()
    assert cook.facts() is None
    assert not (cook.folder / prepared.ROWS).exists()
    cook.stub.faults.clear()
    cook.stub.asked.clear()
    said = cook("speed-bench", "qualitative")
    assert short(cook.rows()) == QUALITATIVE
    assert cook.stub.fetched("cnn_dailymail") == cook.stub.fetched("code_generation_lite") == 0
    assert cook.stub.fetched("code_contests") > 0
    assert not (cook.folder / "parts").exists()
    assert said["content"] == cook("speed-bench", "qualitative", again=True)["content"]


def _until(happened: Any) -> None:
    for _ in range(600):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 30 s")


def test_two_at_once_do_not_disturb_each_other(cook: Kitchen) -> None:
    from filelock import FileLock

    cook.accept("speed-bench")
    cook.folder.mkdir(parents=True)
    with FileLock(str(cook.folder / ".lock")), pytest.raises(UserError, match="is being prepared by another process"):
        cook("speed-bench", "qualitative")


@pytest.mark.slow
def test_ten_thousand_rows_take_well_under_a_minute(cook: Kitchen) -> None:
    """A tenth of them found by id among ten thousand of a source, the rest as published."""
    base = qualitative()
    rows = [{**base[0], "question_id": f"s{n:031d}"} for n in range(9000)]
    rows += [{**base[2], "question_id": f"c{n:031d}", "src_id": f"n{n}"} for n in range(1000)]
    cook.stub.hub[speed_bench.REPO]["qualitative/test-00000-of-00001.parquet"] = parquet(rows)
    cook.stub.hub["abisee/cnn_dailymail"]["3.0.0/test-00000-of-00001.parquet"] = parquet(
        [{"id": f"n{n}", "article": f"News {n}. " * 300} for n in range(10_000)]
    )
    start = time.perf_counter()
    assert cook("speed-bench", "qualitative")["rows"]["resolved"] == 10_000
    assert len(task.requests(speed_task("qualitative"))) == 10_000
    assert time.perf_counter() - start < 40
