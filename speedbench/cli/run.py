"""`speedbench run`: measure drafters and draft lengths against the baseline."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speedbench.cli.ending import ending

if TYPE_CHECKING:
    from speedbench.cli.places import Known, Place
    from speedbench.sweep import Sweep

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
    "skip_long": False,
    "set": [],
    "executor": None,
    "out": None,
}
EXECUTOR = "executor"
"""Prefix of --set for the executor's settings."""
MOST_CELLS = 1000
DEMO_LIMIT = 11
"""Conversations of the bare `speedbench run`: one a category, a few minutes on two cores."""


def command(
    task: Annotated[
        str | None, typer.Option(help="A shipped task, or a .yaml, .jsonl, .csv or .parquet file. Default: demo.")
    ] = None,
    runner: Annotated[
        str | None, typer.Option(help="A shipped runner, or a .yaml file. Default: smollm2-135m.")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="Drafters, as ngram,suffix. Default: ngram,suffix.")] = None,
    draft_length: Annotated[
        str | None,
        typer.Option(
            "-D", "--draft-length", help="Draft lengths, as 1-4,8; a drafter's own as 1-8,dflash:7. Default: 2,4,8."
        ),
    ] = None,
    concurrency: Annotated[str | None, typer.Option(help="Sequences at a time, as 1,4. Default: 1.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Times to run every cell. Default: 1.")] = None,
    limit: Annotated[int | None, typer.Option(help="Conversations, spread evenly over the categories.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens an answer may have. Default: what the task says.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy, the default.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample within this probability mass.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling and of --limit. Default: 0.")] = None,
    skip_long: Annotated[
        bool, typer.Option("--skip-long", help="Leave out conversations that could exceed a context, and say which.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, as ngram.max_n=3 or engine.dtype=bfloat16."),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="Measure on workers, a unit for each concurrency: local, ray or slurm. Default: here."),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder to write. Default: results/TASK-TIME.")] = None,
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
        "top_p": top_p, "seed": seed, "skip_long": skip_long or None, "set": set_ or None,
        "executor": executor, "out": out,
    }  # fmt: skip
    options = _options(given, config)
    sweep, skips = _sweep(options), _switch(options, "skip_long")
    path, workers = _out(options, sweep, resume=resume), _executor(options)
    from speedbench import results

    # what is left out is known when a tokenizer has counted, so such a run is compared with the one there after that
    if not skips and results.is_complete(path, sweep.config(), resume=resume) and not dry_run:
        typer.echo(f"'{path}' is complete already", err=True)
    else:
        from speedbench.cli import places

        with places.opened(sweep, path, *workers) as place:
            _measure(sweep, place, path, skip_long=skips, resume=resume, dry_run=dry_run, as_json=as_json)
    if not dry_run:
        ending(path, as_json=as_json)


def _options(given: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """Flags over the YAML of --config over the defaults."""
    from speedbench import catalog
    from speedbench.errors import UnknownName

    stored = catalog.mapping(config) if config is not None else {}
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
    from speedbench.errors import UserError
    from speedbench.sweep import Sweep

    overrides = {key: given for key, given in parse.settings(options["set"]).items() if key != EXECUTOR}
    task, runner = tasks.load(parse.word(options, "task")), runners.load(parse.word(options, "runner"))
    runner = runners.overridden(runner, overrides)
    labels = parse.names(parse.listed(options, "drafter"), "--drafter", "drafter")
    draftings = runners.draftings(runner, labels, overrides)
    drafting_labels = [drafting.label for drafting in draftings if drafting.drafter != "none"]
    lengths, own = parse.lengths(parse.listed(options, "draft_length"), drafting_labels)
    for drafting in draftings:
        runners.check(runner, drafting, filter(None, own.get(drafting.label, lengths)))
    called = {drafting.label: runners.labelled(runner, drafting) for drafting in draftings}
    limit = None if options["limit"] is None else parse.whole(options, "limit", low=1)
    sweep = Sweep(
        task=task,
        requests=tasks.requests(task, limit, parse.whole(options, "seed")),
        runner=runner,
        draftings=tuple(called.values()),
        lengths=tuple(lengths),
        own_lengths={called[label].label: tuple(found) for label, found in own.items()},
        concurrencies=tuple(parse.integers(parse.listed(options, "concurrency"), "--concurrency", low=1, high=4096)),
        repeats=parse.whole(options, "repeats", low=1, high=MOST_CELLS),
        sampling=parse.sampling(options, task.max_tokens),
    )
    if sweep.size > MOST_CELLS:
        raise UserError(f"{sweep.size} cells (drafters × D × concurrency × repeats); at most {MOST_CELLS} in one run")
    return sweep


def _executor(options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Its name and its settings, checked; None: this process measures."""
    from speedbench.cli import parse
    from speedbench.errors import UserError

    given = parse.settings(options["set"]).get(EXECUTOR, {})
    if options["executor"] is None:
        for key in given:
            raise UserError(f"--set {EXECUTOR}.{key}: there is no executor; name one with --executor")
        return None, {}
    from speedbench.sweep import dispatch

    name = parse.word(options, "executor")
    return name, dispatch.settings(name, given)


def _out(options: Mapping[str, Any], sweep: Sweep, *, resume: bool) -> Path:
    """The folder to write, which is refused now, rather than after a model was loaded, if it cannot be."""
    from datetime import datetime, timezone

    from speedbench.cli import parse
    from speedbench.errors import UserError
    from speedbench.files import safe
    from speedbench.results import refuse_occupied

    if options["out"] is None:
        if resume:
            raise UserError("--resume: needs --out, the folder of the run to go on with")
        return Path("results") / f"{safe(sweep.task.name)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    path = Path(parse.word(options, "out"))
    refuse_occupied(path, resume)
    return path


def _switch(options: Mapping[str, Any], key: str) -> bool:
    from speedbench.errors import UserError

    if not isinstance(options[key], bool):
        raise UserError(f"--{key.replace('_', '-')}: should be true or false (got {options[key]!r})")
    return options[key] is True


def _measure(
    sweep: Sweep, place: Place, path: Path, *, skip_long: bool, resume: bool, dry_run: bool, as_json: bool
) -> None:
    from dataclasses import replace

    from speedbench.results import writing

    known = place.look(sweep, skip_long=skip_long)
    ahead = known.preflight
    sweep = replace(sweep, requests=ahead.requests)
    said = {"target": known.target, "workload": ahead.workload, "drafters": ahead.document()["drafters"]}
    config = {**sweep.config(), **said}
    _say_plan(sweep, known, path)
    if dry_run:
        _print_plan(known, config, path, as_json=as_json)
        return
    with writing(path, config, known.environment, resume=resume) as writer:
        try:
            whole = place.run(sweep, ahead, writer)
        except KeyboardInterrupt:
            typer.echo(f"stopped; the same command with --resume --out {path} goes on", err=True)
            raise
        if whole:
            writer.finish()


def _say_plan(sweep: Sweep, known: Known, path: Path) -> None:
    """On stderr before anything runs: a line for the run, and one for each drafter that has weights."""
    from speedbench.cli import tables

    ahead = known.preflight
    prompts = sorted(fit.prompt_tokens for fit in ahead.fits if fit.prompt_tokens is not None)
    sizes = f" of {prompts[0]} to {prompts[-1]} tokens" if prompts else ""
    seconds = ahead.estimated_seconds
    time = "" if seconds is None else f" in about {seconds:.0f} s at the pace without drafts"
    said = (
        f"{sweep.task.name} on {sweep.runner.name}: {len(sweep.requests)} conversations{sizes}, {ahead.cells} cells, "
        f"{ahead.turns} turns, {ahead.most_tokens} tokens at most{time} → {path}"
    )
    out = tables.console(stderr=True)
    out.print(tables.plain(said), soft_wrap=True)
    for name, counts in (("conversations", ahead.workload["categories"]), ("prompt tokens", ahead.workload["lengths"])):
        if len(counts) > 1:
            told = ", ".join(f"{key} {n}" for key, n in counts.items())
            out.print(tables.plain(f"{name}: {told}"), soft_wrap=True)
    if known.units:
        told = ", ".join(f"{name} ({cells} cells)" for name, cells in known.units.items())
        out.print(f"units, each measured on one worker with its own baseline: {told}", soft_wrap=True)
    if not ahead.workload["lengths"]:
        out.print("prompt tokens: not counted, for there is no tokenizer here; a runner may name one", soft_wrap=True)
    for warning in ahead.warnings:
        out.print(tables.plain(f"warning: {warning}"), style="yellow", soft_wrap=True)
    for label, facts in ahead.drafters.items():
        if facts.get("parameters"):
            told = ", ".join(
                f"{k} {v}" for k, v in facts.items() if k not in ("settings", "warnings") and v is not None
            )
            out.print(tables.plain(f"{label}: {told}"), soft_wrap=True)


def _print_plan(known: Known, config: Mapping[str, Any], path: Path, *, as_json: bool) -> None:
    """The resolved config; with --json the document of a run that has no cells yet."""
    from speedbench.environment import without_secrets
    from speedbench.files import dumps
    from speedbench.results import SCHEMA

    shown, ahead = without_secrets(config), known.preflight
    units = {"units": dict(known.units)} if known.units else {}
    document = {"schema": SCHEMA, "run": path.resolve().name, "cells": [], "warnings": [], "recommendation": []}
    if as_json:
        typer.echo(dumps({**document, "preflight": {**ahead.document(), **units}, "config": shown}, indent=2))
    else:
        typer.echo(dumps({**shown, "plans": without_secrets(ahead.plans)} if ahead.plans else shown, indent=2))
