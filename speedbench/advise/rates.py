"""What the simulated fleet runs on: seconds of a pass by batch and context, and of a prompt by its length."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from speedbench.advise.curves import Curve
from speedbench.advise.fleet import Filling
from speedbench.advise.offers import Costs, offer, plain
from speedbench.costs.linear import Refused
from speedbench.types import Prefill

Line = Sequence[tuple[float, float]]
"""Points by rising x."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Passes of one drafter, a `fleet.Rate`: on lines over batch and context between those asked for, beyond them as at
    the last. What the times refuse is left out of them; `Refused` where nothing is left."""

    costs: Costs
    curve: Curve | None
    """None: the plain target."""
    length: Callable[[int], int]
    """D by batch; 0 is a plain pass."""
    batches: Sequence[int]
    contexts: Sequence[int]
    _known: dict[int, Line] = field(default_factory=dict)

    def __call__(self, batch: int, context: float) -> tuple[float, float]:
        d = self.length(batch) if self.curve else 0
        if batch not in self._known:
            self._known[batch] = self._over_contexts(batch, d)
        return _on(self._known[batch], context), self.curve.points[d].value if self.curve and d else 1.0

    def _over_contexts(self, batch: int, draft_length: int) -> Line:
        """Seconds of a pass at a batch and D."""
        found, refused = [], Refused("no batch and context has times")
        for context in self.contexts:
            points = []
            for there in self.batches:
                try:
                    points.append((there, self._step(draft_length, there, context)))
                except Refused as error:
                    refused = error
            if points:
                found.append((context, _on(points, batch)))
        if not found:
            raise refused
        return found

    def _step(self, draft_length: int, batch: int, context: int) -> float:
        if self.curve is None or not draft_length:
            return plain(self.costs, batch, context).step
        return offer(self.costs, self.curve, draft_length, batch, context).step


def _on(points: Line, x: float) -> float:
    """On the line between the two points about x; beyond the ends as there."""
    at = bisect_right(points, x, key=_first)
    if at in (0, len(points)):
        return points[min(at, len(points) - 1)][1]
    return _through(points[at - 1], points[at], x)


def _first(point: tuple[float, float]) -> float:
    return point[0]


def _through(low: tuple[float, float], high: tuple[float, float], x: float) -> float:
    return low[1] + (high[1] - low[1]) * (x - low[0]) / (high[0] - low[0])


def filling(prefills: Sequence[Prefill], drafter: str | None) -> Filling:
    """Seconds of a prompt with what this drafter reads of it, or failing that by the target alone: on the line through
    the nearest two that were measured; of one, in proportion. `prefills` holds one of the target's at least."""
    own = [each for each in prefills if each.drafter == drafter]
    told = own or [each for each in prefills if each.drafter is None]
    points = sorted((float(each.tokens), each.seconds) for each in told)
    if len(points) == 1:
        return lambda tokens: points[0][1] * tokens / points[0][0]

    def seconds(tokens: float) -> float:
        at = min(max(bisect_right(points, tokens, key=_first), 1), len(points) - 1)
        return max(0.0, _through(points[at - 1], points[at], tokens))

    return seconds
