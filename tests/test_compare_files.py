"""A comparison in other people's pages: sizes, markup, and files that pretend to be one."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from speedbench.cli import compared
from speedbench.compare import files, wording
from speedbench.compare.markdown import LONGEST, MARKER, escaped, markdown
from speedbench.compare.values import Change, Comparison, Facet, Finding, Pair, Report, Verdict
from speedbench.errors import UserError
from speedbench.types import Measurement

HOSTILE = "<img src=x onerror=alert(1)> | `a` @team [x](http://evil) \x1b[31m =cmd()\n## new"


def finding(verdict: Verdict = "ok", *, category: str | None = None, why: str = "") -> Finding:
    number = Measurement(value=2.0, low=1.9, high=2.1, n=80)
    change = Change(
        metric="al", category=category, base=number, cand=number, unit="conversations", detectable=0.03,
        change=Measurement(value=-0.01, low=-0.02, high=0.001, n=80),
    )  # fmt: skip
    return Finding(of=change, gate="al:-2%", verdict=verdict, why=why)


def pair(name: str = "ngram D=4, B=1", *findings: Finding) -> Pair:
    return Pair(
        name=name, findings=findings or (finding(),), step_cost=0.01, categories=(), wrong=(), refused=""
    )  # fmt: skip


def report(*pairs: Pair, base: str = "old", cand: str = "new") -> Report:
    facet = Facet(name="engine", same=False, told=("torch 1 → 2",), refuses=False)
    one = Comparison(
        base=base, cand=cand, subject="demo", facets=(facet,), controls=(), pairs=pairs, unpaired=(), notes=(), code=0
    )
    return Report(comparisons=(one,), code=0)


def test_names_hold_no_markup_in_markdown() -> None:
    text = escaped(HOSTILE)
    assert "<" not in text
    assert "\n" not in text
    assert "\x1b" not in text
    assert "@team" not in text
    assert "http://" not in text
    assert text.count("|") == text.count("\\|") == 1
    assert "\\`a\\`" in text
    assert "\\[x\\](" in text


def test_a_page_with_hostile_names_keeps_its_shape() -> None:
    hostile = report(pair(HOSTILE, finding(category=HOSTILE, why=HOSTILE)), base=HOSTILE, cand=HOSTILE)
    text = markdown(hostile)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") == 8 for line in rows)
    assert "<img" not in text
    root = ElementTree.fromstring(files.junit(hostile))  # noqa: S314  our own
    assert root.find("testsuite/testcase") is not None
    out = Console(width=200, force_terminal=False)
    with out.capture() as shown:
        compared.print_report(out, hostile)
    assert "\x1b" not in shown.get()


def test_what_is_too_long_keeps_its_worst_pairs() -> None:
    many = [pair(f"p{i}") for i in range(2000)]
    text = markdown(report(*many, pair("the bad one", finding("regression"))))
    assert len(text) <= LONGEST
    assert "the bad one" in text
    assert "more pairs, none of them worse, are in the JSON" in text
    assert text.startswith(MARKER)


def test_however_little_room_there_is_the_verdict_stands() -> None:
    text = markdown(report(*[pair() for _ in range(50)]), longest=150)
    assert len(text) <= 150
    assert "OK" in text


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    made = report(pair(), pair("x", finding("regression", category="code")))
    path = tmp_path / "o.json"
    files.write(made, str(path))
    assert files.from_json(path) == made


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ('{"schema": 2}', "has schema 2; this speedbench reads schema 1"),
        ('{"schema": 1, "code": 0}', "comparisons: Input should be a valid tuple"),
        ('{"schema": 1, "code": 7, "comparisons": []}', "code: Input should be 0, 1, 3, 4 or 5"),
        ('{"schema": 1, "code": 0, "comparisons": [{"base": 1}]}', "comparisons.0.base"),
    ],
)
def test_a_comparison_from_a_stranger_is_checked_key_by_key(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "o.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        files.from_json(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_huge_file_is_not_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.json"
    path.write_text(files.as_json(report(pair())))
    monkeypatch.setattr(files, "MOST_RENDERED", 10)
    with pytest.raises(UserError, match="too large"):
        files.from_json(path)


def test_junit_skips_what_has_no_verdict() -> None:
    every = ("ok", "regression", "inconclusive", "not comparable", "acknowledged")
    made = report(*[pair(verdict, finding(verdict)) for verdict in every])  # type: ignore[arg-type]
    suite = ElementTree.fromstring(files.junit(made))[0]  # noqa: S314  our own
    # five gates, and for each pair whether it is correct
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("10", "1", "2")


def test_a_wrong_output_is_a_failure_of_its_own() -> None:
    made = report(replace(pair(), wrong=("1 of 24 outputs are not the baseline's",)))
    assert "1 of 24 outputs" in files.junit(made)
    assert "WRONG" in markdown(made)


def test_a_terminal_of_a_hundred_columns_gets_no_longer_line() -> None:
    wide = finding("inconclusive", why="needs ~1200")
    out = Console(width=100, force_terminal=False)
    with out.capture() as shown:
        compared.print_report(out, report(pair("eagle3 D=4 → eagle3-ft D=4, B=32", wide, finding())))
    assert max(map(len, shown.get().splitlines())) <= 100


def test_zero_is_not_minus_zero() -> None:
    assert wording.percent(-0.0) == "+0.0%"
    assert wording.percent(-0.0001) == "+0.0%"
    assert wording.percent(None) == "-"
