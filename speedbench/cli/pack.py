"""`speedbench pack`: trained drafters made small, as the repository ships them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    folder: Annotated[str, typer.Argument(help="A drafter's folder, or a folder of them, as train writes it.")],
    out: Annotated[str, typer.Option("--out", "-o", help="Where it goes; a folder that is not there yet.")],
    runner: Annotated[
        str, typer.Option("--runner", "-r", help="Whose model they draft for: what is the target's own is left out.")
    ] = "smollm2-135m",
) -> None:
    """Store drafters in int8, and without what their target has already; README and logs come along."""
    import shutil
    from pathlib import Path

    from speedbench import catalog
    from speedbench.errors import Missing, UserError

    given, written, lender = Path(folder), Path(out), catalog.runner(runner).model
    found = [given] if (given / "config.json").is_file() else sorted(p.parent for p in given.glob("*/config.json"))
    if not found:
        raise UserError(f"'{folder}' holds no drafter: no config.json in it, nor in a folder in it")
    if written.exists():
        raise UserError(f"'{out}' is there already; name a folder that is not")
    try:
        from speedbench.native import shipped
    except ModuleNotFoundError as error:
        raise Missing(f'packing needs {error.name}; run: pip install "speedbench[native]"') from None
    for plain in found:
        packed = written if plain == given else written / plain.name
        shipped.pack(plain, packed, lender)
        typer.echo(f"{packed}: {_megabytes(plain)} → {_megabytes(packed)}")
    if given not in found:
        for path in given.glob("*.md"):
            shutil.copyfile(path, written / path.name)


def _megabytes(folder: object) -> str:
    from pathlib import Path

    return f"{sum(path.stat().st_size for path in Path(str(folder)).iterdir() if path.is_file()) / 1e6:.1f} MB"
