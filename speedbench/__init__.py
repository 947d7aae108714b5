"""speedbench: acceptance length and end-to-end speedup of speculative decoding, measured and explained."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from speedbench.interchange.frames import Frames

__version__ = "0.1.0"


def load(path: str | Path) -> Frames:
    """A run's folder as pandas tables: `.cells`, `.requests`, `.steps`. Raises `errors.UserError` for anything else."""
    from pathlib import Path

    from speedbench import plugins, results, summarise
    from speedbench.interchange.frames import frames

    run = results.load(Path(path))
    metrics = [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]
    return frames(run.measured, summarise.results(run.measured, metrics))
