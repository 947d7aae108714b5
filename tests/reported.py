"""Runs by hand for the report, and an HTML file read back as a browser would read it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from builders import measured, passed, record, steps

from speedbench.cli.report import subject_of
from speedbench.report.drawing import Figure
from speedbench.report.subject import Subject
from speedbench.results import Run
from speedbench.types import Measured, Record, Request

VOID = {"meta", "br", "link", "img", "input", "hr"}


def answer(*accepted: int, d: int, seconds: float, request: str = "r0", category: str = "chat", **more: Any) -> Record:
    """A turn of steps that proposed D each and accepted these, decoded in so many seconds."""
    made = steps(*accepted, d=d)
    return record(made, request=request, category=category, first=1.0, last=1.0 + seconds, **more)


def sweep(
    *, drafters: Sequence[str] = ("ngram", "eagle3"), lengths: Sequence[int] = (1, 2), batches: Sequence[int] = (1, 2)
) -> list[Measured]:
    """A baseline at 1 s a token, and drafters that always have one draft accepted, in passes of 1 s and 0.1·D s to
    draft: AL 2, and a speedup of 2 / (1 + 0.1·D)."""
    found = []
    names = [("r0", "chat"), ("r1", "code"), ("r2", "code")]
    for b in batches:
        plain = [answer(*[0] * 6, d=0, seconds=6.0, request=r, category=c) for r, c in names]
        full = [passed(verify=1.0, batch=b)] * 6
        found.append(measured(*plain, d=0, b=b, passes=full))
        for drafter in drafters:
            for d in lengths:
                drafted = [answer(1, 1, 1, d=d, seconds=3 + 0.3 * d, request=r, category=c) for r, c in names]
                full = [passed(verify=1.0, draft=0.1 * d, batch=b, d=d)] * 3
                found.append(measured(*drafted, d=d, b=b, drafter=drafter, passes=full, mismatches=()))
    return found


def subject(
    *cells: Measured, noise: Sequence[float] = (), prompts: Sequence[Request] = (), name: str = "run",
    gpus: Sequence[Mapping[str, Any]] | None = (), **config: Any,
) -> Subject:  # fmt: skip
    """The cells as a finished run."""
    labels = list(dict.fromkeys(each.cell.drafter for each in cells if not each.cell.is_baseline))
    ids = sorted({each.request for cell in cells for each in cell.records})
    task = {"name": "t", "title": "T", "version": 1, "licence": "CC0", "requests": len(ids), "content_hash": "0"}
    told = {
        "task": task, "request_ids": ids, "runner": {"name": "u", "title": "U", "backend": "scripted", "engine": {}},
        "draftings": [{"label": each, "drafter": _mechanism(each), "settings": {}} for each in labels],
        "cells": [asdict(each.cell) for each in cells], "sampling": {"temperature": 0.0},
    } | config  # fmt: skip
    environment = {"gpus": gpus if gpus is None else list(gpus), "cpu": {"model": "A CPU", "usable": 2}}
    document = {"schema": 1, "run": name, "config": told, "processes": [environment], "finished": True}
    run = Run(path=Path(name), document=document, measured=tuple(cells), noise=tuple(noise))
    return subject_of(run, prompts)


def _mechanism(label: str) -> str:
    return label if label.isalnum() else "ngram"


@cache
def everything() -> Subject:
    """A run of which every chart can be drawn."""
    return subject(*sweep(), noise=[0.01] * 5)


def figure(chart: Any, of: Subject) -> Figure:
    found = chart.draw(of)
    assert isinstance(found, Figure), found
    return found


class Page(HTMLParser):
    """What a page holds. Raises where a tag is left open or closed twice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.words = ""
        self._unseen: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        elif tag == "style":
            self.styles.append("")
        elif tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
            if ("hidden", "") in attrs:
                self._unseen.append(self.tables[-1][1][-1])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            attributes, before = self.scripts.pop()
            self.scripts.append((attributes, before + data))
        elif inside == "style":
            self.styles[-1] += data
        else:
            self.words += data
        if inside in ("td", "th"):
            self.tables[-1][1][-1][-1] += data
        elif inside == "caption":
            caption, rows = self.tables.pop()
            self.tables.append((caption + data, rows))

    def table(self, caption: str) -> list[dict[str, str]]:
        """The rows of the table whose caption begins so that are seen, by heading."""
        heads, *rows = next(rows for said, rows in self.tables if said.startswith(caption))
        seen = [row for row in rows if not any(row is each for each in self._unseen)]
        return [dict(zip(heads, row, strict=True)) for row in seen]

    @property
    def told(self) -> Any:
        """What the page's script is given."""
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "told"))
