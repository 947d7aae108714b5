"""`speedbench work`: what `run --executor` starts on each worker."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    order: Annotated[str, typer.Argument(metavar="ORDER", help="The file that says what to do.")] = "",
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="What proves that the order is for this worker.")] = "",
) -> None:
    """Measure one part of a run; `run --executor` starts this itself."""
    from speedbench.attendant import GIVEN_UP, mind
    from speedbench.errors import UserError

    if not (order and token):
        raise UserError("work: is started by `speedbench run --executor`, with an order and a token")
    mind()
    from speedbench.cli.progress import progress
    from speedbench.sweep import worker

    if not worker.do(Path(order), token, progress):
        raise typer.Exit(GIVEN_UP)
