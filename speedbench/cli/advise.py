"""`speedbench advise`: which drafter and D to serve with at each batch, why, and the schedule for the engine."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from speedbench.advise.curves import Curve, Seen


def command(
    al: Annotated[
        list[str] | None,
        typer.Option(
            help="Acceptance lengths: the folder of a run or a replay, a document that either printed with --json, a "
            "golden curve as NAME:MODE or FILE.yaml:MODE, or as typed, mtp=1:1.9,2:2.7. May be given several times."
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Measured times: a profile's file, or a run's folder.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The target: shipped shapes, a config.json, a folder, or a hub id.")
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="Published constants of a device, where no profile is.")] = None,
    times: Annotated[
        str,
        typer.Option(
            help="Without a profile: constants, or aiconfigurator[:trtllm|vllm|sglang], kernels measured by it."
        ),
    ] = "constants",
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="Devices that share the target's weights.")] = 1,
    weights: Annotated[str | None, typer.Option(help="Format of the weights. Default: the config's.")] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV cache. Default: bfloat16.")] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", "-B", help="Batches, as 1,8,32. Default: the profile's.")
    ] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens before a pass. Default: the profile's.")] = None,
    answer: Annotated[int | None, typer.Option(min=0, help="Tokens that memory is kept for beyond them.")] = None,
    user_tps: Annotated[float | None, typer.Option(min=0.001, help="Tokens a second that every user must get.")] = None,
    rho: Annotated[
        float | None, typer.Option(min=0, help="Seconds to draft one token / seconds of a plain pass.")
    ] = None,
    external: Annotated[
        list[str] | None, typer.Option(help="LABEL=CONFIG of a small model that drafts, with published constants.")
    ] = None,
    fleet: Annotated[
        str | None, typer.Option(help="A YAML of requests: how many devices serve them, by mechanism.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Say which drafter and D to serve with at each batch, and what the five guidelines say beside it."""
    from speedbench import profiles
    from speedbench.advise import advice, asking
    from speedbench.cli import decisions, parse
    from speedbench.errors import UserError
    from speedbench.files import dumps, finite

    curves, seen, targets = _curves(al or [])
    if not curves:
        raise UserError("--al: which acceptance lengths? A run, a replay, a golden curve, or mtp=1:1.9,2:2.7")
    asked = asking.Asked(
        curves=tuple(curves), seen=tuple(seen), targets=tuple(targets),
        profile=profiles.read(Path(profile)) if profile else None,
        profile_name=profile or "", model=model, hardware=hardware, times=times, gpus=gpus, weights=weights, kv=kv,
        batches=tuple(parse.integers(batch, "--batch", low=1)) if batch else None, context=context, answer=answer,
        user_tps=user_tps, rho=rho, externals=_pairs(external or [], "--external"),
    )  # fmt: skip
    found = advice.advise(asking.question(asked))
    said = advice.to_json(found)
    plan = None
    if fleet is not None:
        from speedbench.advise import capacity

        plan = capacity.plan(capacity.read(fleet), found)
        said["fleet"] = capacity.to_json(plan)
    if as_json:
        typer.echo(dumps(finite(said), indent=2))
    else:
        decisions.print_advice(found)
        if plan is not None:
            decisions.print_plan(plan)


def _curves(texts: list[str]) -> tuple[list[Curve], list[Seen], list[str]]:
    """Of every --al; a label that stands twice would hide one of the two."""
    from collections import Counter

    from speedbench.advise import curves
    from speedbench.errors import UserError

    found: list[Curve] = []
    seen: list[Seen] = []
    targets: list[str] = []
    for text in texts:
        path = Path(text)
        of_run = path.name in ("run.json", "summary.json") and (path.parent / "run.json").is_file()
        if path.is_dir() or of_run:
            more, measured, target = _of_run(path)
            targets.append(target)
        elif path.suffix == ".json":
            more, measured = _of_document(path)
        else:
            more, measured = [curves.typed(text)], []
        found += more
        seen += measured
    twice = [label for label, count in Counter(curve.label for curve in found).items() if count > 1]
    if twice:
        raise UserError(f"--al: '{twice[0]}' is given twice; name one of them, as {twice[0]}-2=NAME:MODE")
    return found, seen, targets


def _of_run(path: Path) -> tuple[list[Curve], list[Seen], str]:
    """Of the folder of a run or a replay, or of a file in it; and what it was measured on."""
    from speedbench.advise import curves
    from speedbench.advise.asking import named
    from speedbench.cli import document
    from speedbench.results import load

    run = load(path if path.is_dir() else path.parent)
    mechanisms = {each["label"]: each["drafter"] for each in run.document["config"]["draftings"]}
    found = curves.of_results(document.evaluate(run), mechanisms, f"the run {run.name}")
    return *_servable(path, *found), named(run.document["config"].get("target", {}))


def _of_document(path: Path) -> tuple[list[Curve], list[Seen]]:
    """Of what `run --json` or `replay --json` printed: it tells labels alone, which are taken for mechanisms."""
    from speedbench.advise import curves
    from speedbench.compare.stored import stored
    from speedbench.errors import UserError

    if not path.is_file():
        raise UserError(f"--al: no file '{path}'")
    return _servable(path, *curves.of_results(stored(path), {}, f"the results {path.stem}"))


def _servable(path: Path, found: list[Curve], seen: list[Seen]) -> tuple[list[Curve], list[Seen]]:
    """Without drafters that need the answer beforehand."""
    from speedbench import plugins
    from speedbench.errors import UserError

    known = plugins.names("drafters")
    away = {
        each.label
        for each in found
        if each.mechanism in known and not plugins.load("drafters", each.mechanism).servable
    }
    kept = [curve for curve in found if curve.label not in away]
    if not kept:
        raise UserError(f"--al {path}: holds no acceptance length of a drafter that one can serve with")
    return kept, [each for each in seen if each.label not in away]


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    from speedbench.errors import UserError

    found = {}
    for text in texts:
        label, equals, rest = text.partition("=")
        if not (equals and label and rest):
            raise UserError(f"{option}: {text!r} does not read; needs LABEL=CONFIG")
        found[label] = rest
    return found
