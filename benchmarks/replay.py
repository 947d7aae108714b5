"""The D = 1…8 curve of each drafter by replay against the same curve by a sweep: wall clock in one run, and whether
their steps agree.

    python benchmarks/replay.py --limit 11 --drafter ngram,suffix,external,eagle3,mtp,dflash,dspark -D 1-7

A sweep's time is that of serving the conversations at every D; a replay's is that of labelling the same answers and
walking them at every D. Loading, warm-up and files are in neither. `y made` adds the baseline's serving to the replay.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from speedbench import runner as runners
from speedbench import task as tasks
from speedbench.backends.native import BACKEND, NativeSession
from speedbench.cli import parse
from speedbench.environment import snapshot
from speedbench.replay.asking import limits
from speedbench.replay.outputs import Outputs, of_records
from speedbench.sweep import BASELINE
from speedbench.types import Conversation, Drafting, Load, Record, Request, Sampling
from speedbench.walk import record


@dataclass
class Bench:
    """One target and the conversations that everything is tried on."""

    session: NativeSession
    requests: Sequence[Request]
    lengths: Sequence[int]
    load: Load
    positions: int | None

    def served(self, drafting: Drafting, draft_length: int) -> tuple[float, list[Record]]:
        """Seconds to hold all conversations, and their records."""
        engine = self.session.engine(drafting, draft_length, 1, self.load)
        engine.warm_up()
        began = time.perf_counter()
        found = list(engine.serve([Conversation(request=request) for request in self.requests]))
        return time.perf_counter() - began, [each for each in found if isinstance(each, Record)]

    def replayed(self, drafting: Drafting, outputs: Outputs) -> tuple[float, float, dict[int, list[Record]]]:
        """Seconds to label all answers, seconds to walk them at every D, and the records by D."""
        labelling = self.session.labelling([drafting], self.lengths, self.load, self.positions)
        one, rows, answers = labelling.drafters[drafting.label], labelling.rows, outputs.answers
        began = time.perf_counter()
        every = (one.tables(answers[low : low + rows]) for low in range(0, len(answers), rows))
        tables = list(zip(answers, chain.from_iterable(every), strict=True))
        labelled = time.perf_counter()
        found = {d: [record(a, t[d] if d in t else t[None], d) for a, t in tables] for d in self.lengths}
        return labelled - began, time.perf_counter() - labelled, found


def differing(ran: Sequence[Record], replayed: Sequence[Record]) -> int:
    """Answers whose steps are not those that ran."""
    steps = {(each.request, each.turn): [(s.proposed, s.accepted) for s in each.steps] for each in ran}
    return sum([(s.proposed, s.accepted) for s in r.steps] != steps[r.request, r.turn] for r in replayed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", default="smollm2-135m")
    parser.add_argument("--task", default="demo")
    parser.add_argument("--limit", type=int, default=11)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--drafter", default="ngram,suffix,external,eagle3,mtp,dflash,dspark")
    parser.add_argument("-D", dest="lengths", default="1-7")
    parser.add_argument("--batch-tokens", type=int, help="as of `speedbench replay`")
    options = parser.parse_args()
    runner = runners.load(options.runner)
    requests = tasks.requests(tasks.load(options.task), options.limit)
    lengths = parse.integers(options.lengths, "-D", low=1)
    sampling = Sampling(max_tokens=options.max_tokens)
    with BACKEND.open(runner) as session:
        longest = max(fit.most_tokens or 0 for fit in session.fits(requests, options.max_tokens))
        load = Load(sampling=sampling, longest=longest, widest=max(lengths))
        bench = Bench(session, requests, lengths, load, options.batch_tokens)
        making, records = bench.served(BASELINE, 0)
        outputs = of_records(records, requests, session.chat, limits(session), cap=options.max_tokens)
        count, tokens = len(outputs.answers), sum(len(answer.output) for answer in outputs.answers)
        print(f"{snapshot()['cpu']['model']}, torch {torch.__version__}, {torch.get_num_threads()} threads; ", end="")
        print(f"{runner.name}, {count} answers, {tokens} tokens, made in {making:.1f} s; D = {options.lengths}")
        print("\n| drafter | sweep | replay: label + walk | faster, y given | faster, y made | steps differ in |")
        print("|---|---|---|---|---|---|")
        for drafting in runners.draftings(runner, options.drafter.split(",")):
            ran = {d: bench.served(drafting, d) for d in lengths}
            sweep = sum(seconds for seconds, _ in ran.values())
            label, walk, found = bench.replayed(drafting, outputs)
            wrong = sum(differing(ran[d][1], found[d]) for d in lengths)
            faster, all_in = sweep / (label + walk), (sweep + making) / (label + walk + making)
            print(
                f"| {drafting.label} | {sweep:.1f} s | {label:.2f} + {walk:.3f} s | {faster:.0f}x | {all_in:.1f}x "
                f"| {wrong} of {len(lengths) * count} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
