"""Gates: how much a number may lose, `al:-2%`, or what it must be, `al:>=2.3`; and what a change says of one."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from speedbench import catalog
from speedbench.compare.estimate import RATES
from speedbench.compare.values import Change, Finding, Verdict
from speedbench.errors import UnknownName, UserError
from speedbench.types import Cell, Measurement, Metric

DEFAULT = "al:-2%"
FEW = 20
"""Conversations below which an interval is rough."""

_GATE = re.compile(r"(?P<metric>[a-z0-9_]+)(?:\[(?P<where>[^\]]*)\])?:(?P<limit>.+)")
_RELATIVE = re.compile(r"[+-]\d+(?:\.\d+)?%")
_ABSOLUTE = re.compile(r"(?P<sign>>=|<=)(?P<bound>-?\d+(?:\.\d+)?)")
_FORM = "needs METRIC:-2% or METRIC:>=2.3, with [category=coding,drafter=ngram,D=4,B=1] after METRIC if not for all"

_CENSUS = ("lossless", "lossless_real", "near_ties", "failed_requests", "failed_share")
"""Counted over all there is, so without an interval to wait for."""

WHERE: Mapping[str, Callable[[Cell], str]] = {
    "drafter": lambda cell: cell.drafter,
    "D": lambda cell: str(cell.draft_length),
    "B": lambda cell: str(cell.concurrency),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    text: str
    metric: Metric
    sign: Literal["", ">=", "<="]
    """Empty: `limit` is a relative change against the base; else a bound of the candidate's own number."""
    limit: float
    category: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)

    def asks(self, cell: Cell) -> bool:
        """Of the candidate's cell."""
        return all(WHERE[name](cell) == value for name, value in self.where.items())

    @property
    def floor(self) -> bool:
        """Whether more is better: the number, or its change, may not fall below the limit."""
        return self.sign == ">=" if self.sign else self.metric.better == "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A regression that is known and let pass until a day, that day included. `cell` empty: in every cell."""

    gate: str
    until: date
    reason: str
    by: str
    cell: str = ""


def parse(text: str, metrics: Sequence[Metric]) -> Gate:
    """One gate. Raises `UserError` for what does not read, a metric that is not, and a limit that asks nothing."""
    text = "".join(text.split())
    found = _GATE.fullmatch(text)
    if not found:
        raise UserError(f"gate '{text}' does not read; {_FORM}")
    by_name = {metric.name: metric for metric in metrics}
    if found["metric"] not in by_name:
        raise UnknownName("metric", found["metric"], by_name)
    where = _where(text, found["where"] or "")
    sign, limit = _limit(text, found["limit"], by_name[found["metric"]])
    return Gate(
        text=text, metric=by_name[found["metric"]], sign=sign, limit=limit, category=where.pop("category", None),
        where=where,
    )  # fmt: skip


def _where(text: str, inside: str) -> dict[str, str]:
    found = {}
    for part in filter(None, inside.split(",")):
        name, equals, value = part.partition("=")
        if name not in ("category", *WHERE):
            raise UnknownName(f"part of gate '{text}'", name, ("category", *WHERE))
        if not equals or not value:
            raise UserError(f"gate '{text}': {name} needs a value; {_FORM}")
        found[name] = value
    return found


def _limit(text: str, limit: str, metric: Metric) -> tuple[Literal["", ">=", "<="], float]:
    if absolute := _ABSOLUTE.fullmatch(limit):
        return ">=" if absolute["sign"] == ">=" else "<=", float(absolute["bound"])
    if not _RELATIVE.fullmatch(limit):
        raise UserError(f"gate '{text}': '{limit}' is no limit; {_FORM}")
    if metric.name not in RATES:
        raise UserError(f"gate '{text}': {metric.name} has no relative gate, {', '.join(RATES)} have; or say >= or <=")
    if (change := float(limit.rstrip("%")) / 100) <= -1:
        raise UserError(f"gate '{text}': nothing falls by {limit.strip('-')}, so this asks nothing; {_FORM}")
    return "", change


def read(path: str, metrics: Sequence[Metric]) -> tuple[list[Gate], list[Acknowledged]]:
    """The gates and acknowledgements of a YAML file. Raises `UserError` naming file, key and line."""
    found = catalog.gates(path)
    try:
        parsed = [parse(text, metrics) for text in found.gates]
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    known = [
        Acknowledged(gate="".join(each.gate.split()), cell=each.cell, until=each.until, reason=each.reason, by=each.by)
        for each in found.acknowledged
    ]
    for each in known:
        if each.gate not in {gate.text for gate in parsed}:
            raise UserError(f"{path}: acknowledged: no gate '{each.gate}' in this file")
    return parsed, known


def judge(gate: Gate, change: Change, doubt: str = "") -> Finding:
    """`ok` where the whole 95 % interval is within the limit, `regression` where all of it is beyond, else
    `inconclusive`; so too where `doubt` says why no verdict can rest on these numbers."""
    found = change.cand if gate.sign else change.change
    if found.value is None:
        return Finding(of=change, gate=gate.text, verdict="not comparable", why="not measured")
    if doubt:
        return Finding(of=change, gate=gate.text, verdict="inconclusive", why=doubt)
    low, high = _interval(found, gate.metric.name)
    if low is None or high is None:
        return Finding(of=change, gate=gate.text, verdict="inconclusive", why="no interval")
    below, above = high < gate.limit, low > gate.limit
    bad, within = (below, low >= gate.limit) if gate.floor else (above, high <= gate.limit)
    verdict: Verdict = "regression" if bad else "ok" if within else "inconclusive"
    why = _needed(gate, change) if verdict == "inconclusive" and not gate.sign else ""
    return Finding(of=change, gate=gate.text, verdict=verdict, why=why)


def acknowledge(finding: Finding, cell: str, known: Sequence[Acknowledged], today: date) -> Finding:
    """A regression that somebody answers for is not one, until the day is over."""
    if finding.verdict != "regression":
        return finding
    for each in known:
        if each.gate == finding.gate and each.cell in ("", cell):
            if today > each.until:
                why = f"acknowledged until {each.until} only"
                return Finding(of=finding.of, gate=finding.gate, verdict="regression", why=why)
            why = f"until {each.until}, {each.by}: {each.reason}"
            return Finding(of=finding.of, gate=finding.gate, verdict="acknowledged", why=why)
    return finding


def _interval(found: Measurement, metric: str) -> tuple[float | None, float | None]:
    return (found.value, found.value) if metric in _CENSUS else (found.low, found.high)


def _needed(gate: Gate, change: Change) -> str:
    """How many units would bring the interval clear of the limit, if the change stayed what it is."""
    found = change.change
    if found.value is None or found.low is None or found.high is None or not change.unit:
        return ""
    half, away = (found.high - found.low) / 2, abs(found.value - gate.limit)
    needed = found.n * (half / away) ** 2 if away else float("inf")
    return f"needs ~{_rounded(needed)}" if needed < 100 * found.n else ""


def _rounded(number: float) -> int:
    """Up, to two digits: it is a guess."""
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
