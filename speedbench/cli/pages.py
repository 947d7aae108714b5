"""What every verb that writes a page asks first: whether it can."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def need_extra() -> None:
    from importlib.util import find_spec

    from speedbench.errors import Missing

    absent = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if absent:
        raise Missing(f'report needs {" and ".join(absent)}: pip install "speedbench[report]"')


def refuse_unwritable(file: Path, folders: Sequence[Path]) -> None:
    """Before anything is computed."""
    from speedbench.errors import UserError

    if file.is_dir() or not file.parent.is_dir():
        wrong = "is a folder" if file.is_dir() else "is in a folder that does not exist"
        raise UserError(f"-o: '{file}' {wrong}; name a file, as report.html")
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"'{folder}' is a file; --png and --svg take a folder")
