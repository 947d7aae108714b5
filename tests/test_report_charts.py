"""Each chart says what its numbers say, and calls nothing best that nobody can serve with."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from builders import measured, passed
from reported import answer, everything, figure, subject, sweep

from speedbench.report import charts as package
from speedbench.report.charts import charts
from speedbench.report.drawing import Chart, Figure

CHARTS = dict(charts())
FILES = sorted(Path(package.__file__).parent.glob("[!_]*.py"))


def reading(name: str, of: Any) -> str:
    return figure(CHARTS[name], of).reading


def test_every_file_of_the_folder_is_a_chart_with_a_place_of_its_own() -> None:
    assert {file.stem for file in FILES} == set(CHARTS)
    assert all(isinstance(chart, Chart) for chart in CHARTS.values())
    assert len({chart.place for chart in CHARTS.values()}) == len(CHARTS) == 9


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_chart_knows_another(file: Path) -> None:
    modules = {
        node.module or "" for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)
    }
    assert not {name for name in modules if name.startswith("speedbench.report.charts")}


@pytest.mark.parametrize("name", CHARTS)
def test_a_label_has_the_same_colour_and_shape_in_every_chart(name: str) -> None:
    for panel in figure(CHARTS[name], everything()).panels:
        for layer in panel.spec("d", 300)["layer"]:
            for channel in ("color", "shape"):
                coded = layer["encoding"].get(channel, {})
                if coded.get("field") == "drafter":
                    assert coded["scale"]["domain"] == ["none", "ngram", "eagle3"]


@pytest.mark.parametrize("name", CHARTS)
def test_panels_hold_their_own_data_and_no_address(name: str) -> None:
    for panel in figure(CHARTS[name], everything()).panels:
        spec = panel.spec("what is seen", "container")
        assert spec["data"]["values"]
        assert spec["description"].endswith("what is seen")
        assert "http" not in str(spec)


def test_acceptance_is_read_against_its_ceiling() -> None:
    """One of D accepted: AL 2, all of D = 1, and half of D = 2."""
    assert "with 2.00 of at most" in reading("al", everything())
    assert "ngram D=1 uses most of what it drafts: 100% of D" in reading("al", everything())


def test_the_speedup_is_counted_by_what_lies_beyond_its_interval() -> None:
    assert "8 of 8 cells are faster than no drafting, 8 of them beyond" in reading("speedup", everything())
    assert "The formula misses 0 of 8 by more than 5%" in reading("speedup", everything())


def test_the_time_of_a_pass_is_split() -> None:
    """1 s to verify, and 0.2 s to draft two: 0.2 / 1.2 = 17%."""
    found = figure(CHARTS["time"], everything())
    assert "A plain pass verifies in 1000 ms" in found.reading
    assert "Drafting is at most 17% of a pass, with ngram D=2 at B=1." in found.reading
    bars = [row for row in found.panels[0].rows if row["cell"] == "ngram D=2"]
    assert [(row["part"], round(row["ms"])) for row in bars] == [("verify", 1000), ("draft", 200), ("other", 0)]


def test_break_even_is_where_al_pays_for_drafting_and_verifying() -> None:
    """AL 2 against 1 + 0.1 = 1.1 at D = 1."""
    found = figure(CHARTS["break_even"], everything())
    assert "8 of 8 cells lie above the line" in found.reading
    assert "AL 2.00 against 1.10 to break even" in found.reading
    assert found.rows[0]["margin"] == pytest.approx(2 / 1.1)


def test_the_oracle_is_drawn_and_never_called_best() -> None:
    """Both accept one draft a step, but the oracle's passes are shorter."""
    plain = measured(answer(*[0] * 4, d=0, seconds=4.0), d=0, passes=[passed(verify=1.0)] * 4)
    best = measured(answer(1, 1, d=1, seconds=2.0), d=1, drafter="oracle", passes=[passed(verify=1.0, d=1)] * 2)
    real = measured(answer(1, 0, 0, d=1, seconds=3.2), d=1, passes=[passed(verify=1.0, draft=0.1, d=1)] * 3)
    for name in ("al", "speedup", "break_even"):
        found = figure(CHARTS[name], subject(plain, best, real))
        assert "oracle" in {row["drafter"] for row in found.rows}
        assert "oracle" not in found.reading
        assert "ngram" in found.reading


def test_positions_are_percent_of_steps() -> None:
    """Steps of D = 2 that accepted 2, 1, 0: the first in 2 of 3, the second in 1 of 3, in 1 of 2 once the first was."""
    found = figure(CHARTS["positions"], subject(measured(answer(2, 1, 0, d=2, seconds=1.0), d=2)))
    assert (
        found.reading == "The first draft is accepted in 67% of the steps; the last, once all before it were, in 50%."
    )
    assert [(row["i"], round(row["marginal"], 3)) for row in found.rows] == [(1, 0.667), (2, 0.333)]


def test_categories_compare_each_drafter_at_its_fastest_d() -> None:
    found = figure(CHARTS["categories"], everything())
    assert {(row["drafter"], row["D"], row["B"]) for row in found.rows} == {("ngram", 1, 1), ("eagle3", 1, 1)}
    assert {row["category"] for row in found.rows} == {"chat", "code"}
    assert isinstance(CHARTS["categories"].draw(subject(measured(answer(1, d=1, seconds=1.0), d=1))), str)


def test_concurrency_needs_two_and_tells_where_it_stops_to_pay() -> None:
    """Speedups 2 and 0.5: on a line over log B from 1 to 4, 2/3 of the way, B = 4^(2/3) = 2.52."""
    cells = []
    for b, seconds in ((1, 2.0), (4, 8.0)):
        cells.append(measured(answer(*[0] * 4, d=0, seconds=4.0), d=0, b=b))
        cells.append(measured(answer(1, 1, d=1, seconds=seconds), d=1, b=b))
    found = figure(CHARTS["batch"], subject(*cells))
    assert found.reading.startswith("The best speedup goes from 2.00x at B=1 to 0.50x at B=4")
    assert "at about B=2.5" in found.reading
    alone = CHARTS["batch"].draw(subject(*cells[:2]))
    assert isinstance(alone, str)
    assert alone.startswith("only B = 1 has a speedup; `--concurrency 1,4,16`")


def test_the_frontier_is_what_nothing_beats_on_both_axes() -> None:
    found = figure(CHARTS["frontier"], everything())
    for row in found.rows:
        beaten = [o for o in found.rows if o["user"] > row["user"] and o["whole"] > row["whole"]]
        assert not (row["front"] and beaten)
    assert any(not row["front"] for row in found.rows)


@pytest.mark.parametrize(
    ("gpus", "unit", "title"),
    [
        ([], "tok/s, all users", "it has no GPU"),
        (None, "tok/s, all users", "whether it has GPUs is not known"),
        ([{"name": "H200"}], "tok/s per GPU", "Of one GPU"),
        ([{"name": "H200"}] * 8, "tok/s, all users", "which of its 8 GPUs served is not recorded"),
    ],
)
def test_a_speed_is_per_gpu_only_where_one_gpu_is_known(gpus: Any, unit: str, title: str) -> None:
    found = figure(CHARTS["frontier"], subject(*sweep(batches=(1,)), gpus=gpus))
    assert found.columns["whole"] == unit
    assert title in found.panels[0].title


def test_the_order_of_the_run_says_how_quiet_the_machine_was() -> None:
    """(p90 − p10) / p50 of 10, 10, 10, 10, 20 ms: (16 − 10) / 10 = 60%."""
    noisy = subject(*sweep(batches=(1,)), noise=[0.01, 0.01, 0.01, 0.01, 0.02])
    assert (
        reading("order", noisy) == "A fixed piece of work took 10 ms and varied by 60%: noisy, and times are no result."
    )
    assert "quiet enough" in reading("order", everything())
    assert "not probed often enough" in reading("order", subject(*sweep(batches=(1,))))


def test_what_cannot_be_drawn_says_why_in_words() -> None:
    nothing = subject()
    for name, chart in CHARTS.items():
        found = chart.draw(nothing)
        assert not isinstance(found, Figure), name
        assert len(found.split()) > 4
