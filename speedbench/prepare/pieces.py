"""What a preparation is made of: a piece for each source of SPEED-Bench's placeholders, one for each part of a set."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from speedbench.errors import UserError
from speedbench.prepare import places, sets, speed_bench, tables, wording
from speedbench.prepare.journal import key
from speedbench.prepare.lengths import encoding
from speedbench.prepare.origins import Origins
from speedbench.prepare.parts import Part, Piece, Prompt
from speedbench.prepare.places import Place, Unresolved
from speedbench.prepare.refusals import NotHad
from speedbench.prepare.resolvers import Desk, Published
from speedbench.prepared import file_hash

RESOLVER = 1
"""Raised when what a resolver or a set's mapping makes of the same texts changes."""

MOST = 10**7
"""Rows of one part, so that those of the next are numbered behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be prepared. A revision of None is the one that this speedbench knows."""

    name: str
    config: str
    compat: bool = False
    revision: str | None = None


def of(order: Order, origins: Origins) -> list[Piece]:
    """The pieces of a preparation; for SPEED-Bench, its rows as published are fetched to know them."""
    return _of_speed_bench(order, origins) if order.name == speed_bench.NAME else _of_set(order)


def revision(order: Order) -> str:
    """The commit of the set itself."""
    if order.name == speed_bench.NAME:
        return order.revision or speed_bench.REVISION
    return " + ".join(part.revision for part in sets.load(order.name).parts)


def terms(name: str) -> list[str]:
    """Under which licences the texts stand, a line each."""
    if name != speed_bench.NAME:
        one = sets.load(name)
        return [f"{one.title}: {one.licence} ({one.page})"]
    return [f"{what}: {licence}" + f" ({page})" * bool(page) for what, licence, page in speed_bench.TERMS]


# ---- SPEED-Bench ----------------------------------------------------------------------------------------------------


def _of_speed_bench(order: Order, origins: Origins) -> list[Piece]:
    at = Place(host="hub", repo=speed_bench.REPO, revision=revision(order), path="", url="")
    try:
        files = list(places.split(origins, at, "test", order.config))
    except Unresolved as error:
        raise NotHad(str(error), "absent") from None
    rows = [row for path in files for row in speed_bench.published(path)]
    rows = [replace(row, number=number) for number, row in enumerate(rows)]
    shipped = [row for row in rows if not row.is_placeholder]
    made = [_shipped(shipped, order)] if shipped else []
    return [*made, *(_source(*name, ours, order) for name, ours in speed_bench.groups(rows).items())]


def _shipped(rows: Sequence[Published], order: Order) -> Piece:
    def make(origins: Origins) -> Iterator[tuple[int, Prompt | str]]:
        for row in rows:
            yield row.number, _prompt(row, row.turns, order)

    return Piece(
        source="as published",
        address=speed_bench.REPO,
        key=key(RESOLVER, order.config, [[row.number, row.id, row.turns] for row in rows]),
        ids={row.number: row.id for row in rows},
        make=make,
    )


def _source(source: str, address: str, rows: Sequence[Published], order: Order) -> Piece:
    def make(origins: Origins) -> Iterator[tuple[int, Prompt | str]]:
        if not source:
            yield from ((row.number, f"no resolver knows its source {address}") for row in rows)
            return
        desk = _desk(order, origins)
        resolve = speed_bench.RESOLVERS[source](desk, rows)
        for row in rows:
            try:
                turns = resolve(row)
            except Unresolved as error:
                yield row.number, str(error)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                key = f": {error}" if isinstance(error, KeyError) else ""  # other errors may quote the text itself
                yield row.number, f"its source has not the shape that is known ({type(error).__name__}{key})"
            else:
                yield row.number, _prompt(row, turns, order)

    asked = [[row.number, row.id, row.source_id, row.sub_category, row.turns] for row in rows]
    return Piece(
        source=source or address,
        address=address,
        key=key(RESOLVER, order.config, order.compat, address, wording.SHA256, asked),
        ids={row.number: row.id for row in rows},
        make=make,
    )


def _desk(order: Order, origins: Origins) -> Desk:
    return Desk(
        origins=origins,
        size=speed_bench.CONFIGS[order.config],
        compat=order.compat,
        wording=cache(lambda: wording.fetch(origins)),
        encoding=cache(encoding),
    )


def _prompt(row: Published, turns: Sequence[str], order: Order) -> Prompt | str:
    if not speed_bench.whole(turns):
        return "its source gives an empty turn, or the placeholder again"
    return {
        "id": row.id,
        "category": row.category,
        "sub_category": row.sub_category or None,
        "difficulty": row.difficulty or None,
        "tier": speed_bench.tier(order.config, row.category),
        "turns": list(turns),
    }


# ---- other sets -----------------------------------------------------------------------------------------------------


def _of_set(order: Order) -> list[Piece]:
    return [_part(order.name, place, part) for place, part in enumerate(sets.load(order.name).parts)]


def _part(name: str, place: int, part: Part) -> Piece:
    """A row without an id of its own is named by its set and number."""

    def make(origins: Origins) -> Iterator[tuple[int, Prompt | str]]:
        rows = (row for path in _files(origins, part) for row in tables.rows(path, part.columns))
        for number, row in enumerate(rows):
            try:
                prompt = part.prompt(row)
            except (KeyError, TypeError) as error:
                raise UserError(f"{name}: row {number + 1} has not the columns that are known: {error!r}") from None
            yield place * MOST + number, {**prompt, "id": str(prompt.get("id", f"{name}-{number + 1}"))}

    where = part.hub or part.github
    return Piece(
        source=where,
        address=f"{where}@{part.revision}/{part.file or part.config or part.split} {place}",
        key=key(RESOLVER, name, place, part.revision, part.file, part.split, part.config),
        ids=None,
        make=make,
    )


def _files(origins: Origins, part: Part) -> Iterator[Path]:
    if part.github:
        packaged = _packaged(part)
        if packaged is not None:
            origins.used[f"package {part.package}/{part.package_file}"] = {"revision": None, "sha256": part.sha256}
        yield packaged or origins.github(part.github, part.revision, part.file, part.sha256)
        return
    if part.file:
        yield origins.hub(origins.snapshot(part.hub, part.revision), part.file, part.sha256)
        return
    at = Place(host="hub", repo=part.hub, revision=part.revision, path="", url="")
    try:
        yield from places.split(origins, at, part.split, part.config)
    except Unresolved as error:
        raise NotHad(str(error), "absent") from None


def _packaged(part: Part) -> Path | None:
    """The same file in an installed package, found without importing it; another version of it is not the same."""
    spec = find_spec(part.package) if part.package else None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / part.package_file
        if path.is_file() and file_hash(path) == part.sha256:
            return path
    return None
