"""`speedbench unpack`: a packed drafter as an ordinary folder, for any engine."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    folder: Annotated[str, typer.Argument(help="A drafter, as drafters/smollm2-135m/eagle3.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Where it goes. Default: it stays in the cache.")
    ] = None,
) -> None:
    """Write a shipped drafter out in its public dialect, as other engines read it, and print where it is."""
    import shutil
    from pathlib import Path

    from speedbench.errors import Missing, UserError

    if out is not None and Path(out).exists():
        raise UserError(f"'{out}' is there already; name a folder that is not")
    try:
        from speedbench.native import weights
    except ModuleNotFoundError as error:
        raise Missing(f'unpacking needs {error.name}; run: pip install "speedbench[native]"') from None
    found = weights.folder(folder)
    if out is not None:
        found = Path(shutil.copytree(found, out))
    typer.echo(str(found))
