"""`speedbench leaderboard`: Boards of published results: build them, check what they are made of, prepare an entry."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speedbench.leaderboard.boards import Line
    from speedbench.leaderboard.submission import Submission
    from speedbench.types import Result

BOARDS = "leaderboards"

Boards = Annotated[str, typer.Option("--boards", help="The folder of the boards.")]


def build(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a board is not up to date.")] = False,
    boards: Boards = BOARDS,
) -> None:
    """Make every board again from the raw counts of its submissions."""
    from speedbench.leaderboard import boards as made

    root = _root(boards)
    wanted = made.files(_lines(root))
    changed = made.stale(root, wanted) if check else made.write(root, wanted)
    for path in changed:
        typer.echo(f"{'not as built' if check else 'wrote' if path in wanted else 'removed'}: {root / path}")
    if check and changed:
        raise typer.Exit(1)
    typer.echo(f"{len(wanted)} files of boards are up to date")


def check(
    entries: Annotated[list[str] | None, typer.Argument(metavar="[ENTRY…]", help="Folders. Default: all.")] = None,
    boards: Boards = BOARDS,
) -> None:
    """Recompute submissions from their raw counts, and say what keeps any of them off a board."""
    from pathlib import Path

    from speedbench.cli import tables
    from speedbench.leaderboard import submission

    wrong = 0
    folders = [Path(each) for each in entries] if entries else submission.folders(_root(boards))
    for folder in folders:
        made = submission.load(folder)
        results = _evaluated(made)
        problems = _problems(made, results)
        wrong += len(problems)
        for problem in problems:
            typer.echo(tables.plain(f"{folder}: {problem}"))
        if not problems:
            typer.echo(f"{folder}: fine, {len(results)} rows")
    if wrong:
        raise typer.Exit(1)


def submit(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")] = "",
    submitter: Annotated[str, typer.Option("--submitter", help="Who answers for it: a name that may be public.")] = "",
    declare: Annotated[
        list[str] | None, typer.Option("--declare", metavar="KEY=VALUE", help="What no run knows of itself.")
    ] = None,
    boards: Boards = BOARDS,
) -> None:
    """Prepare an entry of a run in the boards' folder. Nothing is sent anywhere."""
    from speedbench.cli import document
    from speedbench.errors import UserError
    from speedbench.leaderboard import checks, making, submission
    from speedbench.results import load

    if not submitter.strip():
        raise UserError("--submitter: needs a name that may be public, as that of an account")
    root, found = _root(boards), load(document.here(run))
    entry, counted = making.submission(found, submitter.strip(), _declared(declare or []))
    made = submission.of(entry, counted.encode(), found.path)
    results = _evaluated(made)
    problems = _problems(made, results)
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UserError(f"'{found.path}' cannot be submitted: {problems[0]}{more}")
    typer.echo(f"wrote {submission.write(root, entry, counted)}")
    for mark in sorted({mark for result in results for mark in checks.marks(made, result)}):
        typer.echo(f"marked: {mark}", err=True)
    typer.echo("now: speedbench leaderboard build, then propose the submission and the boards as one change", err=True)


def page(
    board: Annotated[str, typer.Argument(metavar="BOARD.csv", help="A board that `build` wrote.")] = "",
    out: Annotated[str, typer.Option("-o", "--out", help="The HTML file to write.")] = "leaderboard.html",
) -> None:
    """Make one HTML file of a board. It needs no network."""
    from pathlib import Path

    from speedbench.cli.pages import need_extra, refuse_unwritable
    from speedbench.errors import UserError
    from speedbench.files import write_whole

    path = Path(board)
    if path.suffix != ".csv" or not path.is_file():
        raise UserError(f"which board? name the CSV of one, as leaderboards/HARDWARE/TARGET/TASK.csv (got '{board}')")
    refuse_unwritable(Path(out), [])
    need_extra()
    from speedbench.report.leaderboard import page_of

    write_whole(Path(out), page_of(path))
    typer.echo(f"wrote {out}")


COMMANDS = (build, check, submit, page)


def _root(boards: str) -> Path:
    from pathlib import Path

    from speedbench.errors import UserError

    if not Path(boards).is_dir():
        raise UserError(f"no folder '{boards}'; run this where the boards lie, or name their folder with --boards")
    return Path(boards)


def _declared(words: Sequence[str]) -> dict[str, str]:
    from speedbench.errors import UserError

    found = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not value.strip():
            raise UserError(f"--declare: should be KEY=VALUE (got '{word}')")
        found[key.strip()] = value.strip()
    return found


def _evaluated(submission: Submission) -> list[Result]:
    """The metrics of a board alone, over all conversations."""
    from dataclasses import replace

    from speedbench.cli import document
    from speedbench.leaderboard.rows import METRICS
    from speedbench.summarise import results

    metrics = [replace(each, by_category=False) for each in document.metrics() if each.name in METRICS]
    return results(submission.run.measured, metrics)


def _problems(submission: Submission, results: Sequence[Result]) -> list[str]:
    from speedbench import validate
    from speedbench.leaderboard import checks

    found = [problem for each in submission.run.measured for problem in validate.problems(each)]
    return found + checks.problems(submission, results)


def _lines(root: Path) -> list[Line]:
    """The lines of all boards. Raises `UserError` where a submission may not stand on one."""
    from speedbench.errors import UserError
    from speedbench.leaderboard import boards, checks, rows, submission

    tiers, found = submission.tiers(root), []
    for folder in submission.folders(root):
        made = submission.load(folder)
        results = _evaluated(made)
        problems = _problems(made, results)
        if problems:
            raise UserError(f"{folder}: {problems[0]}; see all: speedbench leaderboard check {folder}")
        marks = {result.cell: tuple(checks.marks(made, result)) for result in results}
        for cell, row in rows.of(made, results, tiers.get(made.entry.id, "self_reported")):
            found.append(boards.Line(row=row, marks=marks[cell]))
    return found
