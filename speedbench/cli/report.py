"""`speedbench report`: runs and profiles as one page to look at, and their charts as pictures."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from speedbench.report.profiled import Profiled
    from speedbench.report.subject import Subject
    from speedbench.results import Run
    from speedbench.types import Request


def command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN…", help="Folders of runs, and files of profiles.")
    ] = None,
    out: Annotated[str, typer.Option("-o", "--out", help="The HTML file to write.")] = "report.html",
    png: Annotated[str, typer.Option("--png", metavar="DIR", help="Every chart as a PNG in this folder.")] = "",
    svg: Annotated[str, typer.Option("--svg", metavar="DIR", help="Every chart as an SVG in this folder.")] = "",
    include_text: Annotated[
        bool, typer.Option("--include-text", help="Show prompts, and answers where the engine told them as text.")
    ] = False,
    task: Annotated[
        str, typer.Option("--task", help="Where --include-text finds the prompts. Default: the run's shipped task.")
    ] = "",
) -> None:
    """Make one HTML file of runs or profiles: verdict, charts, tables.

    It needs no network, and holds no prompt unless asked.
    """
    from speedbench.cli import document
    from speedbench.cli.pages import need_extra, refuse_unwritable
    from speedbench.errors import UserError
    from speedbench.files import write_whole
    from speedbench.results import load, uncollected

    if task and not include_text:
        raise UserError("--task: has no effect without --include-text")
    names = list(dict.fromkeys(runs or [""]))
    files = [name for name in names if _is_profile(name)]
    paths = list(dict.fromkeys(document.here(name) for name in names if name not in files))
    refuse_unwritable(Path(out), [Path(each) for each in (png, svg) if each])
    need_extra()
    with uncollected():
        from speedbench.report.page import page
        from speedbench.report.sections import sections

        profiles = list(map(_profiled, files))
        subjects = [subject_of(run, _prompts(run, task) if include_text else ()) for run in map(load, paths)]
        title = f"speedbench: {', '.join([*(each.name for each in profiles), *(each.run.name for each in subjects)])}"
        text = page(title, sections(subjects, profiles))
        gc.freeze()  # nor as this process ends, which takes half a second with 10,000 answers
    kinds = [(Path(folder), kind) for kind, folder in (("png", png), ("svg", svg)) if folder]
    written = [out, *(_draw(subjects, profiles, folder, kind) for folder, kind in kinds)]
    write_whole(Path(out), text)
    typer.echo(f"wrote {', '.join(written)}")


def _is_profile(name: str) -> bool:
    """Whether it names a file that is none of a run's."""
    return name.endswith(".json") and Path(name).name not in ("run.json", "summary.json") and not Path(name).is_dir()


def _profiled(name: str) -> Profiled:
    from speedbench import profiles
    from speedbench.report.profiled import Profiled

    return Profiled(name=Path(name).stem, profile=profiles.read(Path(name)))


def subject_of(run: Run, prompts: Sequence[Request] = ()) -> Subject:
    """A run with its results and what is to be said of them."""
    from speedbench.cli import document
    from speedbench.recommend import break_even_concurrency, sentence
    from speedbench.report.subject import Subject

    results = document.evaluate(run)
    summary = document.summary(run, results)
    found = summary["recommendation"]
    return Subject(
        run=run, results=results, summary=summary, sentences=[sentence(each) for each in found],
        break_even=break_even_concurrency(found), unservable=document.unservable(run), prompts=prompts,
    )  # fmt: skip


def _prompts(run: Run, named: str) -> tuple[Request, ...]:
    """The requests that were measured. Raises `UserError` where the task is not what it was then."""
    from speedbench import task as tasks
    from speedbench.errors import UnknownName, UserError

    config = run.document["config"]
    name, ids = named or config["task"]["name"], set(config["request_ids"])
    try:
        found = tuple(each for each in tasks.requests(tasks.load(name)) if each.id in ids)
    except UnknownName as error:
        raise UserError(f"--include-text: {error}; name the prompts' file with --task") from None
    if tasks.content_hash(found) != config["task"].get("content_hash"):
        raise UserError(f"--include-text: the prompts of '{name}' are not those that run '{run.name}' measured")
    return found


def _draw(subjects: Sequence[Subject], profiles: Sequence[Profiled], folder: Path, kind: str) -> str:
    """Every chart of each as `CHART.png`, or `NAME-CHART.png` where there are several."""
    from speedbench.files import safe
    from speedbench.report import images
    from speedbench.report.charts import charts
    from speedbench.report.drawing import Figure
    from speedbench.report.profiles import charts as of_profiles

    figures = [(each.name, name, chart.draw(each)) for each in profiles for name, chart in of_profiles()]
    figures += [(each.run.name, name, chart.draw(each)) for each in subjects for name, chart in charts()]
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [(whose, name, figure) for whose, name, figure in figures if isinstance(figure, Figure)]
    for whose, name, figure in drawn:
        before = f"{safe(whose)}-" if len(subjects) + len(profiles) > 1 else ""
        content = images.png(figure) if kind == "png" else images.svg(figure).encode()
        (folder / f"{before}{name}.{kind}").write_bytes(content)
    return f"{len(drawn)} charts in {folder}"
