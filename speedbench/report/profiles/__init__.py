"""Charts of a profile, one a file: the folder is the registry, and `place` their order on the page."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speedbench.report.drawing import Chart
    from speedbench.report.profiled import Profiled


@cache
def charts() -> tuple[tuple[str, Chart[Profiled]], ...]:
    """Name and chart of every file, in the order of the page."""
    found = [(module.name, import_module(f"{__name__}.{module.name}").CHART) for module in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda one: one[1].place))
