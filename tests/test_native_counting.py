"""Prompts counted many at a time are those that are asked, one at a time."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny

from speedbench import task
from speedbench.errors import Missing, UserError
from speedbench.native import counting
from speedbench.native.chat import Chat, sha
from speedbench.native.counting import Counter, counter
from speedbench.sizing import measured
from speedbench.types import Fit, Request, Runner, Task


def chat(where: Path, **words: Any) -> Chat:
    tiny.tokenizer(**words).save_pretrained(where)
    (where / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    return Chat(where, 64)


def asked(count: int = 9) -> list[Request]:
    """Of one, two and three turns, with and without a system prompt."""
    return [
        Request(
            id=f"r{i}", category="c", turns=("abc" * (i + 1), "de", "f")[: 1 + i % 3], system="be" if i % 2 else None
        )
        for i in range(count)
    ]


def one_by_one(made: Chat, requests: Sequence[Request], most: int) -> tuple[Fit, ...]:
    found = []
    for request in requests:
        first, whole = made.prompt(request, []), made.prompt(request, [[]] * (len(request.turns) - 1))
        tokens = len(whole) + most * len(request.turns)
        found.append(Fit(request=request.id, prompt_tokens=len(first), most_tokens=tokens, prompt_sha=sha(first)))
    return tuple(found)


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"bos": True},
        {"template": None},
        {"template": None, "bos": True},
        {"template": tiny.BOS_CHATML, "bos": True},
    ],
)
@pytest.mark.parametrize("batch", [1, 40, 1_000_000])
def test_a_batch_gives_what_each_request_gives_alone(
    words: dict[str, Any], batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = chat(tmp_path, **words)
    monkeypatch.setattr(counting, "BATCH", batch)
    assert Counter(made).fits(asked(), 10) == one_by_one(made, asked(), 10)


def test_the_bound_of_three_turns_has_every_turn_and_three_answers(tmp_path: Path) -> None:
    (found,) = Counter(chat(tmp_path)).fits([Request(id="r", category="c", turns=("abc", "de", "f"))], 10)
    # <|user|>abc<|end|><|assistant|> is 6; all turns, with two empty answers that end: 6 + (1 + 5) + (1 + 4) = 17
    assert (found.prompt_tokens, found.most_tokens) == (6, 17 + 30)


def test_a_prompt_without_tokens_is_named(tmp_path: Path) -> None:
    made = chat(tmp_path, template=None)
    with pytest.raises(UserError, match="request 'empty', turn 0: the prompt has no tokens"):
        Counter(made).fits([*asked(2), Request(id="empty", category="c", turns=("",))], 10)


def test_a_refusing_template_is_named_with_its_request(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system prompt') }}{% endif %}" + tiny.CHATML
    with pytest.raises(UserError, match="request 'r1': the model's chat template refuses it: no system prompt"):
        Counter(chat(tmp_path, template=refusing)).fits(asked(3), 10)


def test_token_ends_are_characters_and_the_last_is_the_texts_own(tmp_path: Path) -> None:
    found = Counter(chat(tmp_path)).token_ends(["abc", "", "a b"])
    assert [list(each) for each in found] == [[1, 2, 3], [], [1, 2, 3]]


def test_a_tokenizer_that_tells_no_characters_is_taken_to_have_tokens_of_one_length(tmp_path: Path) -> None:
    class Slow:
        is_fast = False

        def __call__(self, texts: Sequence[str], **_: Any) -> dict[str, Any]:
            return {"input_ids": [[0] * (len(text) // 3) for text in texts]}

    made = chat(tmp_path)
    made.tokenizer = Slow()
    assert [list(each) for each in Counter(made).token_ends(["abcdef", "a"])] == [[3, 6], []]


def test_a_runner_may_name_a_folder_of_a_tokenizer_alone(tmp_path: Path) -> None:
    chat(tmp_path)
    (tmp_path / "config.json").unlink()
    (found,) = counter(str(tmp_path)).fits([Request(id="r", category="c", turns=("abc",))], 10)
    assert found.prompt_tokens == 6
    with pytest.raises(Missing, match="no model at 'nowhere'"):
        counter("nowhere")


def bpe(where: Path) -> Chat:
    """Byte-level pairs, learned from a few modules: it packs letters as real tokenizers do, and indentation too."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    stdlib = Path(sysconfig.get_paths()["stdlib"])
    made = ByteLevelBPETokenizer()
    made.train([str(stdlib / name) for name in ("argparse.py", "typing.py", "ast.py")], vocab_size=3000)
    found = PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, eos_token="<|end|>")
    found.chat_template = tiny.CHATML
    found.save_pretrained(where)
    return Chat(where, 1 << 31)


@pytest.mark.parametrize("name", ["throughput-1k", "throughput-8k"])
def test_throughput_prompts_come_out_within_one_percent_of_their_size(name: str, tmp_path: Path) -> None:
    made = bpe(tmp_path)
    session: Any = Counter(made)
    requests, wanted = task.requests(task.load(name), 9), task.load(name).where["tokens"]
    cut, fits = measured(requests, session, Runner(name="u", title="T", backend="native", model="m"), 10)
    assert all(abs((fit.prompt_tokens or 0) - wanted) <= 0.01 * wanted for fit in fits)
    for request, fit in zip(cut, fits, strict=True):
        assert len(made.prompt(request, [])) == fit.prompt_tokens
        assert request.sized is not None
        assert request.turns[0].endswith(request.sized.after)


@pytest.mark.slow
def test_ten_thousand_rows_are_read_and_counted_within_a_minute_and_little_memory(tmp_path: Path) -> None:
    from speedbench.library import library

    resource = pytest.importorskip("resource")
    prose, made = library().prose, bpe(tmp_path)
    rows = [{"id": i, "prompt": f"{i} {prose[i % len(prose)]}"} for i in range(10_000)]  # a kilobyte each
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    where = Task(
        name="t", title="T", version=1, licence="x", source="jsonl", where={"file": "rows.jsonl"}, folder=str(tmp_path)
    )
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    fits = Counter(made).fits(task.requests(where), 64)
    seconds, more = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{sum(fit.prompt_tokens or 0 for fit in fits)} tokens, {seconds:.1f} CPU seconds, {more / 1024:.0f} MB more")
    assert len(fits) == 10_000
    assert seconds < 60  # of all threads, however busy the machine is
    assert more < 300 * 1024
