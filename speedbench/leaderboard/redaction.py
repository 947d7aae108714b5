"""What must not be published is taken out: keys, URLs, paths, addresses, and the names of hosts and users."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from speedbench.environment import without_secrets

_PUBLIC = re.compile(r"(?:package:|drafters/)(?!.*\.\.)[\w./-]+")
"""Names of shipped content, which have slashes and are no paths of anybody's machine."""

_ORDINARY = frozenset({"root", "user", "users", "home", "localhost", "admin", "ubuntu", "runner", "nobody", "unknown"})
"""Names of users and hosts that say nothing of whose they are, and may be words of something else."""

_PATTERNS = (
    (re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s'\"]+"), "<url>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*"), "<user>"),
    (re.compile(r"(?<![\w.:/\\<-])(?:~|\.\.?)?(?:[A-Za-z]:)?[/\\]+[^\s'\",;]+"), "<path>"),
    (re.compile(r"(?i)(?<![\w/])(?:[a-z]:|file:)[/\\]+[^\s'\",;]+"), "<path>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])"), "<address>"),
    (re.compile(r"\b[A-Za-z][\w-]*(?:\.[\w-]+)*:\d{2,5}\b"), "<host>"),
)


def scrubbed(tree: Any, *, here: bool = True) -> Any:
    """The same values with every text made publishable; what was scrubbed once comes back as it is.

    `here`: the names of this host and user are taken out too, as they must be of what was run here.
    """
    return _walk(without_secrets(tree), _own_names() if here else ())


def _walk(tree: Any, names: tuple[str, ...]) -> Any:
    if isinstance(tree, str):
        return _text(tree, names)
    if isinstance(tree, Mapping):
        return {_text(str(key), names): _walk(inner, names) for key, inner in tree.items()}
    return [_walk(each, names) for each in tree] if isinstance(tree, (list, tuple)) else tree


def _text(text: str, names: tuple[str, ...]) -> str:
    if _PUBLIC.fullmatch(text):
        return text
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    if text.count("/") > 1 and " " not in text:  # an id of the hub has one
        text = "<path>"
    for name in names:
        text = re.sub(rf"(?i)(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "<name>", text)
    return text


@cache
def _own_names() -> tuple[str, ...]:
    """Of this host and this user, where they are more than ordinary words."""
    host = socket.gethostname()
    found = {host, host.partition(".")[0], Path.home().name}
    with suppress(Exception):  # a user without an entry in the password file
        found.add(getpass.getuser())
    return tuple(sorted((name for name in found if len(name) > 2 and name.lower() not in _ORDINARY), reverse=True))
