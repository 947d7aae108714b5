"""Any OpenAI-compatible server, attached to by its URL."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from speedbench import plugins
from speedbench.errors import UserError
from speedbench.serving.plan import HOLDING, HOLDING_LEAST, LaunchPlan, Wanted
from speedbench.serving.session import served
from speedbench.settings import at_least, resolve
from speedbench.types import Drafting, Runner, Session, Settings

_DEFAULTS: dict[str, Any] = {
    "url": "",
    "api_key_env": "",
    "request": {},
    "metrics": "/metrics",
    "max_batch": None,
    "version": "",
    **HOLDING,
}
"""`url` is the baseline's, and each drafter names the server that runs it: no request can turn speculation off."""


def translate(
    drafting: Settings,
    draft_length: int,
    runner: Runner,
    *,
    concurrency: int,
    port: int = 0,
    version: str | None = None,
    place: Callable[[str], str] = str,
) -> LaunchPlan:
    """Where the server of this drafter and D is; it is told nothing."""
    engine = resolve("engine", runner.engine, _DEFAULTS)
    at_least("engine", engine, **HOLDING_LEAST)
    url = str(drafting.get("url") or ("" if draft_length else engine["url"]))
    if not url.startswith(("http://", "https://")):
        whose = "drafter" if draft_length else "engine"
        got = f" (got '{url}')" if url else ""
        raise UserError(
            f"{whose}.url: name the server, as http://HOST:PORT{got}; "
            "the baseline and each drafter have one of their own"
        )
    wanted = Wanted(
        model=runner.model, engine={**engine, "url": url}, drafting=drafting, draft_length=draft_length,
        concurrency=concurrency, port=port, version=version, place=place,
    )  # fmt: skip
    return LaunchPlan(
        engine="openai", version=engine["version"], mode="attach", url=wanted.url.removesuffix("/v1"),
        model=runner.model, ready="/v1/models", metrics=engine["metrics"] or None, request=engine["request"],
        api_key_env=engine["api_key_env"],
        notes=(f"attached to {url}: its D and its drafter are what you say they are",) if draft_length else (),
    )  # fmt: skip


@dataclass(frozen=True)
class _Server:
    name: str = "openai"
    title: str = "any OpenAI-compatible server, attached to by its URL"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[Session]:
        def plan(drafting: Drafting, draft_length: int, concurrency: int, port: int) -> LaunchPlan:
            told = plugins.translated(self.name, drafting, draft_length)
            return translate(told, draft_length, runner, concurrency=concurrency, port=port)

        with served(runner, plan) as session:
            yield session


BACKEND = _Server()
