"""`speedbench run`: measure drafters and draft lengths against the baseline."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from speedbench.sweep import Preflight, Sweep
    from speedbench.types import Session

DEFAULTS: Mapping[str, Any] = {
    "task": "demo",
    "runner": "smollm2-135m",
    "drafter": "ngram,suffix",
    "draft_length": "2,4,8",
    "concurrency": "1",
    "repeats": 1,
    "limit": None,
    "max_tokens": None,
    "temperature": 0.0,
    "top_k": None,
    "top_p": None,
    "seed": 0,
    "set": [],
    "out": None,
}
DEMO_LIMIT = 11
"""Conversations of the bare `speedbench run`: one a category, a few minutes on two cores."""


def command(
    task: Annotated[str | None, typer.Option(help="A shipped task, or a .yaml or .jsonl file. [demo]")] = None,
    runner: Annotated[str | None, typer.Option(help="A shipped runner, or a .yaml file. [smollm2-135m]")] = None,
    drafter: Annotated[str | None, typer.Option(help="Drafters, as ngram,suffix. [ngram,suffix]")] = None,
    draft_length: Annotated[
        str | None, typer.Option("-D", "--draft-length", help="Draft lengths, as 1-4,8. [2,4,8]")
    ] = None,
    concurrency: Annotated[str | None, typer.Option(help="Sequences at a time, as 1,4. [1]")] = None,
    repeats: Annotated[int | None, typer.Option(help="Times to run every cell. [1]")] = None,
    limit: Annotated[int | None, typer.Option(help="Conversations, spread evenly over the categories.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens an answer may have. [the task's]")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy. [0]")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample within this probability mass.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling and of --limit. [0]")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, as ngram.max_n=3 or engine.dtype=bfloat16."),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder to write. [results/<task>-<time>]")] = None,
    config: Annotated[str | None, typer.Option(help="A YAML with any of these options; flags win.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, estimate the time, run nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure drafters and draft lengths against the baseline, on real prompts; no argument: the demo."""
    given = {
        "task": task, "runner": runner, "drafter": drafter, "draft_length": draft_length, "concurrency": concurrency,
        "repeats": repeats, "limit": limit, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "seed": seed, "set": set_ or None, "out": out,
    }  # fmt: skip
    options = _options(given, config)
    sweep = _sweep(options)
    from speedbench import plugins

    with plugins.load("backends", sweep.runner.backend).open(sweep.runner) as session:
        _run(sweep, session, options, resume=resume, dry_run=dry_run, as_json=as_json)


def _options(given: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """Flags over the YAML of --config over the defaults."""
    from speedbench import catalog
    from speedbench.errors import UnknownName

    stored = catalog.mapping(config) if config else {}
    for key in stored:
        if key not in DEFAULTS:
            raise UnknownName(f"option in {config}", key, DEFAULTS)
    flags = {key: value for key, value in given.items() if value is not None}
    if not ({**stored, **flags}.keys() & {"task", "limit"}):
        flags["limit"] = DEMO_LIMIT
    return {**DEFAULTS, **stored, **flags}


def _sweep(options: Mapping[str, Any]) -> Sweep:
    """Everything that can be wrong without a model is found here."""
    from speedbench import runner as runners
    from speedbench import task as tasks
    from speedbench.cli import parse
    from speedbench.sweep import Sweep

    overrides = parse.settings(options["set"])
    task, runner = tasks.load(str(options["task"])), runners.load(str(options["runner"]))
    runner = runners.overridden(runner, overrides)
    draftings = runners.draftings(runner, parse.names(str(options["drafter"]), "--drafter", "drafter"), overrides)
    for drafting in draftings:
        runners.check(runner, drafting)
    return Sweep(
        task=task,
        requests=tasks.requests(
            task, options["limit"] and parse.whole(options, "limit", low=1), parse.whole(options, "seed")
        ),
        runner=runner,
        draftings=tuple(runners.labelled(runner, drafting) for drafting in draftings),
        lengths=tuple(parse.integers(str(options["draft_length"]), "-D")),
        concurrencies=tuple(parse.integers(str(options["concurrency"]), "--concurrency", low=1, high=4096)),
        repeats=parse.whole(options, "repeats", low=1),
        sampling=parse.sampling(options, task.max_tokens),
    )


def _run(
    sweep: Sweep, session: Session, options: Mapping[str, Any], *, resume: bool, dry_run: bool, as_json: bool
) -> None:
    from speedbench import sweep as sweeps
    from speedbench.cli import document, tables
    from speedbench.cli.progress import progress
    from speedbench.environment import snapshot
    from speedbench.results import dumps, load, writing

    ahead = sweeps.preflight(sweep, session)
    config = {**sweep.config(), "target": dict(session.facts)}
    path = Path(options["out"] or _default_out(sweep))
    if dry_run:
        _print_plan(sweep, ahead, config, path, as_json=as_json)
        return
    _say_plan(sweep, ahead, path)
    with writing(path, config, snapshot(), resume=resume) as writer:
        with progress(ahead.turns, quiet=False) as notify:
            sweeps.run(sweep, session, ahead.fits, writer, notify)
        writer.finish()
    run = load(path)
    found = document.evaluate(run)
    said = document.write(run, found)
    if as_json:
        typer.echo(dumps(said, indent=2))
    else:
        tables.print_result(tables.console(), found, said)
        typer.echo(f"kept in {path}; look closer with: speedbench show {path}")
    code = document.exit_code(found)
    if code:
        raise typer.Exit(code)


def _default_out(sweep: Sweep) -> str:
    from datetime import datetime, timezone

    from speedbench.results import safe

    return f"results/{safe(sweep.task.name)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"


def _say_plan(sweep: Sweep, ahead: Preflight, path: Path) -> None:
    """One line on stderr before anything runs."""
    from speedbench.cli import tables

    prompts = sorted(fit.prompt_tokens for fit in ahead.fits)
    seconds = ahead.estimated_seconds
    time = "" if seconds is None else f", at most about {seconds:.0f} s"
    tables.console(stderr=True).print(
        f"{sweep.task.name} on {sweep.runner.name}: {len(sweep.requests)} conversations of {prompts[0]} to "
        f"{prompts[-1]} tokens, {ahead.cells} cells, {ahead.turns} turns{time} → {path}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _print_plan(sweep: Sweep, ahead: Preflight, config: Mapping[str, Any], path: Path, *, as_json: bool) -> None:
    from speedbench.results import dumps

    if as_json:
        document = {"schema": 1, "run": path.name, "cells": [], "warnings": [], "recommendation": []}
        typer.echo(dumps({**document, "preflight": ahead.document(), "config": config}, indent=2))
        return
    _say_plan(sweep, ahead, path)
    typer.echo(dumps(config, indent=2))
