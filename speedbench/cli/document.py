"""A run's summary as one document: what `run` prints, `summary` writes again, and `validate` checks."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from speedbench import pairing, plugins
from speedbench.columns import RESIDUAL_LIMIT, csv_text, measurement, value
from speedbench.errors import UserError
from speedbench.files import dumps, write_whole
from speedbench.measure import NOISY, noise
from speedbench.metrics.buckets import CONTEXT
from speedbench.pairing import siblings
from speedbench.prepared import counts
from speedbench.recommend import recommendations
from speedbench.results import SCHEMA, Run, uncollected
from speedbench.summarise import results, to_json
from speedbench.types import Measured, Metric, Result

FEW = 20
"""Conversations below which an interval is said to rest on few."""

MOST_TOLD = 5
"""Warnings of one engine that the summary repeats."""


def metrics() -> list[Metric]:
    return [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]


def evaluate(run: Run) -> list[Result]:
    """Every cell's metrics, from the raw files."""
    with uncollected():
        return results(run.measured, metrics())


def summary(run: Run, found: Sequence[Result]) -> dict[str, Any]:
    """summary.json: the cells, what to be warned of, and what to serve with."""
    return {
        "schema": SCHEMA,
        "run": run.name,
        "finished": run.document["finished"],
        "noise": noise(run.noise),
        "cells": [to_json(result) for result in found],
        "warnings": warnings(run, found),
        "recommendation": [] if _replay(run) else recommendations(found, unservable(run), noisy=_is_noisy(run)),
    }


def _is_noisy(run: Run) -> bool:
    spread = noise(run.noise)
    return spread is not None and spread > NOISY


def _replay(run: Run) -> Mapping[str, Any]:
    """What a replay says of itself; empty of a run that was measured."""
    told: Mapping[str, Any] = run.document["config"].get("replay", {})
    return told


def unservable(run: Run) -> set[str]:
    """Labels whose mechanism needs the answer beforehand."""
    draftings = run.document["config"]["draftings"]
    return {each["label"] for each in draftings if not plugins.load("drafters", each["drafter"]).servable}


def write(run: Run, found: Sequence[Result]) -> dict[str, Any]:
    """summary.json and summary.csv beside the raw files, whole or not at all."""
    document = summary(run, found)
    write_whole(run.path / "summary.json", dumps(document, indent=2) + "\n")
    write_whole(run.path / "summary.csv", csv_text(found))
    return document


def warnings(run: Run, found: Sequence[Result]) -> list[str]:
    """What a reader must know, the whole run first."""
    said = [*_run_warnings(run), *_told(run), *pairing.warnings(run.measured), *siblings.warnings(run.measured)]
    said += [f"{each.cell.key}: {failed}" for each in run.measured for failed in _failures(each)]
    passes = any(each.passes for each in run.measured) and not _replay(run)
    if found and not passes and not _replay(run) and all(value(result, "t_verify") is None for result in found):
        said.append("the engine tells no pass times, so there is no T_verif, T_draft or formula; see step_cost")
    said += _missed(found)
    for result in found:
        if _is_empty(result):
            said.append(f"{result.cell.key}: no step was measured, so there is no acceptance length and no speed")
        if not result.cell.is_baseline:
            said += _cell_warnings(result, passes)
    return said


def _is_empty(result: Result) -> bool:
    """Whether a cell has neither acceptance length nor speed; an engine that tells no acceptance has the latter."""
    return value(result, "al") is None and value(result, "decode_tps") is None


def _told(run: Run) -> list[str]:
    """What engines warned of while they ran, each once with its cells, without what the config has already."""
    cells: dict[str, list[str]] = {}
    more = []
    for key, drafter in ((each.cell.key, each.cell.drafter) for each in run.measured):
        known = run.document["config"].get("drafters", {}).get(drafter, {}).get("warnings", ())
        texts = [text for text in run.warned.get(key, ()) if text not in known]
        for text in texts[:MOST_TOLD]:
            cells.setdefault(text, []).append(key)
        more += [f"{key}: {len(texts) - MOST_TOLD} more like these in its warnings.jsonl"] * (len(texts) > MOST_TOLD)
    return [f"{_few(keys)}: {text}" for text, keys in cells.items()] + more


def _few(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= 3 else f"{', '.join(keys[:2])} and {len(keys) - 2} more cells"


def _run_warnings(run: Run) -> list[str]:
    said = list(_replayed(_replay(run)))
    if not run.document["finished"]:
        said.append("the run is not finished; the same command with --resume goes on with it")
    if run.missing:
        said.append(f"conversations are missing in {len(run.missing)} cells: {'; '.join(run.missing[:3])}")
    if _is_noisy(run):
        spread = 100 * (noise(run.noise) or 0)
        said.append(f"the machine was noisy: a fixed piece of work varied by {spread:.0f} %; times are no result")
    processes = len({record.process for each in run.measured for record in each.records})
    if processes > 1:
        said.append(
            f"times come from {processes} processes: the run was interrupted and resumed; "
            "an answer timed by one is not paired with a baseline's timed by another"
        )
    conversations = run.document["config"]["task"]["requests"]
    if conversations < FEW:
        said.append(f"few conversations ({conversations}): the intervals are rough")
    if run.document["config"]["runner"]["engine"].get("exact"):
        said.append(
            "exact mode: every cell, the baseline too, runs at the width of the largest D, so that all are alike"
        )
    config = run.document["config"]
    parts = [counts(each) for each in config.get("prepared", {}).values() if each["partial"]]
    if parts:
        said.append(f"the prompts are part of a set, {', '.join(parts)}: numbers are not those of the whole")
    told = {"target": config.get("target", {}), "workload": config.get("workload", {}), **config.get("drafters", {})}
    return said + [f"{name}: {each}" for name, facts in told.items() for each in facts.get("warnings", ())]


def _replayed(told: Mapping[str, Any]) -> Iterator[str]:
    if told:
        routes = "; ".join(f"{label} by {route}" for label, route in told["routes"].items() if label != "none")
        yield f"replayed, not run, so without times: {told['source']}; {routes}"
        yield from told["notes"]


def _failures(measured: Measured) -> list[str]:
    failed = [record for record in measured.records if record.finish == "error"]
    if not failed:
        return []
    first = failed[0]
    return [f"{len(failed)} of {len(measured.records)} turns failed, the first {first.request}: {first.error}"]


def _cell_warnings(result: Result, passes: bool) -> list[str]:
    key, said = result.cell.key, []
    accepted, real = value(result, "acceptance_rate"), value(result, "lossless_real")
    if accepted == 0:
        said.append(f"{key}: no draft was ever accepted; is the drafter made for this target, tokenizer and template?")
    if value(result, "effective_d") == 0:
        said.append(f"{key}: the drafter never proposed anything")
    if real:
        said.append(f"{key}: {real:.0f} outputs differ from the baseline's beyond a near tie: NOT lossless")
    if fall := _falls(result):
        said.append(f"{key}: AL falls with the context, {fall}: choose for the contexts that you serve")
    if passes and value(result, "t_pass") is None and value(result, "al") is not None:
        said.append(f"{key}: the batch was never full, so there is no T_verif, T_draft or formula")
    return said


def _missed(found: Sequence[Result]) -> Iterator[str]:
    """A line for each concurrency at which the formula does not explain the speedup, with the cell farthest off."""
    over: dict[int, list[Result]] = {}
    for result in [each for each in found if each.cell.repeat is None] or found:
        if _off(result) > RESIDUAL_LIMIT:
            over.setdefault(result.cell.concurrency, []).append(result)
    for concurrency, cells in over.items():
        worst = max(cells, key=_off)
        whose = f"of {worst.cell.key}" if len(cells) == 1 else f"of {len(cells)} cells, most {worst.cell.key}'s,"
        by = 100 * (value(worst, "residual") or 0.0)
        yield f"B={concurrency}: the formula misses the speedup {whose} by {by:+.1f} %{_waits(worst, found)}"


def _off(result: Result) -> float:
    return abs(value(result, "residual") or 0.0)


def _waits(result: Result, found: Sequence[Result]) -> str:
    """The formula prices full passes; a sequence also waits for others' prefills, in batches not always full. Nothing
    where that does not have half of the miss."""
    square = (result.cell.concurrency, result.cell.repeat)
    plain = [each for each in found if each.cell.is_baseline and (each.cell.concurrency, each.cell.repeat) == square]
    known = [(value(each, "t_step"), value(each, "t_pass")) for each in (*plain, result)]
    waits = [step / full for step, full in known if step and full]
    if len(waits) != 2 or (waits[0] / waits[1] - 1) / (value(result, "residual") or 1.0) < 0.5:
        return ""
    return (
        ": it prices full passes, and a step by the clock, with others' prefills and batches not full, takes "
        f"{waits[0]:.2f}x such a pass in the baseline, {waits[1]:.2f}x there"
    )


def _falls(result: Result) -> str:
    """`2.40 up to 1024 tokens, 1.61 from 2049 on` where the intervals lie apart; else nothing."""
    told = [(low, measurement(result, f"al_by_context[{low}]")) for low in CONTEXT]
    known = [
        (low, m.value, m.low, m.high)
        for low, m in told
        if m.value is not None and m.low is not None and m.high is not None
    ]
    if len(known) < 2 or known[-1][3] >= known[0][2]:
        return ""
    return f"{known[0][1]:.2f} below {known[1][0]} tokens, {known[-1][1]:.2f} from {known[-1][0]} on"


def exit_code(found: Sequence[Result]) -> int:
    """5 where outputs are not the baseline's or requests failed, 1 where a cell has nothing, else 0."""
    if any(value(result, "lossless_real") or value(result, "failed_requests") for result in found):
        return 5
    return 1 if any(map(_is_empty, found)) else 0


def here(folder: str) -> Path:
    """The path of a run named on the command line."""
    if not folder:
        raise UserError("which run? name the folder that `speedbench run --out` wrote, as results/NAME")
    path = Path(folder)
    return path.parent if path.name in ("run.json", "summary.json") else path
