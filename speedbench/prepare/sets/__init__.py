"""The field's other prompt sets, one a file: where it lies, at which revision, and how its rows become prompts.

A file defines `SET`, and its name is the set's with `-` for `_`. What is asked around a text is speedbench's wording.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from speedbench.prepare.parts import PromptSet


def names() -> tuple[str, ...]:
    """The sets there are, sorted; none is imported."""
    return tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))


def load(name: str) -> PromptSet:
    """The set of a name among `names()`."""
    found: PromptSet = import_module(f"{__name__}.{name.replace('-', '_')}").SET
    return found
