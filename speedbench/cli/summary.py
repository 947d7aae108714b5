"""`speedbench summary`: make summary.json and summary.csv again from the raw files."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The summary on stdout.")] = False,
) -> None:
    """Make summary.json and summary.csv of a run again, from its raw records and passes."""
    from speedbench.cli import document
    from speedbench.files import dumps
    from speedbench.results import load

    found = load(document.here(run))
    said = document.write(found, document.evaluate(found))
    typer.echo(dumps(said, indent=2) if as_json else f"wrote {found.path / 'summary.json'} and summary.csv")
