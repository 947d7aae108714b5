"""`speedbench import`: what other tools' result files say, each number with the definition it was made by."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Result files of other tools.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show results of specdec_bench, AIPerf and `vllm bench serve` in our names and units, with their definitions."""
    from dataclasses import asdict
    from pathlib import Path

    from rich import box
    from rich.table import Table

    from speedbench.cli import tables
    from speedbench.files import dumps
    from speedbench.interchange import foreign

    found = [figure for file in files for figure in foreign.read(Path(file))]
    if as_json:
        typer.echo(dumps({"schema": 1, "figures": [asdict(figure) for figure in found]}, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("metric", "value", "tool", "definition it used", "source"):
        table.add_column(title, overflow="fold", justify="right" if title == "value" else "left")
    for each in found:
        words = (each.metric, f"{each.value:.4g}", each.tool, each.definition, each.source)
        table.add_row(*(tables.plain(word) for word in words))
    tables.console().print(table)
    typer.echo("a number compares only with one of the same definition; speedbench's own: see `show --json`", err=True)
