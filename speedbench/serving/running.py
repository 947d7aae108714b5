"""A server that answers, started by us or attached to: its client, what it serves, its counters and its caches."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.client import Client, Timeouts
from speedbench.serving.counting import most_tokens
from speedbench.serving.launch import Server
from speedbench.serving.payloads.body import node, whole
from speedbench.serving.plan import LaunchPlan
from speedbench.serving.prometheus import Scrape, scrape
from speedbench.types import Request

_SAMPLED = 0.5
"""Seconds between readings of the running batch."""


class Running:
    """Up once it is made; `close` ends what was started."""

    context: int | None = None
    """Tokens that a sequence may have, prompt and answer; None where the server does not say."""

    def __init__(self, plan: LaunchPlan, folder: Path, patience: float, timeouts: Timeouts, model: str) -> None:
        """`folder` gets its files and its log. Raises `UserError` where it does not come up or has not the model."""
        self.plan, self._stack = plan, ExitStack()
        self._server = Server(plan, folder, patience) if plan.argv else None
        client = Client(
            plan.url, plan.model or model, key_env=plan.api_key_env or None, timeouts=timeouts, chat_path=plan.chat
        )  # a key that is not there is said before anything starts
        try:
            if self._server is not None:
                self._stack.callback(self._server.stop)
                self._server.start()
            self.client = self._stack.enter_context(client)
            served = _served(self.client, model)
            self.client.model = str(served.get("id", client.model))
            self.context = whole(served.get("max_model_len")) or _slot(self.info())
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> str | None:
        """How a server that we started ended by itself; None while it is up."""
        gone = self._server is not None and self._server.ended
        return f"{self.plan.engine} {self._server.fate}; see {self._server.log}" if gone and self._server else None

    @property
    def log(self) -> Path | None:
        """Of a server that we started."""
        return None if self._server is None else self._server.log

    def counters(self) -> str | None:
        """Their text now; None where the server has none."""
        found = self.client.get(self.plan.metrics) if self.plan.metrics else None
        return found.text if found is not None and found.ok else None

    def scrape(self) -> Scrape | None:
        """The same, read."""
        text = self.counters()
        return None if text is None else scrape(text)

    def info(self) -> Mapping[str, Any] | None:
        """What it says of itself: its settings in force; None where it says nothing."""
        found = self.client.get(self.plan.info) if self.plan.info else None
        return found.document if found is not None and found.ok and isinstance(found.document, dict) else None

    def most_tokens(self, requests: Sequence[Request], max_tokens: int) -> Sequence[int | None]:
        """Of each conversation with all its answers, as far as it could be too long for this server."""
        return most_tokens(self.client, self.context, requests, max_tokens)

    def reset(self) -> list[str]:
        """Empty the caches between blocks; what refused to."""
        refused = []
        for how, path in self.plan.resets:
            answer = self.client.post(path) if how == "POST" else self.client.get(path)
            if not answer.ok:
                refused.append(f"{path} answered {answer.status}: that cache was not emptied between blocks")
        return refused

    @contextmanager
    def sampled(self, *, wanted: bool) -> Iterator[Sequence[str]]:
        """The counters every half second, fetched by a thread of its own and not read yet, which takes milliseconds."""
        found: list[str] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_SAMPLED):
                try:
                    now = self.counters()
                except (UserError, RuntimeError):
                    continue  # the requests will say what is wrong with the server; the loop may be closed by now
                if now is not None:
                    found.append(now)

        watcher = threading.Thread(target=watch, daemon=True)
        if wanted:
            watcher.start()
        try:
            yield found
        finally:
            over.set()
            if wanted:
                watcher.join()

    def close(self) -> None:
        self._stack.close()


def _slot(info: Mapping[str, Any] | None) -> int | None:
    """The context of each of llama.cpp's slots."""
    return whole((node(info or {}, "default_generation_settings") or {}).get("n_ctx"))


def _served(client: Client, wanted: str) -> Mapping[str, Any]:
    """The model to ask: the runner's, else the only one there is. Raises `UserError` for a choice of others."""
    answer = client.get("/v1/models")
    data = answer.document.get("data") if answer.ok and isinstance(answer.document, dict) else None
    models = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    named = [each for each in models if each.get("id") in (wanted, client.model)]
    if not named and len(models) > 1:
        have = ", ".join(str(each.get("id")) for each in models)
        raise UserError(f"{client.url} serves several models, none of them '{wanted}': {have}; set the runner's model")
    return (named or models or [{}])[0]
