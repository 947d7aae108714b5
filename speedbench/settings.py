"""Settings of an engine or a drafter: defaults filled in, unknown keys and wrong types refused by name."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from speedbench.errors import UnknownName, UserError
from speedbench.types import Settings


def resolve(
    owner: str, given: Settings, defaults: Settings, choices: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, Any]:
    """`given` over `defaults`. A value must be of its default's type (an int may stand for a float); a default of None
    takes anything, and None is allowed wherever it is the default. `choices` lists the words a key may hold."""
    for key in given:
        if key not in defaults:
            raise UnknownName(f"setting of {owner}", key, defaults)
    settings = {**defaults, **given}
    for key, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{owner}.{key}: should be a finite number (got {value})")
        _check_type(owner, key, value, defaults[key])
    for key, words in (choices or {}).items():
        if settings[key] not in words:
            raise UserError(f"{owner}.{key}: one of {', '.join(words)} (got '{settings[key]}')")
    return settings


def at_least(owner: str, settings: Mapping[str, Any], **least: float) -> None:
    """Refuse numbers below their least value."""
    for key, low in least.items():
        value = settings[key]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{owner}.{key}: should be a number (got {value!r})")
        if value < low:
            raise UserError(f"{owner}.{key}: at least {low} (got {value})")


def _check_type(owner: str, key: str, value: Any, default: Any) -> None:
    if default is None or value is default:
        return
    wanted = type(default)
    fine = isinstance(value, wanted) or (wanted is float and isinstance(value, int))
    if not fine or (isinstance(value, bool) and wanted is not bool):
        raise UserError(f"{owner}.{key}: should be {_SAID.get(wanted, wanted.__name__)} (got {value!r})")


_SAID = {int: "an integer", float: "a number", bool: "true or false", str: "a word", list: "a list, as [1, 2]"}
