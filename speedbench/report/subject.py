"""What a page is made of: a run, its results, and what was decided of them elsewhere."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from speedbench.columns import measurement
from speedbench.results import Run
from speedbench.types import Request, Result


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One run. Two runs are never in one chart: what may be compared is for `speedbench compare` to say."""

    run: Run
    results: Sequence[Result]
    """Of every cell, and pooled where there are repeats."""
    summary: Mapping[str, Any]
    """summary.json: `recommendation`, `warnings` and `noise` are taken from it."""
    sentences: Sequence[str]
    """The recommendation, a line a concurrency."""
    break_even: float | None
    """The concurrency at which the best speedup falls through 1; None where it does not."""
    unservable: Collection[str] = ()
    """Labels that nobody can serve with, as the oracle: drawn, never called best."""
    prompts: Sequence[Request] = ()
    """To be shown; empty unless they were asked for."""

    @cached_property
    def judged(self) -> Sequence[Result]:
        """The pooled results where there are repeats, else all: what is drawn."""
        return [each for each in self.results if each.cell.repeat is None] or list(self.results)

    @cached_property
    def drafted(self) -> Sequence[Result]:
        return [each for each in self.judged if not each.cell.is_baseline]

    def contenders(self, some: Sequence[Result]) -> Sequence[Result]:
        """Those that may be called best; all of them where nobody could serve with any."""
        return [each for each in some if each.cell.drafter not in self.unservable] or some

    @cached_property
    def drafters(self) -> Sequence[str]:
        """Labels in order of appearance, the baseline first: a label has the same colour and shape in every chart."""
        return list(dict.fromkeys(["none", *(each.cell.drafter for each in self.judged)]))

    @cached_property
    def concurrencies(self) -> Sequence[int]:
        return sorted({each.cell.concurrency for each in self.judged})

    @property
    def failed(self) -> tuple[int, int]:
        """Turns that failed, of so many asked for."""
        found = [measurement(each, "failed_requests") for each in self.judged]
        return int(sum(each.value or 0 for each in found)), sum(each.n for each in found)

    @property
    def environment(self) -> Mapping[str, Any]:
        """Of the first process."""
        found: Mapping[str, Any] = next(iter(self.run.document["processes"]), {})
        return found
