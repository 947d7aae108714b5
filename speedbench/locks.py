"""One writer at a time: locks on files, which hold between the machines that share them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from speedbench.errors import UserError


@contextmanager
def held(path: Path, busy: str, patience: float = 0.0) -> Iterator[None]:
    """The lock while the block runs. Raises `UserError(busy)` where another process keeps it for `patience` seconds,
    and `OSError` where the file cannot be written."""
    lock = FileLock(str(path), timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(busy) from None
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held, so that nobody else's is removed; Windows keeps it
            path.unlink(missing_ok=True)
        lock.release()


def is_held(path: Path) -> bool:
    """Whether another process has it now."""
    try:
        with held(path, "held"):
            return False
    except UserError:
        return True
