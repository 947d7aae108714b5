"""Numbers and verdicts as a reader meets them; every sentence is made from the numbers it stands beside."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from speedbench.columns import UNKNOWN
from speedbench.measure import NOISY
from speedbench.report.subject import Subject
from speedbench.types import Cell, Measurement


def number(value: object) -> str:
    """Four digits that say something; text as it is; `-` where nothing is known."""
    if isinstance(value, bool) or value is None or value == "":
        return UNKNOWN if value in (None, "") else "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return str(value)


def spread(found: Measurement, unit: str = "") -> str:
    """`1.21x [1.10, 1.33]`, without the interval where there is none, or it has no width."""
    if found.value is None:
        return UNKNOWN
    point = f"{found.value:.2f}{unit}"
    if found.low is None or found.high is None or found.low == found.high:
        return point
    return f"{point} [{found.low:.2f}, {found.high:.2f}]"


def named(cell: Cell) -> str:
    return f"{cell.drafter} D={cell.draft_length}" if not cell.is_baseline else "no drafting"


def listed(items: Iterable[object]) -> str:
    """`1, 2 and 4`."""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def three(value: float) -> str:
    """Three digits, and never fewer than stand before the point."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def range_of(values: Sequence[float], said: Callable[[float], str] = "{:.2f}".format) -> str:
    """`1.12 to 1.40`, or the one there is."""
    low, high = said(min(values)), said(max(values))
    return low if low == high else f"{low} to {high}"


def machine(environment: Mapping[str, Any]) -> str:
    """`2 × NVIDIA H200`, or `AMD EPYC (CPU, 2 threads)`."""
    cards = [each.get("name") or "unknown GPU" for each in environment.get("gpus") or ()]
    if cards:
        kinds = {name: cards.count(name) for name in cards}
        return listed(f"{n} × {name}" if n > 1 else name for name, n in kinds.items())
    cpu = environment.get("cpu") or {}
    cores = cpu.get("usable") or cpu.get("threads")
    threads = "" if not cores else f", {cores} thread{'s' * (cores > 1)}"
    return f"{cpu.get('model') or 'an unknown machine'} (CPU{threads})"


def verdict(subject: Subject) -> str:
    """What to serve with, in a sentence or two, for all concurrencies of the run."""
    found: Sequence[Mapping[str, Any]] = subject.summary["recommendation"]
    clauses = [_gain(each) for each in found if each["verdict"] == "speculate"]
    for kind, said in _OTHERWISE.items():
        batches = [each["concurrency"] for each in found if each["verdict"] == kind]
        clauses += [f"at B={listed(batches)} {said}"] if batches else []
    failed, turns = subject.failed
    if failed == turns or not clauses:
        why = f"all {turns} turns failed" if failed else "there is no cell with a drafter"
        return f"Nothing was measured that a recommendation could rest on: {why}."
    text = "; ".join(clauses)
    text = f"{text[0].upper()}{text[1:]}. Measured on {machine(subject.environment)}{_target(subject)}."
    restless = (subject.summary["noise"] or 0.0) > NOISY
    return f"{text} The machine was noisy: measure again before relying on this." if restless else text


_OTHERWISE = {
    "within_noise": "no drafter gains beyond noise",
    "do_not_speculate": "do not speculate: no drafter that can be recommended is faster",
    "unknown": "there is nothing to recommend, for no speedup was measured that can be trusted",
}


def _gain(found: Mapping[str, Any]) -> str:
    speedup = spread(Measurement(value=found["speedup"], low=found["low"], high=found["high"]), "x")
    name = f"{found['drafter']} with D={found['draft_length']}"
    return f"at B={found['concurrency']} use {name}: decoding is {speedup} as fast as without drafting"


def _target(subject: Subject) -> str:
    config, where = subject.run.document["config"], subject.environment
    used, cores = config.get("target", {}).get("threads"), (where.get("cpu") or {}).get("usable")
    is_some = isinstance(used, int) and used != cores and not where.get("gpus")
    threads = f" in {used} thread{'s' * (used != 1)}" if is_some else ""
    return f" with {config['runner']['name']} on {config['task']['name']}{threads}"
