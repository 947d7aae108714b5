"""The sources of SPEED-Bench's throughput rows that are brought to the tokens of their bucket.

Where the official resolver has a fault, `compat` repeats it: results on its prompts must match.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from speedbench.prepare import places, tables
from speedbench.prepare.lengths import Encoding, count, fitted, tokens
from speedbench.prepare.places import Unresolved
from speedbench.prepare.resolvers import Desk, Published, Resolve, filled, number, of
from speedbench.prepare.wording import Wording

HLE_PIN = "021a3d71f516a7ac28ceb8d284969902edf1edeb"


def _size(desk: Desk) -> int:
    if desk.size is None:
        raise Unresolved("its text is cut to a bucket's size, and this config has none")
    return desk.size


# ---- dialogues and sorting ------------------------------------------------------------------------------------------


def dialogues(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """BAMBOO: several dialogues, each between its marks, to be finished."""
    size, words, encoding = _size(desk), desk.wording(), desk.encoding()
    path = places.file(desk.origins, places.place(rows[0].source))
    numbers = {row.id: [int(each) for each in re.findall(r"_(\d+)", row.source_id)] for row in rows}
    found = tables.by_number([path], {each for ours in numbers.values() for each in ours})

    def resolve(row: Published) -> list[str]:
        texts = [of(found, each)["content"] for each in numbers[row.id]]
        marked = [f"START CONTENT {n}\n\n{text}\n\nEND CONTENT" for n, text in enumerate(texts, start=1)]
        return [fitted(encoding, filled(words.dialogue, content="\n\n".join(marked)), size)]

    return resolve


def sorting(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """AdaLEval's sorting, asked for the sorted text instead of its order."""
    size, words, encoding = _size(desk), desk.wording(), desk.encoding()
    path = places.file(desk.origins, places.place(rows[0].source))
    second = r"^[^_]*_(\d+)"
    found = tables.by_number([path], {number(row.source_id, second) for row in rows})

    def resolve(row: Published) -> list[str]:
        text = of(found, number(row.source_id, second))["prompt"]
        if words.sort_as_published not in text and not desk.compat:
            raise Unresolved("its instruction is not the one that is to be put otherwise")
        return [fitted(encoding, text.replace(words.sort_as_published, words.sort, 1), size)]

    return resolve


# ---- the best answer ------------------------------------------------------------------------------------------------


def selection(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """AdaLEval's selection: the best answer among as many others as fit."""
    size, words, encoding = _size(desk), desk.wording(), desk.encoding()
    path = places.file(desk.origins, places.place(rows[0].source))
    found = tables.by_key([path], "question_id", {row.source_id for row in rows})

    def resolve(row: Published) -> list[str]:
        one = of(found, row.source_id)
        answers, best = list(one["all_answers"]), int(str(one["answer"]).strip("A")) - 1
        head = f"{words.select}{words.question}{one['question']}\n\n{words.answers}"
        room = size - count(encoding, head) - count(encoding, words.choose)
        if desk.compat:
            chosen = _official_choice(encoding, answers, best, room)
            return [fitted(encoding, head + _listed(chosen) + words.choose, size)]
        text = head + _listed(_choice(encoding, answers, best, room))
        return [_with_end(encoding, text, words.choose, size)]

    return resolve


def _listed(answers: Sequence[str]) -> str:
    return "".join(f"A{place}:\n\n{text}\n\n" for place, text in enumerate(answers, start=1))


def _choice(encoding: Encoding, answers: Sequence[str], best: int, room: int) -> list[str]:
    """The best and, from the first on, those that fit beside it."""
    cost = [count(encoding, f"A{place}:\n\n{text}\n\n") for place, text in enumerate(answers, start=1)]
    taken, room = {best}, room - cost[best]
    for place in range(len(answers)):
        if place == best:
            continue
        if cost[place] > room:
            break
        taken.add(place)
        room -= cost[place]
    chosen = [answers[place] for place in sorted(taken)]
    random.Random(42).shuffle(chosen)
    return chosen


def _official_choice(encoding: Encoding, answers: Sequence[str], best: int, room: int) -> list[str]:
    """As the official resolver chooses: each answer is held against the room by itself, and the first always taken."""
    room -= count(encoding, f"A{best + 1}:\n\n{answers[best]}\n\n")
    last = 0
    for place, text in enumerate(answers):
        if place == best:
            continue
        if count(encoding, f"A{place + 1}:\n\n{text}\n\n") > room:
            break
        last = place
    chosen = list(answers[: last + 1]) if last >= best else [answers[best], *answers[: last + 1]]
    random.Random(42).shuffle(chosen)
    return chosen


def _with_end(encoding: Encoding, text: str, end: str, size: int) -> str:
    """The instruction at the end is kept: what is too long is cut before it."""
    if count(encoding, text + end) > size:
        text = encoding.decode(tokens(encoding, text)[: size - count(encoding, end)])
    return fitted(encoding, text + end, size)


# ---- exam questions with examples -----------------------------------------------------------------------------------


def hard_exam(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """HLE: the question alone or, in a bucket, after questions of its category with their answers."""
    at = places.place(rows[0].source, HLE_PIN)
    files = places.split(desk.origins, at, "test")
    if desk.size is None:
        found = tables.by_key(files, "id", {row.source_id for row in rows}, ["id", "question"])
        return lambda row: [of(found, row.source_id)["question"]]
    import numpy as np

    columns = ["id", "question", "rationale", "category", "image"]
    every = [_without_image(row) for path in files for row in tables.rows(path, columns)]
    order = np.random.default_rng(42).permutation(len(every))
    held = ceil(len(every) / 2)  # the half that is asked; the other gives the examples
    asked = {str(every[place]["id"]): every[place] for place in order[:held]}
    words, encoding, shared = desk.wording(), desk.encoding(), np.random.default_rng(42)
    examples: dict[str, list[list[int]]] = {}
    for place in order[held:]:
        one = every[place]
        if one["text_only"]:
            told = f"Question: {one['question']}\n\nAnswer: {one['rationale']}\n\n"
            examples.setdefault(one["category"], []).append(tokens(encoding, told))

    def resolve(row: Published) -> list[str]:
        one = of(asked, row.source_id)
        ours = examples.get(one["category"], [])
        if not ours:
            raise Unresolved("no other question of its category has an answer in text")
        if desk.compat:
            return [_official_exam(encoding, words, one, ours, _size(desk), shared)]
        return [_exam(encoding, words, one, ours, _size(desk), row.id)]

    return resolve


def _without_image(row: Mapping[str, Any]) -> dict[str, Any]:
    """Images are long; all that counts is whether there is one."""
    return {**{key: row[key] for key in ("id", "question", "rationale", "category")}, "text_only": row["image"] == ""}


def _exam(
    encoding: Encoding, words: Wording, one: Mapping[str, Any], examples: Sequence[list[int]], size: int, name: str
) -> str:
    """Whole examples, in an order drawn for this row alone, as far as they fit; then the question, never cut."""
    import numpy as np

    head = tokens(encoding, filled(words.examples, category=one["category"]))
    question = tokens(encoding, one["question"])
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    for place in np.random.default_rng((42, seed)).permutation(len(examples)):
        if len(head) + len(examples[place]) + len(question) <= size:
            head = head + examples[place]
    text = encoding.decode(head) + one["question"]
    return text if len(head) + len(question) >= size else fitted(encoding, text, size)


def _official_exam(
    encoding: Encoding, words: Wording, one: Mapping[str, Any], examples: Sequence[list[int]], size: int, shared: Any
) -> str:
    """As the official resolver does: one generator for all rows, the last example cut, one token too many."""
    head = tokens(encoding, filled(words.examples, category=one["category"]))
    question = tokens(encoding, one["question"])
    length = len(head) + len(question)
    while length < size:
        drawn = examples[int(shared.choice(len(examples), size=1, replace=False)[0])]
        head = head + drawn
        length += len(drawn)
    return encoding.decode(head[: size - len(question) + 1] + question)
