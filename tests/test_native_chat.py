"""Prompts through a model's own template: one BOS, the model's own answers, and every token that ends an answer."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny

from speedbench.errors import UserError
from speedbench.native.chat import Chat, sha
from speedbench.types import Request


def chat(where: Path, vocab: int = 64, *, files: dict[str, Any] | None = None, **words: Any) -> Chat:
    """A chat whose folder holds a tokenizer and these JSON files."""
    tiny.tokenizer(**words).save_pretrained(where)
    for name, content in {"config.json": {"model_type": "llama", "vocab_size": vocab}, **(files or {})}.items():
        (where / name).write_text(json.dumps(content), "utf-8")
    return Chat(where, vocab)


def asked(*turns: str, system: str | None = None) -> Request:
    return Request(id="a", category="x", turns=turns, system=system)


def text(made: Chat, ids: Sequence[int]) -> str:
    said: str = made.tokenizer.decode(ids)
    return said


# ---- one BOS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder_adds", [False, True])
def test_a_template_that_emits_bos_gives_exactly_one(encoder_adds: bool, tmp_path: Path) -> None:
    made = chat(tmp_path, template=tiny.BOS_CHATML, bos=encoder_adds)
    ids = made.prompt(asked("hi"), [])
    assert ids.count(0) == 1
    assert ids[0] == 0
    assert text(made, ids) == "<s><|user|>hi<|end|><|assistant|>"


def test_a_template_that_says_it_twice_gives_one(tmp_path: Path) -> None:
    made = chat(tmp_path, template="{{ bos_token }}" + tiny.BOS_CHATML)
    assert made.prompt(asked("hi"), []).count(0) == 1


def test_a_raw_prompt_has_the_one_bos_of_its_encoder(tmp_path: Path) -> None:
    made = chat(tmp_path, template=None, bos=True)
    assert made.template_sha is None
    assert text(made, made.prompt(asked("hi"), [])) == "<s>hi"
    assert made.prompt(asked("<s>hi"), []).count(0) == 1


@pytest.mark.parametrize("template", [None, tiny.CHATML])
def test_a_tokenizer_without_bos_gives_none(template: str | None, tmp_path: Path) -> None:
    made = chat(tmp_path, template=template)
    assert made.tokenizer.bos_token_id is None
    assert made.prompt(asked("hi"), []).count(0) == 0


# ---- the conversation ----------------------------------------------------------------------------------------------


def test_each_turn_holds_the_models_own_answers_without_their_end(tmp_path: Path) -> None:
    made = chat(tmp_path)
    request = asked("hi", "why", "so", system="be nice")
    yes, no = [29, 9, 23, 1], [18, 19]
    assert text(made, made.prompt(request, [])) == "<|system|>be nice<|end|><|user|>hi<|end|><|assistant|>"
    assert text(made, made.prompt(request, [yes])) == (
        "<|system|>be nice<|end|><|user|>hi<|end|><|assistant|>yes<|end|><|user|>why<|end|><|assistant|>"
    )
    assert text(made, made.prompt(request, [yes, no])).endswith("<|assistant|>no<|end|><|user|>so<|end|><|assistant|>")


def test_raw_turns_stand_apart_by_an_empty_line(tmp_path: Path) -> None:
    made = chat(tmp_path, template=None)
    joined = made.tokenizer("hi\n\nyes\n\nwhy")["input_ids"]
    assert made.prompt(asked("hi", "why"), [[29, 9, 23, 1]]) == joined


def test_the_same_words_are_the_same_prompt_whatever_the_folder_is_called(tmp_path: Path) -> None:
    first, second = chat(tmp_path / "x-chat"), chat(tmp_path / "x_chat")
    assert first.prompt(asked("hi"), []) == second.prompt(asked("hi"), [])
    assert first.template_sha == second.template_sha


def test_templates_are_told_apart_by_their_sha(tmp_path: Path) -> None:
    made = chat(tmp_path / "a")
    assert made.template_sha == hashlib.sha256(tiny.CHATML.encode()).hexdigest()[:16]
    assert made.template_sha != chat(tmp_path / "b", template=tiny.BOS_CHATML).template_sha


def test_of_several_templates_the_default_one_is_used(tmp_path: Path) -> None:
    words = tiny.tokenizer()
    words.chat_template = {"default": tiny.CHATML, "tool_use": "tools"}
    words.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}", "utf-8")
    made = Chat(tmp_path, 64)
    assert text(made, made.prompt(asked("hi"), [])) == "<|user|>hi<|end|><|assistant|>"
    assert made.template_sha == hashlib.sha256(tiny.CHATML.encode()).hexdigest()[:16]


def test_what_a_template_refuses_is_the_users_to_mend(tmp_path: Path) -> None:
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}hi"
    made = chat(tmp_path, template=strict)
    assert made.prompt(asked("hi"), [])
    with pytest.raises(UserError, match="no system role"):
        made.prompt(asked("hi", system="be nice"), [])


def test_a_prompt_of_no_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokens"):
        chat(tmp_path, template=None).prompt(asked(""), [])


def test_a_folder_without_a_tokenizer_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    with pytest.raises(UserError, match="tokenizer"):
        Chat(tmp_path, 64)


def test_equal_prompts_have_an_equal_sha_of_their_decimal_ids() -> None:
    assert sha([1, 22, 3]) == hashlib.sha256(b"1,22,3").hexdigest()[:16]
    assert sha([12, 2, 3]) != sha([1, 22, 3])


# ---- end tokens ----------------------------------------------------------------------------------------------------


def test_end_tokens_are_the_union_of_both_files_and_the_tokenizer(tmp_path: Path) -> None:
    files = {
        "config.json": {"model_type": "llama", "eos_token_id": 7},
        "generation_config.json": {"eos_token_id": [8, 9]},
    }
    made = chat(tmp_path, files=files)
    assert made.stops == {1, 7, 8, 9}
    assert made.warnings == []


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": [7, 8]}, {}, {1, 7, 8}),
        ({}, {"eos_token_id": 0}, {0, 1}),
        ({"eos_token_id": None}, {"eos_token_id": None}, {1}),
        ({"eos_token_id": []}, None, {1}),
    ],
)
def test_a_file_may_say_one_several_or_none(config: Any, generation: Any, expected: set[int], tmp_path: Path) -> None:
    files = {"config.json": {"model_type": "llama", **config}}
    if generation is not None:
        files["generation_config.json"] = generation
    assert chat(tmp_path, files=files).stops == expected


def test_no_end_token_anywhere_is_no_end_token(tmp_path: Path) -> None:
    words = tiny.tokenizer()
    words.eos_token = None
    words.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    made = Chat(tmp_path, 64)
    assert made.stops == frozenset()
    assert made.prompt(asked("hi", "why"), [[10, 1]])


@pytest.mark.parametrize("outside", [64, 1000, -1])
def test_an_end_token_outside_the_vocabulary_warns_and_is_left_out(outside: int, tmp_path: Path) -> None:
    files = {"config.json": {"model_type": "llama", "eos_token_id": [7, outside]}}
    made = chat(tmp_path, files=files)
    assert made.stops == {1, 7}
    (warning,) = made.warnings
    assert f"end token {outside} is outside the vocabulary of 64" in warning
