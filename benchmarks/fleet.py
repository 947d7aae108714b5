"""The simulator behind `advise --fleet` against the native engine: tokens a second of the same requests, closed loop.

    python benchmarks/fleet.py                                    # B = 1, 2, 4, 8 without a drafter and with EAGLE-3
    python benchmarks/fleet.py --drafter ngram -D 4 --limit 16 --minutes 1

A profile is measured first, then every conversation is held at each concurrency, all waiting at the start and none
coming after, so that the batch drains at the end. The simulator gets the true lengths of every conversation's turns in
the order in which they were begun, the run's acceptance length, and of times the profile alone: what it must get right
are passes of batches that grow and shrink, prefills in between, and contexts. `own times` is how far it is off when
given the run's own mean pass of each batch and its prefills: the simulator's own error, however unsteady the machine.
`pass` is a full batch's mean pass as measured and as the profile prices it; the noise probe at the end says how steady
the machine was.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import torch

from speedbench import modelfacts
from speedbench import runner as runners
from speedbench import task as tasks
from speedbench.advise.curves import Accepted, Curve
from speedbench.advise.fleet import Rate, serve
from speedbench.advise.rates import Rates, filling
from speedbench.backends.native import BACKEND, NativeSession
from speedbench.cli import parse
from speedbench.cli.profile import measured as profiled
from speedbench.costs.passes import Passes
from speedbench.environment import snapshot
from speedbench.sweep import BASELINE
from speedbench.types import Conversation, Drafting, Load, Pass, Prefill, Profile, Record, Request, Sampling

LIMIT = 0.10
"""What simulated and measured throughput may differ by."""


@dataclass
class Bench:
    """A target, the conversations, and the times that the simulator is given."""

    session: NativeSession
    requests: Sequence[Request]
    load: Load
    profile: Profile
    batches: Sequence[int]

    def row(self, drafting: Drafting, draft_length: int, batch: int) -> tuple[str, bool]:
        """A line of the table, and whether it is within the limit."""
        records, passes = self._served(drafting, draft_length, batch)
        records.sort(key=lambda each: each.sent)
        held = _conversations(records)
        ran = sum(each.size for each in records) / (max(each.last or 0.0 for each in records) - records[0].sent)
        curve = None if drafting is BASELINE else _curve(drafting, draft_length, records)
        rates = Rates(
            costs=Passes(self.profile.timed, modelfacts.of(self.profile.config)), curve=curve,
            length=lambda batch: draft_length, batches=self.batches,
            contexts=sorted({each.context for each in self.profile.timed}),
        )  # fmt: skip
        al = curve.points[draft_length].value if curve else 1.0
        reading = filling(self.profile.prefills, None if curve is None else drafting.label)
        said = serve(held, rates, reading, batch).output_tps
        own = serve(held, _own_rate(passes, al), filling([_own_prefill(records)], None), batch).output_tps
        priced = rates(batch, fmean(each.prompt_tokens + each.size / 2 for each in records))[0]
        full = fmean(each.seconds or 0.0 for each in passes if each.batch == batch)
        name = f"{drafting.label} D={draft_length}" if curve else "none"
        return (
            f"| {name} | {batch} | {al:.2f} | {ran:.1f} | {said:.1f} | {100 * (said / ran - 1):+.1f} % "
            f"| {100 * (own / ran - 1):+.1f} % | {1e3 * full:.1f} / {1e3 * priced:.1f} ms |"
        ), abs(said / ran - 1) <= LIMIT

    def _served(self, drafting: Drafting, draft_length: int, batch: int) -> tuple[list[Record], list[Pass]]:
        engine = self.session.engine(drafting, draft_length, batch, self.load)
        engine.warm_up()
        found = list(engine.serve([Conversation(request=request) for request in self.requests]))
        records = [each for each in found if isinstance(each, Record)]
        failed = [each.error for each in records if each.finish == "error"]
        if failed:
            raise SystemExit(f"a request failed: {failed[0]}")
        return records, [each for each in found if isinstance(each, Pass)]


def _conversations(records: Sequence[Record]) -> list[list[tuple[float, float]]]:
    """Prompt and output of every turn, by conversation, in the order in which they were begun."""
    turns: dict[str, list[tuple[float, float]]] = {}
    for each in records:
        turns.setdefault(each.request, []).append((float(each.prompt_tokens), float(each.size)))
    return list(turns.values())


def _curve(drafting: Drafting, draft_length: int, records: Sequence[Record]) -> Curve:
    """The acceptance of what ran."""
    steps = [step for record in records for step in record.steps]
    proposed = [step.proposed for step in steps if step.proposed]
    found = Accepted(
        value=sum(step.committed for step in steps) / len(steps), drafted=len(proposed) / len(steps),
        proposed=fmean(proposed) if proposed else None,
    )  # fmt: skip
    return Curve(label=drafting.label, mechanism=drafting.drafter, points={draft_length: found}, source="the run")


def _own_rate(passes: Sequence[Pass], al: float) -> Rate:
    """The mean pass of each batch as it ran."""
    batches = sorted({each.batch for each in passes})
    seconds = [fmean(each.seconds or 0.0 for each in passes if each.batch == batch) for batch in batches]
    return lambda batch, context: (float(np.interp(batch, batches, seconds)), al)


def _own_prefill(records: Sequence[Record]) -> Prefill:
    return Prefill(
        tokens=sum(each.prompt_tokens for each in records), seconds=sum(each.prefill or 0.0 for each in records)
    )


def _probe(session: NativeSession) -> float:
    """Seconds of a fixed piece of work."""
    return median(session.probe() for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", default="smollm2-135m-bf16")
    parser.add_argument("--task", default="demo")
    parser.add_argument("--limit", type=int, default=32, help="conversations")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--drafter", default="eagle3")
    parser.add_argument("-D", dest="length", type=int, default=2)
    parser.add_argument("--concurrency", default="1,2,4,8")
    parser.add_argument("--minutes", type=float, default=1.5, help="for the profile")
    options = parser.parse_args()
    runner, batches = runners.load(options.runner), parse.integers(options.concurrency, "--concurrency", low=1)
    requests = tasks.requests(tasks.load(options.task), options.limit)
    (drafting,) = runners.draftings(runner, [options.drafter])
    with BACKEND.open(runner) as session:
        fits = session.fits(requests, options.max_tokens)
        longest = max(each.most_tokens or 0 for each in fits)
        lists = {
            "-D": [options.length], "--batch": batches,
            "--context": [max(16, min(each.prompt_tokens or 0 for each in fits)), longest],
        }  # fmt: skip
        began = time.perf_counter()
        probes = [_probe(session)]
        found = profiled(session, [drafting], lists, options.minutes, 0, lambda line: None)
        taken = time.perf_counter() - began
        load = Load(sampling=Sampling(max_tokens=options.max_tokens), longest=longest, widest=options.length)
        bench = Bench(session, requests, load, found, batches)
        print(f"{snapshot()['cpu']['model']}, torch {torch.__version__}, {torch.get_num_threads()} threads; ", end="")
        print(
            f"{runner.name}, {len(requests)} conversations of {options.task}, {options.max_tokens} tokens at most; ",
            end="",
        )
        noise = "-" if found.noise is None else f"{100 * found.noise:.1f} %"
        print(
            f"profiled at contexts {lists['--context']} in {taken:.0f} s, noise floor {noise}", *found.notes, sep="\n"
        )
        print(
            "\n| drafter | B | AL | measured tok/s | simulated | off | own times | pass, measured / priced |",
            "|---|---|---|---|---|---|---|---|",
            sep="\n",
        )
        kept = []
        for one, d in ((BASELINE, 0), (drafting, options.length)):
            for batch in batches:
                probes.append(_probe(session))
                text, good = bench.row(one, d, batch)
                print(text, flush=True)
                kept.append(good)
        print(f"\nwithin {100 * LIMIT:.0f} %: {sum(kept)} of {len(kept)}; all in {time.perf_counter() - began:.0f} s")
        told = ", ".join(f"{1e3 * each:.1f}" for each in probes)
        print(f"noise probe, before the profile and before each line: {told} ms")


if __name__ == "__main__":
    main()
