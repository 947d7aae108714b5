"""`speedbench show`: a run again, closer: by category, by a column of its rows, by draft position, by context."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from speedbench.results import Run


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    cell: Annotated[str, typer.Option(help="One cell's key, as ngram-d4-b1-r0. Default: all.")] = "",
    category: Annotated[bool, typer.Option("--by-category", help="AL and speed by category.")] = False,
    by: Annotated[str, typer.Option(metavar="COLUMN", help="The same by a column that the task keeps.")] = "",
    position: Annotated[bool, typer.Option("--by-position", help="Acceptance by draft position.")] = False,
    context: Annotated[
        bool, typer.Option("--by-context", help="AL by tokens before a step, of the context and of the answer.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show a run: its table, and closer as asked for."""
    from speedbench.cli import document, tables
    from speedbench.errors import UnknownName
    from speedbench.files import dumps
    from speedbench.metrics.buckets import CONTEXT, POSITION
    from speedbench.results import load
    from speedbench.summarise import to_json

    found = load(document.here(run))
    results = document.evaluate(found)
    grouped = {each.cell.key: each for each in document.evaluate(_grouped(found, by))} if by else {}
    keys = {result.cell.key for result in results}
    if cell and cell not in keys:
        raise UnknownName("cell", cell, keys)
    chosen = [result for result in results if not cell or result.cell.key == cell]
    said = document.summary(found, results)
    if as_json:
        cells = [c for c, r in zip(said["cells"], results, strict=True) if r in chosen]
        for each, result in zip(cells, chosen, strict=True):
            each |= {f"by_{by}": to_json(grouped[result.cell.key])["by_category"]} if by else {}
        typer.echo(dumps({**said, "cells": cells}, indent=2))
        return
    out = tables.console()
    tables.print_result(out, chosen, said)
    for result in chosen:
        if category:
            out.print(tables.categories(result))
        if by:
            out.print(tables.categories(grouped[result.cell.key], by))
        if context and not result.cell.is_baseline:
            out.print(tables.buckets(result, {"al_by_context": CONTEXT, "al_by_position": POSITION}))
        if position and not result.cell.is_baseline:
            out.print(tables.positions(result))


def _grouped(run: Run, column: str) -> Run:
    """The run as if its categories were what that column says of each request."""
    from speedbench.errors import UnknownName

    columns = run.document["config"].get("columns", {})
    if column not in (known := {key for kept in columns.values() for key in kept}):
        raise UnknownName("column", column, known)
    measured = [
        replace(
            each, records=tuple(replace(r, category=columns.get(r.request, {}).get(column, "-")) for r in each.records)
        )
        for each in run.measured
    ]
    return replace(run, measured=tuple(measured))
