"""One call as measured: what came, when, and what the server said about it. A chunk is never counted as a token."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from speedbench.serving.sse import DONE, Event
from speedbench.serving.words import one_line, said, whole

Kind = Literal["content", "reasoning", "tool"]

FailureKind = Literal["http", "timeout", "cut", "error event", "connection", "malformed"]


class Delta(NamedTuple):
    """A piece of an answer: when it arrived (perf_counter seconds), of what kind, and how many characters."""

    at: float
    kind: Kind
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a call gave no result: its kind and one line about it."""

    kind: FailureKind
    message: str
    status: int | None = None
    """HTTP status of the answer; None where there was none."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The server's own token counts; None is what it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Of the completion tokens."""
    cached_tokens: int | None = None
    """Of the prompt tokens, those out of a prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call as measured. Times are perf_counter seconds, taken as raw bytes arrived, before any parsing."""

    sent: float
    """When the request's body was handed to the socket."""
    first: float | None
    """First content, reasoning or tool delta with text in it; None where none came. A role-only event is none."""
    last: float | None
    """Last event that brought text, token ids, or a higher count in the running usage; None where `first` is None."""
    ended: float
    """When the end marker came; without one, when the stream ended or failed."""
    deltas: tuple[Delta, ...] = ()
    progress: tuple[tuple[float, int], ...] = ()
    """(when, output tokens so far), one per arrival, where token ids or the running usage tell; else empty."""
    text: str = ""
    reasoning: str = ""
    usage: Usage | None = None
    """The last the server sent; None: it sent none."""
    finish: str | None = None
    """The server's word: `stop`, `length`, `tool_calls`, …"""
    failure: Failure | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    """What was sent beside the deltas, in the shape of a body that was not streamed: root keys, the last of each
    counting, and `choices` with one choice of its own extras, its token ids and logprobs joined over the chunks."""

    @property
    def first_tokens(self) -> int | None:
        """Output tokens that were there at `first`; None where nothing tells."""
        return next((tokens for at, tokens in self.progress if at == self.first), None)

    @property
    def tokens(self) -> int | None:
        """Output tokens as the usage counts them, else as many as there are ids; None where neither was sent."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.token_ids is None else len(self.token_ids)

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """Ids of the output tokens, where the server sent them; fewer than `tokens` where it held some back."""
        ids = self._choice.get("token_ids")
        return None if ids is None else tuple(ids)

    @property
    def prompt_token_ids(self) -> tuple[int, ...] | None:
        """Ids of the prompt as the server read it, where it sent them."""
        ids = self._choice.get("prompt_token_ids", self.payload.get("prompt_token_ids"))
        return None if ids is None else tuple(ids)

    @property
    def _choice(self) -> Mapping[str, Any]:
        choice: Mapping[str, Any] = (self.payload.get("choices") or ({},))[0]
        return choice


# ---- from events to an exchange -------------------------------------------------------------------------------------

_PLAIN_ROOT = {"choices", "object", "created"}
_PLAIN_CHOICE = {"index", "delta", "text", "message"}
_JOINED = {"token_ids", "logprobs"}
"""Extras of a choice of which each chunk holds its own part."""
_decode = json.JSONDecoder(parse_constant=lambda _: None).decode
"""NaN and Infinity, which some servers write though JSON has none, are unknown."""
_BROKEN_OFF = {"abort", "aborted", "cancelled", "error", "timeout"}
"""Finish reasons of answers that the server gave up on."""


class Account:
    """Takes the events of one stream with their times, and closes into an `Exchange`. Pure: it reads no clock."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._texts: dict[Kind, list[str]] = {"content": [], "reasoning": [], "tool": []}
        self._by_ids: dict[float, int] = {}
        self._by_usage: dict[float, int] = {}
        self._ids = 0
        self._usage: Usage | None = None
        self._root: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._done: float | None = None
        self._any = False
        self._failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more can matter: the end marker came, or an error."""
        return self._done is not None or self._failure is not None

    def add(self, at: float, event: Event) -> None:
        """Take one event that arrived at `at`. What comes after the end marker or an error is not read."""
        if self.is_over:
            return
        self._any = True
        if event.data == DONE:
            self._done = at
            return
        try:
            self._take(at, event.name, _decode(event.data))
        except (ValueError, TypeError, AttributeError, KeyError, IndexError):
            self._failure = Failure(kind="malformed", message=f"cannot read the event {one_line(event.data, 120)!r}")

    def close(self, sent: float, ended: float, failure: Failure | None = None, rest: Iterable[Event] = ()) -> Exchange:
        """The exchange. `failure` is how the transport ended it, which means nothing once the answer was complete.

        `rest` is what the parser had left at the end: read if it is whole.
        """
        for event in rest:
            known = self._failure
            self.add(ended, event)
            if known is None and self._failure is not None and self._failure.kind == "malformed":
                self._failure = None  # cut in the middle, which is told below
        progress = self._progress()
        first = self._deltas[0].at if self._deltas else None
        rises = [at for (_, before), (at, now) in pairwise(progress) if now > before]
        last = max([self._deltas[-1].at, *rises[-1:]]) if self._deltas else None
        return Exchange(
            sent=sent, first=first, last=last, ended=ended if self._done is None else self._done,
            deltas=tuple(self._deltas), progress=progress, text=whole(self._texts["content"]),
            reasoning=whole(self._texts["reasoning"]), usage=self._usage, finish=self._choice.get("finish_reason"),
            failure=self._verdict(failure), payload=self._payload(),
        )  # fmt: skip

    # ---- one event ----

    def _take(self, at: float, name: str, body: Mapping[str, Any]) -> None:
        if name == "error" or body.get("error") or body.get("object") == "error":
            self._failure = Failure(kind="error event", message=said(body))
            return
        for key, value in body.items():
            if value is not None and key not in _PLAIN_ROOT:
                _keep(self._root, key, value)
        usage = body.get("usage")
        if usage:
            self._usage = _usage(usage)
        for choice in body.get("choices") or ():
            if choice.get("index", 0) != 0:
                raise ValueError("one choice was asked for")
            self._take_choice(at, choice)
            if usage and self._usage and self._usage.completion_tokens is not None:
                self._by_usage[at] = self._usage.completion_tokens

    def _take_choice(self, at: float, choice: Mapping[str, Any]) -> None:
        for key, value in choice.items():
            if value is not None and key not in _PLAIN_CHOICE:
                if key in _JOINED:
                    self._choice[key] = _joined(self._choice.get(key), value)
                else:
                    _keep(self._choice, key, value)
        if choice.get("token_ids"):
            self._ids += len(choice["token_ids"])
            self._by_ids[at] = self._ids
        delta = choice.get("delta") or {}
        self._take_text(at, "reasoning", delta.get("reasoning_content") or delta.get("reasoning"))
        self._take_text(at, "content", delta.get("content") or choice.get("text"))
        for tool in delta.get("tool_calls") or ():
            function = tool.get("function") or {}
            self._take_text(at, "tool", (function.get("name") or "") + (function.get("arguments") or ""))

    def _take_text(self, at: float, kind: Kind, text: str | None) -> None:
        if text:
            if not isinstance(text, str):
                raise TypeError("text was expected")
            self._texts[kind].append(text)
            self._deltas.append(Delta(at, kind, len(text)))

    # ---- the whole ----

    def _progress(self) -> tuple[tuple[float, int], ...]:
        """By ids if they add up to the usage (of which a stop token may be kept back), else by the running usage."""
        counts = self._by_ids
        total = self._usage.completion_tokens if self._usage else None
        if not counts or (total is not None and total - self._ids not in (0, 1)):
            counts = self._by_usage
        return tuple(counts.items())

    def _verdict(self, failure: Failure | None) -> Failure | None:
        finish = self._choice.get("finish_reason")
        if self._failure is not None:
            return self._failure
        if finish in _BROKEN_OFF:
            return Failure(kind="cut", message=f"the server gave the answer up (finish reason '{finish}')")
        if self._done is not None or finish is not None:
            return None
        if failure is not None:
            return failure
        if not self._any:
            return Failure(kind="malformed", message="the answer holds no event")
        return Failure(kind="cut", message="the stream ended without a finish reason or [DONE]")

    def _payload(self) -> dict[str, Any]:
        return {**self._root, "choices": [self._choice]} if self._choice else self._root


def account(
    sent: float, events: Iterable[tuple[float, Event]], ended: float, failure: Failure | None = None
) -> Exchange:
    """The exchange that (arrival, event) pairs amount to."""
    book = Account()
    for at, event in events:
        book.add(at, event)
    return book.close(sent, ended, failure)


def _keep(into: dict[str, Any], key: str, value: Any) -> None:
    """The last value counts; of an object, the last of each of its keys."""
    before = into.get(key)
    into[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


def _joined(before: Any, more: Any) -> Any:
    """Lists end to end (`before` grows), and objects of lists key by key."""
    if isinstance(before, list) and isinstance(more, list):
        before.extend(more)
        return before
    if isinstance(before, dict) and isinstance(more, dict):
        return {key: _joined(before.get(key), more.get(key)) for key in {**before, **more}}
    return before if more is None else more


def _usage(told: Mapping[str, Any]) -> Usage:
    """SGLang writes `reasoning_tokens` beside the sums, others into the details."""
    output, prompt = told.get("completion_tokens_details") or {}, told.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=told.get("prompt_tokens"),
        completion_tokens=told.get("completion_tokens"),
        reasoning_tokens=output.get("reasoning_tokens", told.get("reasoning_tokens")),
        cached_tokens=prompt.get("cached_tokens"),
    )
