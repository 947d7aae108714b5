"""Where bytes come from: data sets of the hub, files of GitHub at a commit, plain addresses; each fetched once."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from speedbench.errors import Missing, UserError
from speedbench.files import dumps, loads, safe, write_whole
from speedbench.prepare.refusals import NotHad, refusal
from speedbench.prepared import FIX, file_hash

COMMIT = re.compile(r"[0-9a-f]{40}")
HOSTS = frozenset({"opencompass.openxlab.space"})
"""Plain web servers that published rows name as their source; from any other, nothing is fetched."""

_TRUE = {"1", "ON", "YES", "TRUE"}
_TIMEOUT = 30.0
"""Seconds without a byte, of GitHub and plain servers; the hub's library has settings of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A data set of the hub at one commit."""

    repo: str
    commit: str
    files: tuple[str, ...]
    licence: str | None
    """As its card has it."""


@dataclass(slots=True)
class Origins:
    """Fetches, keeps and notes: `used` has every file asked for with its revision and sha256."""

    cache: Path
    offline: bool = False
    notify: Callable[[str], None] = lambda line: None
    used: dict[str, dict[str, Any]] = field(default_factory=dict)
    licences: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offline = self.offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE

    # ---- the hub ----------------------------------------------------------------------------------------------------

    def snapshot(self, repo: str, revision: str) -> Snapshot:
        """What a data set holds at a revision; a listing is kept, since at a commit it never changes."""
        kept = self.cache / "hub" / f"{safe(repo)}@{safe(revision)}.json"
        if kept.is_file():
            told = loads(kept.read_bytes())
        elif self.offline:
            raise NotHad(repo, "offline")
        else:
            told = self._listing(repo, revision)
            if COMMIT.fullmatch(revision):
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_whole(kept, dumps(told))
        self.licences[repo] = told["licence"]
        return Snapshot(repo=repo, commit=told["commit"], files=tuple(told["files"]), licence=told["licence"])

    def _listing(self, repo: str, revision: str) -> dict[str, Any]:
        api = _hub().HfApi(endpoint=_endpoint())
        with _refusing(f"{repo} at {revision[:8]}", _page(repo), _hub_errors()):
            info = api.dataset_info(repo, revision=revision, timeout=_TIMEOUT)
        tags = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
        files = [each.rfilename for each in info.siblings or ()]
        return {"commit": info.sha, "files": files, "licence": tags[0] if tags else None}

    def hub(self, snapshot: Snapshot, file: str, sha256: str | None = None) -> Path:
        """A file of a data set, from the hub's own cache where it is whole."""
        what = f"{snapshot.repo}/{file}"
        if self.offline:
            self.notify(f"{what}, from the local cache")
        else:
            self.notify(what)
        want = {"repo_id": snapshot.repo, "filename": file, "repo_type": "dataset", "revision": snapshot.commit}
        download = _hub().hf_hub_download
        with _refusing(what, _page(snapshot.repo), _hub_errors(), offline=self.offline):
            path = Path(download(**want, endpoint=_endpoint(), local_files_only=self.offline))
        sha = file_hash(path)
        if not _as_named(path, sha) or sha256 not in (None, sha):
            raise NotHad(str(path), "damaged")
        self.used[what] = {"revision": snapshot.commit, "sha256": sha}
        return path

    # ---- GitHub, and plain servers ----------------------------------------------------------------------------------

    def github(self, repo: str, commit: str, path: str, sha256: str | None = None) -> Path:
        """A file of a public repository at a commit or, where the source names no commit, at a branch."""
        base = os.environ.get("SPEEDBENCH_GITHUB_RAW", "https://raw.githubusercontent.com").rstrip("/")
        kept = self.cache.joinpath("github", safe(repo), safe(commit), *map(safe, path.split("/")))
        return self._web(f"{repo}/{path}", f"{base}/{repo}/{commit}/{quote(path)}", kept, commit, sha256)

    def plain(self, url: str) -> Path:
        """A file at an address that names no revision: its sha256 is all that says which one it was."""
        parts = urlsplit(url)
        if parts.hostname not in HOSTS or parts.scheme not in ("http", "https"):
            raise UserError(f"its source is {url}, and nothing is fetched from there")
        base = os.environ.get("SPEEDBENCH_PLAIN_ENDPOINT")
        address = f"{base.rstrip('/')}{parts.path}" if base else url
        kept = self.cache.joinpath("web", parts.hostname, *map(safe, parts.path.strip("/").split("/")))
        return self._web(url, address, kept, None, None)

    def _web(self, what: str, url: str, kept: Path, revision: str | None, sha256: str | None) -> Path:
        if not kept.is_file():
            if self.offline:
                raise NotHad(what, "offline")
            self.notify(what)
            with _refusing(what, url, (OSError, HTTPException)):
                _download(url, kept)
        found = file_hash(kept)
        if sha256 is not None and found != sha256:
            raise NotHad(str(kept), "damaged")
        self.used[what] = {"revision": revision, "sha256": found}
        return kept


def _download(url: str, kept: Path) -> None:
    """The file appears once all of it is there."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    scratch = kept.with_name(kept.name + ".part")
    request = urllib.request.Request(url, headers={"User-Agent": "speedbench"})  # noqa: S310 - see HOSTS
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, scratch.open("wb") as file:  # noqa: S310
        length = answer.headers.get("Content-Length")
        while piece := answer.read(1 << 20):
            file.write(piece)
        if length is not None and file.tell() != int(length):
            raise urllib.error.URLError(f"the connection broke off at {file.tell()} of {length} bytes")
    os.replace(scratch, kept)


# ---- the hub's library ----------------------------------------------------------------------------------------------


def _hub() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise Missing(f"fetching from the hub needs the package huggingface_hub: {FIX}") from None
    if not sys.stderr.isatty():
        import_module("huggingface_hub.utils").disable_progress_bars()
    return huggingface_hub


def _hub_errors() -> tuple[type[BaseException], ...]:
    """Its own, and those of its HTTP library: requests, httpx or httpx2, as the version has it."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, HfHubHTTPError.__bases__[0])


def _endpoint() -> str | None:
    """Read at every call: the library reads it once, when it is imported."""
    return os.environ.get("HF_ENDPOINT") or None


def _page(repo: str) -> str:
    return f"{(_endpoint() or 'https://huggingface.co').rstrip('/')}/datasets/{repo}"


@contextmanager
def _refusing(
    what: str, page: str, errors: tuple[type[BaseException], ...], *, offline: bool = False
) -> Iterator[None]:
    """What libraries raise becomes a refusal; what is wrong on this machine, such as a full disk, stays as it is."""
    try:
        yield
    except errors as error:
        if offline:
            raise NotHad(what, "offline") from None
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise UserError(f"{what}: cannot be kept: {error.strerror} ({error.filename})") from None
        raise refusal(what, error, page) from error


def _as_named(path: Path, sha: str) -> bool:
    """The hub's cache names a file by its sha256, or by git's sha1 of it; a file cut short bears the wrong name."""
    name = path.resolve().name
    if re.fullmatch(r"[0-9a-f]{64}", name):
        return name == sha
    if not COMMIT.fullmatch(name):
        return True
    found = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest() == name
