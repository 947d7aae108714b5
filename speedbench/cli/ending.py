"""What `run` and `replay` end with: the summary, from the files alone, and the exit status that it has."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import typer


def ending(path: Path, *, as_json: bool, closer: str = "") -> None:
    """Write and print the summary of a run's folder; `closer` goes to `show`. Raises `typer.Exit` where the
    status is not 0."""
    from speedbench.cli import document, tables
    from speedbench.files import dumps
    from speedbench.results import load

    run = load(path)
    found = document.evaluate(run)
    said = document.write(run, found)
    if as_json:
        typer.echo(dumps(said, indent=2))
    else:
        tables.print_result(tables.console(), found, said)
        typer.echo(f"kept in {path}; look closer with: speedbench show {path}{closer}")
    code = document.exit_code(found) or int(not run.document["finished"])
    if code:
        raise typer.Exit(code)
