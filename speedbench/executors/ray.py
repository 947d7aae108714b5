"""Tasks of a Ray cluster, or of this machine where there is none."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from speedbench.attendant import attend
from speedbench.errors import UserError
from speedbench.settings import at_least
from speedbench.types import Ended, Settings

_DEFAULTS: Mapping[str, Any] = {"address": None, "gpus": 0, "cpus": None, "resources": None, "runtime_env": None}
"""`address` None: Ray's own rule (RAY_ADDRESS, a cluster on this machine, else a new one). `gpus`, `cpus` and
`resources` are of one unit; `cpus` None: 1 beside GPUs, else all of the largest node, since two units on one node would
measure each other. `runtime_env` is Ray's (py_executable, pip, conda, container, env_vars), passed on as it is."""


@dataclass(frozen=True, slots=True)
class _Ray:
    name: str = "ray"
    title: str = "tasks of a Ray cluster, with its GPUs and environments"
    settings: Settings = field(default_factory=lambda: _DEFAULTS)

    @contextmanager
    def open(self, settings: Settings, folder: Path) -> Iterator[_Workers]:
        at_least("executor", settings, gpus=0, cpus=0)
        ours = not ray.is_initialized()
        if ours:
            _connect(settings["address"])
        try:
            workers = _Workers(_options(settings), settings["python"])
            try:
                yield workers
            finally:
                workers.close()
        finally:
            if ours:
                ray.shutdown()


EXECUTOR = _Ray()


def _connect(address: str | None) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=None)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"executor.address: no Ray cluster is reached: {error}") from None


def _options(settings: Settings) -> dict[str, Any]:
    """What a task asks of a node. Raises `UserError` where no node has that, rather than wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {name: max(node.get(name, 0) for node in nodes) for name in {key for node in nodes for key in node}}
    gpus = settings["gpus"]
    cpus = settings["cpus"] if settings["cpus"] is not None else 1 if gpus else most.get("CPU", 1)
    wanted = {"GPU": gpus, "CPU": cpus, **(settings["resources"] or {})}
    if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        asked = ", ".join(f"{name} {amount:g}" for name, amount in wanted.items() if amount)
        have = ", ".join(f"{name} {most.get(name, 0):g}" for name in wanted)
        raise UserError(f"executor: no node of the Ray cluster has {asked}; the most that one has: {have}")
    return {
        "num_gpus": gpus, "num_cpus": cpus, "resources": settings["resources"], "runtime_env": settings["runtime_env"],
        "max_retries": 0,
    }  # fmt: skip


class _Workers:
    places: int | None = None

    def __init__(self, options: Mapping[str, Any], python: str) -> None:
        self._attend, self._python = ray.remote(attend).options(**options), python
        self._begun: list[ray.ObjectRef[Any]] = []

    def start(self, name: str, words: Sequence[str], log: Path) -> _Job:
        task = self._attend.remote(list(words), str(log), self._python)
        self._begun.append(task)
        return _Job(task)

    def close(self) -> None:
        for task in self._begun:
            with suppress(RayError):
                ray.cancel(task, force=True)


@dataclass(frozen=True, slots=True)
class _Job:
    task: ray.ObjectRef[Any]

    def ended(self) -> Ended | None:
        if not ray.wait([self.task], timeout=0)[0]:
            return None
        try:
            code, said = ray.get(self.task)
        except RayError as error:  # its worker or its node died, or its environment could not be made
            return Ended(code=None, said=next(iter(str(error).splitlines()), type(error).__name__))
        return Ended(code=code, said=said)
