"""Which drafter and D to serve with at each concurrency, by measured speed alone; "do not speculate" is an answer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from speedbench.columns import measurement, value
from speedbench.types import Result

MARGIN = 0.02
"""Relative difference within which two speeds are as good as equal where there are no intervals to say so."""

Square = tuple[str, str, int]
"""Task, runner and concurrency: results of different squares are never ranked against each other."""


def recommendations(
    results: Sequence[Result], unservable: Collection[str] = (), *, noisy: bool = False
) -> list[dict[str, Any]]:
    """One plain dict a concurrency. Repeats are judged pooled where a pooled cell is among the results.

    `unservable` are labels that nobody can serve with, as the oracle; they are measured, never recommended.
    `noisy` says that the machine was too restless for times to be relied on.
    `verdict` is `speculate`, `within_noise` (fastest, but its interval reaches 1, or it has none and is near 1),
    `do_not_speculate`, or `unknown` where no cell has a speedup that can be trusted.
    """
    squares: dict[Square, list[Result]] = {}
    for result in _judged([each for each in results if each.cell.drafter not in unservable]):
        squares.setdefault((result.cell.task, result.cell.runner, result.cell.concurrency), []).append(result)
    return [_recommendation(square, squares[square], noisy) for square in sorted(squares)]


def break_even_concurrency(found: Sequence[Mapping[str, Any]]) -> float | None:
    """Where the best speedup falls through 1, estimated on a line over log B between neighbours; None if nowhere."""
    known = sorted((each["concurrency"], each["speedup"]) for each in found if each["speedup"] is not None)
    for (before, above), (after, below) in pairwise(known):
        if above > 1 >= below:
            part = (above - 1) / (above - below)
            return float(before * (after / before) ** part)
    return None


def sentence(found: Mapping[str, Any]) -> str:
    """A recommendation in one line, with what was left out and why."""
    best = f"{found['drafter']} D={found['draft_length']}"
    verdict = found["verdict"]
    if verdict == "speculate":
        text = f"use {best}: {_speed(found)}{_neighbours(found)}"
    elif verdict == "within_noise":
        text = f"no gain beyond noise: the fastest, {best}, is at {_speed(found)}{_detectable(found)}"
    elif verdict == "do_not_speculate":
        text = f"do not speculate: the fastest, {best}, is at {_speed(found)}"
    else:
        text = "nothing to recommend: no speedup was measured that can be trusted"
    left_out = [f"{each['drafter']} D={each['draft_length']} ({each['reason']})" for each in found["excluded"]]
    tail = f". Not recommended: {', '.join(left_out)}" if left_out else ""
    return f"B={found['concurrency']}: {text}{tail}" + "".join(f". {note}" for note in found["notes"])


def _judged(results: Sequence[Result]) -> list[Result]:
    together = [result for result in results if result.cell.repeat is None]
    return together or list(results)


def _recommendation(square: Square, results: Sequence[Result], noisy: bool) -> dict[str, Any]:
    task, runner, concurrency = square
    drafted = [result for result in results if not result.cell.is_baseline]
    reasons = [(result, _against(result)) for result in drafted]
    ranked = sorted((result for result, reason in reasons if not reason), key=_rank)
    best = ranked[0] if ranked else None
    found = measurement(best, "speedup") if best else None
    return {
        "task": task,
        "runner": runner,
        "concurrency": concurrency,
        "verdict": _verdict(best),
        "drafter": best.cell.drafter if best else None,
        "draft_length": best.cell.draft_length if best else None,
        "speedup": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "decode_tps": value(best, "decode_tps") if best else None,
        "minimum_detectable_effect": value(best, "speedup_mde") if best else None,
        "within_noise": [_named(each) for each in ranked[1:] if best and _as_good(each, best)],
        "excluded": [{**_named(result), "reason": reason} for result, reason in reasons if reason],
        "notes": _notes(best, noisy),
    }


def _rank(result: Result) -> tuple[float, int, str]:
    """Fastest first; of equals the smaller D."""
    return -(value(result, "speedup") or 0.0), result.cell.draft_length, result.cell.drafter


def _against(result: Result) -> str:
    """Why a cell cannot be recommended; empty if it can."""
    reasons = []
    real, failed = value(result, "lossless_real"), value(result, "failed_requests")
    if real:
        reasons.append(f"not lossless: {real:.0f} of {measurement(result, 'lossless_real').n} outputs differ")
    if failed:
        reasons.append(f"{failed:.0f} of {measurement(result, 'failed_requests').n} requests failed")
    if value(result, "speedup") is None:
        reasons.append("no speedup measured")
    return "; ".join(reasons)


def _verdict(best: Result | None) -> str:
    if best is None:
        return "unknown"
    found = measurement(best, "speedup")
    if found.value is None or found.value <= 1:
        return "do_not_speculate"
    if found.low is None:
        return "within_noise" if found.value <= 1 + MARGIN else "speculate"
    return "within_noise" if found.low <= 1 else "speculate"


def _as_good(result: Result, best: Result) -> bool:
    """Whether the intervals overlap; without intervals, whether the speeds are within the margin."""
    ours, theirs = measurement(result, "speedup"), measurement(best, "speedup")
    if ours.high is not None and theirs.low is not None:
        return ours.high >= theirs.low
    return (ours.value or 0.0) >= (theirs.value or 0.0) * (1 - MARGIN)


def _named(result: Result) -> dict[str, Any]:
    cell = result.cell
    return {"drafter": cell.drafter, "draft_length": cell.draft_length, "speedup": value(result, "speedup")}


def _notes(best: Result | None, noisy: bool) -> list[str]:
    """What the recommendation rests on less firmly than it seems."""
    if best is None:
        return []
    return ["The machine was noisy: measure again before relying on this"] * noisy + _unexplained(best)


def _unexplained(best: Result) -> list[str]:
    share = measurement(best, "lossless")
    if share.value is None:
        return ["Whether its outputs equal the baseline's was not checked"]
    explained = (value(best, "lossless_real") or 0) + (value(best, "near_ties") or 0)
    unknown = round(share.n * (1 - share.value) - explained)
    return (
        [f"{unknown} of {share.n} outputs differ from the baseline's, and the engine cannot say why"] if unknown else []
    )


def _speed(found: Mapping[str, Any]) -> str:
    interval = "" if found["low"] is None else f" [{found['low']:.2f}, {found['high']:.2f}]"
    rate = "" if found["decode_tps"] is None else f", {found['decode_tps']:.1f} tok/s"
    return f"{found['speedup']:.3g}x{interval}{rate}"


def _neighbours(found: Mapping[str, Any]) -> str:
    names = [f"{each['drafter']} D={each['draft_length']} ({each['speedup']:.3g}x)" for each in found["within_noise"]]
    return f"; as good within noise: {', '.join(names)}" if names else ""


def _detectable(found: Mapping[str, Any]) -> str:
    effect = found["minimum_detectable_effect"]
    return "" if effect is None else f"; these prompts can show no change below {100 * effect:.1f}%"
