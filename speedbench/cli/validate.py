"""`speedbench validate`: check that a run's numbers can be true."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Annotated

import typer


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Check a run's raw records against each other, and its summary against them. Exit 1 where anything is wrong."""
    from speedbench.cli import document
    from speedbench.errors import UserError
    from speedbench.results import dumps, load
    from speedbench.validate import problems, summary_problems

    found = load(document.here(run))
    wrong = [problem for measured in found.measured for problem in problems(measured)]
    stored = found.path / "summary.json"
    if stored.is_file():
        try:
            summary = json.loads(stored.read_text("utf-8"))
        except ValueError as error:
            raise UserError(f"{stored} is not JSON: {error}") from None
        wrong += summary_problems(summary, document.summary(found, document.evaluate(found)))
    checked = f"{len(found.measured)} cells, {sum(len(m.records) for m in found.measured)} records"
    if as_json:
        typer.echo(dumps({"run": found.name, "problems": wrong}, indent=2))
    else:
        typer.echo("\n".join(wrong) or f"{found.name}: {checked}, nothing wrong")
    if wrong:
        raise typer.Exit(1)
