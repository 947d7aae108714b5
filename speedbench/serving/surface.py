"""Which names a version of an engine has: kept as small JSON files, or asked of the engine's own classes.

An engine renames its options from release to release, and some take a stale one in silence. What a plan would say is
checked here first. The files in surfaces/ hold names only, written from the sources that each one states.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from speedbench.errors import UserError

TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llamacpp": "llama.cpp"}

Sections = Mapping[str, Mapping[str, Any]]
"""What a plan says, by section: {`speculative_config`: {key: value}}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The names of one version. A section whose list is not `complete` complains only of names known to be gone."""

    engine: str
    version: str
    sections: Mapping[str, Any]
    choices: Mapping[str, list[str]]
    """{`section.key`: the words it takes}."""
    renamed: Mapping[str, Mapping[str, str]]
    """{section, or `section.key` for its words: {the name of other versions: the one here}}."""
    spelling: Mapping[str, Mapping[str, str]]
    """{section or `*`: {our name: the one here}}, for plans written in the newest version's names."""
    facts: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{TITLES[self.engine]} {self.version}"

    def has(self, section: str, key: str) -> bool:
        return key in self.sections.get(section, {}).get("keys", ())

    def spelled(self, section: str, key: str) -> str:
        """What this version calls a key."""
        return self.spelling.get(section, {}).get(key) or self.spelling.get("*", {}).get(key) or key


def versions(engine: str) -> tuple[str, ...]:
    """The versions whose names are known, oldest first."""
    if engine not in TITLES:
        raise UserError(f"no engine named '{engine}'. Have: {', '.join(sorted(TITLES))}")
    found = [item.name.removesuffix(".json") for item in (files("speedbench.serving") / "surfaces").iterdir()]
    mine = [name.partition("-")[2] for name in found if name.startswith(f"{engine}-")]
    return tuple(sorted(mine, key=_parts))


def surface(engine: str, version: str | None) -> Surface:
    """The names of this version; where they are not known, those of the newest that is not newer, with a warning."""
    known = versions(engine)
    if version is None:
        said = f"the version of {TITLES[engine]} is not known; taken for {known[-1]}"
        return _read(engine, known[-1], (said,))
    wanted = _parts(version) if engine != "llamacpp" else _parts(version)[-1:]
    if not wanted:
        raise UserError(f"'{version}' is no version of {TITLES[engine]}; have names of {', '.join(known)}")
    older = [each for each in known if _parts(each) <= wanted[: len(_parts(each))]] or [known[0]]
    best = older[-1]
    exact = _parts(best) == wanted[: len(_parts(best))]
    said = f"names of {TITLES[engine]} {version} are not known; those of {best} are used"
    return _read(engine, best, () if exact else (said,))


def check(names: Surface, what: Sections) -> tuple[str, ...]:
    """Raises `UserError` for the first name that this version lacks, saying what it is called here or which version
    has it; returns warnings about names that nobody can vouch for."""
    warnings = list(names.warnings)
    for section, said in what.items():
        if section not in names.sections:
            raise UserError(f"{names.title} has no {section}; {_elsewhere(names, section)}")
        for key, value in said.items():
            warnings += _check_key(names, section, key)
            _check_word(names, f"{section}.{key}", value)
    return tuple(warnings)


def _check_key(names: Surface, section: str, key: str) -> list[str]:
    if names.has(section, key):
        return []
    now = names.renamed.get(section, {}).get(key)
    if now:
        raise UserError(f"{names.title} has no '{key}' in {section}; it is called '{now}' there")
    if names.sections[section]["complete"] and not names.warnings:
        raise UserError(f"{names.title} has no '{key}' in {section}; {_elsewhere(names, section, key)}")
    return [f"'{key}' in {section} is not among the names known of {names.title}"]


def _check_word(names: Surface, place: str, value: Any) -> None:
    words = names.choices.get(place)
    if words is None or value in words:
        return
    now = names.renamed.get(place, {}).get(str(value))
    more = f"it is called '{now}' there" if now else f"it takes {', '.join(words)}"
    raise UserError(f"{names.title} has no {place} '{value}'; {more}")


def _elsewhere(names: Surface, section: str, key: str | None = None) -> str:
    """Who has it, else the nearest name, else all of them."""
    others = [_read(names.engine, version, ()) for version in versions(names.engine)]
    have = [one.version for one in others if (one.has(section, key) if key else section in one.sections)]
    mine: Iterable[str] = names.sections[section]["keys"] if key else _decodings(names)
    close = get_close_matches(key or section, mine, n=1, cutoff=0.75)
    hints = [
        f"{' and '.join(have)} {'has' if len(have) == 1 else 'have'} it" if have else "",
        f"did you mean '{close[0]}'?" if close and not have else "",
        f"it has: {', '.join(sorted(mine))}" if key is None or not (have or close) else "",
    ]
    return "; ".join(hint for hint in hints if hint)


def _decodings(names: Surface) -> list[str]:
    return [section for section, about in names.sections.items() if about.get("class", "").endswith("DecodingConfig")]


# ---- the files ------------------------------------------------------------------------------------------------------


@cache
def _read(engine: str, version: str, warnings: tuple[str, ...]) -> Surface:
    text = (files("speedbench.serving") / "surfaces" / f"{engine}-{version}.json").read_text(encoding="utf-8")
    held = json.loads(text)
    empty: Mapping[str, Any] = {}
    return Surface(
        engine=engine, version=version, sections=held["sections"], choices=held.get("choices", empty),
        renamed=held.get("renamed", empty), spelling=held.get("spelling", empty), facts=held.get("facts", empty),
        warnings=warnings,
    )  # fmt: skip


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version, pre-release and build left out: 1.3.0rc7 is (1, 3, 0), b11549 is (11549,)."""
    found = re.match(r"[a-z]*([0-9]+(?:\.[0-9]+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


# ---- the engine's own classes ---------------------------------------------------------------------------------------


def introspected(names: Surface, llmapi: ModuleType) -> Surface:
    """TensorRT-LLM's names as its own pydantic classes tell them, in place of what the file says; a decoding whose
    class is not there is not there."""
    live = {name: _fields(llmapi, about) for name, about in names.sections.items()}
    sections = {
        name: {**about, "keys": live[name], "complete": True} if live[name] else about
        for name, about in names.sections.items()
        if live[name] or not about["class"].endswith("DecodingConfig")
    }
    mtp = getattr(getattr(llmapi, "MTPDecodingConfig", None), "model_fields", {})
    layers = mtp.get("num_nextn_predict_layers")
    old = layers is not None and layers.default is not None  # D, until it became what the checkpoint says
    spelling = {
        **names.spelling,
        "*": {} if "speculative_model" in mtp else {"speculative_model": "speculative_model_dir"},
        "MTP": {"max_draft_len": "num_nextn_predict_layers"} if old else {},
    }
    return replace(names, sections=sections, spelling=spelling, warnings=())


def _fields(llmapi: ModuleType, about: Mapping[str, Any]) -> list[str]:
    """The fields of a class and their aliases; none where the engine has no such class."""
    keys: set[str] = set()
    for name, field in getattr(getattr(llmapi, about["class"], None), "model_fields", {}).items():
        aliases = getattr(field.validation_alias, "choices", [field.validation_alias])
        keys |= {name, *(alias for alias in aliases if isinstance(alias, str))}
    return sorted(keys)
