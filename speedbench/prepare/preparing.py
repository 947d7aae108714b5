"""Prepares a set: piece by piece, each kept as it is done, then written whole with what it was made from."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from speedbench import __version__, prepared
from speedbench.errors import Missing, UnknownName, UserError
from speedbench.prepare import journal, pieces, sets, speed_bench
from speedbench.prepare.journal import Gathered, Journal, Row
from speedbench.prepare.origins import Origins
from speedbench.prepare.parts import Piece
from speedbench.prepare.pieces import Order
from speedbench.prepare.places import Unresolved
from speedbench.prepare.refusals import NotHad

Notify = Callable[[str], None]


def names() -> list[str]:
    """The sets that can be prepared."""
    return sorted([speed_bench.NAME, *sets.names()])


def orders(name: str, config: str | None, *, compat: bool = False, revision: str | None = None) -> list[Order]:
    """What a name and a config mean. Raises `UserError` for what cannot be meant."""
    if name not in names():
        raise UnknownName("prompt set", name, names())
    if name != speed_bench.NAME:
        given = [f"--{key}" for key, said in (("config", config), ("compat", compat), ("revision", revision)) if said]
        if given:
            raise UserError(f"{given[0]} is for {speed_bench.NAME}; {name} has one config and one pinned revision")
        return [Order(name=name, config="default")]
    if config not in (None, "all", *speed_bench.CONFIGS):
        raise UnknownName("config of speed-bench", str(config), [*speed_bench.CONFIGS, "all"])
    if revision is not None and not speed_bench.is_commit(revision):
        raise UserError(f"--revision: should be a whole commit, 40 hex digits (got {revision!r}): a branch moves")
    return [Order(name=name, config=each, compat=compat, revision=revision) for each in speed_bench.configs(config)]


def folder(order: Order, base: Path) -> Path:
    return prepared.folder(order.name, order.config, compat=order.compat, base=base)


def prepare(
    order: Order, base: Path, notify: Notify, *, offline: bool = False, again: bool = False, partial: bool = False
) -> dict[str, Any]:
    """Makes one preparation, or finds it made, and gives its manifest; with `partial`, an incomplete one will do."""
    where, accepted = folder(order, base), journal.accepted(base, order.name, pieces.terms(order.name))
    if accepted is None:
        raise UserError(f"the licences of {order.name} are not accepted yet: --accept-licence")
    where.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(where / ".lock"), timeout=0):
            if again:
                Journal(where / "parts").drop()
            elif (found := _made(order, where, partial=partial)) is not None:
                return found
            return _make(order, base, notify, accepted, offline=offline, partial=partial)
    except Timeout:
        raise UserError(f"'{where}' is being prepared by another process") from None


def _made(order: Order, where: Path, *, partial: bool) -> dict[str, Any] | None:
    """The manifest of a preparation that is what is asked for."""
    said = prepared.manifest(where)
    if said is None or said["revision"] != pieces.revision(order) or said["resolver"] != pieces.RESOLVER:
        return None
    fine = not said["partial"] or (partial and said["partial_accepted"])
    return said if fine and not prepared.problems(where) else None


def _make(order: Order, base: Path, notify: Notify, accepted: str, *, offline: bool, partial: bool) -> dict[str, Any]:
    where, cache = folder(order, base), base / "files"
    first = Origins(cache, offline, notify)
    kept, done = Journal(where / "parts"), []
    for piece in pieces.of(order, first):
        done.append((piece, _gathered(piece, kept, Origins(cache, offline, notify))))
    rows = {number: row for _, one in done for number, row in one.rows.items()}
    _refuse_wrong(order, [rows[number] for number in sorted(rows)], done)
    told = _manifest(order, done, first, accepted, partial=partial)
    said = journal.write(where, [rows[number] for number in sorted(rows)], told)
    if not said["partial"]:
        kept.drop()
    return said


# ---- pieces ---------------------------------------------------------------------------------------------------------


def _gathered(piece: Piece, kept: Journal, origins: Origins) -> Gathered:
    """A piece as it was kept, else made now. A source that cannot be had costs its own rows and no others."""
    found = kept.get(piece.source, piece.address, piece.key)
    if found is not None:
        return found
    done = Gathered(used=origins.used, licences=origins.licences)
    try:
        for number, prompt in piece.make(origins):
            if isinstance(prompt, str):
                done.missing[number] = prompt
            else:
                done.rows[number] = _row(prompt)
    except (NotHad, UserError, Unresolved) as error:
        if piece.ids is None or (isinstance(error, Missing) and not isinstance(error, NotHad)):
            raise
        done.step = error.step if isinstance(error, NotHad) else ""
        why = _why(piece, error)
        done.missing |= {number: why for number in piece.ids if number not in done.rows}
    kept.put(piece.source, piece.address, piece.key, done)
    return done


def _why(piece: Piece, error: Exception) -> str:
    """The reason; where it is not the source itself that could not be had, what else."""
    if not isinstance(error, NotHad):
        return str(error)
    return error.said if error.what.startswith(piece.source) else f"{error.what} {error.said}"


def _row(prompt: Mapping[str, Any]) -> Row:
    columns = {key: None if prompt.get(key) is None else str(prompt[key]) for key in prepared.COLUMNS}
    category = str(prompt.get("category") or "all")
    return {"id": str(prompt["id"]), "category": category, **columns, "turns": list(prompt["turns"])}


def _refuse_wrong(order: Order, rows: Sequence[Row], done: Sequence[tuple[Piece, Gathered]]) -> None:
    """What would make the preparation a lie, whatever the sources said."""
    for row in rows:
        if not speed_bench.whole(row["turns"]):
            raise UserError(f"{order.name}: row {row['id']} has an empty turn, or a placeholder in it")
    twice = [name for name, times in Counter(row["id"] for row in rows).items() if times > 1]
    if twice:
        raise UserError(f"{order.name}: {len(twice)} ids stand twice, the first is '{twice[0]}'")
    if not rows:
        why = sorted({reason for _, one in done for reason in one.missing.values()})
        raise UserError(f"{order.name} {order.config}: no row could be resolved: {'; '.join(why) or 'it is empty'}")
    if order.name != speed_bench.NAME:
        wanted = sets.load(order.name).rows
        if wanted is not None and len(rows) != wanted:
            raise UserError(f"{order.name}: should have {wanted} rows (got {len(rows)})")


# ---- the manifest ---------------------------------------------------------------------------------------------------


def _manifest(
    order: Order, done: Sequence[tuple[Piece, Gathered]], first: Origins, accepted: str, *, partial: bool
) -> dict[str, Any]:
    rows = {number: row for _, one in done for number, row in one.rows.items()}
    missing = sum(len(one.missing) for _, one in done)
    hashes = [prepared.row_hash(rows[number]) for number in sorted(rows)]
    files = first.used | {name: said for _, one in done for name, said in one.used.items()}
    return {
        "schema": prepared.SCHEMA,
        "name": order.name,
        "config": order.config,
        "revision": pieces.revision(order),
        "compat": order.compat,
        "resolver": pieces.RESOLVER,
        "size": speed_bench.CONFIGS.get(order.config) if order.name == speed_bench.NAME else None,
        "rows": {"total": len(rows) + missing, "resolved": len(rows), "missing": missing},
        "partial": missing > 0,
        "partial_accepted": missing > 0 and partial,
        "content": prepared.content_hash(hashes),
        "sources": _sources(done),
        "missing": [
            {"id": (piece.ids or {}).get(number), "source": piece.source, "why": why}
            for piece, one in done
            for number, why in sorted(one.missing.items())
        ],
        "files": dict(sorted(files.items())),
        "terms": pieces.terms(order.name),
        "accepted": accepted,
        "made": {"by": f"speedbench {__version__}", "time": datetime.now(timezone.utc).isoformat(timespec="seconds")},
    }


def _sources(done: Sequence[tuple[Piece, Gathered]]) -> list[dict[str, Any]]:
    """By source: how many rows, how many of them are missing and why, and the licence that its card names."""
    found: dict[str, dict[str, Any]] = {}
    for piece, one in done:
        fresh = {"source": piece.source, "rows": 0, "missing": 0, "why": Counter(), "step": "", "licences": {}}
        mine = found.setdefault(piece.source, fresh)
        mine["rows"] += len(one.rows) + len(one.missing)
        mine["missing"] += len(one.missing)
        mine["why"].update(one.missing.values())
        mine["step"] = mine["step"] or one.step
        mine["licences"] |= one.licences
    return [{**each, "why": dict(each["why"].most_common())} for each in found.values()]


def described(said: Mapping[str, Any]) -> list[str]:
    """A manifest in lines: what is there, then what is missing by source, with what to do."""
    config = "" if said["config"] == "default" else f" {said['config']}"
    partly = ", partial" if said["partial"] else ""
    lines = [f"{said['name']}{config}: {prepared.counts(said)}{partly}, content {said['content'][:16]}"]
    for one in said["sources"]:
        for why, times in one["why"].items():
            lines.append(f"  missing {times} of {one['source']}: {why}" + (f"; {one['step']}" if one["step"] else ""))
    return lines
