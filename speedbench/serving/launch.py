"""A server as a child process: started from a plan, waited for, its log kept, and gone with us whatever happens."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from speedbench.errors import UserError
from speedbench.serving import guard
from speedbench.serving.plan import HIDDEN, HOST, LaunchPlan

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


def _end_in_order() -> None:
    """A SIGTERM to us unwinds like an interrupt, so that servers are stopped; only where nobody else handles it."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Server:
    """One launch: `folder` gets the plan's files and `server.log`. Whoever started it stops it; a guard does where they
    no longer can."""

    piped = False
    """Whether it is spoken to over its standard input and output; the log is then what it says beside them."""

    def __init__(self, plan: LaunchPlan, folder: Path, patience: float) -> None:
        """`patience`: seconds it may take until it answers."""
        self.plan, self.log = plan, folder / "server.log"
        self._folder, self._patience = folder, patience
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._begun = 0
        """Where in the log this launch begins."""

    def start(self) -> None:
        """Launch and wait until it answers. Raises `UserError` with the end of its log where it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.plan.files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        argv = self.plan.command(str(self._folder))
        try:
            with self.log.open("ab") as log:
                self._begun = log.tell()
                self._process = subprocess.Popen(
                    argv, env=self._environment(), stdin=subprocess.PIPE if self.piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self.piped else log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"{self.plan.engine}: cannot start '{argv[0]}' ({error.strerror}); install it, or name its interpreter "
                "with engine.python"
            ) from None
        try:
            self._guard = _guarded(self._process.pid)
            _end_in_order()
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.plan.env, **self._secrets()}

    def _secrets(self) -> dict[str, str]:
        return {theirs: os.environ[ours] for theirs, ours in self.plan.env_from.items() if ours in os.environ}

    def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if self.ended:
                raise UserError(f"{self.plan.engine} {self.fate} before it answered; {self.tail()}")
            if self._answers():
                return
            time.sleep(0.1)
        raise UserError(
            f"{self.plan.engine} did not answer within {self._patience:g} s; raise engine.patience if it is slow to "
            f"load; {self.tail()}"
        )

    def _answers(self) -> bool:
        """Asked directly, whatever proxy the environment names."""
        where = urlsplit(self.plan.url)
        connection = HTTPConnection(where.hostname or HOST, where.port, timeout=2)
        try:
            connection.request("GET", self.plan.ready)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def fate(self) -> str:
        """How it ended, for a message."""
        code = None if self._process is None else self._process.poll()
        return "was stopped" if code is None else f"ended with exit code {code}"

    def tail(self) -> str:
        """Where the log is, and how it ends."""
        raw = self.log.read_bytes()[self._begun :] if self.log.is_file() else b""
        lines = self._blotted(raw).decode("utf-8", "replace").splitlines()[-_TOLD:]
        return "\n  ".join([f"its log, {self.log}, ends:", *(lines or ["(it is empty)"])])

    def _blotted(self, log: bytes) -> bytes:
        """An engine may log the key that it was given; the log is kept with the result."""
        for secret in filter(None, self._secrets().values()):
            log = log.replace(secret.encode(), HIDDEN.encode())
        return log

    def stop(self, grace: float = guard.GRACE) -> None:
        """End the whole process group: politely, then not. Interrupted meanwhile, its guard does the rest."""
        process, self._process = self._process, None
        if process is None:
            return
        guard.end(process.pid, grace, reap=process.poll)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        if self._guard is not None:
            self._guard.communicate(b"over")
        if self._secrets() and self.log.is_file():
            self.log.write_bytes(self._blotted(self.log.read_bytes()))


def _guarded(group: int) -> subprocess.Popen[bytes]:
    """A process that outlives us just long enough to end the group; Ctrl-C does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(group)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
