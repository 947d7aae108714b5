"""llama.cpp's server out of the package xllamacpp, as a process of its own: `python embedded.py PARAMS.json`.

Run as a file, so that the interpreter that has xllamacpp needs nothing else of ours.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ENUM = "common_speculative_type."
"""How a member of that enumeration is written in the file."""


def configured(told: Mapping[str, Any], engine: ModuleType) -> Any:
    """`CommonParams` with each dotted attribute set: {`speculative.draft.n_max`: 4}."""
    params = engine.CommonParams()
    for place, value in told.items():
        *way, last = place.split(".")
        holder = params
        for part in way:
            holder = getattr(holder, part)
        if not hasattr(holder, last):
            raise AttributeError(f"this xllamacpp has no {place}")
        setattr(holder, last, _value(value, engine))
    return params


def _value(value: Any, engine: ModuleType) -> Any:
    if isinstance(value, list):
        return [_value(each, engine) for each in value]
    if isinstance(value, str) and value.startswith(ENUM):
        return engine.common_speculative_type.__members__[value.removeprefix(ENUM)]
    return value


def main(path: str) -> None:
    """Serve until told to end."""
    engine = import_module("xllamacpp")
    server = engine.Server(configured(json.loads(Path(path).read_text(encoding="utf-8")), engine))
    # one write, since the engine's threads log into the same file
    sys.stderr.write(f"embedded server at {server.listening_address}\n")
    sys.stderr.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
