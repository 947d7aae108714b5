"""The addresses that published rows give as their source, taken apart: a data set of the hub, a file of GitHub or of a
web server."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from speedbench.prepare.origins import COMMIT, Origins
from speedbench.prepare.tables import matching


class Unresolved(Exception):
    """Why a row could not be given its text; the rest of its source is not affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a source lies. A revision that is no commit is a branch, which may move."""

    host: Literal["hub", "github", "web"]
    repo: str
    revision: str
    path: str
    url: str


def place(source: str, pin: str = "") -> Place:
    """A source's address; `pin` is the commit where the address names none."""
    parts = urlsplit(source)
    path = unquote(parts.path).strip("/").split("/")
    if not parts.scheme and len(path) == 2:
        return Place(host="hub", repo=source, revision=pin or "main", path="", url=source)
    if parts.hostname == "huggingface.co" and path[:1] == ["datasets"] and len(path) >= 3:
        revision = path[4] if len(path) > 4 else ""
        commit = revision if COMMIT.fullmatch(revision) else pin or revision or "main"
        return Place(host="hub", repo="/".join(path[1:3]), revision=commit, path="/".join(path[5:]), url=source)
    if parts.hostname == "raw.githubusercontent.com" and len(path) >= 4:
        return _github(path[:2], path[2:], source)
    if parts.hostname == "github.com" and len(path) >= 5 and path[2] in ("tree", "blob", "raw"):
        return _github(path[:2], path[3:], source)
    if parts.scheme in ("http", "https"):
        return Place(host="web", repo=str(parts.hostname), revision="", path="/".join(path), url=source)
    raise Unresolved("its source does not read as an address")


def _github(repo: list[str], rest: list[str], source: str) -> Place:
    """A branch may be written in full, as refs/heads/main."""
    deep = 3 if rest[:2] == ["refs", "heads"] else 1
    return Place(
        host="github", repo="/".join(repo), revision="/".join(rest[:deep]), path="/".join(rest[deep:]), url=source
    )


def file(origins: Origins, at: Place, path: str = "") -> Path:
    """One file: that which the address names, or another of the same revision."""
    if at.host == "web":
        return origins.plain(at.url)
    if at.host == "github":
        return origins.github(at.repo, at.revision, path or at.path)
    return origins.hub(origins.snapshot(at.repo, at.revision), path or at.path)


def split(origins: Origins, at: Place, name: str, config: str = "") -> Iterator[Path]:
    """The files of a data set's split, each fetched when it is asked for."""
    snapshot = origins.snapshot(at.repo, at.revision)
    named = [at.path] if at.path in snapshot.files else matching(snapshot.files, name, config)
    if not named:
        data = [each for each in snapshot.files if re.search(r"\.(parquet|jsonl?)(\.gz)?$", each)]
        have = ", ".join(data[:8]) or "no data files"
        raise Unresolved(f"{at.repo} has no files of '{config or name}' at {at.revision[:8]}; it has {have}")
    for each in named:
        yield origins.hub(snapshot, each)
