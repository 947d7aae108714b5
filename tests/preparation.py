"""A place to prepare in: a stub hub, a cache of its own, and the licences accepted."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from miniature import WORDING, Words
from stub_hub import StubHub

from speedbench import prepared
from speedbench.prepare import journal, pieces, preparing
from speedbench.types import Task


@dataclass
class Kitchen:
    """Called with a set and a config, it prepares them and gives the manifest."""

    stub: StubHub
    base: Path
    hub_cache: Path
    wording_sha: str
    folder: Path
    said: list[str] = field(default_factory=list)

    def __call__(self, name: str, config: str | None = None, **options: Any) -> dict[str, Any]:
        self.accept(name)
        asked = {key: options.pop(key) for key in ("compat", "revision") if key in options}
        (order,) = preparing.orders(name, config, **asked)
        self.folder = preparing.folder(order, self.base)
        return preparing.prepare(order, self.base, self.said.append, **options)

    def accept(self, name: str) -> None:
        journal.accept(self.base, name, pieces.terms(name))

    def rows(self) -> list[dict[str, Any]]:
        """Those of what was prepared last."""
        return list(prepared.read(self.folder))

    def facts(self) -> Any:
        return prepared.manifest(self.folder)

    def forget(self) -> None:
        """Every file that was downloaded."""
        shutil.rmtree(self.hub_cache, ignore_errors=True)
        shutil.rmtree(self.base / "files", ignore_errors=True)


def kitchen(stub: StubHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPEEDBENCH_DATA", str(folder / "data"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    sha = hashlib.sha256(WORDING.encode()).hexdigest()
    monkeypatch.setattr("speedbench.prepare.wording.SHA256", sha)
    words = Words()
    monkeypatch.setattr("speedbench.prepare.pieces.encoding", lambda: words)
    base = folder / "data"
    return Kitchen(stub, base, folder / "hub", sha, prepared.folder("speed-bench", "qualitative", base=base))


def short(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The turns by the beginnings of the ids."""
    return {row["id"].rstrip("-"): row["turns"] for row in rows}


def speed_task(config: str) -> Task:
    return Task(
        name="t",
        title="T",
        version=1,
        licence="x",
        source="prepared",
        where={"name": "speed-bench", "config": config},
        columns=("sub_category", "difficulty", "tier"),
    )
