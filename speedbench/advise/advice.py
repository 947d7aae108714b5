"""A question answered: every batch's choice, the rules beside it, memory, the frontier and the schedules."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

from speedbench.advise import memory, rules
from speedbench.advise.curves import Seen
from speedbench.advise.frontier import Point, frontier, matched, points, within
from speedbench.advise.guidelines import Guideline, intensity
from speedbench.advise.memory import Room, Weight
from speedbench.advise.offers import MARGIN, Choice, choose, fastest, pays
from speedbench.advise.rules import Ground
from speedbench.advise.schedule import Schedule, schedule, trtllm, vllm, vllm_arguments
from speedbench.types import Prefill

SCHEMA = 1
"""Of the JSON document."""

MISS = 0.10
"""Relative difference of prediction and measurement beyond which a warning is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be decided."""

    ground: Ground
    batches: tuple[int, ...]
    answer: int
    """Tokens that a sequence may grow by: what memory is reserved for."""
    weights: Mapping[str, Weight | None]
    """By drafter, what it weighs; None: not known."""
    prefills: tuple[Prefill, ...] = ()
    """Prompts read, of which others' seconds follow; empty: not known."""
    user_tps: float | None = None
    """Tokens a second that each user must get; None: no such demand."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All of the answer."""

    question: Question
    choices: tuple[Choice, ...]
    guidelines: Mapping[int, tuple[Guideline, ...]]
    """By batch."""
    rooms: tuple[Room, ...]
    with_drafts: tuple[Point, ...]
    without: tuple[Point, ...]
    schedules: tuple[Schedule, ...]
    """By drafter, the one that wins at most batches first."""
    warnings: tuple[str, ...]


def advise(question: Question) -> Advice:
    """Pure: no file is read, nothing is run."""
    ground = question.ground
    choices = tuple(choose(ground.costs, ground.curves, batch, ground.context) for batch in question.batches)
    choices = tuple(_that_fit(question, each) for each in choices)
    rooms = {each.label: _room(question, each.label, _typical(choices, each.label)) for each in ground.curves}
    known = {label: room for label, room in rooms.items() if room is not None}
    said = [each for each in choices if each.served is not None]
    gpus = ground.on.gpus
    return Advice(
        question=question,
        choices=choices,
        guidelines={each.batch: tuple(rules.every(ground, each, known)) for each in choices},
        rooms=tuple(known.values()),
        with_drafts=tuple(frontier(points([each.served for each in said if each.served], gpus))),
        without=tuple(frontier(points([each.plain for each in said if each.plain], gpus))),
        schedules=tuple(_schedules(question, choices)),
        warnings=tuple(_warnings(question, choices)),
    )


def _room(question: Question, label: str, draft_length: int) -> Room | None:
    weight, ground = question.weights.get(label), question.ground
    if weight is None:
        return None
    return memory.room(ground.on, label, draft_length, weight, ground.context + question.answer)


def _typical(choices: Sequence[Choice], label: str) -> int:
    """The D that memory is counted for: the largest that a drafter would be used with, else its smallest."""
    best = [fastest(choice.offers, label) for choice in choices]
    used = [each.draft_length for each in best if each is not None and each.speedup > 1]
    return max(used, default=1)


def _that_fit(question: Question, choice: Choice) -> Choice:
    """A batch's choice without what would not fit into memory with it, and nothing where the target alone would not."""
    alone = memory.room(
        question.ground.on, "none", 0, Weight(weights=0.0, per_token=0.0, origin="counted"),
        question.ground.context + question.answer,
    )  # fmt: skip
    if alone.largest is not None and alone.largest < choice.batch:
        said = f"B={choice.batch} does not fit into memory: {alone.largest} sequences do"
        return replace(choice, verdict="unknown", best=None, plain=None, as_good=(), offers=(), refused=(said,))
    tight = {
        (each.drafter, each.draft_length)
        for each in choice.offers
        if (room := _room(question, each.drafter, each.draft_length)) is not None
        and room.largest is not None
        and room.largest < choice.batch
    }
    if not tight:
        return choice
    curves = [
        replace(curve, points={d: al for d, al in curve.points.items() if (curve.label, d) not in tight})
        for curve in question.ground.curves
    ]
    again = choose(question.ground.costs, curves, choice.batch, question.ground.context)
    left = ", ".join(f"{label} D={d}" for label, d in sorted(tight))
    return replace(again, refused=(*again.refused, f"{left}: would not fit into memory at B={choice.batch}"))


def _schedules(question: Question, choices: Sequence[Choice]) -> list[Schedule]:
    """One a drafter, the one that wins at most batches first; a batch of which nothing can be said ends it."""
    wins = Counter(choice.best.drafter for choice in choices if choice.best is not None)
    made = []
    for curve in question.ground.curves:
        told = list(takewhile(lambda choice: choice.verdict != "unknown", choices))
        best = _steady({choice.batch: _gains(choice, curve.label) for choice in told})
        if any(best.values()):
            made.append(schedule(curve.label, curve.mechanism, best))
    return sorted(made, key=lambda each: -wins[each.drafter])


def _gains(choice: Choice, label: str) -> dict[int, float]:
    """Speedup by D of what surely pays, and of D = 0."""
    paying = [each for each in choice.offers if each.drafter == label and pays(each)]
    return {0: 1.0, **{each.draft_length: each.speedup for each in paying}}


def _steady(gains: Mapping[int, Mapping[int, float]]) -> dict[int, int]:
    """D by batch. From the largest batch down, D stays what it was as long as that costs less than 2 %."""
    chosen: dict[int, int] = {}
    last = -1
    for batch in sorted(gains, reverse=True):
        top = max(gains[batch].values())
        good = sorted(d for d, gain in gains[batch].items() if gain >= top * (1 - MARGIN))
        last = chosen[batch] = last if last in good else next((d for d in good if d > last), good[0])
    return chosen


def _warnings(question: Question, choices: Sequence[Choice]) -> list[str]:
    said = list(question.notes)
    if question.ground.on.facts.state:
        said.append("memory: a recurrent state is counted 1 + D times, as vLLM keeps it; recomputing would need less")
    for choice in choices:
        said += [f"B={choice.batch}: {each}" for each in choice.refused[:3]]
        if len(choice.refused) > 3:
            said.append(f"B={choice.batch}: and {len(choice.refused) - 3} more like these")
    for curve in question.ground.curves:
        falls = [b for a, b in pairwise(curve.points) if curve.points[b].value < curve.points[a].value]
        if falls:
            said.append(
                f"{curve.label}: AL falls at D={', '.join(map(str, falls))}; for a drafter whose drafts do not depend "
                "on D that is noise"
            )
    return said + [_missed(each, choices) for each in question.ground.seen if _missed(each, choices)]


def _missed(seen: Seen, choices: Sequence[Choice]) -> str:
    """Where a prediction is off what was measured; empty where it is not, or was not made."""
    for choice in choices:
        for offer in choice.offers if choice.batch == seen.batch else ():
            if (offer.drafter, offer.draft_length) == (seen.label, seen.draft_length):
                off = offer.speedup / seen.speedup - 1
                if abs(off) > MISS:
                    return (
                        f"B={seen.batch} {seen.label} D={seen.draft_length}: {offer.speedup:.2f}x by the times, "
                        f"{seen.speedup:.2f}x measured ({100 * off:+.0f} %)"
                    )
    return ""


# ---- the document ---------------------------------------------------------------------------------------------------


def to_json(advice: Advice) -> dict[str, Any]:
    """One document of plain values; unknown is None."""
    question = advice.question
    on, user_tps = question.ground.on, question.user_tps
    return {
        "schema": SCHEMA,
        "model": model_json(question),
        "hardware": asdict(on.hardware) | {"gpus": on.gpus},
        "times": question.ground.by,
        "context": question.ground.context,
        "batches": [_choice_json(each, advice.guidelines[each.batch]) for each in advice.choices],
        "memory": [asdict(each) for each in advice.rooms],
        "frontier": {
            "speculating": [asdict(each) for each in advice.with_drafts],
            "plain": [asdict(each) for each in advice.without],
            "at": None if user_tps is None else demand(advice, user_tps),
        },
        "schedules": [
            {
                "drafter": each.drafter,
                "ranges": [asdict(one) for one in each.ranges],
                "vllm": vllm(each),
                "trtllm": trtllm(each),
                "notes": list(vllm_arguments(each)),
            }
            for each in advice.schedules
        ],
        "warnings": list(advice.warnings),
    }


def model_json(question: Question) -> dict[str, Any]:
    on = question.ground.on
    facts = on.facts
    return {
        "name": facts.name,
        "parameters": facts.parameters,
        "active_parameters": facts.active_parameters,
        "layers": facts.layers,
        "full_attention_layers": facts.full,
        "G": facts.group,
        "G_local": on.local_group,
        "latent_attention": bool(facts.latent),
        "weight_bytes": on.weights,
        "kv_bytes_per_token": on.cache_bytes(1) if not facts.windowed else on.entry_bytes * facts.full,
        "state_bytes": facts.state,
        "attention_intensity": {"flop_per_byte_at_d0": intensity(on.local_group, 0, on.kv_bytes), "b": on.kv_bytes},
    }


def demand(advice: Advice, user_tps: float) -> dict[str, Any]:
    """Tokens/s/GPU with and without speculation where each user gets so many tokens/s, and speed at equal throughput.

    The ratio at equal throughput is the steadier of the two: near the end of the plain frontier the other explodes.
    """
    ours, theirs = within(advice.with_drafts, user_tps), within(advice.without, user_tps)
    equal = matched(advice.with_drafts, theirs.gpu_tps) if theirs else None
    return {
        "user_tps": user_tps,
        "speculating": ours and asdict(ours),
        "plain": theirs and asdict(theirs),
        "user_tps_at_equal_throughput": equal and equal.user_tps,
    }


def _choice_json(choice: Choice, found: Sequence[Guideline]) -> dict[str, Any]:
    return {
        "batch": choice.batch,
        "verdict": choice.verdict,
        "draft_length": choice.draft_length,
        "best": choice.best and asdict(choice.best),
        "as_good": [{"drafter": each.drafter, "draft_length": each.draft_length} for each in choice.as_good],
        "offers": [asdict(each) for each in choice.offers],
        "refused": list(choice.refused),
        "guidelines": [asdict(each) for each in found],
    }
