"""What speed may not cost: outputs identical to the baseline's, and requests that are answered."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from speedbench.stats import UNAVAILABLE, answered, paired
from speedbench.types import Measured, Measurement, Metric, Mismatch

# In this family `n` counts outputs compared, or turns asked for: a census of what was run, so no interval.


def lossless(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """Greedy outputs token-identical to the baseline's / outputs compared, which are those with equal prompts."""
    found, compared = _compared(measured, baseline)
    return {"lossless": _known((compared - len(found)) / compared, compared) if compared else UNAVAILABLE}


def lossless_real(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """Mismatches that no near tie of the target explains."""
    return {"lossless_real": _kind(measured, baseline, "real")}


def near_ties(measured: Measured, baseline: Measured | None) -> Mapping[str, Measurement]:
    """Mismatches where the target's two best logits were as good as equal."""
    return {"near_ties": _kind(measured, baseline, "near_tie")}


def failed_requests(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Turns that ended in an error."""
    n = len(measured.records)
    failed = sum(record.finish == "error" for record in measured.records)
    return {"failed_requests": _known(failed, n) if n else UNAVAILABLE}


def failed_share(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Turns that ended in an error / turns asked for."""
    n = len(measured.records)
    failed = sum(record.finish == "error" for record in measured.records)
    return {"failed_share": _known(failed / n, n) if n else UNAVAILABLE}


def off_target(measured: Measured, _: Measured | None) -> Mapping[str, Measurement]:
    """Output tokens of a replay that the target, given those before them, would not say: near ties, other numerics, or
    another model's answers. Null where no drafter needed the target there, and where tokens were drawn."""
    found = [record.off_target for record in answered(measured)]
    known = [n for n in found if n is not None]
    return {"off_target": _known(sum(known), len(known)) if known and len(known) == len(found) else UNAVAILABLE}


@lru_cache(maxsize=1)
def _compared(measured: Measured, baseline: Measured | None) -> tuple[list[Mismatch], int]:
    """The mismatches among the turns with equal prompts in both arms, and how many such turns there are."""
    if measured.mismatches is None or baseline is None:
        return [], 0
    same = [ours for ours, theirs in paired(measured, baseline) if ours.prompt_sha == theirs.prompt_sha]
    turns = {(record.request, record.turn) for record in same}
    return [each for each in measured.mismatches if (each.request, each.turn) in turns], len(same)


def _kind(measured: Measured, baseline: Measured | None, kind: str) -> Measurement:
    found, compared = _compared(measured, baseline)
    return _known(sum(each.kind == kind for each in found), compared) if compared else UNAVAILABLE


def _known(value: float, n: int) -> Measurement:
    return Measurement(value=float(value), n=n, origin="exact")


METRICS: tuple[Metric, ...] = (
    Metric(
        name="lossless",
        title="outputs identical to the baseline's",
        unit="share",
        better="higher",
        of=lossless,
        by_category=True,
    ),
    Metric(
        name="lossless_real",
        title="mismatches that no near tie explains",
        unit="outputs",
        better="lower",
        of=lossless_real,
        by_category=True,
    ),
    Metric(
        name="near_ties",
        title="mismatches at a near tie",
        unit="outputs",
        better=None,
        of=near_ties,
        by_category=True,
    ),
    Metric(
        name="failed_requests",
        title="turns that failed",
        unit="turns",
        better="lower",
        of=failed_requests,
        by_category=True,
    ),
    Metric(
        name="failed_share",
        title="share of turns that failed",
        unit="share",
        better="lower",
        of=failed_share,
        by_category=True,
    ),
    Metric(
        name="off_target",
        title="replayed tokens that the target would not say",
        unit="tokens",
        better="lower",
        of=off_target,
        by_category=True,
    ),
)
