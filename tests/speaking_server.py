"""A server that speaks as vLLM does: greedy, with drafts accepted as told, and counters that move with its answers."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal

from aiohttp import web
from scripted_server import DONE, Refuse, Script, ScriptedServer, chunk, last

Tells = Literal["steps", "histogram", "nothing"]


@dataclass
class Speaking(ScriptedServer):
    """Answers `max_tokens` words that depend on the prompt alone; `d` > 0 makes it draft d tokens in every step."""

    d: int = 0
    accepts: Sequence[int] = (3, 0, 2, 1)
    """Accepted drafts, step by step, again and again."""
    tells: Tells = "steps"
    says: Callable[[Mapping[str, Any], list[str]], list[str]] = lambda body, words: words
    """Changes the words of an answer."""
    refuses: Callable[[Mapping[str, Any], int], Script | None] = lambda body, number: None
    """What is said instead of an answer."""
    configured: int | None = None
    """What it says that it drafts a step, where that is not `d`."""
    ids: bool = True
    counts: bool = True
    """Whether it has /metrics."""
    begins_anew_at: int = -1
    """The request at which its counters are empty again."""
    cached: float = 0.0
    """Share of prompt tokens out of its cache."""
    pause: float = 0.002
    """Seconds a step."""
    models: tuple[str, ...] = ("m",)
    longest: int = 4096
    moved: Counter[str] = field(default_factory=Counter)
    at: Counter[int] = field(default_factory=Counter)
    """Accepted drafts by position."""

    def __post_init__(self) -> None:
        self.scripts = self._speak

    # ---- answers ----

    def _speak(self, body: Any, number: int) -> Script:
        if number == self.begins_anew_at:
            self.moved.clear()
            self.at.clear()
        instead = self.refuses(body, number)
        if instead is not None:
            return instead
        prompt = " ".join(message["content"] for message in body["messages"]).split()
        if len(prompt) >= self.longest:
            told = f"This model's maximum context length is {self.longest} tokens; the prompt has {len(prompt)}"
            return Refuse(400, {"error": {"message": told, "code": 400}})
        room = min(body["max_tokens"], self.longest - len(prompt))
        words = self.says(body, [f"{prompt[-1]}{i} " for i in range(room)])
        steps = self._steps(len(words) - 1)
        self._count(len(prompt), len(words), steps)
        return self._events(prompt, words, steps)

    def _steps(self, rest: int) -> list[tuple[int, int]]:
        """(accepted, committed) of each step; the last is cut where the words end."""
        made: list[tuple[int, int]] = []
        for accepted in cycle(self.accepts if self.d else (0,)):
            if rest <= 0:
                break
            made.append((accepted, min(accepted + 1, rest)))
            rest -= made[-1][1]
        return made

    def _events(self, prompt: list[str], words: list[str], steps: list[tuple[int, int]]) -> list[bytes | float | str]:
        prompt_ids = {"prompt_token_ids": [code(word) for word in prompt]} if self.ids else {}
        events: list[bytes | float | str] = [chunk("", role="assistant", **prompt_ids)]
        at = 0
        for size in (1, *(committed for _, committed in steps)):
            ids = {"token_ids": [code(word) for word in words[at : at + size]]} if self.ids else {}
            events += [chunk("".join(words[at : at + size]), choice=ids), self.pause]
            at += size
        stats = {"metrics": {"speculative_decoding": self._stats(steps)}} if self.d and self.tells != "nothing" else {}
        return [*events, chunk(finish="length"), last(len(prompt), len(words), **stats), DONE]

    def _stats(self, steps: list[tuple[int, int]]) -> dict[str, Any]:
        accepted, d = [a for a, _ in steps], self.d if self.configured is None else self.configured
        told = {
            "num_spec_steps": len(steps), "num_accepted_draft_tokens": sum(accepted), "num_spec_tokens": d,
            "num_draft_tokens": self.d * len(steps),
            "acceptance_histogram": [accepted.count(j) for j in range(self.d + 1)],
        }  # fmt: skip
        if self.tells == "steps":
            told |= {"per_step_accepted": accepted, "per_step_drafted": [self.d] * len(steps)}
        return told

    # ---- counters ----

    def _count(self, prompt: int, words: int, steps: list[tuple[int, int]]) -> None:
        self.moved.update(queries=prompt, hits=round(self.cached * prompt), generated=words)
        if self.d and self.tells != "nothing":
            accepted = [a for a, _ in steps]
            self.moved.update(drafts=len(steps), drafted=self.d * len(steps), accepted=sum(accepted))
            self.at.update(i for a in accepted for i in range(a))

    def _plain(self, path: str, body: Any) -> web.Response:
        if path == "/metrics":
            return web.Response(text=self._metrics()) if self.counts else web.Response(status=404)
        if path == "/v1/models":
            listed = [{"id": name, "max_model_len": self.longest} for name in self.models]
            return web.json_response({"object": "list", "data": listed})
        return super()._plain(path, body)

    def _metrics(self) -> str:
        names = {
            "generation_tokens_total": "generated", "prefix_cache_queries_total": "queries",
            "prefix_cache_hits_total": "hits",
        }  # fmt: skip
        spec = {
            "spec_decode_num_drafts_total": "drafts", "spec_decode_num_draft_tokens_total": "drafted",
            "spec_decode_num_accepted_tokens_total": "accepted",
        }  # fmt: skip
        if self.d and self.tells != "nothing":
            names |= spec
        lines = [f'vllm:{name}{{engine="0"}} {float(self.moved[key])}' for name, key in names.items()]
        lines += ['vllm:num_requests_running{engine="0"} 1.0']
        if self.d and self.tells != "nothing":
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f'{name}{{engine="0",position="{i}"}} {float(self.at[i])}' for i in range(self.d)]
        return "\n".join(lines) + "\n"


def code(word: str) -> int:
    """A token id for a word."""
    return sum(ord(letter) * 31**i for i, letter in enumerate(word)) % 50_000
