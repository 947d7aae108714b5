"""What a submission must keep to stand on a board; each problem says what was got and what is right."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from speedbench import plugins
from speedbench.columns import measurement, value
from speedbench.leaderboard.redaction import scrubbed
from speedbench.leaderboard.rows import drift, is_lossy, lossless, output_ratio
from speedbench.leaderboard.submission import WEIGHTLESS, Submission
from speedbench.measure import NOISY, noise
from speedbench.pairing import LENGTH_LIMIT, baseline_of
from speedbench.types import Counts, Measured, Result

LEAST = 20
"""Conversations below which an interval rests on too few."""

IDENTITY = 0.05
"""Relative difference by which AL / step cost may miss the speedup, both by the clock of the same answers."""

DRIFT = 0.03
"""Change of a fixed piece of work over the run that is marked."""


def problems(submission: Submission, results: Sequence[Result]) -> list[str]:
    """Everything that keeps it off a board; empty when all is well. `results`: every cell's `METRICS`."""
    entry = submission.entry
    found = [*_provenance(submission), *_whole(submission)]
    if entry.workload.conversations < LEAST:
        found.append(f"{entry.workload.conversations} conversations; at least {LEAST}")
    measured = {each.cell: each for each in submission.run.measured}
    for result in results:
        here = measured.get(result.cell)
        if here is not None:
            said = [*_counts(here), *_cell(submission, result, here)]
            found += [f"{result.cell.key}: {problem}" for problem in said]
    return found


def marks(submission: Submission, result: Result) -> list[str]:
    """What a row is marked by. Each keeps it out of the ranks, but for `dirty`, `drift` and `resumed`."""
    entry, found = submission.entry, []
    draft = entry.draft(result.cell.drafter)
    spread, changed = noise(submission.run.noise), drift(submission.run.noise)
    if spread is None or spread > NOISY:
        found.append("noise not measured" if spread is None else "noisy")
    if lossless(submission, result) == "unexplained":
        found.append("unexplained")
    if measurement(result, "al").origin not in ("exact", "derived"):
        found.append("AL estimated")
    if draft and not plugins.load("drafters", draft.method).servable:
        found.append("ceiling")
    if changed is not None and abs(changed) > DRIFT:
        found.append("drift")
    if entry.dirty:
        found.append("dirty")
    if entry.processes > 1:
        found.append("resumed")
    return found


UNRANKED_SPEED = frozenset({"noisy", "noise not measured", "unexplained", "ceiling", "weak baseline"})
UNRANKED_AL = frozenset({"AL estimated", "unexplained", "ceiling"})


# ---- the entry -------------------------------------------------------------------------------------------------------


def _provenance(submission: Submission) -> Iterator[str]:
    entry, how = submission.entry, "submit it again with --declare"
    said = asdict(entry)
    private = [key for key in said if scrubbed(said[key], here=False) != _listed(said[key])]
    yield from (f"{key} holds a path, URL, host, address or key" for key in private)
    needed: dict[str, object] = {
        "target_revision": entry.target.revision, "target_dtype": entry.target.dtype,
        "target_quant": entry.target.quant, "engine_version": entry.engine.version,
    }  # fmt: skip
    if entry.machine.gpus:
        needed |= {"power_limit_w": entry.machine.power_limit_w, "clocks": entry.machine.clocks}
        if len({gpu.name for gpu in entry.machine.gpus}) > 1:
            yield "GPUs of several kinds; a board is of one"
    for key, got in needed.items():
        if got is None:
            yield f"{key} is not known; {how} {key}=…"
    for draft in entry.drafts:
        if draft.method not in plugins.names("drafters"):
            yield f"drafter '{draft.label}': no mechanism named '{draft.method}'"
        if draft.method not in WEIGHTLESS and draft.revision is None:
            yield f"drafter_revision of '{draft.label}' is not known; {how} drafter_revision.{draft.label}=…"
    if entry.engine.name == "scripted" or entry.engine.name not in plugins.names("backends"):
        yield f"engine '{entry.engine.name}' measures nothing"


def _listed(tree: object) -> object:
    """Tuples as lists, for comparing with what came through JSON."""
    if isinstance(tree, dict):
        return {key: _listed(each) for key, each in tree.items()}
    return [_listed(each) for each in tree] if isinstance(tree, (list, tuple)) else tree


def _whole(submission: Submission) -> Iterator[str]:
    """Nothing that was planned may be missing, nothing else be there, and nothing have failed."""
    entry, run = submission.entry, submission.run
    planned = Counter(cell.key for cell in entry.cells)
    yield from (f"{key}: planned {n} times" for key, n in planned.items() if n > 1)
    more = sorted(each.cell.key for each in run.measured if each.cell not in entry.cells)
    yield from (f"{key}: is in the counts, and was not planned" for key in more)
    yield from run.missing
    known = {draft.label for draft in entry.drafts} | {"none"}
    for cell in entry.cells:
        if cell.drafter not in known:
            yield f"{cell.key}: no drafter of that label in the entry"
        if (cell.drafter == "none") != cell.is_baseline or cell.repeat is None:
            yield f"{cell.key}: the drafter none and D = 0 go together, and a repeat has a number"
        if (cell.task, cell.runner) != (entry.workload.name, entry.engine.name):
            got = f"{cell.task} on {cell.runner}"
            yield f"{cell.key}: is of {got}; the entry is of {entry.workload.name} on {entry.engine.name}"
    held = {(record.request, record.category) for each in run.measured for record in each.records}
    counted = Counter(category for _, category in held)
    if len(held) != entry.workload.conversations or counted != Counter(entry.workload.categories):
        yield "the conversations counted, and those of each category, are not as many as the entry says"


# ---- a cell ----------------------------------------------------------------------------------------------------------


def _counts(measured: Measured) -> Iterator[str]:
    """Sums that an engine gave in place of steps; single steps are validated as those of any run."""
    d = measured.cell.draft_length
    for record in measured.records:
        if record.counts is not None and not _can_be(record.counts, d):
            yield f"{record.request} turn {record.turn}: {asdict(record.counts)} cannot be with D = {d}"


def _can_be(counts: Counts, d: int) -> bool:
    accepted, proposed, drafted = counts.accepted, counts.proposed, counts.drafted
    pairs = [(0, counts.steps), (counts.committed, (d + 1) * counts.steps), (0, counts.committed), (0, accepted),
             (accepted, proposed), (0, drafted), (drafted, counts.steps),
             (proposed, None if drafted is None else d * drafted)]  # fmt: skip
    return all(low <= high for low, high in pairs if low is not None and high is not None)


def _cell(submission: Submission, result: Result, measured: Measured) -> Iterator[str]:
    failed, d = value(result, "failed_requests"), result.cell.draft_length
    if failed:
        yield f"{failed:.0f} turns failed; a board takes runs without failures"
    al = value(result, "al")
    if al is not None and not 1 <= al <= d + 1:
        yield f"AL {al:.4g}; with D = {d} from 1 to {d + 1}"
    baseline = baseline_of(measured, submission.run.measured)
    if baseline is None:
        yield f"no baseline (D = 0) at concurrency {result.cell.concurrency}"
        return
    if result.cell.is_baseline and al is not None and al != 1:
        yield f"a baseline's AL is 1, this is {al:.4g}"
    ratio = output_ratio(measured, baseline)
    if ratio is None or abs(ratio - 1) > LENGTH_LIMIT:
        got = "none" if ratio is None else f"{ratio:.3f} times as many"
        yield f"{got} output tokens against the baseline's; within {LENGTH_LIMIT:.0%} of as many"
    draft = submission.entry.draft(result.cell.drafter)
    if lossless(submission, result) == "no" and not is_lossy(submission, draft):
        yield f"{value(result, 'lossless_real'):.0f} outputs differ from the baseline's beyond a near tie: not lossless"
    yield from _speed(result)


def _speed(result: Result) -> Iterator[str]:
    """AL / step cost is the speedup, whatever the machine did: all three come of the same answers' clocks."""
    al, cost, speedup = (value(result, name) for name in ("al", "step_cost", "speedup"))
    if speedup is None:
        yield "no speedup: no turn has times in both arms"
    elif al is not None and cost and abs(speedup * cost / al - 1) > IDENTITY:
        yield f"speedup {speedup:.4g} is not AL / step cost = {al / cost:.4g}, to {IDENTITY:.0%}"
