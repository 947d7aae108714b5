"""A leaderboard's page shows the rows of its CSV, and ranks nothing anew."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas
import pytest
from reported import Page

from speedbench.errors import UserError
from speedbench.report.leaderboard import MOST_DRAWN, leaderboard_page, page_of


def row(drafter: str = "ngram", d: int = 2, rank: int | None = 1, **more: Any) -> dict[str, Any]:
    """Of a board, made up."""
    return {
        "rank": rank, "entry": f"{drafter}-{d}", "date_utc": "2026-01-02", "submitter": "someone", "tier": "reproduced",
        "division": "lossless", "target": "a/model", "target_dtype": "bfloat16", "drafter": drafter, "draft_length": d,
        "engine": "native", "engine_version": "torch 2.13", "hardware": "a-cpu", "task": "demo", "temperature": 0.0,
        "n_conversations": 80, "concurrency": 1, "al": 1.5, "al_lo": 1.4, "al_hi": 1.6, "acceptance_rate": 0.25,
        "decode_tps": 50.0, "speedup": 1.25, "speedup_lo": 1.125, "speedup_hi": 1.375, "speedup_formula": 1.26,
        "lossless": "exact", "marks": None, **more,
    }  # fmt: skip


ROWS = [
    row("eagle3"), row("ngram"), row("none", 0, None, al=1.0, speedup=1.0, speedup_lo=None, speedup_hi=None),
    row("eagle3", concurrency=4), row("none", 0, None, concurrency=4, speedup=None),
]  # fmt: skip


def test_rows_that_are_alike_are_one_part_with_a_chart_and_a_table() -> None:
    found = Page(leaderboard_page(ROWS))
    assert found.tags["h2"] == 2
    assert "B = 1 · torch 2.13 · bfloat16 · greedy · 80 conversations · lossless" in found.words
    assert found.words.count("a/model, demo, a-cpu") == 2  # the title and the heading
    assert set(found.told["charts"]) == {"part1-1", "part2-1"}
    assert len(found.ids) == len(set(found.ids))
    first = found.table("Entries (3)")
    assert [each["rank"] for each in first] == ["1", "1", "-"]
    assert first[0]["speedup"] == "1.25x [1.12, 1.38]"
    assert first[2]["speedup"] == "1.00x"
    assert first[0]["accept"] == "0.25"
    assert found.table("Entries (2)")[1]["speedup"] == "-"
    assert "First, within their intervals: eagle3 D=2, ngram D=2." in found.words


def test_where_no_row_has_a_rank_its_marks_say_why() -> None:
    noisy, drifted = row(rank=None, marks="noisy"), row(d=3, rank=None, marks="drift; noisy")
    assert "No row has a rank; marks: drift, noisy." in leaderboard_page([noisy, drifted])
    assert "No row has a rank." in leaderboard_page([row(rank=None)])


def test_a_frame_gives_the_same_page_as_its_rows_and_nan_is_unknown() -> None:
    frame = pandas.DataFrame(ROWS)
    read = pandas.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=False, na_values=[""])
    assert leaderboard_page(frame) == leaderboard_page(read) == leaderboard_page(ROWS)
    for _, rows in Page(leaderboard_page(frame)).tables:
        assert not {"nan", "None", ""} & {each for one in rows for each in one}


def test_acceptance_lengths_are_apart_by_d() -> None:
    found = Page(leaderboard_page([row(d=1), row(d=2), row("suffix", d=2)], by="al"))
    assert found.tags["h2"] == 2
    assert "D = 2 · bfloat16" in found.words
    assert "acceptance length" in found.words
    assert found.told["charts"]["part2-1"]["data"]["values"][0]["value"] == 1.5


def test_a_board_without_entries_says_so() -> None:
    assert "No entry yet." in Page(leaderboard_page([])).words


@pytest.mark.parametrize("key", ["target", "drafter", "submitter", "entry", "marks", "task", "engine_version"])
def test_hostile_text_of_a_submission_makes_no_element(key: str) -> None:
    told = "</script><script>alert(1)</script><a href='https://x.y'>"
    found = Page(leaderboard_page([row(**{key: told})] if key != "drafter" else [row(told)]))
    assert told in found.words
    assert found.tags["script"] == 2
    assert not [said for _, name, said in found.attributes if name in ("href", "src")]


def test_ten_thousand_entries_are_listed_and_the_first_are_drawn() -> None:
    text = leaderboard_page([row(f"drafter-{i}", rank=i + 1) for i in range(10_000)])
    assert len(text.encode()) < 10e6
    found = Page(text)
    assert len(found.table("Entries (10000)")) == 10_000
    assert len(found.told["charts"]["part1-1"]["data"]["values"]) == MOST_DRAWN
    assert f"The first {MOST_DRAWN} of 10000 are drawn." in found.words


def test_a_boards_file_is_made_a_page_and_any_other_file_is_refused(tmp_path: Path) -> None:
    board = tmp_path / "al" / "target" / "demo.csv"
    board.parent.mkdir(parents=True)
    board.write_text("rank,drafter,draft_length,al,al_lo,al_hi,speedup\n1,ngram,4,1.5,1.4,1.6,\n", encoding="utf-8")
    assert "1.50 [1.40, 1.60]" in page_of(board)
    for text, said in (
        ("a,b\n1,2\n", "it has no column 'rank'"),
        ("drafter\nx\n", "it has no column 'rank'"),
        ('"a\n', "is not a board's CSV: "),
    ):
        board.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=said):
            page_of(board)
