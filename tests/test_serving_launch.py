"""A server as a child: it is waited for, what is wrong with it is said, and nothing of it outlives us."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from children import STUBBORN, alive, eventually, pids, program, tiny

from speedbench.errors import UserError
from speedbench.serving import guard
from speedbench.serving.launch import Server, free_port, version_of
from speedbench.serving.plan import HIDDEN, LaunchPlan

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")

PATIENCE = 60.0


@contextmanager
def started(plan: LaunchPlan, folder: Path) -> Iterator[Server]:
    server = Server(plan, folder, PATIENCE)
    try:
        server.start()
        yield server
    finally:
        server.stop(grace=5)


def refused(plan: LaunchPlan, folder: Path, patience: float = PATIENCE) -> str:
    server = Server(plan, folder, patience)
    with pytest.raises(UserError) as caught:
        server.start()
    assert server.ended
    return str(caught.value)


def listens(plan: LaunchPlan) -> bool:
    """Whether anything takes a connection where it would be."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", int(plan.url.rpartition(":")[2]))) == 0


# ---- coming up ----


def test_it_is_up_once_its_health_says_200(tmp_path: Path) -> None:
    with started(tiny(refuses=3), tmp_path) as server:
        assert listens(server.plan)
        assert not server.ended
        assert server.log == tmp_path / "server.log"
        assert server.log.read_text() == f"listening on {server.plan.url.rpartition(':')[2]}\n"
    assert server.ended


def test_one_that_ends_early_is_told_with_its_exit_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    code = "print(*range(100), 'no such model', sep='\\n'); raise SystemExit(3)"
    said = refused(program(sys.executable, "-c", code), tmp_path)
    assert said.startswith(f"tiny ended with exit code 3 before it answered; its log, {tmp_path}/server.log, ends:")
    assert said.split()[-4:] == ["99", "no", "such", "model"]
    assert "\n  88\n" not in said


def test_the_log_is_kept_over_launches_and_an_error_quotes_the_last_alone(tmp_path: Path) -> None:
    refused(program(sys.executable, "-c", "raise SystemExit('first')"), tmp_path)
    said = refused(program(sys.executable, "-c", "raise SystemExit(4)"), tmp_path)
    assert "first" not in said
    assert said.endswith("(it is empty)")
    assert (tmp_path / "server.log").read_text() == "first\n"


def test_one_that_is_never_ready_is_given_up_in_time_and_ended(tmp_path: Path) -> None:
    plan = tiny(refuses=10**9)
    before = time.monotonic()
    said = refused(plan, tmp_path, patience=1.5)
    assert time.monotonic() - before < 30
    assert said.startswith("tiny did not answer within 1.5 s; raise engine.patience if it is slow to load; its log")
    assert not listens(plan)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = refused(program("/nowhere/bin/engine", "--serve"), tmp_path)
    assert said == (
        "tiny: cannot start '/nowhere/bin/engine' (No such file or directory); "
        "install it, or name its interpreter with engine.python"
    )


def test_whatever_answers_there_without_speaking_http_is_no_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def babble() -> None:
            while True:
                try:
                    one, _ = other.accept()
                except OSError:
                    return
                with one:
                    one.recv(1000)
                    one.sendall(b"220 mail, who is there?\r\n")

        Thread(target=babble, daemon=True).start()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        plan = program(sys.executable, "-c", "import time; time.sleep(600)", url=url)
        assert refused(plan, tmp_path, patience=0.5).startswith("tiny did not answer within 0.5 s")


def test_no_proxy_stands_between_us_and_our_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with started(tiny(), tmp_path) as server:
        assert not server.ended


def test_a_free_port_is_one_of_this_machines_own_address() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listening:
        assert listening.getsockname() == ("127.0.0.1", port)


# ---- what it is told ----


def test_files_are_written_and_the_folder_is_filled_in(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "ngram-d3-b1"
    code = "import sys; print(open(sys.argv[1], encoding='utf-8').read(), sys.argv[2]); raise SystemExit(1)"
    plan = program(sys.executable, "-c", code, "{folder}/e.json", "--log={folder}", files={"e.json": '{"é": 1}'})
    assert refused(plan, folder).splitlines()[1:] == [f'  {{"é": 1}} --log={folder}']
    assert (folder / "e.json").read_text(encoding="utf-8") == '{"é": 1}'


def test_its_environment_is_ours_with_the_plans_and_the_copied_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"OURS": "1", "CHANGED": "1", "MY_KEY": "secret-of-mine"}.items():
        monkeypatch.setenv(name, value)
    names = ("OURS", "CHANGED", "THEIR_KEY", "OTHER_KEY")
    write = f"import json, os; json.dump({{n: os.environ.get(n) for n in {names}}}, open('{tmp_path}/env.json', 'w'))"
    env_from = {"THEIR_KEY": "MY_KEY", "OTHER_KEY": "NOT_THERE"}
    refused(program(sys.executable, "-c", write, env={"CHANGED": "2"}, env_from=env_from), tmp_path)
    found = json.loads((tmp_path / "env.json").read_text())
    assert found == {"OURS": "1", "CHANGED": "2", "THEIR_KEY": "secret-of-mine", "OTHER_KEY": None}


def test_a_key_that_the_engine_logs_is_neither_quoted_nor_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-of-mine")
    tell = "print('started with', os.environ['THEIR_KEY'], flush=True)"
    plan = tiny(extra=tell, env_from={"THEIR_KEY": "MY_KEY"})
    with started(plan, tmp_path / "up") as server:
        assert "secret" not in server.tail()
    assert f"started with {HIDDEN}" in server.log.read_text()
    said = refused(program(sys.executable, "-c", f"import os; {tell}", env_from={"THEIR_KEY": "MY_KEY"}), tmp_path)
    assert said.endswith(f"started with {HIDDEN}")
    every = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"secret-of-mine" not in every
    assert "secret-of-mine" not in json.dumps(plan.shown())
    assert plan.shown()["env_from"] == {"THEIR_KEY": "MY_KEY"}


def test_the_version_is_that_of_the_interpreter_named() -> None:
    assert version_of(sys.executable, "no-such-package", "pytest") == pytest.__version__
    assert version_of("", "pytest") == pytest.__version__
    assert version_of("", "no-such-package") is None
    assert version_of("/nowhere/python", "pytest") is None


# ---- going ----


def family(file: Path) -> str:
    """Code of a server that has a deaf child, with both process ids in the file."""
    child = f"[sys.executable, '-c', {STUBBORN!r}]"
    return (
        f"deaf = subprocess.Popen({child}, stdout=subprocess.PIPE); deaf.stdout.readline()\n"
        f"Path({str(file)!r}).write_text(f'{{os.getpid()}}\\n{{deaf.pid}}\\n')"
    )


def test_stopping_ends_the_whole_group_even_those_that_are_deaf(tmp_path: Path) -> None:
    server = Server(tiny(extra=family(tmp_path / "pids")), tmp_path, PATIENCE)
    server.start()
    running = pids(tmp_path / "pids")
    assert [alive(pid) for pid in running] == [True, True]
    server.stop(grace=0.5)
    assert eventually(lambda: not any(map(alive, running)))
    server.stop()  # a second time is no matter


def test_those_left_behind_by_a_server_that_crashed_are_ended_too(tmp_path: Path) -> None:
    server = Server(tiny(extra=family(tmp_path / "pids")), tmp_path, PATIENCE)
    server.start()
    parent, deaf = pids(tmp_path / "pids")
    os.kill(parent, signal.SIGKILL)
    assert eventually(lambda: server.ended)
    assert server.fate == "ended with exit code -9"
    assert alive(deaf)
    server.stop(grace=0.2)
    assert eventually(lambda: not alive(deaf))


def test_a_group_is_killed_only_after_it_was_asked(tmp_path: Path) -> None:
    polite = (
        "import signal, sys, time\n"
        "def bye(*_):\n    time.sleep(0.3); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", polite], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    guard.end(process.pid, grace=30, reap=process.poll)
    assert (process.wait(), process.stdout.read()) == (0, "saved\n")


PARENT = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would have it ignored
sys.path.insert(0, sys.argv[1])
from children import tiny
from speedbench.serving.launch import Server
extra = f"Path({sys.argv[2] + '/pids'!r}).write_text(str(os.getpid()))"
servers = [Server(tiny(extra=extra), Path(sys.argv[2]), 60.0)]
servers[0].start()
try:
    print("up", flush=True)
    time.sleep(600)
finally:
    print("unwound", flush=True)
    for server in servers:
        server.stop()
"""


def orphaned(folder: Path, sign: int) -> tuple[int, int, str]:
    """(process id of a server, how its parent ended, what that said) after the parent was sent a signal."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(Path(__file__).parent), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    (server,) = pids(folder / "pids")
    assert alive(server)
    parent.send_signal(sign)
    said = parent.stdout.read()
    return server, parent.wait(), said


def test_a_sigterm_to_us_unwinds_and_stops_the_server(tmp_path: Path) -> None:
    server, code, said = orphaned(tmp_path, signal.SIGTERM)
    assert (code, said) == (128 + signal.SIGTERM, "unwound\n")
    assert not alive(server)


def test_a_kill_9_of_us_leaves_no_server_behind(tmp_path: Path) -> None:
    server, code, said = orphaned(tmp_path, signal.SIGKILL)
    assert (code, said) == (-signal.SIGKILL, "")
    assert eventually(lambda: not alive(server))


def test_a_terminal_that_closes_leaves_no_server_behind(tmp_path: Path) -> None:
    server, code, _ = orphaned(tmp_path, signal.SIGHUP)
    assert code == -signal.SIGHUP
    assert eventually(lambda: not alive(server))


def test_a_server_that_is_stopped_leaves_no_guard_behind(tmp_path: Path) -> None:
    with started(tiny(), tmp_path) as server:
        watcher = server._guard
        assert watcher is not None
        assert alive(watcher.pid)
    assert watcher.returncode == 0
