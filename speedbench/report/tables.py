"""The tables of a page: the numbers behind a chart, the cells, the drafters and their cost, and what failed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from speedbench import plugins
from speedbench.columns import UNKNOWN, shown, value
from speedbench.report.drawing import Figure
from speedbench.report.html import Html, element, table
from speedbench.report.subject import Subject
from speedbench.report.words import number, range_of, three
from speedbench.types import Result

MOST_FAILURES = 200
_LONGEST = 300
"""Letters of an engine's error, which may quote what it was sent."""


def behind(title: str, figure: Figure) -> Html:
    """The numbers of a chart, folded."""
    rows = [[number(row.get(key)) for key in figure.columns] for row in figure.rows]
    return folded(f"Data of this chart ({len(rows)} rows)", table(title, list(figure.columns.values()), rows))


def cells(subject: Subject) -> Html:
    """The same columns and texts as on the terminal, and which cell is recommended."""
    columns = shown(subject.results)
    best = {
        (each["drafter"], each["draft_length"], each["concurrency"])
        for each in subject.summary["recommendation"]
        if each["verdict"] == "speculate"
    }
    rows = [[*(column.of(result) for column in columns), _mark(result, best)] for result in subject.results]
    heads, titles = [column.title for column in columns], [column.explain for column in columns]
    return table("All cells; in brackets 95% intervals", [*heads, ""], rows, titles=[*titles, ""])


def _mark(result: Result, best: set[tuple[str, int, int]]) -> str:
    cell = result.cell
    return f"best at B={cell.concurrency}" if (cell.drafter, cell.draft_length, cell.concurrency) in best else ""


def facts(title: str, told: Mapping[str, object]) -> Html:
    """Key and value; what is not known is a dash."""
    return element("div", table(title, ["", ""], [[key, number(said)] for key, said in told.items()]), class_="prose")


def folded(title: str, *inside: str) -> Html:
    return element("details", element("summary", title), *inside)


# ---- drafters --------------------------------------------------------------------------------------------------------

TRAITS = {"inputs": "reads", "generation": "drafts by", "cost": "cost", "training": "training", "memory": "memory"}


def drafters(subject: Subject) -> Html:
    """What each mechanism is said to cost, beside what it cost here; then those that were not measured."""
    config = subject.run.document["config"]
    own = [each for each in config["draftings"] if each["drafter"] != "none"]
    heads = ["drafter", "mechanism", *TRAITS.values(), *_MEASURED]
    rows = [[each["label"], each["drafter"], *_traits(each["drafter"]), *_measured(subject, each)] for each in own]
    here = table("Drafters: how they work, and what they cost here", heads, rows)
    absent = sorted(set(plugins.names("drafters")) - {each["drafter"] for each in own} - {"none"})
    others = table("Mechanisms not measured here", ["drafter", *TRAITS.values()], [[n, *_traits(n)] for n in absent])
    parts = (here if rows else element("p", "No drafter was measured."), folded("Other mechanisms", others))
    return element("div", *parts, class_="prose")


_MEASURED = ("weights, MB", "T_draft, ms", "T_draft grows", "draft overhead", "AL")


def _traits(mechanism: str) -> list[str]:
    if mechanism not in plugins.names("drafters"):
        return [UNKNOWN] * len(TRAITS)
    about = plugins.load("drafters", mechanism)
    return [getattr(about, key) or UNKNOWN for key in TRAITS]


def _measured(subject: Subject, drafting: Mapping[str, Any]) -> list[str]:
    """Over all its cells, in the order of `_MEASURED`."""
    own = [each for each in subject.drafted if each.cell.drafter == drafting["label"]]
    size = subject.run.document["config"].get("drafters", {}).get(drafting["label"], {}).get("bytes")
    weights = UNKNOWN if size is None else f"{size / 1e6:.1f}"
    times = (_known(own, "t_draft", 1000, three), _growth(own), _known(own, "draft_overhead"))
    return [weights, *times, _known(own, "al")]


def _known(
    results: Sequence[Result], name: str, times: float = 1, said: Callable[[float], str] = "{:.2f}".format
) -> str:
    found = [times * known for each in results if (known := value(each, name)) is not None]
    return range_of(found, said) if found else UNKNOWN


def _growth(results: Sequence[Result]) -> str:
    """T_draft of the largest D over that of the smallest, at the smallest B that has both."""
    for b in sorted({each.cell.concurrency for each in results}):
        at = {each.cell.draft_length: value(each, "t_draft") for each in results if each.cell.concurrency == b}
        low, high = min(at), max(at)
        first, last = at[low], at[high]
        if low < high and first and last:
            return f"{last / first:.2f}x from D={low} to {high} (B={b})"
    return UNKNOWN


# ---- failures --------------------------------------------------------------------------------------------------------


def failures(subject: Subject) -> Html:
    """Turns that failed, and outputs that are not the baseline's."""
    failed, differ = list(_failed(subject)), list(_differing(subject))
    if not failed and not differ:
        compared = any(each.mismatches is not None for each in subject.run.measured)
        same = "every greedy output that was compared is the baseline's" if compared else "outputs were not compared"
        return element("p", f"No turn failed; {same}.")
    parts = []
    if failed:
        parts.append(
            table(_of("Turns that failed", failed), ["cell", "request", "turn", "error"], failed[:MOST_FAILURES])
        )
    if differ:
        heads = ["cell", "request", "turn", "index", "expected", "got", "top-2 logit gap", "kind"]
        title = _of("Outputs that differ from the baseline's, by where they part", differ)
        parts.append(table(title, heads, differ[:MOST_FAILURES]))
    return element("div", *parts, class_="prose")


def _of(title: str, rows: Sequence[Any]) -> str:
    return f"{title} ({len(rows)})" + (f", the first {MOST_FAILURES}" if len(rows) > MOST_FAILURES else "")


def _failed(subject: Subject) -> Iterator[list[str]]:
    for measured in subject.run.measured:
        for record in measured.records:
            if record.finish == "error":
                said = record.error or UNKNOWN
                said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
                yield [measured.cell.key, record.request, str(record.turn), said]


def _differing(subject: Subject) -> Iterator[list[str]]:
    for measured in subject.run.measured:
        for each in measured.mismatches or ():
            told = (each.request, each.turn, each.index, each.expected, each.got, each.gap, each.kind)
            yield [measured.cell.key, *map(number, told)]
