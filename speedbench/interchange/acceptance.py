"""Acceptance in the shapes that others read: a golden AL curve, and a profile to lie beside a drafter's checkpoint."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from speedbench.columns import measurement, value
from speedbench.errors import UnknownName, UserError
from speedbench.pairing import pooled
from speedbench.results import Run
from speedbench.stats import answered
from speedbench.types import Measured, Result

PROFILE_VERSION = "1.0"
"""Of specdec_bench's speculation_profile.json, whose keys these are."""

CHAIN = frozenset({"eagle3", "external", "mtp"})
"""Mechanisms whose first drafts are the same at every D, so that one D tells of the shorter ones."""


def golden_al(run: Run, drafter: str, mode: str) -> str:
    """`model: {mode: {D: AL}}` as YAML, as InferenceX keeps it: AL = 1 + Σ accepted / Σ steps with a draft.

    That is not the pooled AL over all steps, which is smaller where a drafter did not always draft; a comment says so.
    """
    curve = {each.cell.draft_length: _drafted(each) for each in _cells(run, drafter)}
    untold = [d for d, al in curve.items() if al is None]
    if untold:
        raise UserError(f"'{drafter}' at D = {untold[0]}: no answer tells what was proposed and accepted")
    rounded = {d: round(al, 2) for d, al in sorted(curve.items()) if al is not None}
    body = {"_metadata": {"draft-model": drafter}, _model(run): {mode: rounded}}
    lines = [f"# {' '.join(line.split())}" for line in _conditions(run, drafter)]
    return "\n".join(lines) + "\n" + yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def _conditions(run: Run, drafter: str) -> list[str]:
    config = run.document["config"]
    sampling, task = config["sampling"], config["task"]
    return [
        "Acceptance length (AL) by draft length D, measured with speedbench: 1 + accepted drafts / steps with a draft.",
        f"task {task['name']} version {task.get('version')}, {len(config['request_ids'])} conversations, prompts "
        f"{task['content_hash']}",
        f"temperature {sampling.get('temperature')}, top-p {sampling.get('top_p')}, top-k {sampling.get('top_k')}, at "
        f"most {sampling.get('max_tokens')} tokens; backend {config['runner'].get('backend')}, drafter {drafter}",
        *_doubts(run),
    ]


def _doubts(run: Run) -> list[str]:
    """What a reader of these numbers must know."""
    told = run.document["config"].get("workload") or {}
    partial = ["the run is not finished"] if not run.document["finished"] or run.missing else []
    return [f"careful: {each}" for each in [*partial, *told.get("warnings", ())]]


def _drafted(measured: Measured) -> float | None:
    accepted = drafted = 0.0
    for record in answered(measured):
        if record.counts is not None:
            if record.counts.accepted is None or record.counts.drafted is None:
                return None
            accepted, drafted = accepted + record.counts.accepted, drafted + record.counts.drafted
            continue
        for step in record.steps:
            if step.proposed is None or step.accepted is None:
                return None
            accepted, drafted = accepted + step.accepted, drafted + bool(step.proposed)
    return 1 + accepted / drafted if drafted else None


# ---- a profile -------------------------------------------------------------------------------------------------------


def profile(run: Run, results: Sequence[Result], drafter: str, draft_length: int | None) -> dict[str, Any]:
    """How often drafts are accepted, by position and over all: marginal and conditional, pooled and per request.

    `mean_accept_length` is over the steps that nothing cut short, and so 1 + Σ marginal; `pooled_accept_length` is over
    all steps. Null is what the engine did not tell, or a position that was never reached.
    """
    cells = {each.cell.draft_length: each for each in _cells(run, drafter)}
    d = max(cells) if draft_length is None else draft_length
    if d not in cells:
        raise UserError(f"-D {d}: '{drafter}' was measured at {', '.join(map(str, sorted(cells)))}")
    by_cell = {result.cell: result for result in results}
    found = by_cell[cells[d].cell]
    by_d = {n: value(by_cell[each.cell], "al_complete") for n, each in sorted(cells.items())}
    method = _method(run, drafter)
    return {
        "schema_version": PROFILE_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": {"label": drafter},
        "target_model": {"name": _model(run)},
        "num_speculative_tokens": d,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": _positions(found, "conditional", d),
        "marginal_accept_rates": _positions(found, "marginal", d),
        "mean_accept_length": value(found, "al_complete"),
        "mean_accept_length_per_request": value(found, "al_per_request"),
        "pooled_accept_length": _with_interval(found),
        "accept_length_model": "chain_analytic" if method in CHAIN else "measured_per_k",
        "accept_length_by_k": {str(n): al for n, al in by_d.items()},
        "acceptance_length_histogram": _histogram(cells[d]),
        "per_category": {name: {"pooled_accept_length": _al(some)} for name, some in found.by_category.items()},
        "measurement_conditions": _measured_on(run, cells[d]),
    }


def _positions(result: Result, kind: str, d: int) -> list[float | None]:
    return [value(result, f"accepted_at_{kind}[{i}]") for i in range(1, d + 1)]


def _al(metrics: Mapping[str, Any]) -> float | None:
    found = metrics.get("al")
    return None if found is None else found.value


def _with_interval(result: Result) -> dict[str, Any]:
    found = measurement(result, "al")
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "conversations": found.n,
        "origin": found.origin,
    }


def _histogram(measured: Measured) -> dict[str, int] | None:
    """{tokens of a step: how many steps}; None where the engine told no single steps."""
    if any(record.counts for record in answered(measured)):
        return None
    lengths = Counter(step.committed for record in answered(measured) for step in record.steps)
    return {str(length): lengths[length] for length in sorted(lengths)}


def _measured_on(run: Run, measured: Measured) -> dict[str, Any]:
    config = run.document["config"]
    return {
        "tool": "speedbench",
        "dataset": config["task"]["name"],
        "prompts_sha256": config["task"]["content_hash"],
        "conversations": len(config["request_ids"]),
        "sampling": config["sampling"],
        "engine": config["runner"].get("backend"),
        "concurrency": measured.cell.concurrency,
        "warnings": _doubts(run),
    }


# ---- both ------------------------------------------------------------------------------------------------------------


def chosen(run: Run, drafter: str) -> str:
    """The drafter asked for, or the only one of the run. Raises `UserError` where it is not clear or not there."""
    labels = list(dict.fromkeys(each.cell.drafter for each in run.measured if not each.cell.is_baseline))
    if drafter and drafter not in labels:
        raise UnknownName("drafter of this run", drafter, labels)
    if not drafter and len(labels) != 1:
        raise UserError(f"--drafter: the run has {', '.join(labels) or 'no drafter'}; name one")
    return drafter or labels[0]


def _cells(run: Run, drafter: str) -> list[Measured]:
    """The drafter's cells at the run's lowest concurrency, repeats pooled where there are several."""
    own = [each for each in run.measured if each.cell.drafter == drafter and not each.cell.is_baseline]
    least = min(each.cell.concurrency for each in own)
    own = [each for each in own if each.cell.concurrency == least]
    return pooled(own) if len({each.cell.repeat for each in own}) > 1 else own


def _method(run: Run, drafter: str) -> str | None:
    return next((each["drafter"] for each in run.document["config"]["draftings"] if each["label"] == drafter), None)


def _model(run: Run) -> str:
    """The target's name without the folders before it, which are of this machine."""
    return PurePosixPath(str(run.document["config"]["runner"]["model"]).replace("\\", "/")).name.removesuffix(".gguf")
