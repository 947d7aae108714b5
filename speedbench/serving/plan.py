"""What an engine is told before it starts: its command, environment and files, worked out without starting anything."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from speedbench.errors import UserError
from speedbench.types import Drafting, Runner, Settings

HOST = "127.0.0.1"
"""Servers are bound to this machine alone."""

HOLDING: Mapping[str, Any] = {
    "at_once": 1,
    "blocks": 2,
    "patience": 900.0,
    "rate": None,
    "timeout": 3600.0,
    "al_from_chunks": False,
}
"""How servers are held: how many are up at once; turns that each cell gets, interleaved with the others; seconds one
may take to load; conversations a second (None: as places free up); seconds of a call; whether acceptance may be guessed
from chunks where a server tells none."""

HOLDING_LEAST: Mapping[str, float] = {"at_once": 1, "blocks": 1, "patience": 1, "rate": 1e-6, "timeout": 1}

COMMON: Mapping[str, Any] = {
    "url": "",
    "urls": {},
    "version": "",
    "api_key_env": "",
    "env": {},
    "options": {},
    "request": {},
    "max_model_len": None,
    "max_batch": None,
    "seed": 0,
    "prefix_cache": False,
    **HOLDING,
}
"""Settings of every engine: the baseline's URL to attach to instead of starting one, and each drafter's by its label;
its version, where it cannot be asked; the variable that holds the key; environment, and options of its own, passed on
as they are; keys for every request."""

TORCH: Mapping[str, Any] = {
    **COMMON,
    "python": "",
    "dtype": "auto",
    "tensor_parallel": 1,
    "memory_fraction": None,
    "eager": False,
    "matched": False,
    "trust_remote_code": False,
}
"""Those of the engines that are Python packages: the interpreter that has it; no CUDA graphs; `matched` runs every
cell, the baseline too, under the scheduler that all drafters can run under."""

Mode = Literal["command", "attach", "api"]
"""A server to start; one that runs already; or the engine's Python API, in a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a plan is made from: `engine` and `drafting` are resolved, the latter by the drafter's own table."""

    model: str
    engine: Settings
    drafting: Settings
    draft_length: int
    concurrency: int
    port: int
    version: str | None = None
    """The engine's version; None where it is not known, which the plan notes."""
    place: Callable[[str], str] = str
    """Where a model named by the user lies, for the engine to load; as it is, unless told."""

    def __post_init__(self) -> None:
        if self.engine["api_key_env"] and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.engine["api_key_env"]):
            raise UserError("engine.api_key_env: the name of an environment variable that holds the key, not the key")
        if self.batch < self.concurrency:
            raise UserError(f"engine.max_batch: at least the concurrency, {self.concurrency} (got {self.batch})")
        if self.draft_length and not self.drafting:
            raise UserError(f"-D {self.draft_length}: the baseline drafts nothing; name a drafter, or take -D 0")

    @property
    def batch(self) -> int:
        """The most sequences at once: the runner's word, else the concurrency. Equal in a cell and its baseline."""
        return int(self.engine["max_batch"] or self.concurrency)

    @property
    def tokens(self) -> int:
        """What a full batch verifies: B(1 + D)."""
        return self.batch * (1 + self.draft_length)

    @property
    def url(self) -> str:
        return str(self.engine["url"]).rstrip("/") or f"http://{HOST}:{self.port}"

    @property
    def names(self) -> str | None:
        """The version to look names up for: the runner's word, else what the engine said."""
        return self.engine["version"] or self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All that one (drafter, D, concurrency) needs of a server. Holds no key, only the name of the variable with it."""

    engine: str
    version: str
    """The version whose names are used here."""
    mode: Mode
    url: str
    """Where it will answer, without a trailing slash: `http://127.0.0.1:8000`."""
    model: str
    """What requests call the model; empty where the server is to be asked."""
    argv: tuple[str, ...] = ()
    """The command, program first; empty where nothing is started."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the process."""
    env_from: Mapping[str, str] = field(default_factory=dict)
    """{variable of the process: variable of ours to copy}: how a key gets there without standing in `argv`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The same for the engine's Python API, JSON values only; empty where it is not driven that way."""
    files: Mapping[str, str] = field(default_factory=dict)
    """{name: text} to write into a folder of the launch; `{folder}` in `argv` stands for that folder."""
    ready: str = "/health"
    """Answers 200 once the model is loaded."""
    chat: str = "/v1/chat/completions"
    metrics: str | None = "/metrics"
    """Prometheus text; None where there is none."""
    iterations: str | None = None
    """Statistics of each pass as JSON, gone once read; None where there are none."""
    info: str | None = None
    """What the server says of itself as JSON: its settings in force; None where it does not."""
    resets: tuple[tuple[str, str], ...] = ()
    """(method, path) of the calls that empty caches between blocks; what they do not reach needs a restart."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Keys that go into the body of every request."""
    api_key_env: str = ""
    """The variable of ours that holds the key for requests; empty: none is sent."""
    timing: tuple[tuple[str, ...], ...] = ()
    """Commands that time its passes without a server; what they write is read from `engine.forward`."""
    notes: tuple[str, ...] = ()
    """Warnings about the translation, to be shown."""

    def command(self, folder: str) -> tuple[str, ...]:
        """`argv` with the launch's folder filled in."""
        return tuple(word.replace("{folder}", folder) for word in self.argv)

    def shown(self) -> dict[str, Any]:
        """The plan as printed and recorded: JSON values, whatever looks like a secret blotted out."""
        return {
            "engine": self.engine,
            "version": self.version,
            "mode": self.mode,
            "url": _without_user(self.url),
            "argv": _blotted_words(self.argv),
            "env": _blotted("", self.env),
            "env_from": dict(self.env_from),
            "kwargs": _blotted("", self.kwargs),
            "files": {name: _blotted_text(text) for name, text in self.files.items()},
            "request": _blotted("", self.request),
            "api_key_env": self.api_key_env,
            **({"timing": [_blotted_words(each) for each in self.timing]} if self.timing else {}),
            "notes": list(self.notes),
        }


def pointed(runner: Runner, drafting: Drafting, draft_length: int) -> Runner:
    """The runner with the URL of the server that runs this drafter, where servers are attached to: no request can turn
    speculation on or off, so the baseline and each drafter have one of their own."""
    url, urls = runner.engine.get("url"), runner.engine.get("urls") or {}
    if not isinstance(urls, Mapping):
        raise UserError(f"engine.urls: should be a URL for each drafter, as {{ngram: http://HOST:PORT}} (got {urls!r})")
    if urls and not url:
        raise UserError("engine.url: name the baseline's server as well, for engine.urls names those of drafters")
    if not url or not draft_length:
        return runner
    if drafting.label not in urls:
        raise UserError(
            f"engine.urls.{drafting.label}: engine.url is the baseline's server; name the one that runs this drafter"
        )
    return replace(runner, engine={**runner.engine, "url": urls[drafting.label]})


def attach(plan: LaunchPlan, command: tuple[str, ...]) -> LaunchPlan:
    """The plan for a server that runs already: it is told nothing, so a note says what it should have been told."""
    told = " ".join(_blotted_words(command))
    note = f"attached to {_without_user(plan.url)}, which should have been started as: {told}"
    return replace(
        plan, mode="attach", model="", argv=(), env={}, env_from={}, files={}, kwargs={}, notes=(*plan.notes, note)
    )


# ---- saying it ------------------------------------------------------------------------------------------------------


def extended(place: str, ours: Mapping[str, Any], extra: Settings) -> dict[str, Any]:
    """What we say with the user's own options beside it, which may not contradict it."""
    for key in extra:
        if key in ours:
            raise UserError(f"{place}.{key}: speedbench sets this itself ({ours[key]!r}); leave it out")
    return {**ours, **extra}


def words(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Options as a command line: {`seed`: 0, `enable-x`: False} is `--seed 0 --no-enable-x`; None leaves one out."""
    said: list[str] = []
    for name, value in flags.items():
        if value is None:
            continue
        if isinstance(value, bool):
            said.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, (list, tuple)):
            said += [f"--{name}", *(str(each) for each in value)]
        else:
            said += [f"--{name}", compact(value) if isinstance(value, Mapping) else str(value)]
    return tuple(said)


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def captured(batch: int) -> list[int]:
    """Batch sizes to capture CUDA graphs for: every small one, then each eighth, and the full batch."""
    return sorted({*range(1, min(batch, 32) + 1), *range(40, batch + 1, 8), batch})


# ---- what is not shown ----------------------------------------------------------------------------------------------

HIDDEN = "***"
_SECRET = re.compile(r"(?i)(^|[_-])(key|keys|token|secret|password|passwd|auth|authorization|credentials?)$")


def _blotted(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _blotted(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_blotted(name, inner) for inner in value]
    return HIDDEN if isinstance(value, str) and value and _SECRET.search(name) else value


def _blotted_words(argv: tuple[str, ...]) -> list[str]:
    """`--api-key X` and `--api-key=X` alike."""
    shown: list[str] = []
    for word in argv:
        name, equals, _ = word.partition("=")
        before = shown[-1] if shown else ""
        if word.startswith("--") and equals and _SECRET.search(name):
            shown.append(f"{name}={HIDDEN}")
        elif before.startswith("--") and _SECRET.search(before) and not word.startswith("--"):
            shown.append(HIDDEN)
        else:
            shown.append(word)
    return shown


def _blotted_text(text: str) -> Any:
    """A file's content as values, where it is JSON."""
    try:
        return _blotted("", json.loads(text))
    except ValueError:
        return text


def _without_user(url: str) -> str:
    return re.sub(r"//[^/@]*@", f"//{HIDDEN}@", url)
