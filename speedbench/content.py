"""Where shipped content lies, all but the drafters inside the wheel, all of it beside the package in a checkout; and
where what can be made again is kept."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable


def folder(kind: str) -> Traversable:
    """The folder `tasks`, `runners`, `hardware`, `golden`, `models` or `drafters`; the wheel has no `drafters`."""
    package = files("speedbench")
    shipped = package / "_content" / kind
    return shipped if shipped.is_dir() else Path(str(package)).parent / kind


def drafters() -> Path:
    """Where the repository's trained drafters lie, a folder for each target; it may not be there."""
    return Path(str(folder("drafters")))


def located(path: Path) -> Path:
    """A relative `drafters/…` that is not in the working directory, as the checkout has it; any other path as it is."""
    if path.is_absolute() or path.parts[:1] != ("drafters",) or path.exists():
        return path
    return drafters().joinpath(*path.parts[1:])


def user_cache() -> Path:
    """Where things lie that can be made again: $SPEEDBENCH_CACHE, else the platform's user cache."""
    if own := os.environ.get("SPEEDBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "speedbench"
