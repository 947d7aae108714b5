"""What is asked of a replay with a model: where the answers come from, and what is known before they are there."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speedbench import plugins, sizing
from speedbench import task as tasks
from speedbench.errors import UnknownName, UserError
from speedbench.replay import outputs
from speedbench.replay.outputs import Outputs
from speedbench.results import Run, Writer
from speedbench.task import content_hash
from speedbench.types import Origin, Request, Runner, Sampling

if TYPE_CHECKING:
    from speedbench.backends.native import NativeSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Answers to be replayed."""

    base: Mapping[str, Any]
    """Task, requests and runner, as run.json has them."""
    sampling: Sampling
    source: str
    longest: int
    """Tokens of the longest row, prompt and answer."""
    outputs: Callable[[Writer], Outputs]
    """The answers, made now where they are not there."""
    notes: tuple[str, ...] = ()
    origin: Origin = "exact"


def limits(session: NativeSession) -> outputs.Limits:
    return outputs.Limits(session.target.vocab, session.context)


def of_run(session: NativeSession, runner: Runner, run: Run, task: str | None) -> Asked:
    """The answers of a run's baseline."""
    base, sampling = run.document["config"], Sampling(**run.document["config"]["sampling"])
    asked, _ = sizing.measured(_requests(run, task), session, runner, sampling.max_tokens)
    found = outputs.of_run(run, asked, session.chat, limits(session))
    model = base["runner"]["model"]
    other = [f"the outputs are those of model '{model}', the drafters were replayed on '{runner.model}'"]
    notes = (*found.notes, *other * (model != runner.model))
    return _there({**base, "runner": asdict(runner)}, found, sampling, f"the outputs of {run.name}", notes)


def of_file(session: NativeSession, runner: Runner, path: Path, sampling: Sampling) -> Asked:
    """The answers of a JSONL."""
    rows = plugins.load("sources", "jsonl")({"file": path.name}, str(path.parent))
    found = outputs.of_rows(rows, session.chat, limits(session))
    ids = list(dict.fromkeys(each.request for each in found.answers))
    task = {
        "name": path.stem, "title": f"the answers of {path.name}", "version": 1, "licence": "unknown",
        "source": "outputs", "where": {"file": path.name}, "requests": len(ids), "representative": True,
        "content_hash": _hash(found),
    }  # fmt: skip
    base = {"task": task, "request_ids": ids, "runner": asdict(runner)}
    return _there(base, found, sampling, f"the outputs in {path.name}", found.notes)


def _hash(found: Outputs) -> str:
    """What was asked, in 16 hex digits."""
    return sha256("\n".join(each.prompt_sha for each in found.answers).encode()).hexdigest()[:16]


def _there(base: Mapping[str, Any], found: Outputs, sampling: Sampling, source: str, notes: tuple[str, ...]) -> Asked:
    longest = max(len(each.prompt) + len(each.output) for each in found.answers)
    return Asked(
        base=base, sampling=sampling, source=source, longest=longest, outputs=lambda writer: found, notes=notes,
        origin=found.origin,
    )  # fmt: skip


def _requests(run: Run, task: str | None) -> tuple[Request, ...]:
    """What a run asked, from the task that it names or the one given. Raises `UserError` where that is another now."""
    told = run.document["config"]
    wanted = told["task"]
    try:
        loaded = tasks.load(task or wanted["name"])
    except UnknownName:
        raise UserError(
            f"'{run.path}' asked '{wanted['name']}', which is not shipped; name its file with --task"
        ) from None
    every = {request.id: request for request in tasks.requests(loaded)}
    found = tuple(every[name] for name in told["request_ids"] if name in every)
    if len(found) != len(told["request_ids"]) or content_hash(found) != wanted["content_hash"]:
        raise UserError(
            f"task '{loaded.name}' does not ask what '{run.path}' asked (content {content_hash(found)}, there "
            f"{wanted['content_hash']}); name the file that it was run with, --task FILE"
        )
    return found
