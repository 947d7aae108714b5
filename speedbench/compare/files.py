"""A comparison in files: JSON and back, JUnit, and what github-action-benchmark reads."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from pydantic import TypeAdapter

from speedbench.compare import wording
from speedbench.compare.markdown import markdown
from speedbench.compare.values import SCHEMA, WORDS, Comparison, Finding, Pair, Report
from speedbench.errors import UserError
from speedbench.files import document, dumps, write_whole
from speedbench.results import read

_REPORT = TypeAdapter(Report)
MOST_RENDERED = 16 * 2**20
"""Bytes of a comparison that is rendered from its file alone."""


def as_json(report: Report) -> str:
    return dumps({"schema": SCHEMA, "verdict": WORDS[report.code], **asdict(report)}, indent=2) + "\n"


def from_json(path: Path) -> Report:
    """A comparison as it was written, checked key by key. Raises `UserError` naming file and key."""
    if not path.is_file():
        raise UserError(f"no file '{path}'; --render takes what --write NAME.json wrote")
    if path.stat().st_size > MOST_RENDERED:
        raise UserError(f"{path} is too large: {path.stat().st_size} bytes; at most {MOST_RENDERED}")
    found = document(path, SCHEMA)
    return read(_REPORT, {key: found.get(key) for key in ("comparisons", "code")}, str(path))


def junit(report: Report) -> str:
    """A suite a comparison, a case a gate and pair; skipped is what has no verdict."""
    root = ElementTree.Element("testsuites")
    for one in report.comparisons:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(f"{one.base} → {one.cand}"))
        kept = ElementTree.SubElement(suite, "properties")
        for name, text in (("subject", one.subject), *wording.facets(one)):
            ElementTree.SubElement(kept, "property", name=_xml(name), value=_xml(text))
        refusal = wording.refusal(one)
        if refusal:
            _case(suite, "comparison", "like for like", "skipped", refusal)
        for pair in one.pairs:
            _cases(suite, pair)
        for kind, name in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            suite.set(kind, str(len(suite.findall(name))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(suite: ElementTree.Element, pair: Pair) -> None:
    for finding in pair.findings:
        if finding.gate:
            kind = {"regression": "failure", "ok": "", "acknowledged": ""}.get(finding.verdict, "skipped")
            _case(suite, pair.name, finding.gate, kind, _message(finding))
    _case(suite, pair.name, "correct", "failure" if pair.wrong else "", "; ".join(pair.wrong))
    if pair.refused:
        _case(suite, pair.name, "like for like", "skipped", pair.refused)


def _case(suite: ElementTree.Element, where: str, name: str, kind: str, message: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(where), name=_xml(name))
    if kind:
        ElementTree.SubElement(case, kind, message=_xml(message))


def _message(finding: Finding) -> str:
    change = finding.of
    values = f"{wording.number(change.base, change.metric)} → {wording.number(change.cand, change.metric)}"
    parts = (
        f"{wording.verdict(finding)}: {wording.title(change)} {values}",
        f"change {wording.evidence(finding)}",
        f"on {wording.size(change)}",
        f"detectable {wording.detectable(change)}",
        wording.remark(finding),
    )
    return ", ".join(filter(None, parts))


def _xml(text: str) -> str:
    return wording.clean(text, 1000)


def benchmark_action(report: Report) -> str:
    """The candidate's numbers in the form `customBiggerIsBetter`, of the metrics for which that is so."""
    found = [
        _entry(one, pair, finding)
        for one in report.comparisons
        for pair in one.pairs
        for finding in pair.findings
        if finding.of.metric in ("al", "speedup", "decode_tps") and finding.of.cand.value is not None
    ]
    return dumps(list({each["name"]: each for each in found}.values()), indent=2) + "\n"


def _entry(one: Comparison, pair: Pair, finding: Finding) -> Mapping[str, object]:
    change, cand = finding.of, finding.of.cand
    entry: dict[str, object] = {
        "name": wording.clean(f"{one.cand}: {pair.name}: {wording.title(change)}"),
        "unit": {"al": "tokens/step", "speedup": "x"}.get(change.metric, "tokens/s"),
        "value": cand.value,
        "extra": wording.clean(f"{wording.relative(change.change)} against {one.base}, {wording.size(change)}"),
    }
    if cand.low is not None and cand.high is not None:
        entry["range"] = f"{cand.low:.3g} to {cand.high:.3g}"
    return entry


WRITERS: Mapping[str, Callable[[Report], str]] = {
    ".gha.json": benchmark_action,
    ".json": as_json,
    ".md": markdown,
    ".xml": junit,
}
"""By the end of a file's name; the longer endings first."""


def writer(path: str) -> Callable[[Report], str]:
    """What makes the text of a file of this name. Raises `UserError` for an ending that says nothing, or no folder."""
    if not Path(path).parent.is_dir():
        raise UserError(f"--write: cannot write '{path}': '{Path(path).parent}' is no folder")
    for ending, make in WRITERS.items():
        if path.endswith(ending):
            return make
    raise UserError(f"--write '{path}': the name ends in one of {', '.join(WRITERS)}")


def write(report: Report, path: str) -> None:
    write_whole(Path(path), writer(path)(report))
