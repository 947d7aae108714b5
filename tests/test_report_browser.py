"""The page in a real browser, off-line: everything is drawn, and nothing is complained of."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from builders import measured
from reported import Page, answer, everything, subject
from test_report_profiles import profile

from speedbench.report.leaderboard import leaderboard_page
from speedbench.report.page import page
from speedbench.report.profiled import Profiled
from speedbench.report.sections import sections

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), "")

pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium here")

HOSTILE = "</script><img src=x onerror='document.title=1'>"


CLICK = """<script>
addEventListener("load", () => document.querySelector("input[name=drafter][value=ngram]").click());
</script></body></html>"""


def opened(text: str, folder: Path, hidden: str = "") -> tuple[Page, str]:
    """The page as it stands after its script has run, and what the browser complained of."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--enable-logging=stderr"]
    off = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [BROWSER, *options, *off, "--dump-dom", f"{file.as_uri()}#{hidden}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return Page(done.stdout), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_every_chart_is_drawn_without_a_complaint(tmp_path: Path) -> None:
    found, complaints = opened(page("a title", sections([everything()])), tmp_path)
    assert complaints == ""
    assert ("html", "data-drawn", "yes") in found.attributes
    assert found.tags["svg"] == len(found.told["charts"]) >= 9
    assert len(found.table("All cells")) == 10
    named = [said for tag, name, said in found.attributes if name == "aria-label" and said.startswith("B = 1. ")]
    assert len(named) >= 5


def test_an_address_may_hide_a_drafter_a_length_and_a_batch(tmp_path: Path) -> None:
    text = page("a title", sections([everything()]))
    found, complaints = opened(text, tmp_path, "drafter=ngram&D=2&B=2&category=nothing")
    assert complaints == ""
    assert [(row["drafter"], row["D"], row["B"]) for row in found.table("All cells")] == [
        ("none", "0", "1"),
        ("eagle3", "1", "1"),
    ]
    assert "Some rows are hidden." in found.words
    assert "category: all" in found.words
    assert not [said for _, name, said in found.attributes if name == "aria-label" and said.startswith("B = 2")]
    assert not re.findall("<text[^>]*>ngram</text>", found.text)  # of an axis or a legend
    assert re.findall("<text[^>]*>eagle3</text>", found.text)


def test_a_box_that_is_unticked_hides_at_once_and_stands_in_the_address(tmp_path: Path) -> None:
    text = page("a title", sections([everything()]))
    policy = text[text.index("<meta http-equiv") : text.index("<meta name")]
    found, complaints = opened(text.replace(policy, "").rpartition("</body>")[0] + CLICK, tmp_path)
    assert complaints == ""
    assert "drafter: 2 of 3" in found.words
    assert {row["drafter"] for row in found.table("All cells")} == {"none", "eagle3"}


def test_hostile_names_and_one_point_are_drawn_and_do_nothing(tmp_path: Path) -> None:
    cells = [
        measured(answer(0, 0, d=0, seconds=2.0, request=HOSTILE, category=HOSTILE), d=0),
        measured(answer(1, d=1, seconds=1.0, request=HOSTILE, category=HOSTILE), d=1, drafter=HOSTILE),
    ]
    found, complaints = opened(page(HOSTILE, sections([subject(*cells, name=HOSTILE)])), tmp_path)
    assert complaints == ""
    assert found.tags["img"] == 0
    assert found.tags["svg"] == len(found.told["charts"]) >= 3


def test_a_leaderboard_is_drawn(tmp_path: Path) -> None:
    row = {"rank": 1, "drafter": "ngram", "draft_length": 2, "speedup": 1.25, "speedup_lo": 1.1, "speedup_hi": 1.4}
    found, complaints = opened(leaderboard_page([row]), tmp_path)
    assert complaints == ""
    assert found.tags["svg"] == 1


def test_a_profile_is_drawn(tmp_path: Path) -> None:
    found, complaints = opened(page("a profile", sections([], [Profiled(name="p", profile=profile())])), tmp_path)
    assert complaints == ""
    assert found.tags["svg"] == len(found.told["charts"]) == 9
