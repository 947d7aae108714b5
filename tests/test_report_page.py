"""The page stands alone, says what was measured and no more, and no name in it is ever obeyed."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import time
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from builders import measured, mismatch, passed, record
from reported import Page, answer, everything, subject, sweep

from speedbench.columns import UNKNOWN, measurement, shown
from speedbench.files import dumps
from speedbench.report.charts import charts
from speedbench.report.images import bundle
from speedbench.report.page import page
from speedbench.report.sections import MAY_QUOTE, sections
from speedbench.report.subject import Subject
from speedbench.report.theme import THEMES
from speedbench.report.words import verdict
from speedbench.types import Request

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;<b>"


@cache
def drawn() -> Page:
    return made(everything())


def made(*subjects: Subject) -> Page:
    return Page(page("a title", sections(subjects)))


# ---- it stands alone -------------------------------------------------------------------------------------------------


def test_nothing_is_fetched_from_anywhere() -> None:
    fetching = [said for _, name, said in drawn().attributes if name in ("src", "srcset", "href", "action", "data")]
    assert all(said.startswith("#") for said in fetching), fetching
    assert not re.search(r"@import|url\(", drawn().styles[0])
    assert drawn().tags["link"] == drawn().tags["iframe"] == drawn().tags["img"] == 0


def test_a_policy_allows_its_own_script_and_style_and_nothing_else() -> None:
    policy = next(said for _, name, said in drawn().attributes if name == "content" and "default-src" in said)

    def hashed(text: str) -> str:
        return b64encode(sha256(text.encode()).digest()).decode()

    script = next(text for attributes, text in drawn().scripts if not attributes)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{hashed(script)}';" in policy
    assert f"style-src 'sha256-{hashed(drawn().styles[0])}';" in policy
    assert "unsafe-eval" not in policy
    assert not [name for _, name, _ in drawn().attributes if name.startswith("on")]


def test_every_id_is_there_once_and_every_chart_has_its_place() -> None:
    assert len(drawn().ids) == len(set(drawn().ids))
    assert set(drawn().told["charts"]) <= set(drawn().ids)
    links = {said for _, name, said in drawn().attributes if name == "aria-labelledby"}
    assert links
    assert links <= set(drawn().ids)


def test_the_same_run_gives_the_same_bytes() -> None:
    assert page("a title", sections([everything()])) == drawn().text


def test_a_page_without_charts_carries_no_script() -> None:
    found = made(subject())
    assert [text for attributes, text in found.scripts if not attributes] == [""]
    assert len(found.text) < 50_000


def test_ten_thousand_answers_take_a_page_of_a_few_megabytes() -> None:
    """10 000 answers in 4 cells; of each panel at most 2 000 points are drawn."""
    cells = []
    for d in (0, 1, 2, 3):
        answers = [answer(min(d, 1), d=d, seconds=0.5, request=f"r{i % 50}", turn=i // 50) for i in range(2500)]
        cells.append(measured(*answers, d=d, passes=[passed(verify=1.0, d=d)] * 9))
    several = subject(*cells)
    begun = time.process_time()
    text = page("many", sections([several]))
    assert time.process_time() - begun < 5
    assert len(text.encode()) < 10e6
    assert "Of the answers every 5th is drawn" in text  # 10 000 / 2 000
    points = [spec["data"]["values"] for id_, spec in Page(text).told["charts"].items() if "order" in id_]
    assert [len(each) for each in points] == [2000]


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_the_summary_is_the_terminals_table() -> None:
    rows = drawn().table("All cells")
    assert len(rows) == len(everything().results) == 10
    for row, result in zip(rows, everything().results, strict=True):
        assert {column.title: row[column.title] for column in shown(everything().results)} == {
            column.title: column.of(result) for column in shown(everything().results)
        }


@pytest.mark.parametrize(
    ("chart", "column", "metric", "times"),
    [
        ("Acceptance length against D", "AL", "al", 1),
        ("Speedup, measured", "speedup", "speedup", 1),
        ("Speedup, measured", "by the formula", "speedup_formula", 1),
        ("Speedup, measured", "residual", "residual", 1),
        ("Time of a pass", "verify, ms", "t_verify", 1000),
        ("Time of a pass", "draft, ms", "t_draft", 1000),
        ("Break-even AL", "break-even AL", "break_even_al", 1),
        ("Speed for one", "tok/s per user", "decode_tps", 1),
        ("Speed for one", "tok/s, all users", "output_tps", 1),
    ],
)
def test_a_charts_table_has_the_summarys_numbers(chart: str, column: str, metric: str, times: float) -> None:
    by_key = {(r.cell.drafter, str(r.cell.draft_length), str(r.cell.concurrency)): r for r in everything().results}
    rows = drawn().table(chart)
    assert len(rows) >= 8
    for row in rows:
        found = measurement(by_key[row["drafter"], row["D"], row["B"]], metric).value
        assert row[column] == (UNKNOWN if found is None else f"{times * found:.4g}")


def test_the_verdict_opens_the_page() -> None:
    """2 / 1.1 = 1.82 at D = 1, at both concurrencies; of equals the first by name."""
    first = drawn().words.partition("Provenance")[0]
    assert "At B=1 use eagle3 with D=1: decoding is 1.82x" in first
    assert "at B=2 use eagle3 with D=1" in first
    assert "Measured on A CPU (CPU, 2 threads) with u on t." in first
    assert "few conversations (3)" in first


def test_the_verdict_says_how_many_threads_of_a_cpu_were_used_if_not_all() -> None:
    for threads, said in ((1, " with u on t in 1 thread."), (2, " with u on t."), ("x", " with u on t.")):
        assert said in verdict(subject(*sweep(), target={"threads": threads}))
    assert " on t." in verdict(subject(*sweep(), target={"threads": 1}, gpus=[{"name": "NVIDIA H200"}]))


def test_the_verdict_of_a_noisy_machine_says_so() -> None:
    """(p90 − p10) / p50 of 10, 10, 10, 10, 20 ms is 60%, above 15%."""
    noisy = subject(*sweep(batches=(1,)), noise=[0.01, 0.01, 0.01, 0.01, 0.02])
    assert "The machine was noisy: measure again" in verdict(noisy)
    assert "noisy" not in verdict(everything())


def test_a_slow_drafter_is_not_recommended_in_words() -> None:
    """4 tokens in 4 s without, in 8 s with."""
    slow = subject(measured(answer(0, 0, 0, 0, d=0, seconds=4.0), d=0), measured(answer(1, 1, d=1, seconds=8.0), d=1))
    assert verdict(slow).startswith("At B=1 do not speculate: no drafter that can be recommended is faster.")


def test_every_chart_has_a_sentence_a_table_and_words_for_a_screen_reader() -> None:
    assert len(charts()) == 9
    assert "Not drawn" not in drawn().words
    captions = [caption for caption, _ in drawn().tables]
    for _, chart in charts():
        assert chart.title in captions
        assert chart.how in drawn().words
    assert drawn().tags["figure"] == drawn().tags["figcaption"] == 9
    specs = drawn().told["charts"]
    assert len(specs) >= 9
    for spec in specs.values():
        sentence = spec["description"].partition(". ")[2]
        assert len(sentence) > 20
        assert sentence in drawn().words


def test_the_parts_stand_in_the_order_in_which_a_reader_asks() -> None:
    titles = [chart.title for _, chart in charts()]
    order = ["Provenance", "Summary", *titles, "Drafters and their cost", "Failures", "Methods"]
    places = [drawn().text.index(f">{title}") for title in order]
    assert places == sorted(places)


def test_several_runs_stand_one_after_the_other_and_share_no_chart() -> None:
    both = made(subject(*sweep(batches=(1,)), name="first"), subject(*sweep(drafters=("mtp",)), name="second"))
    assert len(both.ids) == len(set(both.ids))
    for id_, spec in both.told["charts"].items():
        text = dumps(spec)
        assert ("mtp" in text) <= id_.startswith("run2")
    assert {"#run1", "#run2"} <= {said for _, name, said in both.attributes if name == "href"}


# ---- what is not there -----------------------------------------------------------------------------------------------


def test_a_run_of_which_everything_failed_says_so_and_draws_nothing_empty() -> None:
    broken = record(request="r0", finish="error", first=None, last=None)
    found = made(subject(measured(broken, d=0), measured(broken, d=2)))
    assert "could rest on: all 2 turns failed." in found.words
    assert [row["error"] for row in found.table("Turns that failed")] == ["HTTP 503"] * 2
    assert found.words.count("Not drawn:") == 9
    assert found.told == {}


def test_a_run_without_a_drafter_has_the_charts_of_the_baseline_alone() -> None:
    found = made(subject(*sweep(drafters=())))
    assert "no cell with a drafter has an acceptance length" in found.words
    assert "No drafter was measured." in found.words
    assert {id_.split("-")[1] for id_ in found.told["charts"]} == {"time", "frontier", "order"}


def test_one_point_is_drawn_as_a_point() -> None:
    found = made(subject(measured(answer(1, 0, d=2, seconds=1.0), d=2)))
    charts_there = found.told["charts"]
    assert [each["al"] for each in charts_there["run1-al-1"]["data"]["values"]] == [1.5]  # (2 + 1) / 2
    assert "it needs a baseline" in found.words


def test_an_engine_without_pass_times_has_no_chart_of_them() -> None:
    found = made(subject(*(replace(each, passes=()) for each in sweep())))
    assert "the engine does not split its passes" in found.words
    assert "it needs pass times" in found.words
    assert "There is no formula" in found.words


def test_no_number_is_nan_and_unknown_is_a_dash() -> None:
    found = made(subject(measured(answer(1, d=1, seconds=1.0), d=1), measured(d=0)))
    for _, rows in found.tables:
        assert not {"nan", "None", "inf", ""} & {text for row in rows[1:] for text in row[:-1]}


def test_the_script_is_kept_once_made_and_the_same_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEEDBENCH_CACHE", str(tmp_path))
    fresh = bundle.__wrapped__()
    (kept,) = (tmp_path / "report").iterdir()
    kept.write_text("// the one that is there", "utf-8")
    assert bundle.__wrapped__() == "// the one that is there"
    monkeypatch.setenv("SPEEDBENCH_CACHE", str(kept))  # a file, in which no folder can be
    assert bundle.__wrapped__() == fresh


# ---- nothing is obeyed -----------------------------------------------------------------------------------------------


def test_hostile_names_are_shown_as_they_are_and_make_no_element() -> None:
    broken = record(request=HOSTILE, category=HOSTILE, finish="error")
    names = [{"request": HOSTILE + str(i), "category": HOSTILE + str(i % 2)} for i in range(4)]
    plain = [answer(0, 0, 0, 0, d=0, seconds=4.0, **each) for each in names]
    good = [answer(1, 1, d=2, seconds=2.0, **each) for each in names]
    real = mismatch(HOSTILE + "1", "real")
    cells = [measured(*plain, d=0), measured(*good, broken, d=2, drafter=HOSTILE, mismatches=[real])]
    request = Request(id=HOSTILE, category=HOSTILE, turns=(HOSTILE, "{{datum}} $title \ud83d \x1b[31m"))
    runner = {"name": HOSTILE, "title": HOSTILE, "backend": HOSTILE, "model": HOSTILE, "engine": {}}
    found = made(subject(*cells, name=HOSTILE, prompts=[request], runner=runner))
    assert found.tags["img"] == found.tags["b"] == 0
    assert found.tags["script"] == 2
    assert HOSTILE in found.words
    own = found.text.replace(bundle(), "")
    assert "<img" not in own
    assert own.count("</script") == 2
    assert found.told["charts"]["run1-al-1"]["data"]["values"][0]["drafter"] == HOSTILE
    found.text.encode()
    assert "\x1b" not in found.text


def test_prompts_are_shown_only_when_asked_for() -> None:
    told = "the text of a prompt"
    task = {"name": "t", "where": {"prompts": [told]}, "system": told, "requests": 1, "content_hash": "0"}
    request = Request(id="r0", category="chat", turns=(told,))
    assert set(MAY_QUOTE) == {"where", "system"}
    assert told not in made(subject(*sweep(), task=task)).text
    assert told in made(subject(*sweep(), task=task, prompts=[request])).text


# ---- colours ---------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_marks_have_a_contrast_of_three_and_text_of_four_and_a_half(name: str) -> None:
    theme = THEMES[name]
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast(theme.text, theme.ground) > 4.5
    for colour in (*theme.series, theme.parts[0]):
        assert contrast(colour, theme.ground) >= 3, colour
    assert len(set(theme.series)) == len(theme.series) == 8
    light = [luminance(part) for part in theme.parts]
    assert contrast(theme.parts[0], theme.parts[1]) > 1.5, "parts of a bar differ in lightness too"
    assert len(set(light)) == 3
