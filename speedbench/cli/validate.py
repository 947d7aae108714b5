"""`speedbench validate`: check that a run's numbers can be true."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

import typer


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Check a run's raw records against each other, and its summary against them. Exit 1 where anything is wrong."""
    from speedbench.cli import document
    from speedbench.cli.tables import plain
    from speedbench.compare.stored import cells
    from speedbench.files import document as read
    from speedbench.files import dumps
    from speedbench.results import SCHEMA, load
    from speedbench.validate import run_problems, summary_problems

    found = load(document.here(run))
    wrong = run_problems(found)
    stored = found.path / "summary.json"
    if stored.is_file():
        summary = read(stored, SCHEMA)
        cells(summary, str(stored))
        wrong += summary_problems(summary, document.summary(found, document.evaluate(found)))
    checked = f"{len(found.measured)} cells, {sum(len(m.records) for m in found.measured)} records"
    checked += "" if stored.is_file() else ", no summary yet"
    if as_json:
        typer.echo(dumps({"run": found.name, "problems": wrong}, indent=2))
    else:
        said = [f"{found.name}: {checked}, {f'{len(wrong)} things' if wrong else 'nothing'} wrong", *wrong]
        typer.echo("\n".join(map(plain, said)))
    if wrong:
        raise typer.Exit(1)
