"""What is the user's to mend: each message says what is wrong, what was got and what would be right."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input; the command line prints it as one line and exits 2."""


class UnknownName(UserError):
    """A name that nothing bears: `no drafter named 'ngrm'. Did you mean 'ngram'? Have: …`."""

    def __init__(self, kind: str, name: str, have: Iterable[str], beside: str = "") -> None:
        names = sorted(have)
        close = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        super().__init__(f"no {kind} named '{name}'.{hint} Have: {', '.join(names) or 'none'}{beside}")


class Unsupported(UserError):
    """A pair that does not work, naming what does."""

    def __init__(self, drafter: str, backend: str, works_on: Iterable[str]) -> None:
        names = ", ".join(sorted(works_on)) or "nothing yet"
        super().__init__(f"drafter '{drafter}' does not run on '{backend}'; it runs on: {names}")


class Missing(UserError):
    """A package or file that is not there, with the command that brings it."""


def first_line(error: BaseException, most: int = 200) -> str:
    """What a library's error says at first, cut to so many characters; the name of its class where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:most]
