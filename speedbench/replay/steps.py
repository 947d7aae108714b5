"""Tables out of one engine run at its largest D, by what each of its steps accepted; no model is needed.

Where a draft's rightness does not depend on where its proposal began (an external drafter), a step that accepted a of
p drafts says a hits and, if a < p, a miss; only the token behind a proposal accepted whole is not judged. A walk at a
smaller D whose D + 1 divides the run's never asks for those, so it is exact; at another D they bound it.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speedbench.types import Answer, Matches, Measured, Record

UNKNOWN = None
POSITIONAL = ("external",)
"""Mechanisms whose drafts are right or wrong by their position alone; of others the same reading is an estimate."""


def usable(measured: Measured) -> bool:
    """Whether the cell tells every step's drafts."""
    told = [step.proposed is not None and step.accepted is not None for r in measured.records for step in r.steps]
    return measured.cell.draft_length > 0 and bool(told) and all(told)


def divides(draft_length: int, longest: int) -> bool:
    return (longest + 1) % (draft_length + 1) == 0


def answer(record: Record, cap: int | None) -> Answer:
    stopped = record.finish == "stop"
    return Answer(
        request=record.request, category=record.category, turn=record.turn, prompt=(),
        prompt_tokens=record.prompt_tokens, prompt_sha=record.prompt_sha, output=record.output,
        cap=cap if stopped else len(record.output), finish=record.finish,
    )  # fmt: skip


def table(record: Record, draft_length: int, *, unknown: bool) -> Matches:
    """The table of one answer of a run at this D, the drafts that nobody judged taken for hits or for misses."""
    verdicts = [unknown if verdict is UNKNOWN else verdict for verdict in _verdicts(record)]
    run, runs = 0, list[int]()
    for hit in reversed(verdicts):
        run = run + 1 if hit else 0
        runs.append(min(run, draft_length))
    size = len(record.output) - 1
    return Matches(offered=(draft_length,) * size, matched=tuple(runs[::-1][:size]))


def _verdicts(record: Record) -> Iterator[bool | None]:
    """Of each token of the output but the first, whether it was drafted; those behind a stop token too."""
    for step in record.steps:
        accepted, proposed = step.accepted or 0, step.proposed or 0
        yield from (True,) * accepted
        yield False if accepted < proposed else UNKNOWN


def records(measured: Measured) -> Sequence[Record]:
    return [record for record in measured.records if record.finish != "error" and record.output]
