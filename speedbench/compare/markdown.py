"""A comparison as Markdown, for a job's summary or a comment: within their sizes, and whatever the names hold."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterator

from speedbench.compare import wording
from speedbench.compare.values import GATED, Comparison, Finding, Pair, Report

LONGEST = 60_000
"""Characters: a comment on GitHub holds 65,536, a job's summary 1 MiB."""

MARKER = "<!-- speedbench:compare -->"
"""By which the comment is found again."""

_HEAD = "| | base | candidate | change, 95 % | rests on | detects | verdict |\n|---|---|---|---|---|---|---|"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(report: Report, longest: int = LONGEST) -> str:
    """The whole of it; where that is too long, the pairs with the worst verdicts, and how many were left out."""
    pairs = sum(len(each.pairs) for each in report.comparisons)
    for most in (pairs, *range(min(pairs, 50) - 1, -1, -1)):
        text = "\n".join(_lines(report, most)) + "\n"
        if len(text) <= longest:
            return text
    return f"{MARKER}\n### {escaped(wording.headline(report))}\n"


def escaped(text: str) -> str:
    """A name as it is: no markup, no link, nobody called by it."""
    text = _SPECIAL.sub(r"\\\1", wording.clean(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")
    return text.replace("@", "@\u200b").replace("://", ":\u200b//")


def _lines(report: Report, most: int) -> Iterator[str]:
    yield MARKER
    yield f"### {escaped(wording.headline(report))}"
    for each in report.comparisons:
        yield from _comparison(each, most)


def _comparison(one: Comparison, most: int) -> Iterator[str]:
    yield f"\n**{escaped(one.base)} → {escaped(one.cand)}** · {escaped(one.subject)}\n"
    refusal = wording.refusal(one)
    yield from [f"**Not comparable:** {escaped(refusal)}\n"] * bool(refusal)
    worst_first = sorted(one.pairs, key=_rank)
    if one.pairs and most:
        yield _HEAD
        for pair in worst_first[:most]:
            yield from _pair(pair)
    if len(one.pairs) > most:
        yield f"\n{len(one.pairs) - most} more pairs, none of them worse, are in the JSON."
    told = [f"{name}: {text}" for name, text in wording.facets(one)]
    told += [*map(wording.control, one.controls), *one.unpaired[:20], *one.notes]
    yield "\n<details><summary>What changed, and what did not</summary>\n"
    yield from (f"- {escaped(each)}" for each in told)
    yield "\n</details>"


def _pair(pair: Pair) -> Iterator[str]:
    yield f"| **{escaped(pair.name)}** | | | | | | {escaped(pair.refused)} |"
    for finding in pair.findings:
        yield f"| {' | '.join(map(escaped, _row(finding)))} |"
    for name, text in (("why", wording.split(pair)), ("AL fell", wording.categories(pair))):
        yield from [f"| {name} | {escaped(text)} | | | | | |"] * bool(text)
    yield from (f"| **WRONG** | {escaped(text)} | | | | | |" for text in pair.wrong)


def _row(finding: Finding) -> tuple[str, ...]:
    change = finding.of
    told = (wording.verdict(finding), wording.remark(finding))
    return (
        wording.title(change),
        wording.number(change.base, change.metric),
        wording.number(change.cand, change.metric),
        wording.evidence(finding),
        wording.size(change),
        wording.detectable(change),
        " ".join(filter(None, told)),
    )


def _rank(pair: Pair) -> int:
    ranks = [GATED.index(finding.verdict) for finding in pair.findings if finding.verdict in GATED]
    return -1 if pair.wrong or pair.refused else min(ranks, default=len(GATED))
