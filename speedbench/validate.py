"""What must hold of any measurement and of any summary; each problem names where, what was got and what is right."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from speedbench.measure import answers, departure
from speedbench.pairing import baseline_of
from speedbench.results import Run
from speedbench.stats import tallied
from speedbench.types import Cell, Measured, Pass, Record, Step

TOLERANCE = 1e-9
"""Relative difference that sums in another order may make."""


def run_problems(run: Run) -> list[str]:
    """Everything in a run's raw files that cannot be, in each cell and between them; empty when all is well."""
    found = [problem for measured in run.measured for problem in problems(measured)]
    if run.document["finished"]:
        found += run.missing
        for measured in run.measured:
            baseline = baseline_of(measured, run.measured)
            if baseline is not None and measured.mismatches is not None:
                found += [f"{measured.cell.key}: {problem}" for problem in _mismatch_problems(measured, baseline)]
    return found


def problems(measured: Measured) -> list[str]:
    """Everything in the raw records and passes that cannot be; empty when all is well."""
    return [f"{measured.cell.key}: {problem}" for problem in _measured_problems(measured)]


def summary_problems(summary: Mapping[str, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Everything in a stored summary that contradicts itself or what the raw files give; empty when all is well."""
    stored, right = _by_cell(summary["cells"]), _by_cell(recomputed["cells"])
    found = [f"summary: {path} is {number}; a file holds finite numbers or null" for path, number in _unfinite(summary)]
    found += [f"{key}: in the raw files, but not in the summary" for key in right if key not in stored]
    for key, cell in stored.items():
        found += [f"{key}: {problem}" for problem in _cell_problems(cell)]
        if key in right:
            found += [f"{key}: {problem}" for problem in _differences(cell, right[key])]
        else:
            found.append(f"{key}: in the summary, but not in the raw files")
    for name in sorted((summary.keys() | recomputed.keys()) - {"cells"}):
        if not _same(summary.get(name), recomputed.get(name)):
            found.append(f"summary: {name} is not what the raw files give")
    return found


def _mismatch_problems(measured: Measured, baseline: Measured) -> Iterator[str]:
    """The outputs that differ from the baseline's must be those that the mismatches name."""
    theirs = answers(baseline.records)
    both = {key: (ours, theirs[key]) for key, ours in answers(measured.records).items() if key in theirs}
    parted = {key: departure(ours, other) for key, (ours, other) in both.items()}
    differ = {key: index for key, index in parted.items() if index is not None}
    noted = {(each.request, each.turn): each.index for each in measured.mismatches or ()}
    for name, turn in sorted(differ.keys() | noted.keys()):
        right, got = differ.get((name, turn)), noted.get((name, turn))
        if right != got:
            yield f"{name} turn {turn}: a mismatch at {got} is noted; the outputs part at {right}"


# ---- raw records and passes ----------------------------------------------------------------------------------------


def _measured_problems(measured: Measured) -> Iterator[str]:
    turns = Counter((record.request, record.turn) for record in measured.records)
    if measured.cell.repeat is not None:
        yield from (f"{name} turn {turn}: recorded {n} times; once" for (name, turn), n in turns.items() if n > 1)
        marks = Counter((each.request, each.turn) for each in measured.mismatches or ())
        yield from (f"{name} turn {turn}: {n} mismatches; at most 1" for (name, turn), n in marks.items() if n > 1)
    for record in measured.records:
        if record.finish != "error":
            where = f"{record.request} turn {record.turn}"
            yield from (f"{where}: {problem}" for problem in _record_problems(record, measured.cell))
    for index, each in enumerate(measured.passes):
        yield from (f"pass {index}: {problem}" for problem in _pass_problems(each, measured.cell))


def _record_problems(record: Record, cell: Cell) -> Iterator[str]:
    yield from _time_problems(record)
    committed, steps = tallied(record)
    if record.told != "unavailable" and committed + 1 != record.size:
        yield f"steps committed {committed}, {committed + 1} with the prefill's token; the output has {record.size}"
    if record.output and len(record.output) != record.size:
        yield f"{len(record.output)} token ids; the engine counted {record.size} tokens"
    if any(token < 0 for token in record.output):
        yield f"token id {min(record.output)} in the output; ids are not negative"
    for index, step in enumerate(record.steps):
        last = index == len(record.steps) - 1
        yield from (f"step {index}: {problem}" for problem in _step_problems(step, cell.draft_length, last))
    told = all(step.accepted is not None for step in record.steps)
    if told and steps and not 1 <= committed / steps <= cell.draft_length + 1:
        length = committed / steps
        yield f"acceptance length {length:.4g}; with D = {cell.draft_length} from 1 to {cell.draft_length + 1}"


def _time_problems(record: Record) -> Iterator[str]:
    times = [("sent", record.sent), ("first", record.first), ("last", record.last)]
    known = [(name, time) for name, time in times if time is not None]
    yield from (f"{name} {time}; times are finite" for name, time in known if not math.isfinite(time))
    for (before, start), (after, end) in pairwise(known):
        if end < start:
            yield f"{after} {end} is before {before} {start}; sent ≤ first ≤ last"
    at = [(index, step.at) for index, step in enumerate(record.steps) if step.at is not None]
    for (_, start), (index, end) in pairwise(at):
        if not end >= start:
            yield f"step {index}: at {end} after a step at {start}; times do not run backwards"


def _step_problems(step: Step, d: int, last: bool) -> Iterator[str]:
    if step.proposed is not None and not 0 <= step.proposed <= d:
        yield f"proposed {step.proposed}; D = {d} allows 0 to {d}"
    if step.accepted is None:
        if step.committed < 1:
            yield f"committed {step.committed}; a step commits at least 1"
        return
    most = d if step.proposed is None else step.proposed
    if not 0 <= step.accepted <= most:
        yield f"accepted {step.accepted}; {most} proposed, so 0 to {most}"
    if last and not 1 <= step.committed <= step.accepted + 1:
        yield f"committed {step.committed} in the last step; accepted {step.accepted}, so 1 to {step.accepted + 1}"
    if not last and step.committed != step.accepted + 1:
        yield f"committed {step.committed}; accepted {step.accepted}, so {step.accepted + 1}"


def _pass_problems(each: Pass, cell: Cell) -> Iterator[str]:
    for name in ("at", "draft", "verify", "other", "whole"):
        seconds = getattr(each, name)
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            yield f"{name} {seconds}; seconds are finite and not negative"
    if not 1 <= each.batch <= cell.concurrency:
        yield f"batch {each.batch}; concurrency {cell.concurrency} allows 1 to {cell.concurrency}"
    most = cell.draft_length * each.batch
    if each.proposed is not None and not 0 <= each.proposed <= most:
        yield f"proposed {each.proposed}; D = {cell.draft_length} for {each.batch} sequences allows 0 to {most}"
    if each.width is not None and each.width < 1:
        yield f"width {each.width}; at least 1"


# ---- a stored summary ----------------------------------------------------------------------------------------------


def _by_cell(cells: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    names = ("task", "runner", "drafter", "draft_length", "concurrency", "repeat")
    return {Cell(**{name: cell[name] for name in names}).key: cell for cell in cells}


def _unfinite(content: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(content, float) and not math.isfinite(content):
        yield path, content
    inner: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(content, Mapping):
        inner = iter(content.items())
    elif isinstance(content, Sequence) and not isinstance(content, str):
        inner = iter(enumerate(content))
    for name, value in inner:
        yield from _unfinite(value, f"{path}.{name}" if path else str(name))


def _groups(cell: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The metrics over all, and those of each category, by what a message calls them."""
    return {"": cell["metrics"], **{f"category {name}: ": each for name, each in cell["by_category"].items()}}


def _cell_problems(cell: Mapping[str, Any]) -> Iterator[str]:
    for where, metrics in _groups(cell).items():
        counted = {name: each["value"] for name, each in metrics.items() if each["origin"] in ("exact", "derived")}
        yield from (f"{where}{problem}" for problem in _origin_problems(metrics))
        yield from (f"{where}{problem}" for problem in _value_problems(_known(counted), cell["draft_length"]))


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _origin_problems(metrics: Mapping[str, Any]) -> Iterator[str]:
    for name, each in metrics.items():
        if (each["value"] is None) != (each["origin"] == "unavailable"):
            yield f"{name} is {each['value']} and its origin {each['origin']}; null and unavailable go together"


def _value_problems(values: Mapping[str, float], d: int) -> Iterator[str]:
    for name in ("al", "al_complete", "al_drafted", "al_per_request", "al_macro"):
        if name in values and not 1 - TOLERANCE <= values[name] <= (d + 1) * (1 + TOLERANCE):
            yield f"{name} {values[name]}; with D = {d} from 1 to {d + 1}"
    for name in values:
        share = name in ("acceptance_rate", "drafted_share", "lossless") or name.startswith("accepted_")
        if share and not 0 <= values[name] <= 1 + TOLERANCE:
            yield f"{name} {values[name]}; a share is from 0 to 1"
    yield from _histogram_problems(values)


def _histogram_problems(values: Mapping[str, float]) -> Iterator[str]:
    """Three views of the same steps must agree: the histogram, the totals, and the marginal rates."""
    histogram = _positions(values, "accepted_histogram")
    if histogram and not _close(sum(histogram.values()), 1.0):
        yield f"accepted_histogram sums to {sum(histogram.values())}; 1"
    mean = sum(j * share for j, share in histogram.items())
    if histogram and {"acceptance_rate", "effective_d"} <= set(values):
        right = values["acceptance_rate"] * values["effective_d"]
        if not _close(mean, right):
            yield f"accepted_histogram has a mean of {mean}; acceptance_rate · effective_d is {right} accepted per step"
    marginal = _positions(values, "accepted_at_marginal")
    if marginal and "al_complete" in values and not _close(1 + sum(marginal.values()), values["al_complete"]):
        yield f"1 + Σ accepted_at_marginal is {1 + sum(marginal.values())}; al_complete is {values['al_complete']}"


def _positions(values: Mapping[str, float], name: str) -> dict[int, float]:
    return {int(key[len(name) + 1 : -1]): value for key, value in values.items() if key.startswith(f"{name}[")}


def _close(ours: float, theirs: float) -> bool:
    return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-12)


def _same(stored: Any, fresh: Any) -> bool:
    if isinstance(stored, float) and isinstance(fresh, float):
        return _close(stored, fresh)
    return bool(stored == fresh)


def _differences(cell: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[str]:
    ours, theirs = _groups(cell), _groups(right)
    for where in sorted(ours.keys() | theirs.keys()):
        mine, fresh = ours.get(where, {}), theirs.get(where, {})
        for name in sorted(mine.keys() | fresh.keys()):
            yield from (f"{where}{name}{problem}" for problem in _changed(mine.get(name), fresh.get(name)))


def _changed(ours: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> Iterator[str]:
    if ours is None or right is None:
        yield " is not in the summary" if ours is None else " is in the summary, but not in what the raw files give"
        return
    for field, fresh in right.items():
        stored = ours.get(field)
        if not _same(stored, fresh):
            yield f" {field} is {stored}; the raw files give {fresh}"
