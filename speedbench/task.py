"""Turns a task into requests: rows of its source, checked, and a balanced, seeded subset of them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from speedbench import catalog, plugins, prepared
from speedbench.errors import UserError
from speedbench.prepared import MARKER
from speedbench.types import Request, Sized, Task

_NOTHING: tuple[Any, ...] = (None, "", [], {})

SHAPES = ("turns", "prompt", "messages")
"""The ways in which a row may give its turns, exactly one of them."""

ID_ALIAS = "question_id"
"""What SPEED-Bench, Spec-Bench and MT-Bench call a row's id."""

COLUMNS = frozenset({"id", ID_ALIAS, "category", "system", *SHAPES})

NOTES = frozenset({"_at", "_sized", "_share"})
"""What a source says of a row: where it stands; a prompt yet to be cut to size, in place of a shape; what its category
weighs where a limit is spread."""


def load(name: str) -> Task:
    """A shipped task by name, or the one of a path: a .yaml or .yml, or a file of prompts."""
    return catalog.task(name)


def requests(task: Task, limit: int | None = None, seed: int = 0) -> tuple[Request, ...]:
    """The task's conversations in the source's order; `limit` takes that many, spread evenly over the categories, or
    as a mix weighs them.

    The same task, limit and seed give the same requests on every machine, and a larger limit keeps those of a smaller.
    """
    if limit is not None and limit < 1:
        raise UserError(f"--limit: should be a whole number from 1 (got {limit})")
    try:
        rows = list(plugins.load("sources", task.source)(task.where, task.folder))
        if not rows:
            raise UserError("has no prompts, its source is empty")
        found = tuple(_request(row, number, task) for number, row in enumerate(rows, start=1))
        _refuse_duplicates(found, rows)
    except UserError as error:
        raise UserError(f"task '{task.name}': {error}") from error
    _warn_of_unused(task, rows)
    if limit is None:
        return found
    return _balanced(found, limit, seed, {one.category: _share(row) for one, row in zip(found, rows, strict=True)})


def content_hash(requests: Iterable[Request]) -> str:
    """What was asked, in 16 hex digits: one changed byte or another order gives another hash."""
    content = [
        [one.id, one.category, list(one.turns) if one.sized is None else _of_size(one.sized), one.system]
        + [dict(sorted(one.columns.items()))] * bool(one.columns)
        for one in requests
    ]
    return sha256(json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()[:16]


def preparations(task: Task) -> dict[str, dict[str, Any]]:
    """What is known of the prepared sets that a task reads, by the task's name, a mix's parts each by theirs; a result
    must say on which rows it rests, and whether that was all of them."""
    if task.source == "mix":
        parts = [catalog.task(part["task"]) for part in task.where["parts"]]
        return {name: facts for part in parts for name, facts in preparations(part).items()}
    if task.source != "prepared":
        return {}
    where = task.where
    facts = prepared.facts(where["name"], where.get("config", "default"), compat=bool(where.get("compat")))
    return {} if facts is None else {task.name: facts}


def _of_size(sized: Sized) -> list[Any]:
    """What a prompt is cut from, the same before and after and for every tokenizer; the record has the prompt's sha."""
    pieces = sha256(b"".join(_digest(piece) for piece in sized.pieces)).hexdigest()
    return [sized.tokens, sized.before, pieces, sized.after, sized.needle, sized.depth]


@cache
def _digest(piece: str) -> bytes:
    return sha256(piece.encode()).digest()


# ---- rows → requests ------------------------------------------------------------------------------------------------


def _request(row: Mapping[str, Any], number: int, task: Task) -> Request:
    at, noted = str(row.get("_at", f"row {number}")), row.get("_sized")
    sized = noted if isinstance(noted, Sized) else None
    turns, system = _conversation(row, at) if sized is None else ([], row.get("system"))
    return Request(
        id=_label(row, "id", at, _label(row, ID_ALIAS, at, str(number))),
        category=_label(row, "category", at, "all"),
        turns=tuple(turns),
        system=system or task.system,
        columns={key: _unicode(str(row[key]), f"{at}: {key}") for key in task.columns if row.get(key) not in _NOTHING},
        sized=sized,
    )


def _share(row: Mapping[str, Any]) -> float:
    share = row.get("_share", 1)
    return share if isinstance(share, (int, float)) and share > 0 else 1


def _label(row: Mapping[str, Any], key: str, at: str, absent: str) -> str:
    got = row.get(key)
    if got is None:
        return absent
    if isinstance(got, bool) or not isinstance(got, (str, int)) or not str(got).strip():
        raise UserError(f"{at}: {key}: should be text or a whole number (got {got!r})")
    return _unicode(str(got), f"{at}: {key}")


def _conversation(row: Mapping[str, Any], at: str) -> tuple[list[str], str | None]:
    """The user's turns and the system prompt of a row."""
    given = [shape for shape in SHAPES if row.get(shape) is not None]
    if len(given) != 1:
        got = " and ".join(given) or f"only {', '.join(sorted(set(row) - NOTES)) or 'an empty row'}"
        raise UserError(f"{at}: turns: needs one of {', '.join(SHAPES)} (got {got})")
    system = row.get("system")
    if system is not None and not isinstance(system, str):
        raise UserError(f"{at}: system: should be text (got {type(system).__name__})")
    turns: Any = row[given[0]]
    if given[0] == "messages":
        turns, said = _from_messages(turns, at)
        if system and said:
            raise UserError(f"{at}: system: stands twice, as a key and among the messages")
        system = system or said
    said = None if system is None else _unicode(system, f"{at}: system")
    return _checked([turns] if given[0] == "prompt" else turns, given[0], at), said


def _from_messages(messages: Any, at: str) -> tuple[list[Any], str | None]:
    """Answers that stand in the messages are left out: the model's own take their place."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UserError(f"{at}: messages: should be a list of objects with role and content")
    roles: dict[str, list[Any]] = {"system": [], "user": [], "assistant": []}
    for message in messages:
        role = message.get("role")
        if role not in roles:
            raise UserError(f"{at}: messages: role should be one of {', '.join(roles)} (got {role!r})")
        roles[role].append(message.get("content"))
    system = roles["system"]
    if len(system) > 1 or not all(isinstance(content, str) for content in system):
        raise UserError(f"{at}: messages: should hold one system message of text at most (got {len(system)})")
    return roles["user"], system[0] if system else None


def _checked(turns: Any, key: str, at: str) -> list[str]:
    if not isinstance(turns, list):
        raise UserError(f"{at}: {key}: should be a list of texts (got {type(turns).__name__})")
    if not turns:
        raise UserError(f"{at}: {key}: holds no user turn")
    for number, turn in enumerate(turns, start=1):
        if not isinstance(turn, str):
            raise UserError(f"{at}: {key}: turn {number} should be text (got {type(turn).__name__})")
        if not turn.strip():
            raise UserError(f"{at}: {key}: turn {number} is empty")
        if MARKER in turn:
            raise UserError(
                f"{at}: {key}: turn {number} is a placeholder of SPEED-Bench, not its text; "
                "run: speedbench prepare speed-bench"
            )
        _unicode(turn, f"{at}: {key}: turn {number}")
    return turns


def _unicode(text: str, at: str) -> str:
    """JSON can spell half a surrogate pair, which no tokenizer takes."""
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise UserError(f"{at} holds half a surrogate pair, as \\ud83d alone; that is no character")
    return text


def _refuse_duplicates(found: Sequence[Request], rows: Sequence[Mapping[str, Any]]) -> None:
    first: dict[str, Mapping[str, Any]] = {}
    for one, row in zip(found, rows, strict=True):
        if one.id in first:
            raise UserError(f"{row.get('_at')}: id: '{one.id}' is taken already by {first[one.id].get('_at')}")
        first[one.id] = row


def _warn_of_unused(task: Task, rows: Sequence[Mapping[str, Any]]) -> None:
    """A column that no prompt shows may be context without which the answers mean nothing."""
    known = COLUMNS | NOTES | set(task.columns)
    unused = Counter(key for row in rows for key, got in row.items() if key not in known and got not in _NOTHING)
    every = len(rows)
    told = sorted(unused.items())
    said = [f"column '{key}' is filled in {n} of {every} rows but no prompt uses it" for key, n in told]
    absent = [key for key in task.columns if all(row.get(key) is None for row in rows)]
    said += [f"column '{key}' is to be kept, but no row has it" for key in absent]
    for one in said:
        warnings.warn(f"task '{task.name}': {one}", UserWarning, stacklevel=3)


# ---- the subset -----------------------------------------------------------------------------------------------------


def _balanced(found: Sequence[Request], limit: int, seed: int, shares: Mapping[str, float]) -> tuple[Request, ...]:
    """`limit` requests: the categories give their next in turn, the heavier more often, until enough are taken; the
    seed orders them."""
    taken_of: Counter[str] = Counter()
    dealt: list[tuple[float, bytes, str]] = []
    for one in sorted(found, key=lambda one: _rank(seed, one.id)):
        taken_of[one.category] += 1
        dealt.append((taken_of[one.category] / shares[one.category], _rank(seed, one.category), one.id))
    taken = {name for _, _, name in sorted(dealt)[:limit]}
    return tuple(one for one in found if one.id in taken)


def _rank(seed: int, name: str) -> bytes:
    """A hash rather than a generator: it does not depend on the Python version or on the order of the file."""
    return sha256(f"{seed}\0{name}".encode()).digest()
