"""Small servers to start as children, in the standard library alone, and what became of processes."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from speedbench.serving.launch import free_port
from speedbench.serving.plan import LaunchPlan

SERVER = """
import json, os, subprocess, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

port, refuses = int(sys.argv[1]), int(sys.argv[2])

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global refuses
        refuses -= self.path == "/health"
        known = {"/health": {}, "/v1/models": {"data": [{"id": "tiny"}]}}
        self.say(503 if refuses >= 0 else 200 if self.path in known else 404, json.dumps(known.get(self.path)).encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        one = {"choices": [{"index": 0, "delta": {"content": "four words it says"}, "finish_reason": "stop"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}
        self.say(200, b"".join(b"data: " + each + b"\\n\\n"
                               for each in (json.dumps(one).encode(), json.dumps(usage).encode(), b"[DONE]")))
    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

print(f"listening on {port}", flush=True)
EXTRA
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
"""A process that does not end when it is asked to."""


def tiny(port: int | None = None, *, refuses: int = 0, extra: str = "", **more: Any) -> LaunchPlan:
    """A server that says 503 so often before it is ready, and runs `extra` first; it answers every chat alike."""
    port = free_port() if port is None else port
    code = SERVER.replace("EXTRA", extra)
    return program(sys.executable, "-c", code, str(port), str(refuses), url=f"http://127.0.0.1:{port}", **more)


def program(*argv: str, url: str = "http://127.0.0.1:1", **more: Any) -> LaunchPlan:
    return LaunchPlan(engine="tiny", version="1", mode="command", url=url, model="", argv=argv, **more)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def eventually(what: Callable[[], object], seconds: float = 30.0) -> bool:
    """Whether it comes true; these machines may be busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.02)
    return bool(what())


def pids(file: Path) -> list[int]:
    """The process ids that were written there, a line each."""
    return [int(line) for line in file.read_text().split()] if file.is_file() else []
