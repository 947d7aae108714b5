"""The words of a comparison, the same on a terminal, in Markdown and in JUnit."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from speedbench.columns import UNKNOWN
from speedbench.compare.values import GATED, WORDS, Change, Comparison, Control, Finding, Pair, Report
from speedbench.types import Measurement

TITLES = {"al": "AL", "decode_tps": "tok/s"}
_UNITS = {"speedup": "x", "speedup_e2e": "x", "speedup_formula": "x"}
_STILL = "no change seen"
_SHORT = 20
"""Characters of a reason that stands beside its verdict."""
_WORST = 3
"""Categories told by name."""


def title(change: Change) -> str:
    """`AL`, or `AL, coding`."""
    name = TITLES.get(change.metric, change.metric)
    return name if change.category is None else f"{name}, {clean(change.category, 30)}"


def point(found: Measurement, metric: str) -> str:
    """`2.81`, with three digits that say something."""
    if found.value is None:
        return UNKNOWN
    return f"{found.value:.{_digits(found.value)}f}{_UNITS.get(metric, '')}"


def number(found: Measurement, metric: str) -> str:
    """`2.81 [2.76, 2.86]`."""
    if found.value is None or found.low is None or found.high is None or found.low == found.high:
        return point(found, metric)
    digits = _digits(found.value)
    return f"{point(found, metric)} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _digits(value: float) -> int:
    return 4 if 0 < abs(value) < 0.1 else 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{_hundredfold(value)}%"


def relative(found: Measurement) -> str:
    """`-5.3% [-7.9, -2.8]`."""
    if found.low is None or found.high is None:
        return percent(found.value)
    return f"{percent(found.value)} [{_hundredfold(found.low)}, {_hundredfold(found.high)}]"


def _hundredfold(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"  # never -0.0


def evidence(finding: Finding) -> str:
    """The interval that a verdict rests on: of the change, or for a bound of the number itself."""
    own = finding.of.cand
    if finding.gate and finding.of.base.value is None and own.low is not None and own.high is not None:
        return f"itself [{own.low:.{_digits(own.low)}f}, {own.high:.{_digits(own.low)}f}]"
    return relative(finding.of.change)


def size(change: Change) -> str:
    """`80 conv.`, what the interval rests on."""
    n = change.change.n
    return {"conversations": f"{n} conv.", "blocks": f"{n} block{'s' * (n != 1)}", "": UNKNOWN}[change.unit]


def verdict(finding: Finding) -> str:
    """`REGRESSION (-2%)`, `ok (-2%), higher`, `inconclusive (-5%), noisy`; without a gate, how the number moved."""
    moved = _moved(finding.of.change)
    if not finding.gate:
        return moved
    name = finding.verdict.upper() if finding.verdict == "regression" else finding.verdict
    told = f"{name} ({finding.gate.rpartition(':')[2]})"
    more = moved if finding.verdict == "ok" and moved != _STILL else finding.why if len(finding.why) <= _SHORT else ""
    return f"{told}, {more}" if more else told


def remark(finding: Finding) -> str:
    """What is too long to stand beside a verdict."""
    return f"{finding.gate}: {finding.why}" if len(finding.why) > _SHORT else ""


def moved_well(finding: Finding) -> bool:
    """Whether a number clearly went the way that its gate wants."""
    return _moved(finding.of.change) == ("lower" if finding.gate.rpartition(":")[2].startswith("+") else "higher")


def _moved(found: Measurement) -> str:
    if found.low is None or found.high is None:
        return ""
    return "lower" if found.high < 0 else "higher" if found.low > 0 else _STILL


def split(pair: Pair) -> str:
    """Where a change of speed comes from: `speedup +3.4% = AL +4.3% ÷ step cost +0.9%`; empty where it is not known."""
    whole = [each.of for each in pair.findings if each.of.category is None and each.of.change.value is not None]
    by_name = {each.metric: each.change.value for each in whole}
    speedup, al = by_name.get("speedup"), by_name.get("al")
    if speedup is None or al is None or pair.step_cost is None:
        return ""
    rest = (1 + speedup) * (1 + pair.step_cost) / (1 + al) - 1
    tail = f", rest {percent(rest)}" if abs(rest) > 0.005 else ""
    return f"speedup {percent(speedup)} = AL {percent(al)} ÷ step cost {percent(pair.step_cost)}{tail}"


def control(found: Control) -> str:
    """What the baseline cells say of the machine."""
    told = f"baseline at B={found.concurrency}: {relative(found.change)} tok/s"
    return f"{told}, so the machine is not what it was and times are no verdict" if found.drifted else told


def categories(pair: Pair) -> str:
    """The categories whose acceptance fell most."""
    fallen = [each for each in pair.categories if (each.change.value or 0.0) < 0][:_WORST]
    return " · ".join(f"{clean(each.category or '', 30)} {relative(each.change)} n={each.change.n}" for each in fallen)


def detectable(change: Change) -> str:
    return UNKNOWN if change.detectable is None else f"{100 * change.detectable:.1f}%"


def facets(comparison: Comparison) -> list[tuple[str, str]]:
    """What changed, a facet a line; then in one what did not."""
    changed = [(each.name, _some(each.told)) for each in comparison.facets if not each.same]
    same = [each.name for each in comparison.facets if each.same]
    return [*changed, ("same", ", ".join(same) or "nothing")]


def _some(told: Sequence[str]) -> str:
    return "; ".join(told[:3]) + (f"; and {len(told) - 3} more" if len(told) > 3 else "")


def refusal(comparison: Comparison) -> str:
    """Why there is no number; empty if there is."""
    names = [each.name for each in comparison.facets if each.refuses]
    if not names:
        return "" if comparison.pairs else "no cell of one stands against a cell of the other"
    fixable = [name for name in names if name != "data"]
    if "data" in names:
        return "the prompts are not the same, so no number is; run both on the same task, version and --limit"
    return f"{' and '.join(fixable)} differ; if that is what you compare, say --vary drafter,D,{','.join(fixable)}"


def headline(report: Report) -> str:
    """The verdict in a line: `REGRESSION: 2 regression, 4 ok (exit 1)`."""
    pairs = [pair for one in report.comparisons for pair in one.pairs]
    verdicts = Counter(each.verdict for pair in pairs for each in pair.findings if each.gate)
    told = [f"{verdicts[name]} {name}" for name in GATED if verdicts[name]]
    if wrong := sum(bool(pair.wrong) for pair in pairs):
        told.append(f"{wrong} with wrong outputs or failures")
    return f"{WORDS[report.code].upper()}: {', '.join(told) or 'no gate was judged'} (exit {report.code})"


def clean(text: str, longest: int = 200) -> str:
    """On one line, of printable characters and no endless length: names come from other people's files."""
    line = " ".join(text.split())
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
