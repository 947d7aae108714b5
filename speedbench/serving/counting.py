"""How long conversations are in a server's own tokens, where it counts them: vLLM, SGLang and llama.cpp do."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from speedbench.errors import UserError
from speedbench.serving.client import Client
from speedbench.serving.payloads.body import whole
from speedbench.types import Request


def most_tokens(client: Client, context: int | None, requests: Sequence[Request], max_tokens: int) -> list[int | None]:
    """Of each conversation, its own texts' tokens and every answer at its cap, without what a chat template adds.

    Only what could be too long is asked for: a token is at least a byte, and half of the context is left to the
    template. None: that short, or the server does not say.
    """
    found: list[int | None] = [None] * len(requests)
    for i, request in enumerate(requests):
        text, answers = "\n".join((request.system or "", *request.turns)), max_tokens * len(request.turns)
        if context is None or 2 * (len(text.encode()) + answers) <= context:
            continue
        own = _tokens(client, text)
        if own is None:
            break  # it would say the same of the others
        found[i] = own + answers
    return found


def _tokens(client: Client, text: str) -> int | None:
    """`prompt` is vLLM's and SGLang's word, `content` llama.cpp's."""
    asked = {"model": client.model, "prompt": text, "content": text, "add_special_tokens": False}
    try:
        answer = client.post("/tokenize", asked)
    except UserError:
        return None
    told = answer.document if answer.ok and isinstance(answer.document, dict) else {}
    ids = told.get("tokens")
    return len(ids) if isinstance(ids, list) else whole(told.get("count"))
