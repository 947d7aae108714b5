"""`speedbench train`: drafters for a target, trained on its own answers and written as others read them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def command(
    runner: Annotated[str, typer.Option("--runner", "-r", help="Whose model is the target.")] = "smollm2-135m",
    drafter: Annotated[
        str, typer.Option("--drafter", "-d", help="Which to train: eagle3, mtp, external, dflash, dspark.")
    ] = "eagle3,mtp,external",
    tokens: Annotated[float, typer.Option(help="Answer tokens to learn from; 2e6 take hours on two cores.")] = 2e6,
    minutes: Annotated[float, typer.Option(help="Training time of each drafter; the corpus takes its own.")] = 60,
    out: Annotated[str, typer.Option("--out", "-o", help="Where the drafters go, a folder each.")] = "drafters/trained",
    work: Annotated[
        str | None, typer.Option(help="Where corpus and checkpoints are kept (default: the user's cache).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts, answers and training.")] = 0,
    self_written: Annotated[
        float, typer.Option(min=0, max=1, help="Share of prompts that the target writes itself.")
    ] = 0.5,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="Train with products in bfloat16.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch.")] = None,
    licence: Annotated[str | None, typer.Option(help="The target's licence, for the README.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoints; on a grown corpus, another round.")
    ] = False,
    pack: Annotated[bool, typer.Option("--pack", help="Write them small, as the repository ships them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Train drafters for a runner's model on its own answers, and publish them with a README.

    The corpus is made once for a model and a seed, goes on where it was cut short, and shares no prompt with a task.
    """
    from pathlib import Path

    from speedbench import catalog
    from speedbench.cli.parse import names
    from speedbench.cli.tables import console
    from speedbench.content import user_cache
    from speedbench.errors import Missing, UserError

    wanted, asked = catalog.runner(runner), names(drafter, "--drafter", "drafter", TRAINED)
    if wanted.backend != "native":
        raise UserError(
            f"runner '{runner}' runs on '{wanted.backend}'; drafters are trained on a native runner's model"
        )
    if not 1 <= tokens < 1e12 or not 0 < minutes < 1e6:
        raise UserError(f"--tokens from 1 and --minutes above 0 (got {tokens:g} and {minutes:g})")
    try:
        from speedbench.native.training.course import Course, train
    except ModuleNotFoundError as error:
        raise Missing(f'training needs {error.name}; run: pip install "speedbench[native]"') from None
    kept = Path(work) if work else user_cache() / "training" / f"{wanted.name}-seed{seed}"
    course = Course(
        model=wanted.model, dtype=wanted.engine.get("dtype", "float32"), drafters=tuple(asked), tokens=int(tokens),
        minutes=minutes, out=Path(out), work=kept, seed=seed, resume=resume, bfloat16=bfloat16,
        self_written=self_written, licence=licence, threads=threads or wanted.engine.get("threads"), pack=pack,
    )  # fmt: skip
    err = console(stderr=True)
    found = train(course, _shipped_turns(), lambda line: err.print(line, highlight=False, markup=False))
    typer.echo(json.dumps(found, indent=2) if as_json else _said(found, out))


TRAINED = ("eagle3", "mtp", "external", "dflash", "dspark")


def _said(found: dict[str, Any], out: str) -> str:
    lines = [
        f"{name}: AL {facts['val_al_d4'] or '-'} at D=4 in distribution, {facts['steps']} steps"
        for name, facts in found.items()
    ]
    return "\n".join([*lines, f"written to {out}, with README.md"])


def _shipped_turns() -> list[str]:
    """Every user turn of every shipped task that is here, so that none is trained on."""
    import warnings

    from speedbench import catalog, prepared, task

    found, absent = [], []
    for name in catalog.names("tasks"):
        one = task.load(name)
        if one.source == "prepared" and not prepared.ready(one.where):
            absent.append(name)
        else:
            found += [turn for request in task.requests(one) for turn in request.turns]
    if absent:
        warnings.warn(
            f"training prompts are not held against these tasks, which are not prepared here: {', '.join(absent)}",
            stacklevel=2,
        )
    return found
