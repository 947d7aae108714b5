"""`speedbench list`: what can be named."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from speedbench.types import Drafter


def command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="One of: tasks, runners, drafters, backends, metrics, executors, hardware, models, golden.",
        ),
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Drafters compared, and what is known of those that are trained.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the tasks, runners, drafters, backends, metrics or executors that there are, or what `advise` knows."""
    from speedbench.errors import UnknownName, UserError

    if not kind:  # not left to typer: 0.16 beside click 8.3 lets an absent argument through as None
        raise UserError(f"list: needs one of {', '.join(LISTS)}")
    if kind not in LISTS:
        raise UnknownName("list", kind, LISTS)
    if verbose and kind != "drafters":
        raise UserError(f"--verbose: is for drafters; of {kind} there is no more to say")
    items = _compared() if verbose else LISTS[kind]()
    if as_json:
        typer.echo(json.dumps({"kind": kind, "items": items}, indent=2, ensure_ascii=False))
        return
    if verbose:
        _print_compared(items)
        return
    widest = max((len(item["name"]) for item in items), default=0)
    for item in items:
        typer.echo(f"{item['name']:<{widest}}  {_about(item)}".rstrip())


def _about(item: Mapping[str, Any]) -> str:
    """The title, then what else is worth a line: `SmolLM2 in float32 (backend native)`."""
    more = [f"{key} {', '.join(said) if isinstance(said, list) else said}" for key, said in item.items() if said]
    more = more[2:]
    return f"{item['title']} ({'; '.join(more)})" if more else str(item["title"])


def _tasks() -> list[dict[str, Any]]:
    from speedbench import catalog

    tasks = [catalog.task(name) for name in catalog.names("tasks")]
    return [{"name": one.name, "title": one.title, "version": one.version, "licence": one.licence} for one in tasks]


def _runners() -> list[dict[str, Any]]:
    from speedbench import catalog

    runners = [catalog.runner(name) for name in catalog.names("runners")]
    return [{"name": one.name, "title": one.title, "backend": one.backend, "model": one.model} for one in runners]


def _hardware() -> list[dict[str, Any]]:
    from speedbench import catalog

    devices = [catalog.hardware(name) for name in catalog.names("hardware")]
    return [{"name": one.name, "title": one.title, "source": one.source} for one in devices]


def _models() -> list[dict[str, Any]]:
    from speedbench import modelfacts

    models = [modelfacts.load(name) for name in modelfacts.shipped()]
    return [
        {
            "name": one.name,
            "title": f"{one.parameters / 1e9:.0f} B parameters, {one.active_parameters / 1e9:.0f} B active, "
            f"G={one.group}, full attention in {one.full} of {one.layers} layers",
        }
        for one in models
    ]


def _golden() -> list[dict[str, Any]]:
    from speedbench import catalog

    found = []
    for name in catalog.names("golden"):
        targets = {key: modes for key, modes in catalog.golden(name).items() if not key.startswith("_")}
        found.append(
            {"name": name, "title": ", ".join(targets), "modes": [m for each in targets.values() for m in each]}
        )
    return found


def _every_drafter() -> list[Drafter]:
    from speedbench import plugins

    return [plugins.load("drafters", name) for name in plugins.names("drafters")]


def _drafters() -> list[dict[str, Any]]:
    return [{"name": one.name, "title": one.title, "backends": sorted(one.backends)} for one in _every_drafter()]


def _backends() -> list[dict[str, Any]]:
    """Titles come from the files' docstrings: importing a backend may import its engine."""
    from speedbench import plugins

    return [{"name": name, "title": plugins.title("backends", name)} for name in plugins.names("backends")]


def _executors() -> list[dict[str, Any]]:
    """Titles as above: an executor imports its cluster's package."""
    from speedbench import plugins

    return [{"name": name, "title": plugins.title("executors", name)} for name in plugins.names("executors")]


def _metrics() -> list[dict[str, Any]]:
    from speedbench import plugins

    metrics = [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]
    return [{"name": one.name, "title": one.title, "unit": one.unit, "better": one.better} for one in metrics]


# ---- drafters compared ---------------------------------------------------------------------------------------------

TRAITS = {
    "inputs": "reads", "generation": "drafts by", "lengths": "D", "cost": "time to draft", "training": "training",
    "memory": "memory to serve", "state": "keeps", "lossless": "lossless", "backends": "backends",
}  # fmt: skip
FACTS = {
    "parameters": "parameters", "bytes_bf16": "bytes in bf16", "bytes_stored": "bytes stored",
    "kv_bytes_per_token": "draft KV bytes a token, bf16", "trained_tokens": "answer tokens trained on",
    "trained_seconds": "seconds trained", "al_d4": "AL at D=4, in distribution",
}  # fmt: skip
WIDEST = 40
"""Of a column on a terminal; what is longer is wrapped."""


def _compared() -> list[dict[str, Any]]:
    """Every drafter with what its table says of it, and the checkout's trained ones with what their files say."""
    from dataclasses import asdict

    from speedbench.trained import checkpoints

    trained = checkpoints()
    found = []
    for one in _every_drafter():
        traits = {key: getattr(one, key) for key in TRAITS if key != "backends"}
        own = [asdict(each) for each in trained if each.drafter == one.name]
        backends = {"backends": sorted(one.backends), "servable": one.servable}
        found.append({"name": one.name, "title": one.title, **traits, **backends, "trained": own})
    return found


def _print_compared(items: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console

    out = Console(highlight=False, markup=False, emoji=False)
    width = out.width if out.is_terminal else None
    if width is None:
        out = Console(highlight=False, markup=False, emoji=False, width=2000, color_system=None)
    trained = [each for item in items for each in item["trained"]]
    for key, rows, titles in (("name", items, TRAITS), ("name", trained, FACTS)):
        columns = {"drafter" if rows is items else "trained": [_said(row[key]) for row in rows]}
        columns |= {title: [_said(row[each]) for row in rows] for each, title in titles.items()}
        for part in _dealt(columns, width) if rows else ():
            out.print(part)
    if not trained:
        out.print("no trained drafter here: the repository's checkout has some, and speedbench train makes them")


def _dealt(columns: Mapping[str, Sequence[str]], width: int | None) -> list[Any]:
    """Tables as wide as the page, each beginning with the first column; None: one table, however wide."""
    from rich import box
    from rich.table import Table

    first, *others = columns
    size = {title: max(map(len, (title, *texts))) for title, texts in columns.items()}
    if width is not None:
        size = {title: min(WIDEST, wide) for title, wide in size.items()}
    parts: list[list[str]] = [[]]
    for title in others:
        if width is not None and parts[-1] and sum(size[each] + 3 for each in (first, *parts[-1], title)) > width:
            parts.append([])
        parts[-1].append(title)
    tables = []
    for part in parts:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in (first, *part):
            table.add_column(title, max_width=size[title], overflow="fold")
        for row in zip(*(columns[title] for title in (first, *part)), strict=True):
            table.add_row(*row)
        tables.append(table)
    return tables


def _said(value: Any) -> str:
    """A fact as a person reads it: `-` where it is not known."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else ", ".join(value) if isinstance(value, list) else str(value)


LISTS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "tasks": _tasks,
    "runners": _runners,
    "drafters": _drafters,
    "backends": _backends,
    "metrics": _metrics,
    "executors": _executors,
    "hardware": _hardware,
    "models": _models,
    "golden": _golden,
}
