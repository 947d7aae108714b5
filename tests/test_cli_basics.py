"""The command line as a user meets it: quick help, one-line errors, exit codes."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from speedbench import __main__ as start
from speedbench import __version__, catalog, cli
from speedbench.errors import UserError

START = "from speedbench.cli import main; main()"


def speedbench(*words: str, code: str = START, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, encoding="utf-8", env=environment
    )


def test_help_comes_without_torch_pandas_pydantic_or_numpy() -> None:
    code = """
import sys
from speedbench.cli import main
try:
    main()
finally:
    heavy = {"torch", "transformers", "pandas", "pydantic", "numpy", "yaml", "psutil"} & set(sys.modules)
    assert not heavy, heavy
"""
    done = speedbench("--help", code=code)
    assert done.returncode == 0, done.stderr
    assert "list" in done.stdout
    assert "doctor" in done.stdout


def test_help_and_list_take_less_than_half_a_second_at_best() -> None:
    bare = min(_seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(2))
    for words in (("--help",), ("list", "tasks")):
        times = [_seconds(lambda words=words: speedbench(*words)) for _ in range(3)]  # type: ignore[misc]
        assert min(times) < 0.5 + bare, f"{words}: {times}, of which Python itself {bare:.2f} s"


def _seconds(run: Callable[[], Any]) -> float:
    """Of processor time, which other work on the machine does not stretch as it does the clock's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_version_is_printed_by_both_spellings() -> None:
    for word in ("-V", "--version"):
        assert speedbench(word).stdout == f"speedbench {__version__}\n"


def test_the_package_runs_as_a_module_too() -> None:
    done = subprocess.run([sys.executable, "-m", "speedbench", "-V"], capture_output=True, text=True, check=True)
    assert done.stdout == f"speedbench {__version__}\n"


def test_ctrl_c_while_the_command_line_is_being_loaded_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", pressed)
    with pytest.raises(SystemExit) as caught:
        start.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "taks"), "error: no list named 'taks'. Did you mean 'tasks'?"),
        (("list", "tasks", "--jsn"), "No such option"),
        (("lst",), "No such command"),
        (("leaderboard",), "error: Missing command. (see: speedbench leaderboard -h)"),
        (
            ("list",),
            "error: list: needs one of tasks, runners, drafters, backends, metrics, executors, hardware, models, ",
        ),
    ],
)
def test_bad_input_exits_2_and_says_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    done = speedbench(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["tasks", "runners"])
def test_lists_name_the_files_of_the_checkout(kind: catalog.Kind) -> None:
    listed = json.loads(speedbench("list", kind, "--json").stdout)
    folder = Path(cli.__file__).parent.parent.parent / kind
    assert [item["name"] for item in listed["items"]] == sorted(path.stem for path in folder.glob("*.yaml"))
    plain = speedbench("list", kind).stdout.splitlines()
    assert [line.split()[0] for line in plain] == [item["name"] for item in listed["items"]]


@pytest.mark.parametrize("kind", ["drafters", "backends", "metrics"])
def test_lists_of_plugins_have_a_title_for_each(kind: str) -> None:
    done = speedbench("list", kind, "--json")
    items = json.loads(done.stdout)["items"]
    assert items
    assert all(item["title"] for item in items)


def test_doctor_reports_and_says_how_to_mend() -> None:
    done = speedbench("doctor", "--json")
    document = json.loads(done.stdout)
    missing = [check for check in document["checks"] if check["needed"] and not check["fine"]]
    assert done.returncode == (1 if missing else 0)
    assert all(check["fix"] for check in missing)
    assert document["environment"]["packages"]["speedbench"] == __version__


def exit_code(error: BaseException) -> int:
    def command() -> None:
        """Fail."""
        raise error

    with pytest.raises(typer.Exit) as caught:
        cli._guarded(command)()
    return caught.value.exit_code


def test_a_user_error_is_one_line_without_secrets_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(UserError("no model\nat https://me:secret@host")) == 2
    assert capsys.readouterr().err == "error: no model at https://***@host\n"


def test_a_fault_of_ours_exits_70_and_keeps_the_traceback_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(ZeroDivisionError("by hf_0123456789")) == 70
    said = capsys.readouterr().err
    assert said.startswith("internal error: ZeroDivisionError: by hf_***. The traceback is in ")
    kept = Path(said.rsplit(" ", 1)[1].strip())
    assert "raise error" in kept.read_text(encoding="utf-8")
    assert "hf_0123" not in kept.read_text(encoding="utf-8")
    kept.unlink()


def test_ctrl_c_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("words", [("list", "metrics"), ("list", "drafters", "--verbose")])
def test_a_reader_who_goes_away_is_no_regression(words: tuple[str, ...]) -> None:
    code = f"import sys; sys.argv = ['speedbench', *{words}]; {START}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_a_full_disk_is_no_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(OSError(errno.ENOSPC, "No space left on device", "/x/y")) == 2
    assert capsys.readouterr().err == "error: /x/y: No space left on device\n"


def test_an_exit_that_a_verb_chose_is_kept() -> None:
    assert exit_code(typer.Exit(5)) == 5


def test_a_terminal_that_knows_only_ascii_is_no_reason_for_an_exception() -> None:
    code = f"import sys; sys.argv = ['speedbench', 'list', 'na\\u00efve']; {START}"
    done = speedbench(code=code, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no list named 'na")
