"""`speedbench compare`: a run against another: what differs, by how much, and whether that passes the gates."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speedbench.compare.judging import Rules
    from speedbench.compare.operand import Operand
    from speedbench.compare.values import Report
    from speedbench.types import Metric

CODES = """\b
Exit status, the first that holds:
  5   an output is not the baseline's, or requests failed
  4   not comparable, or a cell is missing
  1   a regression
  3   inconclusive
  0   fine
  2   your input, 70 our fault: nothing was compared
"""


def command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BASE CAND…",
            help="Folders of runs, or their summary.json; NAME=PATH gives a name, PATH#ngram-d4 takes some cells, "
            "baseline:NAME is one saved before.",
        ),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE", help="As al:-2%, speedup:-5%, al\\[category=coding]:-4%, al:>=2.3. Default: al:-2%."
        ),
    ] = None,
    gates: Annotated[str, typer.Option(metavar="FILE", help="A YAML of gates and acknowledgements.")] = "",
    vary: Annotated[
        str, typer.Option(help="What may differ, of drafter, D, target, engine, sampling, hardware.")
    ] = "drafter,D",
    drift: Annotated[
        float, typer.Option(min=0, help="Percent by which the baseline cell may differ; beyond, times are no verdict.")
    ] = 3.0,
    missing: Annotated[str, typer.Option(metavar="fail|ok", help="What a cell that CAND lacks comes to.")] = "fail",
    inconclusive: Annotated[str, typer.Option(metavar="fail|ok", help="What an open verdict comes to.")] = "fail",
    write: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="As NAME.md, NAME.json, NAME.xml (JUnit), NAME.gha.json (benchmark action)."),
    ] = None,
    save_baseline: Annotated[
        str, typer.Option(metavar="NAME", help="Keep the one run given as baselines/NAME, and compare nothing.")
    ] = "",
    render: Annotated[
        str, typer.Option(metavar="FILE", help="Print what --write NAME.json wrote as Markdown, and compare nothing.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare runs with a base, by prompt: acceptance, speed, and where the difference comes from."""
    from speedbench.compare import files

    if render:
        from speedbench.compare.markdown import markdown

        typer.echo(markdown(files.from_json(Path(render))), nl=False)
        return
    words = runs or []
    if save_baseline:
        typer.echo(_saved(save_baseline, words))
        return
    for path in write or ():
        files.writer(path)
    report = _report(words, gate or [], gates, vary, drift / 100, missing, inconclusive)
    for path in write or ():
        files.write(report, path)
    if as_json:
        typer.echo(files.as_json(report), nl=False)
    else:
        from speedbench.cli import compared, tables

        compared.print_report(tables.console(), report)
    if report.code:
        raise typer.Exit(report.code)


def _saved(name: str, words: list[str]) -> str:
    from speedbench.compare.operand import save_baseline
    from speedbench.errors import UserError

    if len(words) != 1:
        raise UserError(f"--save-baseline keeps one run (got {len(words)}); name its folder")
    return f"kept as {save_baseline(name, words[0])}; compare with it as baseline:{name}"


def _report(
    words: list[str], gate: list[str], gates: str, vary: str, drift: float, missing: str, inconclusive: str
) -> Report:
    from speedbench.cli import document
    from speedbench.compare import judging, operand
    from speedbench.errors import UserError

    if len(words) < 2:
        raise UserError(f"compare needs a base and a candidate (got {len(words)}); as: speedbench compare OLD NEW")
    metrics = document.metrics()
    rules = _rules(metrics, gate, gates, vary, drift, missing, inconclusive)
    operands = [operand.load(word) for word in words]
    for each in operands:
        _refuse_impossible(each)
    return judging.compared(operands[0], operands[1:], rules, metrics)


def _rules(
    metrics: Sequence[Metric], gate: list[str], file: str, vary: str, drift: float, missing: str, inconclusive: str
) -> Rules:
    from datetime import datetime, timezone

    from speedbench.cli import parse
    from speedbench.compare import gates
    from speedbench.compare.identity import VARIES
    from speedbench.compare.judging import Rules

    found, known = gates.read(file, metrics) if file else ([], [])
    found += [gates.parse(text, metrics) for text in gate]
    return Rules(
        gates=tuple(found or [gates.parse(gates.DEFAULT, metrics)]),
        acknowledged=tuple(known),
        vary=parse.names(vary, "--vary", "dimension", VARIES),
        drift=drift,
        missing_fails=_fails(missing, "--missing"),
        inconclusive_fails=_fails(inconclusive, "--inconclusive"),
        today=datetime.now(timezone.utc).date(),
    )


def _fails(word: str, option: str) -> bool:
    from speedbench.errors import UserError

    if word not in ("fail", "ok"):
        raise UserError(f"{option}: is fail or ok (got '{word}')")
    return word == "fail"


def _refuse_impossible(side: Operand) -> None:
    """Numbers that cannot be are compared with nothing."""
    from speedbench.errors import UserError
    from speedbench.validate import problems

    wrong = [problem for each in side.measured for problem in problems(each)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        first = wrong[0].replace("-rall:", ":", 1)  # the repeats are pooled here
        raise UserError(f"{side.path}: {first}{more}; see: speedbench validate {side.path}")


command.__doc__ = f"{command.__doc__}\n\n{CODES}"
