"""The sources of SPEED-Bench's published rows whose texts stay as they are: found by id or number, put into a template.

A resolver opens a source once, for all its rows, and gives a function from a row to its turns.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import Any

from speedbench.prepare import places, tables
from speedbench.prepare.lengths import Encoding
from speedbench.prepare.origins import Origins
from speedbench.prepare.places import Unresolved
from speedbench.prepare.wording import Wording
from speedbench.prepared import MARKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A row as published; `number` is its place in the file."""

    number: int
    id: str
    category: str
    sub_category: str
    difficulty: str
    source: str
    source_id: str
    turns: tuple[str, ...]

    @property
    def template(self) -> str:
        """What follows the marker: text with {names} where the source's go."""
        return self.turns[0].removeprefix(MARKER).removeprefix("\n\n")

    @property
    def is_placeholder(self) -> bool:
        return any(MARKER in turn for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a resolver works with. `size` is the tokens of a throughput bucket; `compat` repeats the official faults."""

    origins: Origins
    size: int | None
    compat: bool
    wording: Callable[[], Wording]
    encoding: Callable[[], Encoding]


Resolve = Callable[[Published], list[str]]
Opener = Callable[[Desk, Sequence[Published]], Resolve]


def filled(template: str, **values: Any) -> str:
    """`str.format` for texts of others: {name} and {name[key]} of these values, and nothing else of theirs."""
    done = []
    for text, field, form, conversion in Formatter().parse(template):
        done.append(text)
        if field is None:
            continue
        found = re.fullmatch(r"(\w+)(?:\[([^\]]+)\])?", field)
        if not found or form or conversion or found[1] not in values:
            raise Unresolved(f"its template asks for {{{field}}}, which its source does not have")
        value = values[found[1]]
        done.append(str(value if found[2] is None else _item(value, found[2])))
    return "".join(done)


def _item(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping) or key not in value:
        raise Unresolved(f"its template asks for '{key}', which its source does not have")
    return value[key]


def number(source_id: str, pattern: str = r"_(\d+)$") -> int:
    """The number in a source id, as mtbench_101_476 or mmlu_pro_(790, 'law') have it."""
    found = re.search(pattern, source_id)
    if found is None:
        raise Unresolved(f"its source id '{source_id[:60]}' has no number where one should be")
    return int(found[1])


def of(found: Mapping[Any, Any], key: Any) -> Any:
    """What was found under a key."""
    if key not in found:
        raise Unresolved(f"its source has no row '{key}'")
    return found[key]


# ---- found by id ----------------------------------------------------------------------------------------------------


def _keyed(key: str, values: Mapping[str, str], pin: str, split: str = "test", config: str = "") -> Opener:
    """Rows found by an id, whose columns fill the row's template: `values` maps a template's name to a column."""

    def opener(desk: Desk, rows: Sequence[Published]) -> Resolve:
        files = places.split(desk.origins, places.place(rows[0].source, pin), split, config)
        wanted = {row.source_id for row in rows}
        found = tables.by_key(files, key, wanted, [key, *values.values()])
        return lambda row: [filled(row.template, **{n: of(found, row.source_id)[c] for n, c in values.items()})]

    return opener


article = _keyed("id", {"article": "article"}, "96df5e686bee6baa90b8bee7c28b81fa3fa6223d", config="3.0.0")
contest = _keyed("name", {"question": "description"}, "802411c3010cb00d1b05bad57ca77365a3c699d6")


def live_code(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """LiveCodeBench comes in large files, test.jsonl, test2.jsonl and so on: fetched until all rows are found."""
    at = places.place(rows[0].source, "0fe84c3912ea0c4d4a78037083943e8f0c4dd505")
    snapshot = desk.origins.snapshot(at.repo, at.revision)
    named = sorted(each for each in snapshot.files if re.fullmatch(r"test\d*\.jsonl", each))
    files = (desk.origins.hub(snapshot, each) for each in sorted(named, key=lambda each: (len(each), each)))
    found = tables.by_key(files, "question_id", {row.source_id for row in rows})

    def resolve(row: Published) -> list[str]:
        one = of(found, row.source_id)
        return [filled(row.template, question=one["question_content"], starter_code=one["starter_code"])]

    return resolve


# ---- found by number ------------------------------------------------------------------------------------------------


def dialogue(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """MT-Bench-101: every user turn of the history."""
    path = places.file(desk.origins, places.place(rows[0].source))
    found = tables.by_number([path], {number(row.source_id) for row in rows})
    return lambda row: [each["user"] for each in of(found, number(row.source_id))["history"]]


def pair(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """OPUS-100: `opus100_ar-en_1003` is row 1003 of the pair ar-en."""
    at = places.place(rows[0].source, "805090dc28bf78897da9641cdf08b61287580df9")
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(_languages(row), set()).add(number(row.source_id))
    found = {
        name: tables.by_number(places.split(desk.origins, at, "test", name), numbers)
        for name, numbers in wanted.items()
    }
    return lambda row: [filled(row.template, question=of(found[_languages(row)], number(row.source_id))["translation"])]


def _languages(row: Published) -> str:
    parts = row.source_id.split("_")
    if len(parts) != 3:
        raise Unresolved(f"its source id '{row.source_id[:60]}' should name a pair of languages")
    return parts[1]


def conversation(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """ChatRAG: all contexts with the first question, then the user's later messages; two sets are counted as one."""
    at = places.place(rows[0].source, "af6c7d420ddddf21f54f8ab3394bbf462aad2577")
    files = (path for name in ("hybridial", "sqa") for path in places.split(desk.origins, at, "test", name))
    found, words = tables.by_number(files, {number(row.source_id) for row in rows}), desk.wording()

    def resolve(row: Published) -> list[str]:
        one = of(found, number(row.source_id))
        asked = [message["content"] for message in one["messages"] if message["role"] == "user"]
        context = "\n\n".join(each["text"] for each in one["ctxs"])
        return [filled(words.context, context=context, question=asked[0]), *asked[1:]]

    return resolve


def exam(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """MMLU-Pro: as many questions in a row as the published row has turns, from the number in its id on."""
    at = places.place(rows[0].source, "30527804ea8854662078e457808040d872ecdf29")
    first = r"\((\d+),"
    wanted = {number(row.source_id, first) + turn for row in rows for turn in range(len(row.turns))}
    found, words = tables.by_number(places.split(desk.origins, at, "test"), wanted), desk.wording()

    def resolve(row: Published) -> list[str]:
        begin = number(row.source_id, first)
        turns = [_choices(of(found, begin + turn)) for turn in range(len(row.turns))]
        return [filled(words.exam, subject=row.sub_category) + turns[0], *turns[1:]]

    return resolve


def _choices(one: Mapping[str, Any]) -> str:
    options = "\n".join(f"({chr(ord('A') + place)}) {text}" for place, text in enumerate(one["options"]))
    return f"Question: {one['question']}\n\nOptions: {options}\n\n"


# ---- playing somebody -----------------------------------------------------------------------------------------------


def role(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """RoleBench: who to be and the first question, then as many more as the row has turns, without the name called."""
    at = places.place(rows[0].source, "a57ed54f9613921e4a5f1b63601a558cd5acf971")
    path = places.file(desk.origins, at, "profiles-eng/desc.json")
    roles = next(tables.rows(path))

    @cache
    def questions(part: str) -> dict[int, tables.Row]:
        file = f"{at.path or 'rolebench-eng'}/{part}/role_specific/test.jsonl"
        ours = [row for row in rows if _part(row) == part]
        wanted = {each for row in ours for each in _numbers(row)}
        return tables.by_number([places.file(desk.origins, at, file)], wanted)

    def resolve(row: Published) -> list[str]:
        found = [of(questions(_part(row)), each) for each in _numbers(row)]
        name, asked = found[0]["role"], [each["question"] for each in found]
        begin = filled(row.template, role_name=name, role_description_and_catchphrases=of(roles, name))
        later = [each.removeprefix(f"{name}, ").removeprefix(f" {name},") for each in asked[1:]]
        return [f"{begin}\n{asked[0]}", *later]

    return resolve


def _part(row: Published) -> str:
    return row.source_id.split("_")[1] if "_" in row.source_id else ""


def _numbers(row: Published) -> list[int]:
    found = [int(each) for each in re.findall(r"_(\d+)", row.source_id)][: len(row.turns)]
    if not found:
        raise Unresolved(f"its source id '{row.source_id[:60]}' has no numbers")
    return found


def character(desk: Desk, rows: Sequence[Published]) -> Resolve:
    """CoSER: one of a scene's major characters, drawn by a fixed seed, with what it knows of the others."""
    import numpy as np

    at = places.place(rows[0].source)
    file = f"{at.path}/test/test_set.json".lstrip("/")
    found = tables.by_number([places.file(desk.origins, at, file)], {number(row.source_id) for row in rows})
    words = desk.wording()

    def resolve(row: Published) -> list[str]:
        one = of(found, number(row.source_id))
        names, profiles = one["major_characters"], one["character_profiles"]
        who = names[int(np.random.default_rng(12347).choice(len(names)))]
        others = [f"{name}: {said}" for name, said in profiles.items() if name != who and said is not None]
        mind = [each["motivation"] for each in one["key_characters"] if each["name"] == who]
        return [
            filled(
                words.character,
                character=who,
                character_profile=of(profiles, who),
                book_name=one["book"],
                scenario=one["scenario"],
                other_character_profiles_str="\n\n".join(others),
                motivation=(mind or ["No motivation provided"])[0],
            )
        ]

    return resolve
