"""The decoding loop with its acceptance forced, so that times do not hang on what a text happens to accept."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from speedbench.native.decode import Decoder
from speedbench.native.proposer import Draft, LookUp, Plan, Proposer, Row
from speedbench.native.slots import Slots
from speedbench.native.target import Target

PERIOD = 16
"""Tokens after which the made-up text repeats, so that look-up drafters always find something."""

ACCEPTED = 1
"""Drafts accepted in every pass with drafts: an AL of 2."""

_FIRST = 5
"""Ids of the made-up text begin here, beyond what vocabularies keep for special tokens."""


def text(length: int, vocab: int) -> list[int]:
    """Made-up ids that repeat."""
    return [_token(at, vocab) for at in range(length)]


def _token(at: int, vocab: int) -> int:
    return (_FIRST + at % PERIOD) % vocab


class Given(LookUp):
    """Proposes the next D tokens of the made-up text: drafting at no cost."""

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        return text(room, 1 << 30)


class Forced(Decoder):
    """A decoder whose every row is made-up and goes on for ever; each pass pays for its verification in full.

    A pass is timed in its parts as in a run, which is what makes them comparable.
    """

    def __init__(self, target: Target, proposer: Proposer | None, plan: Plan, slots: Slots, context: int) -> None:
        super().__init__(target, proposer, plan, slots, width=1 + plan.draft_length if plan.static else None)
        self._context = context

    def fill(self) -> None:
        """All rows at the context. Without a drafter the cache stays as it is: what it holds changes no time."""
        free = isinstance(self.proposer, Given) or self.proposer is None
        for index in range(self.plan.rows):
            ids = text(self._context, self.target.vocab)
            row = Row(index, ids, len(ids), 1 << 30, np.random.default_rng(index))
            if free:
                self.rows[index] = row
                row.ids.append(_token(len(ids), self.target.vocab))
            else:
                self.admit(row)
                row.ids[-1] = _token(self._context, self.target.vocab)

    def rewind(self) -> None:
        """Rows of no drafter back to the context."""
        if isinstance(self.proposer, Given) or self.proposer is None:
            for row in self.rows:
                if row is not None:
                    del row.ids[self._context + 1 :]

    def empty(self) -> None:
        for row in self.rows:
            if row is not None:
                self.release(row)

    def resume(self) -> None:
        """Begin the clock of the next pass now."""
        self._clock.settle()
        self._resumed = self._now()

    def _judge(self, batch: Sequence[Row | None], draft: Draft, logits: Tensor) -> tuple[list[int], list[int]]:
        super()._judge(batch, draft, logits)
        accepted = [min(ACCEPTED, count) for count in draft.counts]
        added = [
            0 if row is None else _token(len(row.ids) + n, self.target.vocab)
            for row, n in zip(batch, accepted, strict=True)
        ]
        return accepted, added
