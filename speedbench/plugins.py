"""Finds sources, drafters, backends …: the folder is the registry, and a file is imported when asked for."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Literal, overload

from speedbench.errors import Missing, UnknownName, Unsupported
from speedbench.types import Backend, Drafter, Drafting, Executor, Metric, Settings

Kind = Literal["sources", "drafters", "backends", "metrics", "executors"]
Rows = Callable[[Settings, str], Iterator[Mapping[str, Any]]]

ATTRIBUTES: Mapping[Kind, str] = {
    "sources": "rows", "drafters": "DRAFTER", "backends": "BACKEND", "metrics": "METRICS", "executors": "EXECUTOR",
}  # fmt: skip
"""What a file of each folder must define."""

EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("torch", "transformers", "safetensors", "gguf", "tokenizers"), "native"),
    "ray": "ray",
    "submitit": "slurm",
}
"""By package, the extra that brings it."""


def names(kind: Kind) -> tuple[str, ...]:
    """The files of a folder, sorted; nothing in it is imported."""
    package = _spec(f"speedbench.{kind}")
    found = (module.name for module in iter_modules(package.submodule_search_locations))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def title(kind: Kind, name: str) -> str:
    """The first sentence of a file, read without importing it."""
    _known(kind, name)
    loader = _spec(f"speedbench.{kind}.{name}").loader
    source = loader.get_source(f"speedbench.{kind}.{name}") if loader and hasattr(loader, "get_source") else None
    words = ast.get_docstring(ast.parse(source or ""))
    return words.splitlines()[0] if words else ""


@overload
def load(kind: Literal["sources"], name: str) -> Rows: ...
@overload
def load(kind: Literal["drafters"], name: str) -> Drafter: ...
@overload
def load(kind: Literal["backends"], name: str) -> Backend: ...
@overload
def load(kind: Literal["metrics"], name: str) -> tuple[Metric, ...]: ...
@overload
def load(kind: Literal["executors"], name: str) -> Executor: ...
@overload
def load(kind: Kind, name: str) -> Any: ...
def load(kind: Kind, name: str) -> Any:
    """What one file defines. Raises `UnknownName`, or `Missing` where a package that it imports is not installed."""
    _known(kind, name)
    try:
        module = import_module(f"speedbench.{kind}.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "speedbench"):
            raise
        fix = f'"speedbench[{EXTRAS[package]}]"' if package in EXTRAS else package
        raise Missing(f"{_one(kind)} '{name}' needs the package {package}: pip install {fix}") from error
    return getattr(module, ATTRIBUTES[kind])


def translated(backend: str, drafting: Drafting, draft_length: int) -> dict[str, Any]:
    """What a backend calls this drafter and this D. Raises `Unsupported` for a pair that does not work."""
    table: Drafter = load("drafters", drafting.drafter)
    if backend not in table.backends:
        raise Unsupported(drafting.drafter, backend, table.backends)
    return dict(table.backends[backend](draft_length, drafting.settings))


def _known(kind: Kind, name: str) -> None:
    if name not in names(kind):
        raise UnknownName(_one(kind), name, names(kind))


def _one(kind: Kind) -> str:
    return "metric" if kind == "metrics" else kind.removesuffix("s")


def _spec(name: str) -> ModuleSpec:
    spec = find_spec(name)
    assert spec is not None, f"no module {name}: the installation is incomplete"
    return spec
