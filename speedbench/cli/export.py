"""`speedbench export`: a run in a shape that something else reads."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speedbench.results import Run
    from speedbench.types import Result

KINDS = ("golden-al", "parquet", "profile")
READ = {("golden-al", "--drafter"), ("golden-al", "--mode"), ("profile", "--drafter"), ("profile", "-D")}
"""Options by the kind that they are of."""


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    kind: Annotated[str, typer.Option("--as", metavar="KIND", help="One of: golden-al, profile, parquet.")] = "",
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="A file; for parquet a new folder. Default: stdout.")
    ] = None,
    drafter: Annotated[str, typer.Option(help="Its label, where the run has several.")] = "",
    draft_length: Annotated[int | None, typer.Option("-D", help="Of a profile. Default: the largest.")] = None,
    mode: Annotated[
        str, typer.Option(help="Of a golden AL: what its readers call it, as thinking_off. Default: default.")
    ] = "",
) -> None:
    """Write a run as a golden AL curve (YAML), an acceptance profile (JSON), or tables (Parquet)."""
    from pathlib import Path

    from speedbench.cli import document
    from speedbench.errors import UnknownName, UserError
    from speedbench.files import write_whole
    from speedbench.interchange import frames
    from speedbench.results import load

    if kind not in KINDS:
        raise UnknownName("kind of export", kind, KINDS) if kind else UserError(f"--as: one of {', '.join(KINDS)}")
    if kind == "parquet" and out is None:
        raise UserError("--out: Parquet needs a folder to be written to")
    unread = [word for word, given in (("--drafter", drafter), ("-D", draft_length), ("--mode", mode))
              if given not in ("", None) and (kind, word) not in READ]  # fmt: skip
    if unread:
        raise UserError(f"{unread[0]}: has no effect with --as {kind}; leave it out")
    found = load(document.here(run))
    results = document.evaluate(found) if kind != "golden-al" else []
    if kind == "parquet":
        frames.write_parquet(frames.frames(found.measured, results), Path(str(out)))
    else:
        text = _text(kind, found, results, drafter, draft_length, mode)
        if out is None:
            typer.echo(text, nl=False)
            return
        write_whole(Path(out), text)
    typer.echo(f"wrote {out}")


def _text(kind: str, run: Run, results: Sequence[Result], drafter: str, draft_length: int | None, mode: str) -> str:
    from speedbench.files import dumps
    from speedbench.interchange import acceptance

    label = acceptance.chosen(run, drafter)
    if kind == "golden-al":
        return acceptance.golden_al(run, label, mode or "default")
    return dumps(acceptance.profile(run, results, label, draft_length), indent=2) + "\n"
