"""What a comparison holds, as the data flows: Change → Finding → Pair → Comparison → Report, which is also its JSON."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from speedbench.types import Measurement

SCHEMA = 1
"""Of the JSON document; a reader refuses any other."""

Verdict = Literal["ok", "regression", "acknowledged", "inconclusive", "not comparable", "shown"]
"""Of a gate; `shown` is a number that no gate asks about."""

GATED: tuple[Verdict, ...] = ("regression", "not comparable", "inconclusive", "acknowledged", "ok")
"""The verdicts of gates, worst first."""

Unit = Literal["conversations", "blocks", ""]

Code = Literal[0, 1, 3, 4, 5]

WORDS: dict[int, str] = {0: "ok", 1: "regression", 3: "inconclusive", 4: "not comparable", 5: "incorrect"}
"""What an exit status says."""

PRECEDENCE: tuple[Code, ...] = (5, 4, 1, 3, 0)
"""Of several, the first counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One number on both sides, over the conversations that both answered."""

    metric: str
    category: str | None
    """None: all of them."""
    base: Measurement
    cand: Measurement
    change: Measurement
    """cand / base − 1 with its 95 % interval; `n` counts units."""
    unit: Unit
    """What was resampled; empty where nothing could be."""
    detectable: float | None
    """The smallest relative change that this many units could show; None with fewer than two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A change, or for an absolute gate the candidate's number, and what a gate says of it."""

    of: Change
    gate: str
    """As written; empty for a number that is only shown."""
    verdict: Verdict
    why: str
    """In a few words, where the verdict does not say it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A cell of the base and the one of the candidate that stands against it."""

    name: str
    findings: tuple[Finding, ...]
    step_cost: float | None
    """Relative change of a step's time over the baseline's; (1 + AL) / (1 + step_cost) − 1 is the speedup's change."""
    categories: tuple[Change, ...]
    """Acceptance length by category, the one that lost most first."""
    wrong: tuple[str, ...]
    """Outputs of the candidate that are not its baseline's, and requests that failed."""
    refused: str
    """Why nothing of the pair is compared; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """Whether one thing that a number depends on is the same on both sides."""

    name: str
    same: bool
    """False where either side does not tell it: unknown is not equal."""
    told: tuple[str, ...]
    """What differs, as `dtype float32 → bfloat16`."""
    refuses: bool
    """Whether nothing may be compared because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The baseline cells of both sides against each other: by how much the machine was another."""

    concurrency: int
    change: Measurement
    """Of decoding speed, relative."""
    drifted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One candidate against the base."""

    base: str
    cand: str
    subject: str
    facets: tuple[Facet, ...]
    controls: tuple[Control, ...]
    """By concurrency; none within one run, or where a side has no baseline."""
    pairs: tuple[Pair, ...]
    unpaired: tuple[str, ...]
    """Cells without a counterpart."""
    notes: tuple[str, ...]
    code: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All candidates, and the exit status they come to."""

    comparisons: tuple[Comparison, ...]
    code: Code


def worst(codes: list[Code]) -> Code:
    return min(codes, key=PRECEDENCE.index, default=0)
