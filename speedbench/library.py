"""Text that is on every machine with Python and free to use: the standard library's, and the long shipped prompts."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from speedbench.content import folder
from speedbench.errors import UserError

LEFT_OUT = frozenset({"__pycache__", "dist-packages", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data",
                      "site-packages", "test", "tests"})  # fmt: skip
"""Folders of other people's code, of tables and of tests."""

SHORTEST, LONGEST = 40, 600
"""Characters of a note."""

LARGEST = 2000
"""Characters of a piece of code or prose."""

LEAST = 200_000
"""Characters of code below which there is no standard library to speak of."""

LONG_TURN = 600

HEAD = 300
"""Characters before a docstring in which what it is of must begin."""

_OF = re.compile(r"(?:def|class) (\w+)")
_NAME = re.compile(r"^[ \t]*(?:async )?(?:def|class) (\w+)", re.MULTILINE)


class Note(NamedTuple):
    """What a docstring says, below the name of what it is of."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"### {self.name}\n{self.text}\n\n"


@dataclass(frozen=True, eq=False)
class Library:
    """The text in pieces, each in the order of the files."""

    code: tuple[str, ...]
    notes: tuple[Note, ...]
    names: tuple[str, ...]
    prose: tuple[str, ...]
    sha: str
    """Of all of it, 16 hex digits."""


@cache
def library() -> Library:
    """Read once. Raises `UserError` where the standard library has no sources, as in some frozen programs."""
    files = list(_files(Path(sysconfig.get_paths()["stdlib"])))
    if sum(len(text) for _, text in files) < LEAST:
        raise UserError("this Python has no sources of its standard library, which throughput tasks are made from")
    notes = [note for module, text in files for note in _notes(module, text)]
    told = {note.name: note for note in notes if SHORTEST <= len(note.text) <= LONGEST}
    texts = [*(note.text for note in notes if len(note.text) > LONGEST), *_reference(), *_licence(), *_turns()]
    code = [piece for _, text in files for piece in _pieces(text)]
    names = dict.fromkeys(name for _, text in files for name in _NAME.findall(text) if not name.startswith("_"))
    prose = dict.fromkeys(piece for text in texts for piece in _pieces(text))
    digest = hashlib.sha256("\0".join([*code, *prose, *map(str, told.values())]).encode())
    return Library(tuple(code), tuple(told.values()), tuple(names), tuple(prose), digest.hexdigest()[:16])


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """Modules and their sources, in an order that does not depend on the file system."""
    for where, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith(("_sysconfigdata", "sitecustomize")):
                path = Path(where, name)
                module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                try:
                    yield module, path.read_text("utf-8").replace("\0", "")
                except (OSError, UnicodeDecodeError):
                    continue  # a file in another encoding is a test of that


def _notes(module: str, text: str) -> Iterator[Note]:
    """Docstrings, found by their quotes and what stands before: parsing every file would take seconds."""
    parts = text.split('"""')
    for before, said in zip(parts[0::2], parts[1::2], strict=False):
        head = before[-HEAD:].rstrip("rRuU \t\n")
        of = _OF.match(head, max(head.rfind("def "), head.rfind("class "), 0)) if head.endswith(":") else None
        if of and ":\n" not in head[of.start() :] and "\\" not in said:
            yield Note(f"{module}.{of[1]}", inspect.cleandoc(said).strip())


def _pieces(text: str) -> Iterator[str]:
    """A text's parts between double blank lines; the large ones in parts between single ones. What is larger even so is
    a table, and left out."""
    for part in re.split(r"\n{3,}", text):
        if len(part) <= LARGEST:
            yield from [part.strip("\n")] * bool(part.strip())
            continue
        gathered = ""
        for each in part.split("\n\n"):
            if gathered and len(gathered) + len(each) > LARGEST:
                yield gathered.strip("\n")
                gathered = ""
            gathered += f"{each}\n\n" * (len(each) <= 2 * LARGEST)
        yield from [gathered.strip("\n")] * bool(gathered.strip())


def _reference() -> Sequence[str]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return ()
    return [topics[name] for name in sorted(topics)]


def _licence() -> Sequence[str]:
    """Where the installer put it; some distributions keep it elsewhere."""
    path = Path(sysconfig.get_paths()["stdlib"], "LICENSE.txt")
    return [path.read_text("utf-8")] if path.is_file() else []


def _turns() -> Iterator[str]:
    for file in ("demo.jsonl", "repetitive.jsonl"):
        for line in (folder("tasks") / "prompts" / file).read_text("utf-8").splitlines():
            yield from (turn for turn in json.loads(line)["turns"] if len(turn) >= LONG_TURN)
