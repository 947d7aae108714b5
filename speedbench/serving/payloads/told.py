"""What a response tells about acceptance, whichever engine sent it, and whether it can be true."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one response says of its own drafts, in one vocabulary. None is what it does not say.

    Numbers that contradict each other are left None, and `faults` says what they were.
    """

    source: str | None
    """Whose shape it is: `vllm per step`, `vllm histogram`, `sglang histogram`, `sglang counts`, `trtllm choice`,
    `trtllm iterations`, `llamacpp timings`, `mlx-vlm timings`; None where it tells nothing of drafts."""
    steps: tuple[tuple[int, int], ...] | None = None
    """(proposed, accepted) of each step that had drafts, in order; accepted is what was right before a stop cut it."""
    histogram: tuple[int, ...] | None = None
    """[j]: steps with drafts that accepted j of them."""
    drafted: int | None = None
    """Steps that had drafts."""
    proposed: int | None = None
    most_proposed: int | None = None
    """Where the engine tells only steps × width: what was proposed at most."""
    accepted: int | None = None
    configured: int | None = None
    """Drafts per step that the server is set to."""
    forwards: int | None = None
    """Target passes after the prefill, drafted or not."""
    reported_al: float | None = None
    """The engine's own mean, by its own definition, for comparison only."""
    reported_as: str | None = None
    """That definition."""
    tokens: int | None = None
    """Output tokens by the engine's count."""
    ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None
    prefill: float | None = None
    """Seconds of prefill by the engine's clock."""
    decode: float | None = None
    """Seconds from the first token to the last by the engine's clock."""
    faults: tuple[str, ...] = ()


def checked(told: Told, *more: str) -> Told:
    """The same, but with no drafts at all where what it says of them contradicts itself (`more`: found already)."""
    found = tuple(f"{told.source}: {problem}" for problem in (*more, *_problems(told)))
    if not found:
        return told
    return replace(
        told,
        steps=None,
        histogram=None,
        drafted=None,
        proposed=None,
        most_proposed=None,
        accepted=None,
        faults=told.faults + found,
    )


def _problems(told: Told) -> Iterator[str]:
    if told.accepted is None and told.histogram is None:
        yield "no whole number of accepted drafts"
    counts = {"drafted": told.drafted, "proposed": told.proposed, "accepted": told.accepted}
    yield from (f"{name} {count} is negative" for name, count in counts.items() if count is not None and count < 0)
    most = told.proposed if told.proposed is not None else told.most_proposed
    if told.accepted is not None and most is not None and told.accepted > most:
        yield f"{told.accepted} accepted of {most} proposed"
    if told.histogram is not None:
        yield from _histogram_problems(told, told.histogram)
    if told.steps is not None:
        yield from _step_problems(told, told.steps)


def _histogram_problems(told: Told, histogram: tuple[int, ...]) -> Iterator[str]:
    if min(histogram, default=0) < 0:
        yield f"the histogram {list(histogram)} has a negative count"
    total, accepted = sum(histogram), sum(j * n for j, n in enumerate(histogram))
    if told.drafted is not None and total != told.drafted:
        yield f"the histogram holds {total} steps; {told.drafted} are told"
    if told.accepted is not None and accepted != told.accepted:
        yield f"the histogram holds {accepted} accepted drafts; {told.accepted} are told"


def _step_problems(told: Told, steps: tuple[tuple[int, int], ...]) -> Iterator[str]:
    yield from (f"step {i}: {a} accepted of {p} proposed" for i, (p, a) in enumerate(steps) if not 0 <= a <= p)
    sums = {
        "steps": (len(steps), told.drafted),
        "proposed drafts": (sum(p for p, _ in steps), told.proposed),
        "accepted drafts": (sum(a for _, a in steps), told.accepted),
    }
    for name, (ours, theirs) in sums.items():
        if theirs is not None and ours != theirs:
            yield f"the steps hold {ours} {name}; {theirs} are told"
    if told.histogram is not None:
        tally = Counter(a for _, a in steps)
        if tally != Counter(dict(enumerate(told.histogram))):  # equal but for zeros
            yield f"the steps accepted {dict(sorted(tally.items()))}; the histogram is {list(told.histogram)}"
