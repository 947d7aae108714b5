"""A worker's command as a child of whoever was given it: started, waited for, and gone when its parent is.

The parent belongs to Ray, Slurm or ourselves; the child may be of another interpreter, which has the engine.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

LOST = 137
"""Exit status of a command whose parent has gone, as of one that was killed."""

GIVEN_UP = 10
"""Exit status of a worker that gave cells up; Python's own 1 is anything else that failed."""

_MAIN = "from speedbench.cli import main; main()"
_TAIL = 4096


def begin(words: Sequence[str], log: str, python: str = "") -> subprocess.Popen[bytes]:
    """Start `speedbench WORDS` with `python`, or with this interpreter. Raises `OSError`.

    Its standard input is a pipe that nobody else holds, so that it notices by `mind` when this process dies.
    """
    with Path(log).open("ab") as file:
        return subprocess.Popen(
            [python or sys.executable, "-c", _MAIN, *words], stdin=subprocess.PIPE, stdout=file, stderr=file
        )


def attend(words: Sequence[str], log: str, python: str = "") -> tuple[int, str]:
    """The same, waited for: its exit status, and the last line that it said."""
    if not Path(log).parent.is_dir():
        return 2, f"a worker does not see '{Path(log).parent}': --out must be in a folder that all machines share"
    try:
        child = begin(words, log, python)
    except OSError as error:
        return 2, f"a worker cannot start '{python or sys.executable}': {error.strerror or error}"
    with child:  # which closes the pipe at its end
        return child.wait(), last_line(Path(log))


def mind() -> None:
    """From now on, end at once when the parent does: a worker that was given up must not go on writing."""

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock would be in the way of an orderly end
            pass
        os._exit(LOST)

    threading.Thread(target=watch, daemon=True).start()


def last_line(log: Path) -> str:
    """Of a log's end; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            said = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(said) if line.strip()), "")
