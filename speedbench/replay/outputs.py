"""The answers that are replayed: those of a run, or of a file that any engine or log wrote; what is wrong with them is
refused or noted by name."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from speedbench.errors import UserError
from speedbench.results import Run
from speedbench.types import Answer, Measured, Origin, Record, Request

SHOWN = 5
"""Answers that a message names."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the target takes."""

    vocab: int
    context: int | None

    def check(self, answer: Answer) -> None:
        """Raises `UserError` for ids that are not the target's, and for a row that it cannot hold."""
        at, size = name(answer.request, answer.turn), len(answer.prompt) + len(answer.output)
        outside = [token for token in (*answer.prompt, *answer.output) if not 0 <= token < self.vocab]
        if outside:
            raise UserError(
                f"{at}: token id {outside[0]} is outside the target's vocabulary of {self.vocab}: these outputs are "
                "another tokenizer's"
            )
        if self.context is not None and size > self.context:
            raise UserError(f"{at}: {size} tokens, prompt and answer, exceed the target's context of {self.context}")


class Words(Protocol):
    """The target's own words, as native/chat.py has them."""

    tokenizer: Any
    stops: frozenset[int]
    template_sha: str | None

    def prompt(self, request: Request, answers: Sequence[Sequence[int]]) -> list[int]: ...

    def encoded(self, messages: list[dict[str, str]], at: str) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Answers, and what must be known of them."""

    answers: tuple[Answer, ...]
    notes: tuple[str, ...] = ()
    origin: Origin = "exact"
    """`estimated` where the ids are not the engine's own, but its text encoded anew."""


# ---- a run ----------------------------------------------------------------------------------------------------------


def cell(run: Run) -> Measured:
    """The cell whose outputs are replayed: the baseline, else any that a lossless rule made."""
    answered = [each for each in run.measured if any(record.finish != "error" for record in each.records)]
    baselines = [each for each in answered if each.cell.is_baseline]
    if baselines:
        return baselines[0]
    if run.document["config"]["runner"]["engine"].get("acceptance", "lossless") != "lossless":
        raise UserError(
            f"'{run.path}': its outputs were made under a lossy acceptance rule and it has no baseline: with another D "
            "they would have been others; replay outputs of a lossless run"
        )
    if not answered:
        raise UserError(f"'{run.path}': holds no answer yet; there is nothing to replay")
    return answered[0]


def of_run(run: Run, requests: Sequence[Request], words: Words, limits: Limits) -> Outputs:
    """The answers of a run's baseline; `requests` are the run's own, cut to size."""
    config = run.document["config"]
    theirs, ours = config.get("target", {}).get("template_sha"), words.template_sha
    if theirs is not None and ours is not None and theirs != ours:
        raise UserError(f"'{run.path}': made with another chat template ({theirs}; here {ours}), so with other prompts")
    return of_records(cell(run).records, requests, words, limits, cap=config["sampling"]["max_tokens"])


def of_records(
    records: Sequence[Record], requests: Sequence[Request], words: Words, limits: Limits, *, cap: int
) -> Outputs:
    """The answers of one cell, in the order of the requests; failed turns and what follows them are left out."""
    by_turn = {(record.request, record.turn): record for record in records if record.finish != "error"}
    found, empty, encoded = list[Answer](), list[str](), list[str]()
    for request in requests:
        before: list[tuple[int, ...]] = []
        for turn in range(len(request.turns)):
            record = by_turn.get((request.id, turn))
            if record is None:
                break
            output = record.output or tuple(encode(words, record.text or "", name(request.id, turn)))
            if not output:
                empty.append(name(request.id, turn))
                break
            encoded += [name(request.id, turn)] * (not record.output)
            found.append(_answer(record, request, before, output, words, cap))
            before.append(output)
    notes = noted("answers are empty and left out", empty)
    notes += noted("answers came without ids and were encoded here, maybe otherwise than they were said", encoded)
    return checked(found, words, limits, notes, "estimated" if encoded else "exact")


def _answer(
    record: Record,
    request: Request,
    before: Sequence[Sequence[int]],
    output: tuple[int, ...],
    words: Words,
    cap: int,
) -> Answer:
    from speedbench.native.chat import sha

    prompt = tuple(words.prompt(request, before))
    told = record.prompt_tokens and record.output
    if told and (record.prompt_tokens, record.prompt_sha) != (len(prompt), sha(prompt)):
        raise UserError(
            f"{name(request.id, record.turn)}: its prompt has {len(prompt)} tokens here ({sha(prompt)}) and had "
            f"{record.prompt_tokens} ({record.prompt_sha}): another tokenizer, template or prompt"
        )
    return Answer(
        request=request.id, category=request.category, turn=record.turn, prompt=prompt, prompt_tokens=len(prompt),
        prompt_sha=sha(prompt), output=output, cap=cap, finish=record.finish,
    )  # fmt: skip


# ---- a file ---------------------------------------------------------------------------------------------------------

KEYS = ("id", "category", "turn", "prompt_ids", "prompt", "messages", "output_ids", "output", "finish", "acceptance")
LOSSLESS = ("lossless", "greedy", "rejection")


def of_rows(rows: Iterable[Mapping[str, Any]], words: Words, limits: Limits) -> Outputs:
    """The answers of a JSONL: {"id", "category", "prompt_ids" | "prompt" | "messages", "output_ids" | "output",
    "finish": "stop" | "length"}; a last message of the assistant's is the output where there is none else."""
    found, empty, encoded = list[Answer](), list[str](), list[str]()
    taken: set[str] = set()
    for number, row in enumerate(rows, start=1):
        at, label = str(row.get("_at", f"row {number}")), str(row.get("id", number))
        _refuse_row(row, at, label, taken)
        prompt, said_last = _prompt(row, words, at)
        output, was_text = _output(row, said_last, words, at)
        if not output:
            empty.append(label)
            continue
        encoded += [label] * was_text
        found.append(_row_answer(row, label, prompt, output, words, at))
    notes = noted("answers are empty and left out", empty)
    notes += noted("answers came without ids and were encoded here, maybe otherwise than they were said", encoded)
    return checked(found, words, limits, notes, "estimated" if encoded else "exact")


def _refuse_row(row: Mapping[str, Any], at: str, label: str, taken: set[str]) -> None:
    if label in taken:
        raise UserError(f"{at}: id: '{label}' is taken already")
    taken.add(label)
    rule = row.get("acceptance", "lossless")
    if rule not in LOSSLESS:
        raise UserError(
            f"{at}: made under the acceptance rule '{rule}', which is lossy: with another D it would have been another "
            f"answer; {', '.join(LOSSLESS)} can be replayed"
        )


def _prompt(row: Mapping[str, Any], words: Words, at: str) -> tuple[list[int], str | None]:
    """Token ids, and the assistant's message behind the prompt, if one stands there."""
    given = [key for key in ("prompt_ids", "prompt", "messages") if row.get(key) is not None]
    if len(given) != 1:
        raise UserError(f"{at}: one of prompt_ids, prompt or messages is needed (got {', '.join(given) or 'none'})")
    if given[0] == "prompt_ids":
        return _ids(row["prompt_ids"], f"{at}: prompt_ids"), None
    messages = [{"role": "user", "content": row["prompt"]}] if given[0] == "prompt" else row["messages"]
    if not (isinstance(messages, list) and messages and all(_is_message(each) for each in messages)):
        raise UserError(f"{at}: {given[0]}: should be text, or a list of messages with role and content of text")
    last = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
    return words.encoded(messages if last is None else messages[:-1], at), last


def _is_message(each: Any) -> bool:
    return isinstance(each, dict) and isinstance(each.get("role"), str) and isinstance(each.get("content"), str)


def _output(row: Mapping[str, Any], said_last: str | None, words: Words, at: str) -> tuple[list[int], bool]:
    """Token ids, and whether they were text. Ids and text of one answer must say the same."""
    text = row.get("output", said_last)
    if text is not None and not isinstance(text, str):
        raise UserError(f"{at}: output: should be text (got {type(text).__name__}); token ids are output_ids")
    if row.get("output_ids") is None:
        if text is None:
            raise UserError(f"{at}: has no output: output_ids, output or a last message of the assistant's is needed")
        return encode(words, text, at), True
    ids = _ids(row["output_ids"], f"{at}: output_ids")
    decoded = str(words.tokenizer.decode(ids, skip_special_tokens=True)) if text is not None else text
    if text is not None and str(decoded).strip() != text.strip():
        raise UserError(
            f"{at}: its ids say {_short(str(decoded))} with this tokenizer and its text {_short(text)}: these ids are "
            "another tokenizer's"
        )
    return ids, False


def _row_answer(
    row: Mapping[str, Any], label: str, prompt: list[int], output: list[int], words: Words, at: str
) -> Answer:
    from speedbench.native.chat import sha

    ends = output[-1] in words.stops
    finish = row.get("finish", "stop" if ends else "length")
    if finish not in ("stop", "length"):
        raise UserError(f"{at}: finish: should be stop or length (got {finish!r})")
    return Answer(
        request=label, category=str(row.get("category", "all")), turn=0, prompt=tuple(prompt),
        prompt_tokens=len(prompt), prompt_sha=sha(prompt), output=tuple(output), cap=None, finish=finish,
    )  # fmt: skip


def _ids(given: Any, at: str) -> list[int]:
    if not isinstance(given, list) or not all(isinstance(x, int) and not isinstance(x, bool) for x in given):
        raise UserError(f"{at}: should be a list of token ids")
    return given


# ---- what must hold of any ------------------------------------------------------------------------------------------


def name(request: str, turn: int) -> str:
    return f"{request} turn {turn}"


def encode(words: Words, text: str, at: str) -> list[int]:
    """Text as this tokenizer has it. Raises `UserError` where it does not come back the same."""
    ids: list[int] = words.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    back = str(words.tokenizer.decode(ids, skip_special_tokens=False))
    if back.strip() != text.strip():
        raise UserError(f"{at}: {_short(text)} comes back as {_short(back)} from this tokenizer: it was another's")
    return list(ids)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")


def noted(what: str, which: Sequence[str]) -> list[str]:
    more = f" and {len(which) - SHOWN} more" if len(which) > SHOWN else ""
    return [f"{len(which)} {what}: {', '.join(which[:SHOWN])}{more}"] if which else []


def checked(
    answers: Sequence[Answer], words: Words, limits: Limits, notes: Sequence[str], origin: Origin = "exact"
) -> Outputs:
    """Answers of this vocabulary whose ends are understood; an answer without a stop token ended by a cap of its own
    length, whatever cap it was given."""
    for each in answers:
        limits.check(each)
    if not answers:
        raise UserError("no answer is left to replay" + "".join(f"; {note}" for note in notes))
    stopped = [each.output[-1] in words.stops for each in answers]
    lost = [name(a.request, a.turn) for a, s in zip(answers, stopped, strict=True) if a.finish == "stop" and not s]
    cut = [
        name(a.request, a.turn)
        for a, s in zip(answers, stopped, strict=True)
        if a.finish == "length" and not s and a.cap is not None and len(a.output) < a.cap
    ]
    inside = [name(a.request, a.turn) for a in answers if words.stops.intersection(a.output[:-1])]
    kept = [
        replace(each, finish="stop") if stop else replace(each, finish="length", cap=len(each.output))
        for each, stop in zip(answers, stopped, strict=True)
    ]
    more = noted("answers stopped, but their stop token is not among the ids; their last steps are as of a cap", lost)
    more += noted("answers are cut off before their cap; what would have followed is not in the numbers", cut)
    more += noted("answers go on behind a stop token", inside)
    return Outputs(answers=tuple(kept), notes=(*notes, *more), origin=origin)
