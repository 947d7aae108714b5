"""What a reader sees of a result."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pandas as pd
import pytest
from builders import result

from speedbench.columns import COLUMNS, csv_rows, csv_text, shown
from speedbench.types import Measurement, Result


def text(title: str, here: Result) -> str:
    return next(column.of(here) for column in COLUMNS if column.title == title)


def counted(value: float, n: int) -> Measurement:
    return Measurement(value=value, n=n)


def test_unknown_prints_as_a_dash_everywhere() -> None:
    cells = {column.title: column.of(result()) for column in COLUMNS}
    assert cells == {"drafter": "ngram", "D": "3", "B": "1", "repeat": "all"} | dict.fromkeys(list(cells)[4:], "-")


def test_numbers_have_their_interval_and_their_digits() -> None:
    here = result(
        al=Measurement(value=2.4968, low=2.4, high=2.61, n=9),
        speedup=Measurement(value=1.568, low=1.5, high=1.649, n=9),
        acceptance_rate=0.5,
        draft_overhead=0.275,
        decode_tps=59.14,
        output_tps=1234.5,
        speedup_formula=1.312,
    )
    titles = ("AL", "speedup", "accept", "draft ovh", "tok/s", "out tok/s", "formula")
    assert [text(title, here) for title in titles] == [
        "2.50 [2.40, 2.61]",
        "1.57x [1.50, 1.65]",
        "50.0%",
        "0.28",
        "59.1",
        "1234",
        "1.31x",
    ]


def test_an_interval_without_width_is_left_out() -> None:
    assert text("AL", result(d=0, al=Measurement(value=1.0, low=1.0, high=1.0, n=9))) == "1.00"


@pytest.mark.parametrize(
    ("residual", "right"), [(-0.046, "-4.6%"), (-0.092, "-9.2% !"), (0.08, "+8.0% !"), (0.0, "+0.0%")]
)
def test_a_residual_beyond_five_percent_is_flagged(residual: float, right: str) -> None:
    assert text("residual", result(residual=residual)) == right


@pytest.mark.parametrize(
    ("same", "real", "near", "right"),
    [
        (24, 0, 0, "24/24"),
        (22, 0, 2, "22/24 (2 near ties)"),
        (23, 0, 1, "23/24 (1 near tie)"),
        (20, 4, 0, "20/24 4 REAL"),
        (20, 1, 3, "20/24 1 REAL (3 near ties)"),
        (20, 0, 1, "20/24 (1 near tie, 3 unexplained)"),
    ],
)
def test_lossless_says_how_many_and_why_not(same: int, real: int, near: int, right: str) -> None:
    here = result(lossless=counted(same / 24, 24), lossless_real=counted(real, 24), near_ties=counted(near, 24))
    assert text("lossless", here) == right


def test_columns_that_say_nothing_are_not_shown() -> None:
    def titles(*results: Result) -> set[str]:
        return {column.title for column in shown(results)}

    assert not titles(result(b=1, repeat=0)) & {"out tok/s", "repeat", "failed"}
    assert "out tok/s" in titles(result(b=1), result(b=8))
    assert "repeat" in titles(result(repeat=0), result(repeat=1))
    failed = result(failed_requests=counted(4, 10))
    assert "failed" in titles(failed)
    assert text("failed", failed) == "4/10"


def test_every_column_is_explained_and_named_once() -> None:
    assert all(column.explain for column in COLUMNS)
    assert len({column.title for column in COLUMNS}) == len(COLUMNS)


def test_a_csv_row_is_flat_and_positions_stand_in_order() -> None:
    one = result(d=1, al=1.5, **{"accepted_at_marginal[1]": 0.5}, speedup=1.2)
    other = result(d=10, al=2.0, **{f"accepted_at_marginal[{i}]": 0.1 for i in range(1, 11)})
    rows = csv_rows([one, other])
    frame = pd.DataFrame(rows)
    assert list(frame.columns[:11]) == [
        *("task", "runner", "drafter", "draft_length", "concurrency", "repeat"),
        *("al", "al_low", "al_high", "al_n", "al_origin"),
    ]
    values = [name for name in frame.columns if name.startswith("accepted") and name.endswith("]")]
    assert values == [f"accepted_at_marginal[{i}]" for i in range(1, 11)]
    assert rows[0]["accepted_at_marginal[2]"] is None
    assert (rows[1]["speedup"], rows[1]["speedup_origin"]) == (None, "unavailable")


def test_a_name_that_a_spreadsheet_would_run_is_text_and_a_negative_number_a_number() -> None:
    text = csv_text([result(drafter="=1+1", residual=-0.5)])
    assert ",'=1+1," in text
    assert ",-0.5," in text
