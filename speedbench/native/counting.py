"""Prompts counted in the target's own tokens, many at a time: the tokenizer's threads take a batch, memory does not."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from speedbench.errors import UserError, first_line
from speedbench.native.chat import Chat, sha
from speedbench.types import Fit, Request

BATCH = 1_000_000
"""Characters that are encoded at a time: some ten megabytes of ids."""

ANY = 1 << 31
"""A vocabulary in which every end token is."""

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
FILES = ["tokenizer*", "*.model", "special_tokens_map.json", "vocab*", "merges.txt", "config.json", "chat_template*",
         "generation_config.json"]  # fmt: skip


class Counter:
    """What a chat's tokenizer makes of prompts, before anything runs."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        """The bound of a later turn takes every answer at its cap, plus the turn's own tokens and template."""
        found = []
        for some in _batched(requests, lambda request: sum(map(len, request.turns))):
            firsts = self._prompts([(request, 0) for request in some])
            later = [request for request in some if len(request.turns) > 1]
            wholes = self._prompts([(request, len(request.turns) - 1) for request in later])
            whole = dict(zip((request.id for request in later), map(len, wholes), strict=True))
            for request, first in zip(some, firsts, strict=True):
                most = whole.get(request.id, len(first)) + max_tokens * len(request.turns)
                found.append(Fit(request=request.id, prompt_tokens=len(first), most_tokens=most, prompt_sha=sha(first)))
        return tuple(found)

    def _prompts(self, asked: Sequence[tuple[Request, int]]) -> list[list[int]]:
        """What `Chat.prompt` gives for each request with so many empty answers, encoded together."""
        if not asked:
            return []
        chat, has_template = self.chat, self.chat.template_sha is not None
        texts = [
            chat._rendered(_messages(request, answers), f"request '{request.id}'")
            if has_template
            else "\n\n".join(message["content"] for message in _messages(request, answers))
            for request, answers in asked
        ]
        told = chat.tokenizer(
            texts, add_special_tokens=not has_template, return_attention_mask=False, return_token_type_ids=False
        )
        found = [chat._one_bos(list(ids)) for ids in told["input_ids"]]
        for ids, (request, answers) in zip(found, asked, strict=True):
            if not ids:
                chat.prompt(request, [[]] * answers)  # which says what is wrong
        return found

    def token_ends(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """For each text, the character at which each of its tokens ends. A tokenizer in plain Python does not say, and
        its tokens are taken to be equally long."""
        found: list[Sequence[int]] = []
        for some in _batched(texts, len):
            told = self.chat.tokenizer(
                some, add_special_tokens=False, return_offsets_mapping=self.chat.tokenizer.is_fast,
                return_attention_mask=False, return_token_type_ids=False,
            )  # fmt: skip
            if "offset_mapping" in told:
                found += [array("I", (end for _, end in each)) for each in told["offset_mapping"]]
            else:
                sizes = zip(some, map(len, told["input_ids"]), strict=True)
                found += [array("I", (len(text) * i // n for i in range(1, n + 1))) for text, n in sizes]
        return found


def counter(tokenizer: str) -> Counter:
    """Of a tokenizer that a runner names: a folder, a hub id with an optional @revision, or whatever a model may be."""
    return Counter(Chat(_home(tokenizer), ANY))


def _home(tokenizer: str) -> Path:
    """A hub's tokenizer comes without the model's weights."""
    path = Path(tokenizer).expanduser()
    if (path / "tokenizer_config.json").is_file():
        return path
    if path.exists() or not HUB_ID.fullmatch(tokenizer) or path.suffix == ".gguf":
        from speedbench.native import weights  # needs torch, to unpack what is packed

        return weights.folder(tokenizer)
    from huggingface_hub import snapshot_download

    name, _, revision = tokenizer.partition("@")
    want: dict[str, Any] = {"repo_id": name, "revision": revision or None, "allow_patterns": FILES}
    try:
        return Path(snapshot_download(**want))
    except Exception as error:  # of huggingface_hub and of whichever client its version has
        raise UserError(f"runner.tokenizer: '{tokenizer}' was not to be had: {first_line(error)}") from None


def _messages(request: Request, answers: int) -> list[dict[str, str]]:
    messages = [] if request.system is None else [{"role": "system", "content": request.system}]
    for turn, said in enumerate(request.turns[: answers + 1]):
        messages.append({"role": "user", "content": said})
        messages += [{"role": "assistant", "content": ""}] * (turn < answers)
    return messages


def _batched(what: Sequence[Any], size: Any) -> Iterator[list[Any]]:
    some: list[Any] = []
    held = 0
    for each in what:
        some.append(each)
        held += size(each)
        if held >= BATCH:
            yield some
            some, held = [], 0
    if some:
        yield some
