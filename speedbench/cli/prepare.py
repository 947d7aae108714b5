"""`speedbench prepare`: prompt sets that others publish, made on this machine."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from speedbench.prepare.pieces import Order


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The set: speed-bench, gsm8k, mt-bench, …")] = "",
    config: Annotated[
        str | None,
        typer.Option(help="Of speed-bench: qualitative, throughput_1k … throughput_32k, all. Default: qualitative."),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept-licence", help="Accept the licences shown; asked for once.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Look at what is prepared, fetch nothing.")] = False,
    compat: Annotated[
        bool, typer.Option("--compat", help="Of speed-bench: repeat the official resolver's faults too.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Let tasks run on what could be resolved.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Use no network; so does HF_HUB_OFFLINE.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Make it again, even if it is there and whole.")] = False,
    revision: Annotated[str | None, typer.Option(help="Of speed-bench: another commit than the known one.")] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Where it goes. Default: $SPEEDBENCH_DATA, or the user's cache.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Fetch a prompt set and make its rows, each text from where it may be had. Exit 1 where rows are missing.

    The same command goes on where it was stopped. Nothing that it makes is passed on to anybody.
    """
    from speedbench import prepared
    from speedbench.errors import UserError
    from speedbench.files import dumps
    from speedbench.prepare import preparing

    if not name:
        raise UserError(f"prepare: needs one of {', '.join(preparing.names())}")
    orders = preparing.orders(name, config, compat=compat, revision=revision)
    base = Path(out) if out else prepared.home()
    if check:
        found = [_checked(order, base) for order in orders]
    else:
        _licences(name, base, accept=accept)
        found = [_prepared(order, base, offline=offline, again=again, partial=partial) for order in orders]
    if as_json:
        typer.echo(dumps({"prepared": [{key: said for key, said in one.items() if key != "lines"} for one in found]}))
    else:
        typer.echo("\n".join(line for one in found for line in one["lines"]))
        if out and base.resolve() != prepared.home().resolve():
            typer.echo(f"for tasks to find it: export SPEEDBENCH_DATA={base}", err=True)
    if not all(one["fine"] for one in found):
        raise typer.Exit(1)


def _licences(name: str, base: Path, *, accept: bool) -> None:
    """Shown until they are accepted, and when they are."""
    from speedbench.errors import UserError
    from speedbench.prepare import journal, pieces

    terms = pieces.terms(name)
    if journal.accepted(base, name, terms):
        return
    typer.echo("\n".join([f"{name} is made of texts under these terms:", *(f"  {line}" for line in terms)]), err=True)
    if not accept:
        raise UserError(f"read them, then accept them: speedbench prepare {name} --accept-licence")
    journal.accept(base, name, terms)


def _prepared(order: Order, base: Path, *, offline: bool, again: bool, partial: bool) -> dict[str, Any]:
    from speedbench.cli.tables import console, plain
    from speedbench.prepare import preparing

    err = console(stderr=True)
    said = preparing.prepare(
        order, base, lambda line: err.print(plain(line)), offline=offline, again=again, partial=partial
    )
    where = preparing.folder(order, base)
    lines = [*map(plain, preparing.described(said)), f"  in {where}"]
    return {**said, "folder": str(where), "fine": not said["partial"] or said["partial_accepted"], "lines": lines}


def _checked(order: Order, base: Path) -> dict[str, Any]:
    from speedbench import prepared
    from speedbench.cli.tables import plain
    from speedbench.prepare import preparing

    where = preparing.folder(order, base)
    said, wrong = prepared.manifest(where), prepared.problems(where)
    fine = not wrong and said is not None and (not said["partial"] or said["partial_accepted"])
    if said is None:
        fix = prepared.command(order.name, order.config, compat=order.compat)
        lines = [f"{order.name} {order.config}: not prepared; run: {fix}"]
    else:
        lines = [*preparing.described(said), *(f"  {each}" for each in wrong or ["every row is as it was written"])]
    return {**(said or {"name": order.name, "config": order.config}), "folder": str(where), "problems": wrong,
            "fine": fine, "lines": [*map(plain, lines)]}  # fmt: skip
