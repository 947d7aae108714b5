"""Fixtures that several tests share."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from scripts import Bench

signal.signal(signal.SIGINT, signal.default_int_handler)
"""Some tests press Ctrl-C, which a shell's background jobs are started to ignore."""


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)
