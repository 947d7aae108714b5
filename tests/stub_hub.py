"""A hub, GitHub's raw files and a plain web server in one, on this machine: what their clients ask, byte for byte ours.

It answers as the hub does: a listing at /api/datasets/REPO/revision/REV, files at /datasets/REPO/resolve/REV/FILE with
ETag, X-Repo-Commit and, for the large ones, a redirect to where they are stored. It can refuse, stall and break off.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
"""What a branch points to."""

CODES = {401: "GatedRepo", 403: "GatedRepo", 404: "EntryNotFound"}


@dataclass
class StubHub:
    """Files by repository and path; `faults` by repository: a status, "slow" or "cut"."""

    hub: dict[str, dict[str, bytes]] = field(default_factory=dict)
    github: dict[str, bytes] = field(default_factory=dict)
    """By REPO/REVISION/PATH."""
    plain: dict[str, bytes] = field(default_factory=dict)
    """By path."""
    faults: dict[str, Any] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of every request."""
    tokens: set[tuple[str, str]] = field(default_factory=set)
    """Every Authorization header that was sent, and to which host."""
    stall: float = 5.0

    def __enter__(self) -> StubHub:
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes the clients come here."""
        return {
            "HF_ENDPOINT": self.url,
            "SPEEDBENCH_GITHUB_RAW": f"{self.url}/raw",
            "SPEEDBENCH_PLAIN_ENDPOINT": f"{self.url}/plain",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def fetched(self, text: str) -> int:
        """How often something with this in its path was downloaded."""
        return sum(1 for line in self.asked if line.startswith("GET ") and text in line)


class _Handler(BaseHTTPRequestHandler):
    stub: StubHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.stub.asked.append(f"{self.command} {path}")
        self.stub.tokens.add((self.headers.get("Host", "").partition(":")[0], self.headers.get("Authorization", "")))
        listing = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/revision/([^/]+))?", path)
        resolved = re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        stored = re.fullmatch(r"/stored/([^/]+/[^/]+)/(.+)", path)
        if listing:
            self._listing(listing[1], listing[2])
        elif resolved:
            self._file(resolved[1], resolved[2], resolved[3], body)
        elif stored:
            self._send(self.stub.hub[stored[1]].get(stored[2]), body, fault=self.stub.faults.get(stored[1]))
        elif path.startswith("/raw/"):
            name = path.removeprefix("/raw/")
            self._send(self.stub.github.get(name), body, fault=self._fault("/".join(name.split("/")[:2])))
        else:
            self._send(self.stub.plain.get(path.removeprefix("/plain")), body, fault=self._fault("plain"))

    def _fault(self, repo: str) -> Any:
        return self.stub.faults.get(repo)

    def _listing(self, repo: str, revision: str | None) -> None:
        """A gated set is listed to everybody; one that is absent, busy or silent is so for its listing too."""
        fault = self._fault(f"listing {repo}")
        if repo not in self.stub.hub and fault is None:
            fault = 404
        licence = self.stub.licences.get(repo)
        commit = revision if revision and re.fullmatch(r"[0-9a-f]{40}", revision) else COMMIT
        told = {
            "id": repo,
            "sha": commit,
            "private": False,
            "disabled": False,
            "gated": False,
            "downloads": 0,
            "likes": 0,
            "tags": [f"license:{licence}"] if licence else [],
            "siblings": [{"rfilename": file} for file in self.stub.hub.get(repo, {})],
        }
        self._send(json.dumps(told).encode(), True, fault=fault, kind="application/json", error="RepoNotFound")

    def _file(self, repo: str, revision: str, file: str, body: bool) -> None:
        content, fault = self.stub.hub.get(repo, {}).get(file), self._fault(repo)
        if content is None or isinstance(fault, int) or fault == "slow":
            self._send(content, body, fault=fault)
            return
        headers = {"X-Repo-Commit": revision if len(revision) == 40 else COMMIT}
        if file.endswith(".parquet"):  # stored apart, as the hub does with large files
            sha = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-ETag": f'"{sha}"', "X-Linked-Size": str(len(content))}
            port = self.stub.url.rpartition(":")[2]  # another host, to which no token may be sent
            headers |= {"Location": f"http://localhost:{port}/stored/{repo}/{file}", "Content-Length": "0"}
            self._head(302, headers)
            return
        sha = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        self._send(content, body, fault=fault, headers={**headers, "ETag": f'"{sha}"'})

    def _send(
        self,
        content: bytes | None,
        body: bool,
        *,
        fault: Any = None,
        headers: dict[str, str] | None = None,
        kind: str = "application/octet-stream",
        error: str = "",
    ) -> None:
        if fault == "slow":
            threading.Event().wait(self.stub.stall)
            self.close_connection = True
            return
        if isinstance(fault, int) or content is None:
            status = fault if isinstance(fault, int) else 404
            said = json.dumps({"error": f"no, and {self.headers.get('Authorization')} was the token"}).encode()
            told = {"X-Error-Code": error or CODES.get(status, ""), "Content-Length": str(len(said))}
            if status == 429:
                told["Retry-After"] = "1"
            self._head(status, told)
            if self.command == "GET":
                self.wfile.write(said)
            return
        self._head(200, {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})})
        if not body:
            return
        if fault == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(content)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
