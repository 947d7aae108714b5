"""Turns a runner's YAML and the drafters asked for into what is to run, and checks each pair before anything loads."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from speedbench import catalog, plugins
from speedbench.errors import UnknownName, Unsupported, UserError
from speedbench.types import Drafting, Runner, Settings

ENGINE, BASELINE = "engine", "none"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""A drafter's label names the folders of its cells."""

Overrides = Mapping[str, Settings]
"""Settings given beside the YAML, by `engine` or by drafter label."""


def load(name: str) -> Runner:
    """A shipped runner by name, or the one of a path ending in .yaml or .yml; its backend and drafters exist."""
    runner = catalog.runner(name)
    if runner.backend not in plugins.names("backends"):
        raise UnknownName("backend", runner.backend, plugins.names("backends"))
    for label, settings in runner.drafters.items():
        if label == ENGINE or not LABEL.fullmatch(label):
            raise UserError(
                f"runner '{runner.name}': drafters.{label}: a label should be letters, digits, - and _ "
                f"(at most 40), and not '{ENGINE}'"
            )
        mechanism = settings.get("drafter", label)
        if mechanism not in plugins.names("drafters"):
            raise UnknownName("drafter", str(mechanism), plugins.names("drafters"))
        if label == BASELINE and mechanism != BASELINE:
            raise UserError(f"runner '{runner.name}': drafters.{label}: is the name of the baseline; choose another")
    return runner


def overridden(runner: Runner, overrides: Overrides) -> Runner:
    """The runner with the engine's settings of `overrides` over its own."""
    return replace(runner, engine={**runner.engine, **overrides.get(ENGINE, {})})


def draftings(runner: Runner, labels: Iterable[str], overrides: Overrides | None = None) -> list[Drafting]:
    """What each label means: a drafter of the runner, else a mechanism; with its settings, `overrides` over them.

    Raises `UnknownName` for a label that is neither, and for an override that would reach none of them.
    """
    wanted = list(dict.fromkeys(labels))
    given = overrides or {}
    for prefix in given:
        if prefix != ENGINE and prefix not in wanted:
            raise UnknownName("--set target in this run", prefix, [ENGINE, *wanted])
    return [_drafting(runner, label, given.get(label, {})) for label in wanted]


def _drafting(runner: Runner, label: str, override: Settings) -> Drafting:
    mechanisms = plugins.names("drafters")
    if label not in runner.drafters and label not in mechanisms:
        raise UnknownName("drafter", label, {*mechanisms, *runner.drafters})
    settings: dict[str, Any] = {**runner.drafters.get(label, {}), **override}
    mechanism = settings.pop("drafter", label)
    if mechanism not in mechanisms:
        raise UnknownName("drafter", str(mechanism), mechanisms)
    return Drafting(label=label, drafter=mechanism, settings=settings)


def check(runner: Runner, drafting: Drafting, lengths: Iterable[int] = ()) -> None:
    """Raises `Unsupported` where the drafter's table does not have the runner's backend, and `UserError` where its
    settings are not what the drafter takes at one of the draft lengths."""
    drafter = plugins.load("drafters", drafting.drafter)
    if runner.backend not in drafter.backends:
        raise Unsupported(drafting.drafter, runner.backend, drafter.backends)
    for length in lengths:
        drafter.backends[runner.backend](length, drafting.settings)


def labelled(runner: Runner, drafting: Drafting) -> Drafting:
    """A label that says so where the engine's acceptance rule is lossy, so that no table can hide it."""
    lossy = runner.engine.get("acceptance", "lossless") != "lossless" and drafting.drafter != "none"
    return replace(drafting, label=f"{drafting.label}-lossy") if lossy else drafting
