"""Where a server is, and the key it wants: neither may tell a secret in a message."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from speedbench.errors import UserError


def root(url: str) -> str:
    """The server's root, without a trailing slash or `/v1`. Raises `UserError` for what is no URL or holds a password.

    No message quotes the URL: what is wrong with it may be a key.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        sound = False
    if not sound:
        raise UserError("a server's URL looks like http://127.0.0.1:8000; got something else")
    if parts.username or parts.password:
        raise UserError("a server's URL holds no name or password; put the key into an environment variable or a file")
    return url.rstrip("/").removesuffix("/v1")


def key(name: str | None, file: str | Path | None) -> str | None:
    """The key in the environment variable or the file; None where neither is named. Raises `UserError`."""
    if name is None and file is None:
        return None
    if name is not None and file is not None:
        raise UserError("a key comes from an environment variable or from a file; both were named")
    try:
        found = (os.environ.get(name, "") if name else Path(file or "").read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"key file {file}: cannot be read ({type(error).__name__})") from None
    where = f"the environment variable {name}" if name else f"the file {file}"
    if not found or not found.isascii() or any(letter.isspace() for letter in found):
        raise UserError(f"{where} holds no key" if not found else f"{where} holds more than a key")
    return found
