"""Gates: what reads, what does not, and the three verdicts."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from builders import cell

from speedbench.cli import document
from speedbench.compare.gates import Acknowledged, Gate, acknowledge, judge, parse, read
from speedbench.compare.values import Change, Finding
from speedbench.errors import UserError
from speedbench.stats import UNAVAILABLE
from speedbench.types import Measurement

METRICS = document.metrics()
TODAY = date(2026, 11, 30)


def gate(text: str) -> Gate:
    return parse(text, METRICS)


def moved(value: float, low: float | None, high: float | None, *, metric: str = "al", n: int = 80) -> Change:
    number = Measurement(value=2.0, low=1.9, high=2.1, n=n)
    return Change(
        metric=metric, category=None, base=number, cand=number, unit="conversations", detectable=0.03,
        change=Measurement(value=value, low=low, high=high, n=n),
    )  # fmt: skip


def verdict(text: str, value: float, low: float | None, high: float | None) -> str:
    asked = gate(text)
    return judge(asked, moved(value, low, high, metric=asked.metric.name)).verdict


# ---- the language --------------------------------------------------------------------------------------------------


def test_a_relative_gate_reads() -> None:
    found = gate("al:-2%")
    assert (found.metric.name, found.sign, found.limit, found.category) == ("al", "", -0.02, None)


def test_an_absolute_gate_reads() -> None:
    found = gate("al:>=2.3")
    assert (found.sign, found.limit) == (">=", 2.3)


def test_a_gate_may_ask_of_some_cells_only() -> None:
    found = gate("al[category=coding, drafter=ngram, D=4, B=1]:-4%")
    assert found.category == "coding"
    assert found.asks(cell("ngram", 4, 1))
    assert not found.asks(cell("ngram", 2, 1))
    assert not found.asks(cell("suffix", 4, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("al", "does not read"),
        ("al:2%", "'2%' is no limit"),
        ("al:-2", "'-2' is no limit"),
        ("al:>2", "is no limit"),
        ("al:-100%", "nothing falls by 100%, so this asks nothing"),
        ("ak:-2%", "Did you mean 'al'?"),
        ("al[categori=x]:-2%", "Did you mean 'category'?"),
        ("al[category]:-2%", "category needs a value"),
        ("ttft_p99:+10%", "ttft_p99 has no relative gate"),
        ("al:-nan%", "is no limit"),
        ("", "does not read"),
    ],
)
def test_a_gate_that_does_not_read_says_why(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        gate(text)


# ---- verdicts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("al:-2%", -0.05, -0.021, "regression"),  # all of it is beyond
        ("al:-2%", -0.02, 0.01, "ok"),  # none of it is
        ("al:-2%", -0.03, 0.01, "inconclusive"),
        ("al:-2%", 0.01, 0.05, "ok"),
        ("step_cost:+3%", 0.031, 0.06, "regression"),  # less is better here
        ("step_cost:+3%", -0.10, 0.03, "ok"),
        ("step_cost:+3%", 0.01, 0.04, "inconclusive"),
        ("al:+2%", 0.005, 0.019, "regression"),  # a gain that was promised
        ("al:+2%", 0.021, 0.04, "ok"),
    ],
)
def test_a_verdict_needs_the_whole_interval(text: str, low: float, high: float, expected: str) -> None:
    assert verdict(text, (low + high) / 2, low, high) == expected


def test_a_bound_is_held_against_the_number_itself() -> None:
    # 2.0 [1.9, 2.1]
    assert [judge(gate(text), moved(0.0, 0.0, 0.0)).verdict for text in ("al:>=1.9", "al:>=2.2", "al:>=2.0")] == [
        "ok", "regression", "inconclusive",
    ]  # fmt: skip
    assert judge(gate("al:<=1.5"), moved(0.0, 0.0, 0.0)).verdict == "regression"


def test_a_census_needs_no_interval() -> None:
    share = Measurement(value=1.0, n=80)
    change = Change(
        metric="lossless", category=None, base=UNAVAILABLE, cand=share, change=UNAVAILABLE, unit="", detectable=None
    )
    assert judge(gate("lossless:>=1"), change).verdict == "ok"


def test_without_an_interval_nothing_is_concluded() -> None:
    assert verdict("al:-2%", -0.5, None, None) == "inconclusive"


def test_what_was_not_measured_is_not_comparable() -> None:
    change = Change(
        metric="al", category=None, base=UNAVAILABLE, cand=UNAVAILABLE, change=UNAVAILABLE, unit="", detectable=None
    )
    assert judge(gate("al:-2%"), change).verdict == "not comparable"


def test_doubt_about_the_machine_forbids_a_verdict() -> None:
    found = judge(gate("al:-2%"), moved(-0.5, -0.6, -0.4), "noisy")
    assert (found.verdict, found.why) == ("inconclusive", "noisy")


def test_an_open_verdict_says_how_many_conversations_would_close_it() -> None:
    # half width 0.04 at 80, and 0.02 from the limit: (0.04 / 0.02)² · 80
    assert judge(gate("al:-2%"), moved(0.0, -0.04, 0.04)).why == "needs ~320"


# ---- acknowledgements ----------------------------------------------------------------------------------------------


def known(until: date, cell: str = "") -> Acknowledged:
    return Acknowledged(gate="al:-2%", until=until, reason="new template", by="me", cell=cell)


def fallen() -> Finding:
    return judge(gate("al:-2%"), moved(-0.1, -0.12, -0.08))


def test_a_known_regression_passes_until_its_day_is_over() -> None:
    found = [acknowledge(fallen(), "ngram-d4-b1", [known(until)], TODAY) for until in (TODAY, date(2026, 11, 29))]
    assert [each.verdict for each in found] == ["acknowledged", "regression"]
    assert "until 2026-11-30, me: new template" in found[0].why
    assert "until 2026-11-29 only" in found[1].why


def test_another_cell_is_not_acknowledged() -> None:
    assert acknowledge(fallen(), "ngram-d4-b1", [known(TODAY, "ngram-d8-b1")], TODAY).verdict == "regression"


def test_gates_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text(
        "gates: [al:-2%, 'al:>=2.3']\nacknowledged:\n"
        "- {gate: al:-2%, until: 2026-12-31, reason: r, by: b, cell: ngram-d4-b1}\n"
    )
    gates, acknowledged = read(str(path), METRICS)
    assert [each.text for each in gates] == ["al:-2%", "al:>=2.3"]
    assert acknowledged == [
        Acknowledged(gate="al:-2%", until=date(2026, 12, 31), reason="r", by="b", cell="ngram-d4-b1")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gates: []\n", "gates: List should have at least 1 item"),
        ("gates: [al:-2%]\nacks: []\n", "acks: unknown key, line 2. Have: gates, acknowledged"),
        ("gates:\n- al:-2%\nacknowledged:\n- gate: al:-2%\n  until: soon\n  reason: r\n  by: b\n", "line 5"),
        ("gates: [al:-2%]\nacknowledged: [{gate: al:-3%, until: 2026-12-31, reason: r, by: b}]\n", "no gate 'al:-3%'"),
        ("gates: [ak:-2%]\n", "Did you mean 'al'"),
        ("gates: [al:-2%\n", "line 2"),
    ],
)
def test_a_file_of_gates_that_does_not_read_names_itself_and_the_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read(str(path), METRICS)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
