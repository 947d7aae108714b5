"""Prompts cut to a size in tokens: how near they come, and what is never cut."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from speedbench.errors import UserError
from speedbench.sizing import Counting, measured
from speedbench.task import content_hash
from speedbench.types import Fit, Request, Runner, Sized

RUNNER = Runner(name="u", title="T", backend="somewhere", model="none")
LINES = tuple(f"line {i} has a few words and an end\n" for i in range(400))
"""Nine words each."""


@dataclass
class Words:
    """Counts words, and `template` more for a prompt; two pieces that meet make `seam` more."""

    template: int = 7
    seam: int = 0
    counted: list[int] = field(default_factory=list)
    """Texts of each call."""

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        self.counted.append(len(requests))
        return tuple(self._fit(request, max_tokens) for request in requests)

    def _fit(self, request: Request, max_tokens: int) -> Fit:
        text = "\n".join(request.turns)
        tokens = len(text.split()) + self.template + self.seam * text.count("line ")
        return Fit(request=request.id, prompt_tokens=tokens, most_tokens=tokens + max_tokens, prompt_sha=text)

    def token_ends(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        return [[found.end() for found in re.finditer(r"\S+", text)] for text in texts]


def sized(name: str = "r", tokens: int = 1000, **given: Any) -> Request:
    said = {"before": "Read:\n\n", "pieces": LINES, "after": "\n\nWhat was that?", **given}
    return Request(id=name, category="c", turns=(), sized=Sized(tokens=tokens, **said))


def cut(*requests: Request, by: Any = None) -> tuple[tuple[Request, ...], tuple[Fit, ...]]:
    return measured(requests, by or Words(), RUNNER, 10)


@pytest.mark.parametrize("tokens", [100, 999, 1000, 1001, 3000])
def test_a_prompt_has_its_size_within_one_percent_template_included(tokens: int) -> None:
    (made,), (fit,) = cut(sized(tokens=tokens))
    assert abs((fit.prompt_tokens or 0) - tokens) <= 0.01 * tokens
    assert fit.prompt_sha == made.turns[0]
    assert fit.most_tokens == (fit.prompt_tokens or 0) + 10


def test_the_instruction_and_what_stands_before_are_whole_and_only_material_is_cut() -> None:
    (made,), _ = cut(sized())
    (text,) = made.turns
    assert text.startswith("Read:\n\nline 0 has")
    assert text.endswith("\n\nWhat was that?")
    assert "".join(LINES).startswith(text.removeprefix("Read:\n\n").removesuffix("\n\nWhat was that?"))


@pytest.mark.parametrize(("depth", "share"), [(0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0)])
def test_the_needle_stands_whole_at_its_depth(depth: float, share: float) -> None:
    (made,), _ = cut(sized(needle="HERE it is\n", depth=depth))
    before, needle, after = made.turns[0].partition("HERE it is\n")
    assert needle
    lines = before.count("line ") + after.count("line ")
    assert before.count("line ") / lines == pytest.approx(share, abs=0.02)


def test_a_prompt_ends_with_a_line_where_one_is_near() -> None:
    # 3,000 tokens may lose 0.4 %, 12 words, for that; a line has 9
    (made,), _ = cut(sized(tokens=3000))
    assert made.turns[0].removesuffix("\n\nWhat was that?").endswith("an end\n")


def test_a_small_prompt_ends_with_a_word() -> None:
    # 0.4 % of 100 is no word to spare
    (made,), (fit,) = cut(sized(tokens=100))
    assert fit.prompt_tokens == 100
    assert re.search(r"\w$", made.turns[0].removesuffix("\n\nWhat was that?"))


def test_tokens_that_only_the_whole_text_has_are_found_by_counting_it() -> None:
    # 9 words a line and 1 where it meets the next: cut to 989 words at first, whose 110 lines count 110 more
    words = Words(seam=1)
    _, (fit,) = cut(sized(), by=words)
    assert abs((fit.prompt_tokens or 0) - 1000) <= 10
    assert len(words.counted) <= 5


def test_only_what_missed_its_size_is_counted_again() -> None:
    words = Words()
    plain = [Request(id=f"p{i}", category="c", turns=("Hello.",)) for i in range(5)]
    cut(*plain, sized("a"), sized("b", tokens=500), by=words)
    assert words.counted == [2, 7]  # the two without material, then all as they are


def test_a_size_that_does_not_come_out_is_an_error_and_not_a_prompt() -> None:
    class Fickle(Words):
        def _fit(self, request: Request, max_tokens: int) -> Fit:
            found = super()._fit(request, max_tokens)
            more = 300 * (len(self.counted) % 2)
            return Fit(
                request=found.request, prompt_tokens=(found.prompt_tokens or 0) + more, most_tokens=1, prompt_sha=""
            )

    with pytest.raises(UserError, match=r"'r' came out at .* tokens, not 1000 within 1 %"):
        cut(sized(), by=Fickle())


def test_too_little_room_and_too_little_material_are_said() -> None:
    with pytest.raises(UserError, match="'r' is to have 12 tokens, and has 12 without any material; ask for more"):
        cut(sized(tokens=12, after="\n\nWhat was it now?"))
    with pytest.raises(UserError, match="'r' is to have 1000 tokens, and there is material for 18 of 989"):
        cut(sized(pieces=LINES[:2]))


def test_the_content_hash_is_that_of_the_material_and_stays_when_it_is_cut() -> None:
    before = [sized(), sized("b", tokens=500)]
    after, _ = cut(*before)
    assert content_hash(before) == content_hash(after)
    others = [sized(tokens=999), sized(after="?"), sized(pieces=LINES[1:]), sized(needle="x"), sized(before="R")]
    assert len({content_hash([each]) for each in [before[0], *others]}) == 6


def test_requests_without_a_size_stay_as_they_are() -> None:
    plain = Request(id="p", category="c", turns=("Hello.",))
    made, (fit,) = cut(plain)
    assert made == (plain,)
    assert fit.prompt_tokens == 8


class Mute:
    """A session that has no tokenizer."""

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        return tuple(Fit(request=r.id, prompt_tokens=None, most_tokens=None, prompt_sha="") for r in requests)


def test_without_a_tokenizer_a_size_is_refused_in_one_line_and_nothing_else_is() -> None:
    mute: Any = Mute()
    assert not isinstance(mute, Counting)
    with pytest.raises(UserError) as caught:
        measured([sized()], mute, RUNNER, 10)
    assert "'somewhere' cannot count before it is up; name its tokenizer in the runner" in str(caught.value)
    assert "\n" not in str(caught.value)
    (fit,) = measured([Request(id="p", category="c", turns=("Hello.",))], mute, RUNNER, 10)[1]
    assert fit.prompt_tokens is None


def test_a_tokenizer_for_a_backend_that_has_the_targets_own_is_refused() -> None:
    told = Runner(name="u", title="T", backend="native", model="m", tokenizer="there")
    session: Any = Words()
    with pytest.raises(UserError, match=r"runner.tokenizer: 'native' has the target's own; leave it out"):
        measured([sized()], session, told, 10)
