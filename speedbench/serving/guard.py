"""Ends a group of processes; run as a file, `python guard.py GROUP`, once whoever started it is gone.

Its standard input is a pipe that nobody else holds: a word on it means that it is not needed any more, and its end
without a word that its owner died, even by kill -9.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

GRACE = 10.0
"""Seconds between asking and killing."""


def end(group: int, grace: float = GRACE, reap: Callable[[], object] = lambda: None) -> None:
    """Ask every process of the group to end, and kill what is left of it after `grace` seconds.

    `reap` is called meanwhile: a child that nobody waited for stays in its group.
    """
    for sign, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        until = time.monotonic() + seconds
        try:
            os.killpg(group, sign)
            while time.monotonic() < until:
                reap()
                os.killpg(group, 0)
                time.sleep(0.02)
        except OSError:  # nobody is left; on macOS also where only those are that nobody waited for
            return


if __name__ == "__main__":
    if not sys.stdin.buffer.read(1):
        end(int(sys.argv[1]))
