"""`speedbench show`: a run again, closer: by category and by draft position."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    cell: Annotated[str, typer.Option(help="One cell's key, as ngram-d4-b1-r0. Default: all.")] = "",
    category: Annotated[bool, typer.Option("--by-category", help="AL and speed by category.")] = False,
    position: Annotated[bool, typer.Option("--by-position", help="Acceptance by draft position.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show a run: its table, and by category or draft position."""
    from speedbench.cli import document, tables
    from speedbench.errors import UnknownName
    from speedbench.files import dumps
    from speedbench.results import load

    found = load(document.here(run))
    results = document.evaluate(found)
    keys = {result.cell.key for result in results}
    if cell and cell not in keys:
        raise UnknownName("cell", cell, keys)
    chosen = [result for result in results if not cell or result.cell.key == cell]
    said = document.summary(found, results)
    if as_json:
        cells = [c for c, r in zip(said["cells"], results, strict=True) if r in chosen]
        typer.echo(dumps({**said, "cells": cells}, indent=2))
        return
    out = tables.console()
    tables.print_result(out, chosen, said)
    for result in chosen:
        if category:
            out.print(tables.categories(result))
        if position and not result.cell.is_baseline:
            out.print(tables.positions(result))
