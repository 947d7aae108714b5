"""What run.json must hold, as far as anything is made of it: it may come from anybody."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, TypeAdapter

Whole = StrictInt | None
Real = StrictFloat | StrictInt | None
Text = StrictStr | None
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    name: StrictStr
    requests: StrictInt
    content_hash: Text = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    name: StrictStr
    engine: Object
    backend: Text = None
    model: Text = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drafting:
    label: StrictStr
    drafter: StrictStr
    settings: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    temperature: Real = 0
    top_k: Whole = None
    top_p: Real = None
    max_tokens: StrictInt = 1
    seed: StrictInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What an engine says of the target or of a drafter, or the task of its prompts."""

    warnings: list[StrictStr] = field(default_factory=list)
    settings: Object = field(default_factory=dict)
    engine: Any = None
    parameters: Whole = None
    bytes: Whole = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    resolved: StrictInt
    total: StrictInt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    partial: StrictBool
    rows: _Rows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    source: StrictStr
    routes: dict[str, StrictStr]
    origins: dict[str, StrictStr]
    notes: list[StrictStr]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    task: _Task
    request_ids: list[StrictStr]
    runner: _Runner
    draftings: list[_Drafting]
    cells: list[Object]
    sampling: _Sampling
    target: _Facts = field(default_factory=_Facts)
    workload: _Facts = field(default_factory=_Facts)
    drafters: dict[str, _Facts] = field(default_factory=dict)
    columns: dict[str, Object] = field(default_factory=dict)
    prepared: dict[str, _Prepared] = field(default_factory=dict)
    replay: _Replay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """The machine that one process of the run was on."""

    time: Text = None
    cpu: Object | None = None
    memory: dict[str, Whole] | None = None
    gpus: list[Object] | None = None
    system: Object | None = None
    packages: Object | None = None
    commit: Object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunFile:
    config: _Config
    processes: list[_Process]
    finished: StrictBool
    run: Text = None


RUN_FILE = TypeAdapter(_RunFile)
"""Keys that are not here may be there, and be anything."""
