"""How long conversations are by a server's own count, in the shapes that engines answer in."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from speedbench.errors import UserError
from speedbench.serving.client import Answer
from speedbench.serving.counting import most_tokens
from speedbench.types import Request

LONG = Request(id="long", category="c", turns=("one two", "three"), system="be brief")
ASKED = {"model": "m", "prompt": "be brief\none two\nthree", "content": "be brief\none two\nthree",
         "add_special_tokens": False}  # fmt: skip


class Counts:
    """Answers each `/tokenize` alike, and keeps what it was asked."""

    model = "m"

    def __init__(self, answer: Answer | None) -> None:
        self.answer, self.asked = answer, list[Any]()

    def post(self, path: str, body: Any) -> Answer:
        assert path == "/tokenize"
        self.asked.append(body)
        if self.answer is None:
            raise UserError("no answer")
        return self.answer


def counted(client: Any, context: int | None, *requests: Request, max_tokens: int = 8) -> list[int | None]:
    return most_tokens(client, context, requests, max_tokens)


@pytest.mark.parametrize(
    "document",
    [
        {"count": 5, "max_model_len": 40, "tokens": [1, 2, 3, 4, 5], "token_strs": None},  # vLLM 0.32
        {"tokens": [1, 2, 3, 4, 5], "count": 5, "max_model_len": 1 << 60},  # SGLang: its tokenizer's, no context
        {"tokens": [1, 2, 3, 4, 5]},  # llama.cpp b11549
        {"count": 5},
    ],
)
def test_the_texts_and_two_answers_at_their_cap(document: dict[str, Any]) -> None:
    client = Counts(Answer(status=200, text="", document=document))
    assert counted(client, 40, LONG) == [5 + 2 * 8]
    assert client.asked == [ASKED]


@pytest.mark.parametrize(
    "answer",
    [None, Answer(status=404, text="", document={"tokens": [1]}), Answer(status=200, text="ok"),
     Answer(status=200, text="", document={"tokens": "five"}), Answer(status=200, text="", document=[5])],
)  # fmt: skip
def test_a_server_that_does_not_say_is_asked_once_and_nothing_is_known(answer: Answer | None) -> None:
    client = Counts(answer)
    assert counted(client, 40, LONG, LONG) == [None, None]
    assert len(client.asked) == 1


def test_what_cannot_be_too_long_is_not_asked_for() -> None:
    client = Counts(Answer(status=200, text="", document={"count": 5}))
    bytes_and_answers = len(ASKED["prompt"]) + 2 * 8
    assert counted(client, 2 * bytes_and_answers, LONG) == [None]
    assert counted(client, None, LONG) == [None]
    assert client.asked == []
    assert counted(client, 2 * bytes_and_answers - 1, LONG) == [5 + 16]


def test_letters_of_several_bytes_may_be_several_tokens() -> None:
    client = Counts(Answer(status=200, text="", document={"count": 12}))
    request = SimpleNamespace(system=None, turns=("語" * 4,))  # 12 bytes, 1 for the line break
    assert counted(client, 2 * (13 + 8) - 1, request) == [20]  # type: ignore[arg-type]
