"""The page in a real browser, off-line: everything is drawn, and nothing is complained of."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

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


def opened(text: str, folder: Path) -> tuple[Page, str]:
    """The page as it stands after its script has run, and what the browser complained of."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--enable-logging=stderr"]
    off = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [BROWSER, *options, *off, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return Page(done.stdout), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_every_chart_is_drawn_without_a_complaint(tmp_path: Path) -> None:
    found, complaints = opened(page("a title", sections([everything()])), tmp_path)
    assert complaints == ""
    assert ("html", "data-drawn", "yes") in found.attributes
    assert found.tags["svg"] == len(found.told["charts"]) >= 9
    named = [said for tag, name, said in found.attributes if name == "aria-label" and said.startswith("B = 1. ")]
    assert len(named) >= 5


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
