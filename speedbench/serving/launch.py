"""A server as a child process: started from a plan, waited for, its log kept, and gone with us whatever happens."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from speedbench.errors import UserError
from speedbench.serving.plan import HOST, LaunchPlan

_TOLD = 12
"""Last lines of a log that an error quotes."""


def free_port() -> int:
    """A port nobody listens on now, on this machine's own address."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


_ASKED = """
import importlib.metadata, sys
have = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
print(next((have[name] for name in sys.argv[1:] if name in have), ""))
"""


def version_of(python: str, *packages: str) -> str | None:
    """The version of the first of these packages that the interpreter has; ours where `python` is empty."""
    try:
        done = subprocess.run(
            [python or sys.executable, "-c", _ASKED, *packages], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


_PR_SET_PDEATHSIG = 1


def _die_with_us() -> None:
    """In the child: Linux ends it when the thread that started it is gone, even by kill -9."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_in_order() -> None:
    """A SIGTERM to us unwinds like an interrupt, so that servers are stopped; only where nobody else handles it."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Server:
    """One launch: `folder` gets the plan's files and `server.log`. A context manager; leaving it ends the process."""

    def __init__(self, plan: LaunchPlan, folder: Path, patience: float) -> None:
        """`patience`: seconds it may take until it answers."""
        self.plan, self.log = plan, folder / "server.log"
        self._folder, self._patience = folder, patience
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Launch and wait until it answers. Raises `UserError` with the end of its log where it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.plan.files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        argv = self.plan.command(str(self._folder))
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    argv, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True, preexec_fn=_die_with_us if sys.platform == "linux" else None,
                )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"{self.plan.engine}: cannot start '{argv[0]}' ({error.strerror}); install it, or name its interpreter "
                "with engine.python"
            ) from None
        atexit.register(self.stop)
        _end_in_order()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _environment(self) -> dict[str, str]:
        copied = {theirs: os.environ[ours] for theirs, ours in self.plan.env_from.items() if ours in os.environ}
        return {**os.environ, **self.plan.env, **copied}

    def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if self.ended:
                code = self._process.returncode if self._process else None
                raise UserError(f"{self.plan.engine} ended with exit code {code} before it answered; {self.tail()}")
            if self._answers():
                return
            time.sleep(0.1)
        raise UserError(
            f"{self.plan.engine} did not answer within {self._patience:g} s; raise engine.patience if it is slow to "
            f"load; {self.tail()}"
        )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.plan.url + self.plan.ready, timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:  # refused, or an HTTP status of 400 or more
            return False

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def tail(self) -> str:
        """Where the log is, and how it ends."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_TOLD:] if self.log.is_file() else []
        return "\n  ".join([f"its log, {self.log}, ends:", *lines])

    def stop(self) -> None:
        """End the whole process group: politely, then not."""
        process, self._process = self._process, None
        atexit.unregister(self.stop)
        if process is None:
            return
        for sign, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # children that outlived the first of the group
