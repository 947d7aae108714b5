"""Advice for people: the recommendation first, then the rules beside it, memory, the frontier and the schedule."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from speedbench.advise.advice import Advice, demand
from speedbench.advise.guidelines import Guideline
from speedbench.advise.memory import Room
from speedbench.advise.offers import Choice, Offer
from speedbench.advise.schedule import Schedule, trtllm, vllm, vllm_arguments
from speedbench.cli.tables import blank, console, plain
from speedbench.columns import UNKNOWN

if TYPE_CHECKING:
    from speedbench.advise.capacity import Plan

_GB = 1e9


def print_advice(advice: Advice) -> None:
    out, ground = console(), advice.question.ground
    facts = ground.on.facts
    out.print(
        plain(
            f"{facts.name}: {facts.parameters / 1e9:.3g} B parameters, G={ground.on.local_group}, full attention in "
            f"{facts.full} of {facts.layers} layers; context {ground.context}; by {ground.by}"
        ),
        soft_wrap=True,
    )
    out.print(_choices(advice.choices))
    for choice in advice.choices:
        out.print(plain(sentence(choice)), soft_wrap=True)
    ends = [advice.choices[0]] if len(advice.choices) == 1 else [advice.choices[0], advice.choices[-1]]
    for choice in ends:
        _print_rules(out, choice.batch, advice.guidelines[choice.batch])
    if advice.rooms:
        out.print(_rooms(advice.rooms))
    _print_frontier(out, advice)
    for each in advice.schedules[:1]:
        _print_schedule(out, each)
    if not advice.schedules:
        out.print("no schedule: at no batch does a drafter pay for sure")
    for warning in advice.warnings:
        out.print(plain(f"warning: {warning}"), style="yellow", soft_wrap=True)


def sentence(choice: Choice) -> str:
    """What to do at one batch."""
    best = choice.best
    if choice.verdict == "unknown" or best is None:
        return f"B={choice.batch}: nothing to recommend: {choice.refused[0] if choice.refused else 'no times'}"
    name = f"{best.drafter} D={best.draft_length}"
    if choice.verdict == "do_not_speculate":
        return f"B={choice.batch}: do not speculate: the best, {name}, gives {_speed(best)}"
    if choice.verdict == "within_noise":
        return f"B={choice.batch}: no gain beyond what the times can tell: the best, {name}, gives {_speed(best)}"
    good = ", ".join(f"{each.drafter} D={each.draft_length}" for each in choice.as_good[:4])
    return f"B={choice.batch}: use {name}: {_speed(best)}" + (f"; as good within noise: {good}" if good else "")


def _speed(each: Offer) -> str:
    interval = "" if each.low is None or each.high is None else f" [{each.low:.2f}, {each.high:.2f}]"
    return f"{each.speedup:.2f}x{interval}"


def _choices(choices: Sequence[Choice]) -> Table:
    made = blank()
    for title in ("B", "drafter", "D", "AL", "break-even AL", "draft ovh", "verify ovh", "speedup", "tok/s/user"):
        made.add_column(title, justify="left" if title == "drafter" else "right")
    for choice in choices:
        best = choice.best
        if best is None:
            made.add_row(str(choice.batch), *[UNKNOWN] * 8)
            continue
        cells = (best.al, best.break_even, best.draft_overhead, best.verify_overhead)
        made.add_row(
            str(choice.batch), plain(best.drafter), str(best.draft_length), *(f"{x:.2f}" for x in cells), _speed(best),
            f"{best.user_tps:.1f}",
        )  # fmt: skip
    return made


def _print_rules(out: Console, batch: int, found: Sequence[Guideline]) -> None:
    made = blank(f"the guidelines at B={batch}")
    for title in ("", "rule", "says", "optimum", "", "why"):
        made.add_column(title, overflow="fold")
    for each in found:
        state = "does not apply" if not each.applies else {True: "agrees", False: "DISAGREES", None: ""}[each.agrees]
        optimum = UNKNOWN if each.optimum is None else str(each.optimum)
        said = UNKNOWN if each.value is None else str(each.value)
        made.add_row(str(each.number), plain(each.title), said, optimum, state, plain(each.why))
    out.print(made)
    by = next((each.optimum_by for each in found if each.optimum_by), "")
    if by:
        out.print(plain(f"optimum: {by}"), soft_wrap=True)


def _rooms(rooms: Sequence[Room]) -> Table:
    made = blank("memory")
    for title in ("drafter", "D", "weights GB", "drafter GB", "MB a sequence", "largest B", "B lost to it"):
        made.add_column(title, justify="left" if title == "drafter" else "right")
    for each in rooms:
        counts = [UNKNOWN if n is None else str(n) for n in (each.largest, each.lost)]
        made.add_row(
            plain(each.drafter), str(each.draft_length), f"{each.weights / _GB:.1f}", f"{each.draft_weights / _GB:.2f}",
            f"{each.per_sequence / 1e6:.0f}", *counts,
        )  # fmt: skip
    return made


def _print_frontier(out: Console, advice: Advice) -> None:
    made = blank("frontier: tokens/s/GPU against tokens/s/user")
    for title in ("", "B", "drafter", "D", "tok/s/user", "tok/s/GPU"):
        made.add_column(title, justify="right" if title not in ("", "drafter") else "left")
    for name, some in (("speculating", advice.with_drafts), ("plain", advice.without)):
        for each in some:
            made.add_row(
                name, str(each.batch), plain(each.drafter), str(each.draft_length), f"{each.user_tps:.1f}",
                f"{each.gpu_tps:.1f}",
            )  # fmt: skip
    out.print(made)
    if advice.question.user_tps is not None:
        at = demand(advice, advice.question.user_tps)
        ours, theirs = at["speculating"], at["plain"]
        told = [UNKNOWN if each is None else f"{each['gpu_tps']:.1f}" for each in (ours, theirs)]
        equal = at["user_tps_at_equal_throughput"]
        out.print(
            f"at {at['user_tps']:g} tok/s/user: {told[0]} tok/s/GPU speculating, {told[1]} without; at the latter's "
            f"throughput {UNKNOWN if equal is None else f'{equal:.1f}'} tok/s/user",
            soft_wrap=True,
        )


def _print_schedule(out: Console, found: Schedule) -> None:
    ranges = ", ".join(f"B {each.low}-{each.high}: D={each.draft_length}" for each in found.ranges)
    out.print(plain(f"schedule for {found.drafter}: {ranges}"), soft_wrap=True)
    out.print(plain(f"  vLLM          --speculative-config '{json.dumps(vllm(found))}'"), soft_wrap=True)
    said = trtllm(found)
    if said["draft_len_schedule"] is None:
        out.print("  TensorRT-LLM  cannot: its D may not rise with the batch", soft_wrap=True)
    else:
        now, then = said["draft_len_schedule"], said["draft_len_schedule_by_first_batch"]
        out.print(f"  TensorRT-LLM  max_draft_len: {said['max_draft_len']}, draft_len_schedule: {now}", soft_wrap=True)
        out.print(f"                up to 1.2, where keys are first batches: {then}", soft_wrap=True)
    for note in vllm_arguments(found):
        out.print(plain(f"  {note}"), soft_wrap=True)


def print_plan(plan: Plan) -> None:
    """How many devices each mechanism needs."""
    out = console()
    made = blank(plan.title)
    for title in (
        "mechanism",
        "replicas",
        "GPUs",
        "busy",
        "mean B",
        "TTFT p95 s",
        "TPOT p95 ms",
        "tok/s",
        "decode tok/s",
    ):
        made.add_column(title, justify="left" if title == "mechanism" else "right")
    for each in plan.needs:
        counts = [UNKNOWN if n is None else str(n) for n in (each.replicas, each.gpus)]
        known = (
            each.busy,
            each.batch,
            each.ttft_p95,
            each.tpot_p95 and 1e3 * each.tpot_p95,
            each.output_tps,
            each.decode_tps,
        )
        made.add_row(plain(each.mechanism), *counts, *(UNKNOWN if x is None else f"{x:.3g}" for x in known))
    out.print(made)
    for note in plan.notes:
        out.print(plain(f"warning: {note}"), style="yellow", soft_wrap=True)
