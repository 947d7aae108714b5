"""`speedbench doctor`: what this machine has, what it lacks, and the command that brings it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Say what this machine has, what it lacks, and how to get it; exit 1 if the demo cannot run."""
    from speedbench import environment

    found = environment.checks()
    facts = environment.snapshot()
    if as_json:
        document = {"environment": facts, "checks": [asdict(check) for check in found]}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        typer.echo(f"speedbench {facts['packages']['speedbench']}, Python {facts['python']['version']}")
        typer.echo(f"{facts['cpu']['model']}, {facts['cpu']['usable']} CPUs, {facts['system']['name']}")
        for gpu in facts["gpus"] or []:
            typer.echo(f"{gpu['name']}, driver {gpu['driver']}")
        typer.echo("\n".join(environment.doctor_lines(found)))
    if any(check.needed and not check.fine for check in found):
        raise typer.Exit(1)
