"""A run on disk and back: strict, whole, safe, and by one writer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import cell, mismatch, passed, record, step

from speedbench.errors import UserError
from speedbench.files import append, drop_torn_line, dumps, lines, safe, write_whole
from speedbench.results import SCHEMA, Writer, is_complete, load, load_cell, writing

CELL = cell()
CONFIG: dict[str, Any] = {
    "task": {"name": "t", "requests": 1, "content_hash": "abc"},
    "request_ids": ["r0"],
    "runner": {"name": "u", "model": "org/na:me|x?", "engine": {}},
    "draftings": [{"label": "ngram", "drafter": "ngram", "settings": {}}],
    "draft_lengths": [3],
    "sampling": {"max_tokens": 9, "top_p": 0.5},
    "cells": [asdict(CELL)],
}


@contextmanager
def begun(path: Path, *, resume: bool = False, config: dict[str, Any] | None = None) -> Iterator[Writer]:
    with writing(path, config or CONFIG, {"cpu": {"model": "x"}}, resume=resume) as writer:
        writer.facts(CELL, {"bytes": 1})
        yield writer


def written(path: Path) -> Path:
    """A finished run of one record; the path of its records."""
    with begun(path) as writer:
        writer.add_record(CELL, record([step(1, at=1.5)]))
        writer.finish()
    return path / CELL.key / "records.jsonl"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    made = replace(record([step(2, at=1.25), step(None, None, at=None)]), raw={"usage": [1, None]}, prefill=0.5)
    with begun(tmp_path / "run") as writer:
        writer.add_pass(CELL, passed(verify=0.25, draft=0.125, d=3))
        writer.add_record(CELL, made)
        writer.add_noise(CELL, [0.5, 0.25])
        writer.mismatches(CELL, [mismatch("r0", "near_tie", gap=1e-7)])
        writer.finish()
    found = load(tmp_path / "run")
    (only,) = found.measured
    assert only.records == (made,)
    assert only.passes == (passed(verify=0.25, draft=0.125, d=3),)
    assert only.mismatches == (mismatch("r0", "near_tie", gap=1e-7),)
    assert found.noise == (0.375,)  # one block: the median of 0.5 and 0.25
    assert (found.name, found.missing) == ("run", [])
    assert found.document["config"] == CONFIG


def test_not_compared_is_not_the_same_as_compared_and_equal(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as writer:
        assert load_cell(writer.path, CELL).mismatches is None
        writer.mismatches(CELL, [])
        assert load_cell(writer.path, CELL).mismatches == ()


def test_times_are_kept_to_a_tenth_of_a_microsecond(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as writer:
        writer.add_record(CELL, record([step(0, at=1.123456789)], sent=0.123456789))
    (only,) = load_cell(tmp_path / "run", CELL).records
    assert (only.sent, only.steps[0].at) == (0.1234568, 1.1234568)


def test_run_json_is_there_before_the_first_request(tmp_path: Path) -> None:
    with writing(tmp_path / "run", CONFIG, {}, resume=False):
        document = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert (document["schema"], document["finished"]) == (SCHEMA, False)


def test_the_folder_here_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    written(Path())
    assert load(Path()).name == "mine"


# ---- strict JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), np.float64("nan"), np.float32("-inf")])
def test_nan_and_infinity_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"al": number})


def test_scalars_of_numpy_are_numbers_and_arrays_are_refused() -> None:
    assert dumps([np.float64(0.5), np.float32(0.5), np.int64(3), np.bool_(True)]) == "[0.5,0.5,3,true]"
    with pytest.raises(TypeError, match="ndarray"):
        dumps(np.zeros(2))


@pytest.mark.parametrize("line", ['{"x": NaN}', '{"x": Infinity}', '{"x": -Infinity}'])
def test_nan_and_infinity_are_not_read_either(tmp_path: Path, line: str) -> None:
    (tmp_path / "f").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"f line 1 is not JSON: -?(NaN|Infinity) is no number"):
        list(lines(tmp_path / "f"))


WORDS = "naïve 日本 🦊 \u2028"


def test_files_are_utf_8_and_round_trip_in_a_c_locale(tmp_path: Path) -> None:
    code = f"""
import json, locale, sys
from pathlib import Path
from speedbench.files import append, lines, write_whole
assert locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8"), "the locale is not what this test needs"
words = {WORDS!a}
write_whole(Path({str(tmp_path)!r}) / "whole", words)
append(Path({str(tmp_path)!r}) / "lines", [json.dumps(words, ensure_ascii=False)])
assert list(lines(Path({str(tmp_path)!r}) / "lines")) == [(1, words)]
"""
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "whole").read_text("utf-8") == WORDS


def test_half_a_surrogate_pair_does_not_stop_a_run(tmp_path: Path) -> None:
    append(tmp_path / "f", [dumps({"error": "no file \udcff"})])
    assert (tmp_path / "f").read_text("utf-8") == '{"error":"no file \\udcff"}\n'
    assert list(lines(tmp_path / "f")) == [(1, {"error": "no file \udcff"})]


# ---- names ---------------------------------------------------------------------------------------------------------

ODD = [
    "org/na:me|x?", "http://h:8000/v1", "x" * 300, "x" * 301, "CON", "con", "nul.txt", "../x", "..", ".", "", "/etc/x",
    ".hidden", "a b", "a_b", "a\\b", "日本", "日木", "x\x1b[31m", "\ud83d", "org_na_me_x_",
]  # fmt: skip


def test_any_name_becomes_a_short_one_inside_the_folder_and_none_collide(tmp_path: Path) -> None:
    made = [safe(name) for name in ODD]
    assert len(set(made)) == len(ODD)
    for name in made:
        assert len(name) <= 80
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert name.strip(".") == name
        assert name.isascii()
        assert not set(name) & set('<>:"/\\|?*\x1b ')
        assert name.partition(".")[0].lower() not in {"con", "nul"}


def test_a_plain_name_stays_as_it_is() -> None:
    assert safe("ngram-d4-b1-r0") == "ngram-d4-b1-r0"
    assert safe("Qwen2.5_7B") == "Qwen2.5_7B"


# ---- torn and broken lines -----------------------------------------------------------------------------------------


def test_a_torn_last_line_is_left_out_even_within_a_character(tmp_path: Path) -> None:
    records = written(tmp_path / "run")
    whole = records.read_bytes()
    records.write_bytes(whole + '{"request":"日'.encode()[:-1])
    assert len(load(tmp_path / "run").measured[0].records) == 1


def test_a_resume_cuts_torn_lines_off_every_file(tmp_path: Path) -> None:
    records = written(tmp_path / "run")
    noise = records.with_name("noise.jsonl")
    whole = records.read_bytes()
    records.write_bytes(whole + b'{"request":"r')
    noise.write_bytes(b'{"cell":"c","sec')
    with begun(tmp_path / "run", resume=True) as writer:
        assert records.read_bytes() == whole
        assert writer.process == 1
        writer.add_noise(CELL, [0.5])
    assert load(tmp_path / "run").noise == (0.5,)


def test_a_file_of_nothing_but_a_torn_line_becomes_empty(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'{"a')
    drop_torn_line(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b""


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("{", "records.jsonl line 2 is not JSON"),
        ('{"request": "r1"}', "records.jsonl line 2: category: "),
        ("[]", "records.jsonl line 2: the whole: "),
        ('{"steps": 3}', "records.jsonl line 2: "),
    ],
)
def test_a_broken_line_in_the_middle_names_file_line_and_key(tmp_path: Path, broken: str, said: str) -> None:
    records = written(tmp_path / "run")
    one = records.read_text("utf-8")
    records.write_text(one + broken + "\n" + one, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(tmp_path / "run")
    assert said in str(caught.value)


def test_a_wrong_value_deep_in_a_record_is_named_with_its_path(tmp_path: Path) -> None:
    records = written(tmp_path / "run")
    records.write_text(records.read_text("utf-8").replace('"accepted":1', '"accepted":"x"'), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 1: steps\.0\.accepted: .* \(got 'x'\)"):
        load(tmp_path / "run")


def test_bytes_that_are_not_utf_8_are_the_files_fault_and_named(tmp_path: Path) -> None:
    records = written(tmp_path / "run")
    records.write_bytes(b'{"request":"\xff"}\n')
    with pytest.raises(UserError, match=r"records\.jsonl line 1 is not JSON"):
        load(tmp_path / "run")


# ---- run.json ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, None, "1", True])
def test_another_schema_is_refused_by_name(tmp_path: Path, schema: Any) -> None:
    written(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    document = json.loads(file.read_text("utf-8"))
    document["schema"] = schema
    file.write_text(json.dumps(document), encoding="utf-8")
    said = "none" if schema is None else schema
    with pytest.raises(UserError, match=rf"run\.json has schema {said}; this speedbench reads schema {SCHEMA}"):
        load(tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "run.json is not JSON"),
        ("[1]", "run.json has schema none"),
        ('{"schema": 1}', "run.json: config: Field required"),
        ('{"schema": 1, "config": {}, "processes": [], "finished": true}', "run.json: config.task: Field required"),
    ],
)
def test_a_damaged_run_json_is_said_to_be(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert said in str(caught.value)


def test_a_planned_cell_that_does_not_read_is_named(tmp_path: Path) -> None:
    written(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text("utf-8").replace('"draft_length": 3', '"draft_length": "x"'), encoding="utf-8")
    with pytest.raises(UserError, match=r"run\.json: config\.cells: draft_length: "):
        load(tmp_path / "run")


def test_a_folder_without_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no run: it has no run\.json"):
        load(tmp_path)


# ---- one writer, and where -----------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_may_come_later(tmp_path: Path) -> None:
    with begun(tmp_path / "run"):
        with (
            pytest.raises(UserError, match="another process is writing"),
            begun(tmp_path / "run", resume=True),
        ):
            pass
        with pytest.raises(UserError, match="holds a run already"), begun(tmp_path / "run"):
            pass
    assert not (tmp_path / "run" / ".lock").exists()
    with begun(tmp_path / "run", resume=True) as writer:
        assert writer.process == 1


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from speedbench.results import writing
with writing(Path({str(tmp_path / "run")!r}), {CONFIG!r}, {{}}, resume=True):
    print("in")
"""
    with begun(tmp_path / "run"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == ""
    assert "another process is writing" in done.stderr


def test_a_writer_that_failed_leaves_the_folder_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), begun(tmp_path / "run"):
        raise ZeroDivisionError
    with begun(tmp_path / "run", resume=True):
        pass


@pytest.mark.parametrize(
    ("out", "resume", "said"),
    [
        ("file", False, "file' is a file; name a folder"),
        ("file/below", False, "cannot write to"),
        ("full", False, "is not empty and holds no run (notes.txt …); choose another --out"),
        ("run", False, "holds a run already; add --resume to go on with it, or choose another --out"),
        ("full", True, "--resume: no run in"),
        ("nowhere", True, "(no run.json); leave --resume out to begin one"),
    ],
)
def test_a_folder_that_cannot_be_written_is_said_why(tmp_path: Path, out: str, resume: bool, said: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("", encoding="utf-8")
    written(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as caught, begun(tmp_path / out, resume=resume):
        pass
    assert said in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_said_to_be(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot write to"), begun(tmp_path / "run"):
        pass
    tmp_path.chmod(0o700)


def test_an_error_of_the_system_is_said_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"cannot write to .*: Read-only file system; choose another --out"):
        begun(tmp_path / "run").__enter__()


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "f", "old")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text("utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_two_who_write_one_file_leave_one_whole_text(tmp_path: Path) -> None:
    texts = ["a" * 100_000, "b" * 100_000]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: [write_whole(tmp_path / "f", text) for _ in range(30)], texts))
    assert (tmp_path / "f").read_text("utf-8") in texts
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("write", [lambda path: write_whole(path, "x"), lambda path: append(path, ["x"])])
def test_what_cannot_be_written_is_the_users_to_mend(tmp_path: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(UserError, match=r"^cannot write '.*/absent/f': No such file or directory$"):
        write(tmp_path / "absent" / "f")


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": 1}\n{"a": 1, "a": 2}\n')
    with pytest.raises(UserError, match="f line 2 is not JSON: key 'a' stands twice"):
        list(lines(tmp_path / "f"))


# ---- going on ------------------------------------------------------------------------------------------------------


def test_another_config_is_refused_and_what_differs_is_named(tmp_path: Path) -> None:
    written(tmp_path / "run")
    other = {**CONFIG, "draft_lengths": [3, 4], "sampling": {"max_tokens": 9, "top_p": None}, "cells": []}
    for attempt in (
        lambda: begun(tmp_path / "run", resume=True, config=other).__enter__(),
        lambda: is_complete(tmp_path / "run", other, resume=True),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        assert "(draft_lengths is [3] there, [3,4] here; sampling.top_p is 0.5 there, absent here)" in str(caught.value)


def test_a_run_is_complete_when_it_was_finished_and_nothing_is_missing(tmp_path: Path) -> None:
    records = written(tmp_path / "run")
    assert is_complete(tmp_path / "run", CONFIG, resume=True)
    records.write_text("", encoding="utf-8")
    assert load(tmp_path / "run").missing == ["ngram-d3-b1-r0: 1 of 1 conversations are not there"]
    assert not is_complete(tmp_path / "run", CONFIG, resume=True)
    assert not is_complete(tmp_path / "new", CONFIG, resume=False)


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_no_secret_is_written_wherever_it_came_from(tmp_path: Path) -> None:
    engine = {"url": "https://me:hunter22@host/v1", "api_key": "abcdefgh", "headers": ["Bearer abcdefgh12345"]}
    config = {**CONFIG, "runner": {**CONFIG["runner"], "engine": engine}}
    failed = replace(record(finish="error"), error="401 for sk-TESTKEY123", raw={"token": "abcdefgh"})
    for resume in (False, True):  # a resume compares what is kept with what is kept
        with begun(tmp_path / "run", resume=resume, config=config) as writer:
            writer.add_record(CELL, replace(failed, turn=int(resume)))
            writer.facts(CELL, {"command": "--api-key=abcdefgh"})
    every = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    for secret in (b"hunter22", b"abcdefgh", b"TESTKEY"):
        assert secret not in every
    assert b"401 for sk-***" in every
