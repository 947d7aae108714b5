"""`python benchmarks/calibrate_compare.py`: how often the gate of `speedbench compare` cries wolf, and what it catches.

One real trace, `trace.jsonl`, holds the accepted drafts of every step of every conversation of a run (SmolLM2-135M with
its EAGLE-3 head at D = 4 on `demo`). A rerun draws conversations from it, with replacement; then each side draws steps
from those of the conversation, with replacement, until as many tokens are written. That is what sampling does to a
rerun: greedy ones repeat to the letter, and vary less. A loss of 10 % lets every accepted draft survive with the
probability, the same for all, that takes acceptance length to 90 %. Base and candidate are then judged by the code that
judges runs. `--take RUN#CELL` writes the trace of another run.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speedbench import plugins
from speedbench.compare import operand
from speedbench.compare.estimate import Arm, change
from speedbench.compare.gates import DEFAULT, Gate, judge, parse
from speedbench.files import append, dumps, lines
from speedbench.stats import answered
from speedbench.types import Cell, Counts, Measured, Record

TRACE = Path(__file__).parent / "trace.jsonl"
CELL = Cell(task="demo", runner="trace", drafter="eagle3", draft_length=4, concurrency=1, repeat=None)
PROMPTS = (20, 40, 80, 160, 480)
LOSSES = (0.0, 0.02, 0.05, 0.1)
VERDICTS = ("ok", "inconclusive", "regression")

Conversations = list[tuple[str, np.ndarray]]
"""Category, and the drafts accepted in each step."""


class Rates(NamedTuple):
    """Of the reruns at one size and loss: the share of each verdict, and the mean width of the interval."""

    prompts: int
    loss: float
    shares: dict[str, float]
    half_width: float


def read_trace(path: Path = TRACE) -> Conversations:
    return [(row["category"], np.asarray(row["accepted"])) for _, row in lines(path)]


def survival(conversations: Conversations, loss: float) -> float:
    """The q for which Σ (1 + q + … + q^accepted) is (1 − loss) · Σ (1 + accepted), by bisection."""
    accepted = np.concatenate([steps for _, steps in conversations])
    if not loss:
        return 1.0
    goal, low, high = (1 - loss) * (accepted + 1).sum(), 0.0, 1.0
    for _ in range(60):
        q = (low + high) / 2
        low, high = (q, high) if ((1 - q ** (accepted + 1)) / (1 - q)).sum() < goal else (low, q)
    return (low + high) / 2


def rerun(drawn: Conversations, q: float, rng: np.random.Generator) -> Measured:
    """One side: every conversation with steps drawn anew, as many as it takes to write what it had written."""
    return Measured(
        cell=CELL,
        records=tuple(_record(f"c{i}", category, *_sums(steps, q, rng)) for i, (category, steps) in enumerate(drawn)),
        passes=(),
        mismatches=None,
    )


def _sums(steps: np.ndarray, q: float, rng: np.random.Generator) -> tuple[int, int]:
    """Tokens committed and the steps they took."""
    wanted = int((steps + 1).sum())
    accepted = rng.choice(steps, wanted)  # more than enough: a step commits one token or more
    survived = np.minimum(accepted, rng.geometric(1 - q, wanted) - 1) if q < 1 else accepted
    committed = np.cumsum(survived + 1)
    last = int(np.searchsorted(committed, wanted))
    return int(committed[last]), last + 1


def _record(request: str, category: str, committed: int, steps: int) -> Record:
    counts = Counts(steps=steps, committed=committed, accepted=None, proposed=None, drafted=None)
    return Record(
        request=request, category=category, turn=0, prompt_tokens=1, prompt_sha=request, output=(), steps=(), sent=0.0,
        first=None, last=None, first_tokens=1, prefill=None, finish="length", tokens=committed + 1, counts=counts,
    )  # fmt: skip


def rates(conversations: Conversations, gate: Gate, prompts: int, loss: float, reruns: int, seed: int = 0) -> Rates:
    """The verdicts on so many pairs of reruns."""
    rng = np.random.default_rng([seed, prompts, round(1000 * loss)])
    q = survival(conversations, loss)
    verdicts: Counter[str] = Counter()
    widths = []
    for _ in range(reruns):
        drawn = [conversations[i] for i in rng.integers(len(conversations), size=prompts)]
        base, cand = Arm(rerun(drawn, 1.0, rng), None, {}), Arm(rerun(drawn, q, rng), None, {})
        found = judge(gate, change(gate.metric, base, cand))
        verdicts[found.verdict] += 1
        widths.append(((found.of.change.high or 0.0) - (found.of.change.low or 0.0)) / 2)
    shares = {name: verdicts[name] / reruns for name in VERDICTS}
    return Rates(prompts, loss, shares, float(np.mean(widths)))


def take(word: str, path: Path) -> None:
    """The trace of a cell, which has to be the only one named."""
    side = operand.load(word)
    (cell,) = side.chosen
    measured = side.cell(cell)
    rows: dict[tuple[str, str], list[int]] = {}
    for record in answered(measured) if measured else ():
        rows.setdefault((record.request, record.category), []).extend(step.committed - 1 for step in record.steps)
    path.unlink(missing_ok=True)
    append(path, [dumps({"category": category, "accepted": steps}) for (_, category), steps in rows.items()])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reruns", type=int, default=400)
    parser.add_argument("--gate", default=DEFAULT)
    parser.add_argument("--take", metavar="RUN#CELL")
    asked = parser.parse_args(words)
    if asked.take:
        take(asked.take, TRACE)
        return 0
    gate = parse(asked.gate, plugins.load("metrics", "acceptance"))
    conversations = read_trace()
    print(f"gate {gate.text}, {asked.reruns} reruns each, {len(conversations)} conversations in the trace")
    print("| prompts | true change | ok | inconclusive | regression | interval ± |\n|---|---|---|---|---|---|")
    found = [rates(conversations, gate, n, loss, asked.reruns) for n in PROMPTS for loss in LOSSES]
    for each in found:
        shares = " | ".join(f"{100 * each.shares[name]:.1f}%" for name in VERDICTS)
        print(f"| {each.prompts} | {-100 * each.loss or 0:+.0f}% | {shares} | {100 * each.half_width:.1f}% |")
    wolf = max(each.shares["regression"] for each in found if not each.loss)
    caught = next(each.shares["regression"] for each in found if (each.prompts, each.loss) == (80, 0.1))
    print(json.dumps({"false alarms, at most": wolf, "10 % loss on 80 prompts caught": caught}))
    return int(wolf >= 0.01 or caught <= 0.95)


if __name__ == "__main__":
    sys.exit(main())
