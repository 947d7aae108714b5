"""A profile's charts say what its numbers say, and its page stands beside those of runs."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from reported import Page, everything
from scripts import Bench
from timings import dense, timed

from speedbench import profiles
from speedbench.report.drawing import Figure
from speedbench.report.page import page
from speedbench.report.profiled import Profiled
from speedbench.report.profiles import charts
from speedbench.report.sections import sections
from speedbench.types import Kernel, Peaks, Prefill, Profile

CHARTS = dict(charts())
PEAKS = Peaks(flops=1e12, bandwidth=1e11, dtype="bfloat16", product=1024)


def linear(batch: int, draft_length: int) -> Kernel:
    """A layer of 1 MB that does 10 GFLOPS a row up to 16 rows, and 160 GFLOPS from there on."""
    rows = batch * (1 + draft_length)
    flops = 1e6 * rows
    return Kernel(
        study="gemm", batch=batch, draft_length=draft_length, rows=rows, seconds=flops / min(1e10 * rows, 1.6e11),
        flops=flops, bytes=1e6, share=0.5, bound="memory" if rows < 10 else "compute",
    )  # fmt: skip


def attending(draft_length: int) -> Kernel:
    """Of 16 heads a group: 100 µs a tile of 128 queries."""
    rows = 16 * (1 + draft_length)
    return Kernel(
        study="attention", batch=4, draft_length=draft_length, rows=rows, seconds=1e-4 * -(-rows // 128),
        flops=1e6 * rows, bytes=1e6, share=0.25, bound="memory",
    )  # fmt: skip


def profile(**given: Any) -> Profile:
    """Times of the dense law at two contexts, a drafter of 1 ms a token, and both studies."""
    grid = list(product((1, 2, 4, 8), (0, 1, 3), (512, 2048)))
    layers = [linear(b, d) for b in (1, 2, 4, 8, 16, 32) for d in (0, 1, 7)]
    plain = [timed(*at, dense(*at), again=dense(*at) * 1.02 if at[1] == 0 else None) for at in grid]
    drafted = [timed(b, d, 512, dense(b, d, 512), drafter="eagle3", draft=1e-3 * d) for b in (1, 8) for d in (1, 3)]
    fixed: dict[str, Any] = {
        "target": {"model": "made up", "dtype": "bfloat16"}, "environment": {"cpu": {"model": "A CPU", "usable": 2}},
        "timed": (*plain, *drafted), "peaks": PEAKS, "noise": 0.02, "prefills": (Prefill(tokens=512, seconds=0.05),),
        "config": json.loads((Path(__file__).parent.parent / "models" / "qwen3-32b.json").read_text("utf-8")),
        "kernels": (*layers, *map(attending, (0, 3, 7, 8, 15))),
        "settings": {"gemm": 1024}, "kernel_name": "a kernel of tiles",
    }  # fmt: skip
    return Profile(**{**fixed, **given})


def drawn(name: str, **given: Any) -> Figure:
    found = CHARTS[name].draw(Profiled(name="p", profile=profile(**given)))
    assert isinstance(found, Figure), found
    return found


def test_there_is_a_chart_for_passes_drafts_both_kernels_and_the_roofline() -> None:
    assert list(CHARTS) == ["verify", "draft", "gemm", "attention", "roofline"]


@pytest.mark.parametrize("name", CHARTS)
def test_panels_hold_their_own_data_and_no_address(name: str) -> None:
    found = drawn(name)
    assert found.rows
    assert all(key in row for row in found.rows for key in found.columns)
    for panel in found.panels:
        spec = panel.spec("what is seen", "container")
        assert spec["data"]["values"]
        assert spec["description"].endswith("what is seen")
        assert "http" not in str(spec)


@pytest.mark.parametrize("name", CHARTS)
def test_an_empty_profile_says_in_words_why_nothing_is_drawn(name: str) -> None:
    found = CHARTS[name].draw(Profiled(name="p", profile=profile(timed=(), kernels=(), peaks=None)))
    assert isinstance(found, str)
    assert len(found.split()) > 4


def test_verifying_is_drawn_by_context_with_the_fit_and_the_error_of_each_point() -> None:
    found = drawn("verify")
    assert [panel.title for panel in found.panels] == ["Context 512", "Context 2048"]
    assert len(found.rows) == 4 * 3 * 2
    assert all(row["fitted"] == pytest.approx(row["ms"], rel=0.02) for row in found.rows)
    assert all(abs(row["off"]) < 2 for row in found.rows)
    assert "The fit is off by 0.0% on the mean" in found.reading
    lines = found.panels[0].more["fit"]
    assert {row["length"] for row in lines} == {"D=0", "D=1", "D=3"}
    assert max(row["at"] for row in lines) == pytest.approx(8 * 4)


def test_without_the_models_shapes_points_are_drawn_and_no_fit() -> None:
    found = drawn("verify", config={})
    assert "There is no fit: the model's shapes are not known" in found.reading
    assert {row["fitted"] for row in found.rows} == {None}
    assert found.panels[0].more["fit"] == []


def test_drafting_is_told_against_a_plain_pass() -> None:
    """1 ms a draft token; a plain pass at B=1 and 512 tokens takes 8 + 0.015 + 512·12e-6 = 8.02 ms."""
    found = drawn("draft")
    assert found.reading == "At B=1 eagle3 takes 1 ms for D=1 and 3 ms for D=3, 37% of a plain pass."
    assert [row["overhead"] for row in found.rows[:1]] == [pytest.approx(1e-3 / dense(1, 0, 512))]


def test_seven_drafts_reach_the_knee_at_an_eighth_of_the_batch() -> None:
    """80 % of 160 GFLOPS are 128, past which 16 rows are the first: B=16 alone, 8 with D=1, 2 with D=7."""
    reading = drawn("gemm").reading
    assert "does 160 GFLOPS at best, and 80% of that from 16 rows on: B=16 with D=0, B=8 with D=1 and B=2 with D=7" in (
        reading
    )


def test_the_staircase_is_flat_within_a_tile_and_doubles_beyond() -> None:
    reading = drawn("attention").reading
    assert reading.startswith("By a kernel of tiles: from 16 queries of a KV head to 128")
    assert "from 100 to 100 µs, 1.00 times; across the tile of 128, from 128 to 144, by +100.0%" in reading


def test_the_roofline_is_told_of_both_kernels_and_equal_rows_stand_once() -> None:
    found = drawn("roofline")
    assert (
        "1000 GFLOPS in bfloat16 and 100 GB/s, the linear layer reaches 50% and the decode attention reaches 25%"
        in (found.reading)
    )
    assert len({(row["study"], row["rows"]) for row in found.rows}) == len(found.rows)


def test_a_page_of_a_profile_and_a_run_tells_both_and_alone_it_says_nothing_of_runs() -> None:
    named = Profiled(name="<b>p", profile=replace(profile(), notes=("no time for <i>x",)))
    both, alone = Page(page("t", sections([everything()], [named]))), Page(page("t", sections([], [named])))
    assert len(set(both.ids)) == len(both.ids)
    assert "no time for <i>x" in both.words
    assert both.tags["i"] == both.tags["b"] == 0
    assert "differed by up to 2.0%" in alone.words
    assert "bootstraps" in both.words
    assert "bootstraps" not in alone.words
    assert len(alone.told["charts"]) == 2 + 1 + 2 + 2 + 2


def test_the_command_takes_a_profiles_file_beside_runs_and_refuses_what_is_none(bench: Bench) -> None:
    bench.run()
    path, page_ = bench.folder / "quiet.json", bench.folder / "r.html"
    profiles.write(path, profile())
    done = bench("report", str(path), str(bench.out), "-o", str(page_), "--svg", str(bench.folder / "svg"))
    assert done.code == 0, done.err
    found = Page(page_.read_text("utf-8"))
    assert found.words.count("quiet") > 1
    assert found.table("T_draft against D")[0]["T_draft, ms"] == "1"
    assert (bench.folder / "svg" / "quiet-attention.svg").is_file()
    assert (bench.folder / "svg" / "out-al.svg").is_file()
    missing = bench("report", str(bench.folder / "nowhere.json"))
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert "no profile" in missing.err
