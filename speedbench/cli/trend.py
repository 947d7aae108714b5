"""`speedbench trend`: a number over a folder of runs, and the first run in which it fell."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speedbench.compare.operand import Operand


def command(
    history: Annotated[str, typer.Argument(metavar="DIR", help="A folder of runs, or of saved baselines.")] = "",
    gate: Annotated[str, typer.Option(metavar="GATE", help="What is a drop.")] = "al:-2%",
    vary: Annotated[
        str, typer.Option(help="What may differ, of target, engine, sampling, hardware; a drafter's settings may.")
    ] = "drafter,target,engine",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show a number over a history of runs, oldest first, and mark the first significant drop of each cell.

    Each run stands against a reference: the first, then whichever was clearly better. Exit 1 where something fell.
    """
    from dataclasses import asdict
    from datetime import datetime, timezone

    from speedbench.cli import compared, document, parse, tables
    from speedbench.compare import gates
    from speedbench.compare.history import lines
    from speedbench.compare.identity import VARIES
    from speedbench.compare.judging import Rules
    from speedbench.errors import UserError
    from speedbench.files import dumps

    metrics = document.metrics()
    parsed = gates.parse(gate, metrics)
    if parsed.sign:
        raise UserError(f"--gate {gate}: a drop is relative, as al:-2%")
    rules = Rules(
        gates=(parsed,),
        vary=parse.names(vary, "--vary", "dimension", VARIES),
        today=datetime.now(timezone.utc).date(),
    )
    operands = list(_runs(history))
    if not operands:
        raise UserError(f"no run in '{history}' reads")
    found = lines(operands, rules, metrics)
    if as_json:
        typer.echo(dumps({"schema": 1, "gate": parsed.text, "cells": [asdict(line) for line in found]}, indent=2))
    else:
        compared.print_trend(tables.console(), parsed, found)
    if any(line.fell for line in found):
        raise typer.Exit(1)


def _runs(folder: str) -> Iterator[Operand]:
    """What is no run is passed over; a run that does not read is told of, and left out."""
    from speedbench.cli import tables
    from speedbench.compare import operand
    from speedbench.errors import UserError

    places = sorted(each.parent for each in Path(folder).glob("*/run.json")) if folder else []
    if not places:
        raise UserError(f"no runs in '{folder}'; name the folder that holds the folders of runs, as results")
    for place in places:
        try:
            yield operand.load(str(place))
        except UserError as error:
            tables.console(stderr=True).print(
                tables.plain(f"warning: left out: {error}"), style="yellow", soft_wrap=True
            )
