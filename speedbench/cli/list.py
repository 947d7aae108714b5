"""`speedbench list`: what can be named."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer


def command(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="One of: tasks, runners, drafters, backends, metrics.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the tasks, runners, drafters, backends or metrics that there are."""
    from speedbench.errors import UnknownName, UserError

    if not kind:  # not left to typer: 0.16 beside click 8.3 lets an absent argument through as None
        raise UserError(f"list: needs one of {', '.join(LISTS)}")
    if kind not in LISTS:
        raise UnknownName("list", kind, LISTS)
    items = LISTS[kind]()
    if as_json:
        typer.echo(json.dumps({"kind": kind, "items": items}, indent=2, ensure_ascii=False))
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


def _drafters() -> list[dict[str, Any]]:
    from speedbench import plugins

    drafters = [plugins.load("drafters", name) for name in plugins.names("drafters")]
    return [{"name": one.name, "title": one.title, "backends": sorted(one.backends)} for one in drafters]


def _backends() -> list[dict[str, Any]]:
    """Titles come from the files' docstrings: importing a backend may import its engine."""
    from speedbench import plugins

    return [{"name": name, "title": plugins.title("backends", name)} for name in plugins.names("backends")]


def _metrics() -> list[dict[str, Any]]:
    from speedbench import plugins

    metrics = [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]
    return [{"name": one.name, "title": one.title, "unit": one.unit, "better": one.better} for one in metrics]


LISTS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "tasks": _tasks,
    "runners": _runners,
    "drafters": _drafters,
    "backends": _backends,
    "metrics": _metrics,
}
