"""Why a file could not be had, and what to do about it: one kind of refusal for each thing that a user can do."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from speedbench.environment import redact
from speedbench.errors import Missing

Kind = Literal["login", "gated", "absent", "busy", "slow", "offline", "unreachable", "trouble", "damaged"]

TRANSIENT = frozenset({"busy", "slow", "unreachable", "trouble"})
"""Kinds that may be gone at the next try."""

_STEPS: dict[Kind, str] = {
    "login": "log in (hf auth login, or HF_TOKEN in the environment) with an account that may read it, then the same "
    "command again; the terms of a gated one are accepted at {page}",
    "gated": "open {page} with the account that you are logged in with, accept its terms, then the same command again",
    "absent": "no repository, revision or file of that name is there; a newer speedbench may know where it went",
    "busy": "wait{wait} and give the same command again: it goes on where it stopped; being logged in raises the limit",
    "slow": "the same command goes on where it stopped; HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT (seconds) give "
    "it longer",
    "offline": "it is not on this machine yet; run the same command once where there is a network, without --offline "
    "and HF_HUB_OFFLINE",
    "unreachable": "check network, proxy and HF_ENDPOINT; the same command goes on where it stopped",
    "trouble": "that is the server's fault; the same command, later, goes on where it stopped",
    "damaged": "delete it, then the same command again",
}

_SAID: dict[Kind, str] = {
    "login": "the hub wants to know who you are (401)",
    "gated": "access is gated (403)",
    "absent": "is not there (404)",
    "busy": "the server asks to slow down (429)",
    "slow": "no answer in time",
    "offline": "off-line",
    "unreachable": "cannot be reached",
    "trouble": "the server failed{status}",
    "damaged": "is not what its server says that it is",
}

_BY_STATUS: dict[int, Kind] = {401: "login", 403: "gated", 404: "absent", 410: "absent", 429: "busy"}


class NotHad(Missing):
    """A file that could not be had; `kind` says of which sort that is."""

    def __init__(
        self, what: str, kind: Kind, page: str = "", status: int | None = None, wait: str | None = None
    ) -> None:
        self.kind: Kind = kind
        said = _SAID[kind].format(status=f" ({status})" if status else "")
        step = _STEPS[kind].format(page=page or "its page", wait=f" {wait} s" if wait else " some minutes")
        self.what, self.said, self.step = what, said, step
        super().__init__(f"{what}: {said}; {step}")


def refusal(what: str, error: BaseException, page: str = "") -> NotHad:
    """The refusal that an error of a hub library, of its HTTP library or of urllib means, in whatever version."""
    for each in _causes(error):
        status = getattr(getattr(each, "response", None), "status_code", None) or getattr(each, "code", None)
        if isinstance(status, int) and status >= 400:
            kind = _BY_STATUS.get(status, "trouble")
            return NotHad(what, "gated" if _is_gated(each) else kind, page, status, _wait(each))
    names = {base.__name__ for each in _causes(error) for base in type(each).__mro__}
    refused = bool(names & {"ConnectionRefusedError", "gaierror"})  # urllib3 calls that a kind of time-out
    if not refused and any("Timeout" in name for name in names):
        return NotHad(what, "slow")
    if "OfflineModeIsEnabled" in names:
        return NotHad(what, "offline")
    if names & {"EntryNotFoundError", "RevisionNotFoundError"} and "LocalEntryNotFoundError" not in names:
        return NotHad(what, "absent")
    return NotHad(f"{what} ({_short(error)})", "unreachable")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, then what it came of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "reason", None)  # of urllib's URLError
        error = error.__cause__ or error.__context__ or (inner if isinstance(inner, BaseException) else None)


def _is_gated(error: BaseException) -> bool:
    """The hub names a gate with 401 too, to somebody who is not logged in; then logging in comes first."""
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", {})
    return headers.get("X-Error-Code") == "GatedRepo" and getattr(response, "status_code", 0) != 401


def _wait(error: BaseException) -> str | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    told = headers.get("Retry-After") if headers is not None else None
    return str(told) if told is not None and str(told).isdigit() else None


def _short(error: BaseException) -> str:
    last = list(_causes(error))[-1]
    words = redact(" ".join(str(last).split())) or type(last).__name__
    return words if len(words) <= 120 else f"{words[:117]}..."
