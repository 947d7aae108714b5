"""`speedbench replay`: acceptance for every D out of answers that are there already."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speedbench.cli.ending import ending

if TYPE_CHECKING:
    from speedbench.backends.native import NativeSession
    from speedbench.replay.asking import Asked
    from speedbench.replay.outputs import Outputs
    from speedbench.replay.trace import Labelled
    from speedbench.results import Writer
    from speedbench.types import Drafting, Runner

RUNNER, DRAFTER, LENGTHS = "smollm2-135m", "ngram,suffix", "1-8"

SAMPLING, SIZE = ("temperature", "top_k", "top_p", "seed"), ("limit", "max_tokens")
MODEL = ("runner", "drafter", "set", "batch_tokens")
IDLE = {
    "a trace": (*MODEL, *SAMPLING, *SIZE),
    "steps": (*MODEL, *SAMPLING, *SIZE),
    "a run": (*SAMPLING, *SIZE),
    "a file": SIZE,
}
"""Options that say nothing of a source, which has said it itself."""


def command(
    outputs: Annotated[
        str | None, typer.Option(metavar="RUN|FILE", help="A run, or a .jsonl of prompts and outputs of any engine.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Make the outputs first, for this task; with --outputs RUN, what that run asked.")
    ] = None,
    from_trace: Annotated[
        str | None, typer.Option(metavar="TRACE", help="A replay's trace.parquet: every number again, with no model.")
    ] = None,
    from_steps: Annotated[
        str | None, typer.Option(metavar="RUN", help="What a run's own steps at its largest D tell of smaller ones.")
    ] = None,
    runner: Annotated[
        str | None, typer.Option(help="A shipped runner, or a .yaml file. Default: the run's, or smollm2-135m.")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="Drafters, as ngram,eagle3. Default: ngram,suffix.")] = None,
    draft_length: Annotated[
        str | None, typer.Option("-D", "--draft-length", help="Draft lengths, as 1-4,8. Default: 1-8.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="With --task: conversations, spread over the categories.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="With --task: most tokens an answer may have.")] = None,
    temperature: Annotated[float, typer.Option(help="With --task or a file; 0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample within this probability mass.")] = None,
    seed: Annotated[int, typer.Option(help="Of sampling and of --limit.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as ngram.max_n=3.")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of the answers labelled at once, padding included; it bounds the memory. "
            "Default: 16384 on a GPU, one answer on a CPU.",
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder to write. Default: results/replay-TASK-TIME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the replay in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Acceptance length for every D from one pass over outputs: exact where decoding is greedy, no sweep needed."""
    from speedbench.cli import parse
    from speedbench.errors import UserError
    from speedbench.replay import trace
    from speedbench.results import refuse_occupied

    given = {"--outputs": outputs, "--from-trace": from_trace, "--from-steps": from_steps}
    sources = [name for name, value in given.items() if value] or (["--task"] if task else [])
    if len(sources) != 1:
        raise UserError(f"one of {', '.join(given)} or --task is needed (got {', '.join(sources) or 'none'})")
    options = {
        "task": task, "outputs": outputs, "runner": runner, "drafter": drafter, "set": set_ or [],
        "limit": limit, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
        "seed": seed, "batch_tokens": batch_tokens, "out": out,
    }  # fmt: skip
    kind = "a file" if outputs and outputs.endswith(".jsonl") else "a run" if outputs else ""
    for key in IDLE.get("a trace" if from_trace else "steps" if from_steps else kind, ()):
        if options[key]:
            raise UserError(
                f"--{key.replace('_', '-')} has no effect with {sources[0]}, which has said it; leave it out"
            )
    lengths = None if draft_length is None else parse.integers(draft_length, "-D", low=1)
    trace.packages()
    if out is not None:
        refuse_occupied(Path(out), resume)
    if from_trace:
        _from_trace(from_trace, lengths, options, resume=resume, as_json=as_json)
    elif from_steps:
        _from_steps(from_steps, lengths, options, resume=resume, as_json=as_json)
    else:
        _with_model(lengths or parse.integers(LENGTHS, "-D"), options, resume=resume, as_json=as_json)


# ---- without a model ------------------------------------------------------------------------------------------------


def _from_trace(
    file: str, lengths: Sequence[int] | None, options: Mapping[str, Any], *, resume: bool, as_json: bool
) -> None:
    from speedbench.replay import trace
    from speedbench.replay.run import at_lengths

    stored, labelled = trace.read(Path(file))
    config = at_lengths(stored, lengths)
    _finish(_out(options, config["task"]["name"], resume=resume), config, labelled, resume=resume, as_json=as_json)


def _from_steps(
    folder: str, lengths: Sequence[int] | None, options: Mapping[str, Any], *, resume: bool, as_json: bool
) -> None:
    from speedbench.cli import document
    from speedbench.replay import run as replays
    from speedbench.replay.fromsteps import from_steps
    from speedbench.results import load
    from speedbench.types import Sampling

    run = load(document.here(folder))
    found, base = from_steps(run, lengths), run.document["config"]
    config = replays.config(
        base, found.draftings, found.parts, Sampling(**base["sampling"]), source=f"the steps of {run.name}",
        notes=found.notes,
    )  # fmt: skip
    path = _out(options, base["task"]["name"], resume=resume)
    _finish(path, config, found.labelled, resume=resume, as_json=as_json)


def _finish(
    path: Path, config: Mapping[str, Any], labelled: Sequence[Labelled], *, resume: bool, as_json: bool
) -> None:
    from speedbench.environment import snapshot
    from speedbench.replay import run as replays
    from speedbench.replay import trace
    from speedbench.results import writing

    with writing(path, config, snapshot(), resume=resume) as writer:
        trace.write(path / trace.FILE, labelled, writer.document["config"])
        replays.write(writer, labelled)
        writer.finish()
    ending(path, as_json=as_json, closer=" --by-position")


# ---- with one -------------------------------------------------------------------------------------------------------


def _with_model(lengths: Sequence[int], options: Mapping[str, Any], *, resume: bool, as_json: bool) -> None:
    from dataclasses import replace

    from speedbench import runner as runners
    from speedbench.cli import parse
    from speedbench.errors import UserError
    from speedbench.replay.run import refuse_lossy

    overrides = parse.settings(options["set"])
    runner = runners.overridden(_runner(options), overrides)
    if runner.backend != "native":
        raise UserError(
            f"runner '{runner.name}' runs on '{runner.backend}'; a replay runs on 'native': name a native "
            "runner of the same model with --runner"
        )
    refuse_lossy(runner.engine)
    labels = parse.names(options["drafter"] or DRAFTER, "--drafter", "drafter")
    draftings = runners.draftings(runner, labels, overrides)
    for drafting in draftings:
        runners.check(runner, drafting, lengths)
    fixed = ("compile", "cuda_graphs", "exact", "static")  # for passes of one width; here widths are many
    runner = replace(runner, engine={key: value for key, value in runner.engine.items() if key not in fixed})
    _replay(runner, draftings, lengths, options, resume=resume, as_json=as_json)


def _runner(options: Mapping[str, Any]) -> Runner:
    from speedbench import runner as runners
    from speedbench.cli import document
    from speedbench.results import read_document
    from speedbench.types import Runner

    if options["runner"] is None and options["outputs"] and not options["outputs"].endswith(".jsonl"):
        return Runner(**read_document(document.here(options["outputs"]))["config"]["runner"])
    return runners.load(options["runner"] or RUNNER)


def _replay(
    runner: Runner,
    draftings: Sequence[Drafting],
    lengths: Sequence[int],
    options: Mapping[str, Any],
    *,
    resume: bool,
    as_json: bool,
) -> None:
    from speedbench.backends.native import BACKEND
    from speedbench.environment import snapshot
    from speedbench.replay import run as replays
    from speedbench.replay import trace
    from speedbench.results import writing
    from speedbench.types import Load

    with BACKEND.open(runner) as session:
        asked = _asked(session, runner, options)
        load = Load(sampling=asked.sampling, longest=asked.longest, widest=max(lengths))
        labelling = session.labelling(draftings, lengths, load, options["batch_tokens"])
        routes = {name: one.route for name, one in labelling.drafters.items()}
        planned = replays.parts(replays.like(asked.base), routes, lengths, asked.origin)
        config = replays.config(
            {**asked.base, "target": dict(session.facts)}, draftings, planned, asked.sampling, source=asked.source,
            notes=asked.notes, drafters={name: dict(one.facts) for name, one in labelling.drafters.items()},
        )  # fmt: skip
        path = _out(options, asked.base["task"]["name"], resume=resume)
        with writing(path, config, snapshot(), resume=resume) as writer:
            found = asked.outputs(writer)
            replays.label(found, labelling, writer, _progress)
            replays.write(writer, trace.read(path)[1])
            writer.finish()
    ending(path, as_json=as_json, closer=" --by-position")


def _asked(session: NativeSession, runner: Runner, options: Mapping[str, Any]) -> Asked:
    from speedbench.cli import document, parse
    from speedbench.replay import asking
    from speedbench.results import load

    if not options["outputs"]:
        return _made(session, runner, options)
    if options["outputs"].endswith(".jsonl"):
        return asking.of_file(session, runner, Path(options["outputs"]), parse.sampling(options, 1))
    return asking.of_run(session, runner, load(document.here(options["outputs"])), options["task"])


def _made(session: NativeSession, runner: Runner, options: Mapping[str, Any]) -> Asked:
    """The target's own answers to a task: the baseline cell of the replay's folder, measured as a sweep's is."""
    from dataclasses import replace

    from speedbench import sweep as sweeps
    from speedbench import task as tasks
    from speedbench.cli import parse
    from speedbench.cli.progress import progress
    from speedbench.replay import asking, outputs
    from speedbench.results import load_cell

    task = tasks.load(options["task"])
    sweep = sweeps.Sweep(
        task=task, requests=tasks.requests(task, options["limit"], options["seed"]), runner=runner, draftings=(),
        lengths=(), concurrencies=(1,), repeats=1, sampling=parse.sampling(options, task.max_tokens),
    )  # fmt: skip
    ahead = sweeps.preflight(sweep, session)
    sweep = replace(sweep, requests=ahead.requests)
    cell, most = sweep.cells()[0][0], sweep.sampling.max_tokens

    def answered(writer: Writer) -> Outputs:
        with progress(ahead.turns, len(load_cell(writer.path, cell).records)) as notify:
            sweeps.run(sweep, session, ahead.fits, writer, notify)
        records = load_cell(writer.path, cell).records
        return outputs.of_records(records, sweep.requests, session.chat, asking.limits(session), cap=most)

    return asking.Asked(
        base=sweep.config(), sampling=sweep.sampling, source="outputs made here, without drafts", outputs=answered,
        longest=max(fit.most_tokens or 0 for fit in ahead.fits), notes=ahead.warnings,
    )  # fmt: skip


def _out(options: Mapping[str, Any], task: str, *, resume: bool) -> Path:
    from datetime import datetime, timezone

    from speedbench.errors import UserError
    from speedbench.files import safe

    if options["out"] is None:
        if resume:
            raise UserError("--resume: needs --out, the folder of the replay to go on with")
        return Path("results") / f"replay-{safe(task)}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    return Path(options["out"])


def _progress(done: int, of: int) -> None:
    """A line on stderr now and then."""
    if done == of or done % max(1, of // 10) == 0:
        typer.echo(f"{done}/{of} answers replayed", err=True)
