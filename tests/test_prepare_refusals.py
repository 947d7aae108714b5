"""What cannot be had is said in six different ways, each with its next step, and leaves nothing that looks whole."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from miniature import fill, lines
from preparation import Kitchen, kitchen
from stub_hub import StubHub

from speedbench import prepared, task
from speedbench.errors import UserError
from speedbench.prepare import origins, preparing, speed_bench
from speedbench.prepare.refusals import NotHad

MATH = {"unique_id": "u/1.json", "problem": "1 + 1?", "subject": "Algebra", "level": 1}


@pytest.fixture
def cook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    with fill(StubHub(stall=3)) as stub:
        stub.hub["HuggingFaceH4/MATH-500"] = {"test.jsonl": lines([MATH])}
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_ETAG_TIMEOUT", 1)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
        monkeypatch.setattr("huggingface_hub.file_download._ETAG_RETRY_TIMEOUT", 1, raising=False)
        monkeypatch.setattr(origins, "_TIMEOUT", 1.0)
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # the hub's library waits between its tries
        yield kitchen(stub, tmp_path, monkeypatch)


def refused(cook: Kitchen, name: str, config: str | None = None, **options: Any) -> NotHad:
    with pytest.raises(NotHad) as caught:
        cook(name, config, **options)
    assert prepared.manifest(cook.folder) is None
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (401, "login", "who you are (401); log in (hf auth login, or HF_TOKEN in the environment)"),
        (403, "gated", "access is gated (403); open "),
        (404, "absent", "is not there (404)"),
        (429, "busy", "asks to slow down (429); wait 1 s and give the same command again"),
        (503, "trouble", "the server failed (503); that is the server's fault"),
        ("slow", "slow", "no answer in time; the same command goes on where it stopped"),
    ],
)
def test_each_answer_of_the_hub_is_told_apart(cook: Kitchen, fault: Any, kind: str, said: str) -> None:
    cook.stub.faults[speed_bench.REPO] = fault
    error = refused(cook, "speed-bench", "qualitative")
    assert error.kind == kind
    assert said in str(error)
    assert "nvidia/SPEED-Bench" in str(error)


def test_a_repository_that_is_not_there_and_a_silent_listing_are_told_too(cook: Kitchen) -> None:
    del cook.stub.hub[speed_bench.REPO]
    assert refused(cook, "speed-bench", "qualitative").kind == "absent"
    cook.stub.faults[f"listing {speed_bench.REPO}"] = "slow"
    assert refused(cook, "speed-bench", "qualitative").kind == "slow"


def test_a_config_that_the_revision_does_not_have_is_named_with_what_it_has(cook: Kitchen) -> None:
    error = refused(cook, "speed-bench", "throughput_32k")
    assert "has no files of 'throughput_32k'" in str(error)
    assert "it has qualitative/test-00000-of-00001.parquet" in str(error)


def test_nothing_listens_there(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("SPEEDBENCH_GITHUB_RAW", "http://127.0.0.1:9")
    assert refused(cook, "speed-bench", "qualitative").kind == "unreachable"
    assert refused(cook, "mt-bench").kind == "unreachable"


@pytest.mark.parametrize(("fault", "kind"), [(404, "absent"), (429, "busy"), (503, "trouble"), ("slow", "slow")])
def test_github_is_told_apart_likewise(cook: Kitchen, fault: Any, kind: str) -> None:
    cook.stub.github["lm-sys/FastChat/x"] = b""
    cook.stub.faults["lm-sys/FastChat"] = fault
    assert refused(cook, "mt-bench").kind == kind


# ---- off-line -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["option", "environment"])
def test_off_line_nothing_is_asked_and_the_next_step_is_named(
    cook: Kitchen, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "environment":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    error = refused(cook, "speed-bench", "qualitative", offline=by == "option")
    assert error.kind == "offline"
    assert "run the same command once where there is a network" in str(error)
    assert refused(cook, "mt-bench", offline=by == "option").kind == "offline"
    assert cook.stub.asked == []


def test_what_was_fetched_once_is_prepared_again_off_line(cook: Kitchen) -> None:
    content = cook("speed-bench", "qualitative")["content"]
    cook.stub.asked.clear()
    assert cook("speed-bench", "qualitative", again=True, offline=True)["content"] == content
    assert cook.stub.asked == []


def test_a_task_that_is_not_prepared_names_the_command_and_asks_nobody(cook: Kitchen) -> None:
    for name, command in (
        ("gsm8k", "speedbench prepare gsm8k"),
        ("speed-throughput-8k", "speedbench prepare speed-bench --config throughput_8k"),
    ):
        with pytest.raises(UserError, match=f"is not prepared; run: {command}$"):
            task.requests(task.load(name))
    assert cook.stub.asked == []


# ---- what breaks off ------------------------------------------------------------------------------------------------


def test_a_download_that_breaks_off_never_looks_complete(cook: Kitchen) -> None:
    cook.stub.faults["HuggingFaceH4/MATH-500"] = "cut"
    refused(cook, "math-500")
    cook.stub.faults.clear()
    wanted = len(lines([MATH]))
    whole = [path for path in cook.hub_cache.rglob("test.jsonl") if path.stat().st_size != wanted]
    assert whole == []


def test_a_download_of_github_that_breaks_off_is_fetched_again(cook: Kitchen) -> None:
    said = lines([{"question_id": n, "category": "c", "turns": [f"Hello {n}." * 99]} for n in range(99)])
    at = "lm-sys/FastChat/0e6d3e4beaab66f4d3f93db72541a4abab8af28d/fastchat/llm_judge/data/mt_bench/question.jsonl"
    cook.stub.github[at] = said
    cook.stub.faults["lm-sys/FastChat"] = "cut"
    assert refused(cook, "mt-bench").kind == "unreachable"
    cook.stub.faults.clear()
    assert refused(cook, "mt-bench").kind == "damaged"  # it came whole now, but it is not the pinned file


def test_a_file_cut_short_in_the_hubs_cache_is_found_out(cook: Kitchen) -> None:
    cook.stub.faults["cais/hle"] = 403
    cook("speed-bench", "qualitative")
    for path in cook.hub_cache.rglob("*.parquet"):
        content = path.read_bytes()
        path.write_bytes(content[:-9])
    with pytest.raises(NotHad, match="is not what its server says that it is; delete it"):
        cook("speed-bench", "qualitative")


def test_a_full_disk_is_no_fault_of_the_network(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(url: str, kept: Path) -> None:
        raise OSError(28, "No space left on device", str(kept))

    monkeypatch.setattr(origins, "_download", full)
    with pytest.raises(UserError, match="cannot be kept: No space left on device"):
        cook("mt-bench")


# ---- secrets --------------------------------------------------------------------------------------------------------


def test_the_token_goes_to_the_hub_alone_and_stands_nowhere(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_TESTTOKENTESTTOKENTESTTOKEN")
    cook.stub.faults["cais/hle"] = 401
    cook("speed-bench", "qualitative")
    by_host = {host for host, header in cook.stub.tokens if "TESTTOKEN" in header}
    assert by_host == {"127.0.0.1"}
    assert not any("TESTTOKEN" in header for host, header in cook.stub.tokens if host == "localhost")
    text = "".join(preparing.described(cook.facts())) + "".join(cook.said)
    text += "".join(path.read_text(errors="replace") for path in cook.base.rglob("*") if path.is_file())
    assert "TESTTOKEN" not in text
    assert os.environ["HF_TOKEN"]
