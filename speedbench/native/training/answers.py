"""The target's own words, many rows side by side: answers to prompts, and user turns out of an empty header."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from speedbench.errors import UserError
from speedbench.native.chat import Chat
from speedbench.native.decode import Decoder, cut
from speedbench.native.proposer import Plan, Row
from speedbench.native.target import Target
from speedbench.types import Request, Sampling

_MARK = "speedbenchmarksthespot"


def answered(
    target: Target,
    stops: frozenset[int],
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    rows: int,
    luck: Sequence[tuple[int, ...]],
) -> Iterator[tuple[int, list[int], bool]]:
    """(index of the prompt, its answer, whether it came to a stop) as they end; luck[i] seeds the dice of prompt i."""
    length = max(len(ids) for ids in prompts) + sampling.max_tokens + 1
    plan = Plan(draft_length=0, rows=rows, length=length, static=False, sampling=sampling, stops=stops,
                device=target.device)  # fmt: skip
    decoder = Decoder(target, None, plan, target.slots(rows, length))
    waiting, free, live = deque(range(len(prompts))), list(range(rows)), dict[int, int]()
    while waiting or live:
        while waiting and free:
            index, at = waiting.popleft(), free.pop(0)
            ids = list(prompts[index])
            row = Row(at, ids, len(ids), sampling.max_tokens, np.random.default_rng(luck[index]))
            first, _ = decoder.admit(row)
            finish = cut([first], row.cap, stops)[1]
            if finish is None:
                live[at] = index
                continue
            decoder.release(row)
            free.insert(0, at)
            yield index, [first], finish == "stop"
        if live:
            for done in decoder.step()[1]:
                if done.finish is not None:
                    decoder.release(done.row)
                    free = sorted([*free, done.row.index])
                    yield live.pop(done.row.index), done.row.ids[done.row.prompt :], done.finish == "stop"


def prompt(chat: Chat, text: str) -> list[int]:
    """A user turn as the target reads it."""
    return chat.prompt(Request(id="training", category="training", turns=(text,)), ())


def header(chat: Chat) -> list[int]:
    """The ids of a conversation up to where the user begins to speak."""
    if chat.template_sha is None:
        raise UserError(
            "the target has no chat template, so it cannot write user turns; set the self-written share to 0"
        )
    text = str(chat.tokenizer.apply_chat_template([{"role": "user", "content": _MARK}], tokenize=False))
    before = text.partition(_MARK)[0]
    if not before or before == text:
        raise UserError("the target's chat template rewrites what the user says, so it cannot write user turns itself")
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"])


def user_turns(
    target: Target, chat: Chat, count: int, rows: int, longest: int, luck: tuple[int, ...]
) -> Iterator[str | None]:
    """What the target says as the user, sampled at temperature 1; None where it came to no stop in `longest` tokens."""
    sampling = Sampling(temperature=1.0, max_tokens=longest + 1)
    begun, found = header(chat), dict[int, str | None]()
    dice = [(*luck, index) for index in range(count)]
    for index, ids, stopped in answered(target, chat.stops, [begun] * count, sampling, rows, dice):
        said = chat.tokenizer.decode([t for t in ids if t not in chat.stops], skip_special_tokens=True).strip()
        found[index] = said if stopped and said else None
    yield from (found[index] for index in range(count))
