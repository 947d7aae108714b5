"""What is said of a workload before it runs."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from speedbench.errors import UserError
from speedbench.types import Fit, Request, Task
from speedbench.workload import UNREAL, Held, Limit, histogram, qualified

TASK = Task(name="t", title="T", version=1, licence="x", source="inline", where={})
FOX = "The quick brown fox jumps over the lazy dog. "


def fit(name: str, prompt: int | None, most: int | None = None) -> Fit:
    return Fit(request=name, prompt_tokens=prompt, most_tokens=most, prompt_sha="")


def asked(*texts: str) -> list[Request]:
    return [Request(id=str(i), category="c", turns=(text,)) for i, text in enumerate(texts)]


def held(*fits: Fit) -> Held:
    return Held(requests=tuple(Request(id=f.request, category="c", turns=("x",)) for f in fits), fits=fits)


@pytest.mark.parametrize(
    ("prompts", "right"),
    [
        ([], {}),
        ([None, None], {}),
        ([128, 129, 512], {"≤128": 1, "≤512": 2}),
        ([1000, 40000], {"≤1024": 1, "≤2048": 0, "≤8192": 0, "≤16384": 0, "≤32768": 0, ">32768": 1}),
    ],
)
def test_the_histogram_has_every_class_between_the_shortest_and_the_longest(
    prompts: Sequence[int | None], right: dict[str, int]
) -> None:
    assert histogram([fit(str(i), tokens) for i, tokens in enumerate(prompts)]) == right


def test_a_limit_is_not_exceeded_by_what_equals_it_or_was_not_counted() -> None:
    limit = Limit(of="the target's context", tokens=100)
    assert limit.beyond([fit("at", 90, 100), fit("over", 90, 101), fit("unknown", None)]) == {"over": 101}
    assert Limit(of="a drafter's", tokens=100, prompts=True).beyond([fit("a", 100, 500), fit("b", 101, 500)]) == {
        "b": 101
    }


def test_each_limit_takes_its_own_and_none_is_counted_twice() -> None:
    limits = [Limit(of="one", tokens=100), Limit(of="two", tokens=50)]
    left = held(fit("a", 1, 200), fit("b", 1, 60), fit("c", 1, 50)).within(limits, skip=True)
    assert [request.id for request in left.requests] == [each.request for each in left.fits] == ["c"]
    assert left.skipped == ("a", "b")
    assert [note.partition(":")[2].split(" conversations")[0] for note in left.notes] == [" 1 of 3", " 1 of 2"]
    with pytest.raises(UserError, match=r"1 of 3 conversations could exceed one of 100 tokens"):
        held(fit("a", 1, 200), fit("b", 1, 60), fit("c", 1, 50)).within(limits, skip=False)


def test_a_sentence_a_hundred_times_over_is_flagged() -> None:
    (said,) = qualified(TASK, asked(FOX * 100, "Why is the sky blue?"))
    assert said == f"1 of 2 prompts repeat themselves over and over: {UNREAL}"


def test_random_words_and_random_numbers_are_flagged() -> None:
    dice = random.Random(0)
    letters = " ".join("".join(dice.choices("abcdefghijklmnop", k=6)) for _ in range(300))
    numbers = " ".join(str(dice.randrange(50_000)) for _ in range(300))
    (said,) = qualified(TASK, asked(letters, numbers, "Why is the sky blue?"))
    assert said == f"2 of 3 prompts hardly use a word twice, as random text does: {UNREAL}"


def test_real_prompts_are_not_flagged() -> None:
    from speedbench import task

    assert qualified(TASK, task.requests(task.load("demo"))) == []


def test_a_task_that_says_it_is_not_representative_is_flagged_once() -> None:
    unreal = Task(name="r", title="T", version=1, licence="x", source="inline", where={}, representative=False)
    (said,) = qualified(unreal, asked(FOX * 100, "Why?"))
    assert said.startswith(f"task 'r' is synthetic or repetitive: {UNREAL}")


def test_a_prompt_that_stands_twice_is_counted() -> None:
    (said,) = qualified(TASK, asked("Why?", "Why?", "How?"))
    assert said.startswith("1 of 3 conversations ask what another one asks")
