"""Two operands become a comparison: what is like for like, the numbers, and what the gates say."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from speedbench.compare import cells, identity
from speedbench.compare.estimate import RATES, Arm, blocks, change, turns, unpaired
from speedbench.compare.gates import FEW, Acknowledged, Gate, acknowledge, judge
from speedbench.compare.operand import Operand, key
from speedbench.compare.values import Change, Code, Comparison, Control, Finding, Pair, Report, worst
from speedbench.errors import UnknownName, UserError
from speedbench.measure import NOISY, noise
from speedbench.pairing import baseline_of
from speedbench.stats import UNAVAILABLE
from speedbench.types import Cell, Measurement, Metric

SHOWN = ("al", "speedup", "decode_tps")
"""Numbers that every pair is told by, gated or not."""

ONE_SIDED = 0.01
"""Share of turns that only one side answered, above which a pair is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What was asked for."""

    gates: tuple[Gate, ...]
    acknowledged: tuple[Acknowledged, ...] = ()
    vary: Collection[str] = ("drafter", "D")
    drift: float = 0.03
    """Relative change of the baseline cell's speed beyond which the machine is another, and times are no verdict."""
    missing_fails: bool = True
    inconclusive_fails: bool = True
    today: date


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """A pair of cells under judgement."""

    base: Operand
    cand: Operand
    one: Cell
    other: Cell
    metrics: Mapping[str, Metric]

    @property
    def arms(self) -> tuple[Arm, Arm] | None:
        """None where a side has no records."""
        mine, theirs = _arm(self.base, self.one), _arm(self.cand, self.other)
        return None if mine is None or theirs is None else (mine, theirs)

    def change(self, name: str, category: str | None = None) -> Change:
        """Paired where both sides have records, else of the two numbers alone."""
        arms = self.arms
        if arms is not None and name in RATES:
            return change(self.metrics[name], *arms, category)
        metric = self.metrics[name]
        mine, theirs = number(self.base, self.one, metric, category), number(self.cand, self.other, metric, category)
        return unpaired(name, category, mine, theirs)

    def control(self) -> Change | None:
        """Of the two baseline cells; None where they are one, or one is not there."""
        arms = self.arms
        if self.base.document == self.cand.document or arms is None:
            return None
        mine, theirs = arms
        if mine.baseline is None or theirs.baseline is None:
            return None
        plain = mine._replace(measured=mine.baseline), theirs._replace(measured=theirs.baseline)
        return change(self.metrics["decode_tps"], *plain)


def number(side: Operand, cell: Cell, metric: Metric, category: str | None = None) -> Measurement:
    """A metric of one cell, from its records or, where there are none, from the summary."""
    arm, stored = _arm(side, cell), side.result(cell)
    if arm is not None:
        arm = arm.within(category)
        return metric.of(arm.measured, arm.baseline).get(metric.name, UNAVAILABLE)
    if stored is None:
        return UNAVAILABLE
    found = stored.metrics if category is None else stored.by_category.get(category, {})
    return found.get(metric.name, UNAVAILABLE)


def compared(base: Operand, candidates: Sequence[Operand], rules: Rules, metrics: Sequence[Metric]) -> Report:
    """Every candidate against the base. Raises `UserError` for a gate that asks of nothing there is."""
    by_name = {metric.name: metric for metric in metrics}
    _refuse_idle(rules.gates, [base, *candidates])
    found = tuple(_comparison(base, each, rules, by_name) for each in candidates)
    return Report(comparisons=found, code=worst([each.code for each in found]))


def _refuse_idle(gates: Sequence[Gate], operands: Sequence[Operand]) -> None:
    """A gate with a slip of the pen in it would pass for ever."""
    chosen = [cell for each in operands[1:] for cell in each.chosen]
    categories = {r.category for each in operands for measured in each.measured for r in measured.records}
    categories |= {name for each in operands for result in each.summarised for name in result.by_category}
    for gate in gates:
        if gate.category is not None and gate.category not in categories:
            raise UnknownName(f"category of gate '{gate.text}'", gate.category, categories)
        if not any(gate.asks(cell) for cell in chosen):
            raise UserError(
                f"gate '{gate.text}' asks of no cell; the candidate has {', '.join(map(key, chosen)) or 'none'}"
            )


def _comparison(base: Operand, cand: Operand, rules: Rules, metrics: Mapping[str, Metric]) -> Comparison:
    matched, mine, theirs = cells.against(base.chosen, cand.chosen, rules.vary)
    labels = [(one.drafter, other.drafter) for one, other in matched]
    facets = (
        *identity.facets(base.document, cand.document, rules.vary),
        identity.drafters(base.document, cand.document, labels),
    )
    told = [f"{key(cell)} is only in {base.label}" for cell in mine]
    told += [f"{key(cell)} is only in {cand.label}" for cell in theirs]
    sides = [_Sides(base=base, cand=cand, one=one, other=other, metrics=metrics) for one, other in matched]
    refused = any(facet.refuses for facet in facets)
    timed = "hardware" in rules.vary or all(facet.same for facet in facets if facet.name == "hardware")
    controls = () if refused or not timed else _controls(sides, rules)
    pairs = () if refused else tuple(_pair(each, rules, controls, timed) for each in sides)
    code = worst([_code(pair, rules) for pair in pairs])
    if refused or not pairs or (mine and rules.missing_fails):
        code = worst([code, 4])
    return Comparison(
        base=base.label,
        cand=cand.label,
        subject=identity.subject(cand.document),
        facets=facets,
        controls=controls,
        pairs=pairs,
        unpaired=tuple(told),
        notes=tuple(dict.fromkeys(_notes(base, cand, timed, pairs))),
        code=code,
    )


def _controls(sides: Sequence[_Sides], rules: Rules) -> tuple[Control, ...]:
    found = {}
    for each in sides:
        if each.one.concurrency not in found and (plain := each.control()) is not None:
            found[each.one.concurrency] = plain.change
    return tuple(
        Control(concurrency=b, change=change, drifted=change.value is None or abs(change.value) > rules.drift)
        for b, change in sorted(found.items())
    )


def _notes(base: Operand, cand: Operand, timed: bool, pairs: Sequence[Pair]) -> Iterator[str]:
    told = [identity.version(side.document) for side in (base, cand)]
    if told[0] != told[1]:
        yield f"measured by speedbench {told[0]} → {told[1]}"
    for side in (base, cand):
        spread = noise(side.noise)
        if spread is not None and spread > NOISY:
            yield f"{side.label} ran on a noisy machine ({100 * spread:.0f} %): its times are no verdict"
        if side.missing:
            yield f"{side.label} is not whole: {'; '.join(side.missing[:2])}"
        if side.summarised:
            yield f"{side.label} has no raw records: nothing is paired, and the intervals are wider for it"
    if not timed:
        yield "not known to be the same machine: acceptance is compared, times are not unless --vary has hardware"
    counted = [each.of for pair in pairs for each in pair.findings if each.of.unit == "conversations"]
    if any("estimated" in (each.base.origin, each.cand.origin) for each in counted):
        yield "acceptance is estimated, for the engine does not tell it step by step"
    few = min((each.change.n for each in counted if each.category is None), default=FEW)
    if few < FEW:
        yield f"few conversations ({few}): the intervals are rough"


def _code(pair: Pair, rules: Rules) -> Code:
    verdicts = {finding.verdict for finding in pair.findings if finding.gate}
    codes: list[Code] = [5] if pair.wrong else []
    codes += [4] if pair.refused or "not comparable" in verdicts else []
    codes += [1] if "regression" in verdicts else []
    codes += [3] if "inconclusive" in verdicts and rules.inconclusive_fails else []
    return worst(codes)


# ---- one pair ------------------------------------------------------------------------------------------------------


def _pair(sides: _Sides, rules: Rules, controls: Sequence[Control], timed: bool) -> Pair:
    name, refused = cells.pair_name(sides.one, sides.other), _refusal(sides, rules)
    wrong = tuple(_wrong(sides))
    if refused:
        return Pair(name=name, findings=(), step_cost=None, categories=(), wrong=wrong, refused=refused)
    doubt = _doubt(sides, controls)
    return Pair(
        name=name,
        findings=tuple(_findings(sides, rules, timed, doubt)),
        step_cost=sides.change("step_cost").change.value if timed else None,
        categories=tuple(_categories(sides)),
        wrong=wrong,
        refused="",
    )


def _refusal(sides: _Sides, rules: Rules) -> str:
    """Why nothing of this pair is compared; empty if it is."""
    if "drafter" not in rules.vary:
        told = identity.drafter(sides.base.document, sides.one.drafter, sides.cand.document, sides.other.drafter)
        if told:
            return f"the drafters differ: {'; '.join(told[:3])}"
    if sides.arms is None:
        return ""
    mine, theirs = (turns(arm.measured) for arm in sides.arms)
    either, both = len(mine | theirs), len(mine & theirs)
    if either - both > ONE_SIDED * either:
        return f"{either - both} of {either} turns were answered on one side only"
    return ""


def _doubt(sides: _Sides, controls: Sequence[Control]) -> str:
    """In a word why no verdict can rest on times; empty if it can."""
    if any((noise(side.noise) or 0.0) > NOISY for side in (sides.base, sides.cand)):
        return "noisy"
    if sides.base.document == sides.cand.document and sides.base.document:
        return ""
    control = next((each for each in controls if each.concurrency == sides.one.concurrency), None)
    return "no control" if control is None else "drifted" if control.drifted else ""


def _findings(sides: _Sides, rules: Rules, timed: bool, doubt: str) -> Iterator[Finding]:
    """The numbers that are always told, each with its gates, then what else is gated."""
    gates = [gate for gate in rules.gates if gate.asks(sides.other)]
    for name in dict.fromkeys([*SHOWN, *(gate.metric.name for gate in gates)]):
        own = [gate for gate in gates if gate.metric.name == name]
        plain = any(not gate.sign and gate.category is None for gate in own)
        if name in SHOWN and not plain and (timed or not RATES[name].timed):
            yield Finding(of=sides.change(name), gate="", verdict="shown", why="")
        for gate in own:
            yield acknowledge(_judged(sides, gate, timed, doubt), key(sides.other), rules.acknowledged, rules.today)


def _judged(sides: _Sides, gate: Gate, timed: bool, doubt: str) -> Finding:
    """A bound is for the candidate's own number, over all it answered; only a change of times needs one machine."""
    name = gate.metric.name
    if gate.sign:
        own = number(sides.cand, sides.other, gate.metric, gate.category)
        return judge(gate, unpaired(name, gate.category, UNAVAILABLE, own))
    if RATES[name].timed and not timed:
        nothing = unpaired(name, gate.category, UNAVAILABLE, UNAVAILABLE)
        return Finding(of=nothing, gate=gate.text, verdict="not comparable", why="other machine")
    return judge(gate, sides.change(name, gate.category), doubt if RATES[name].timed else "")


def _categories(sides: _Sides) -> list[Change]:
    """Acceptance by category, the one that lost most first; none where there is only one."""
    arms = sides.arms
    if arms is not None:
        names = {record.category for record in arms[1].measured.records}
    else:
        stored = sides.cand.result(sides.other)
        names = set(stored.by_category) if stored else set()
    found = [sides.change("al", name) for name in sorted(names)] if len(names) > 1 else []
    known = [each for each in found if each.change.value is not None]
    return sorted(known, key=lambda each: each.change.value or 0.0)


def _wrong(sides: _Sides) -> Iterator[str]:
    real = number(sides.cand, sides.other, sides.metrics["lossless_real"])
    if real.value:
        yield f"{real.value:.0f} of {real.n} outputs are not the baseline's"
    baseline = replace(sides.other, drafter="none", draft_length=0)
    for cell, of in ((sides.other, ""), (baseline, " of the baseline")):
        failed = number(sides.cand, cell, sides.metrics["failed_requests"])
        if failed.value:
            yield f"{failed.value:.0f} of {failed.n} requests{of} failed"


def _arm(side: Operand, cell: Cell) -> Arm | None:
    measured = side.cell(cell)
    if measured is None:
        return None
    told = {each.repeat or 0: n for each, n in side.blocks.items() if replace(each, repeat=None) == cell}
    requests = side.document["config"]["request_ids"]
    return Arm(measured, baseline_of(measured, side.measured), blocks(requests, cell.concurrency, told))
