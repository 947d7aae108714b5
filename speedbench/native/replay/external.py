"""An external drafter over answers: one forward. As long as its drafts are right its context is the answer itself, so
whether it says a token of it does not depend on where the proposal began."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from speedbench.native.external import External
from speedbench.native.replay.forced import Forced, Stage
from speedbench.native.replay.tensors import Held, host, padded, verdicts
from speedbench.types import Answer, Matches, Table, Tables


class OneForward:
    """Hits of single tokens make the table: a proposal matches as far as its tokens are hits without a gap."""

    stateful = False
    route = "one forward over each answer"

    def __init__(self, proposer: External, stage: Stage) -> None:
        self._proposer, self._stage, self.facts = proposer, stage, proposer.facts
        self._held = Held(proposer.model, proposer.slots)

    @torch.inference_mode()
    def tables(self, answers: Sequence[Answer]) -> list[Tables]:
        forced = self._stage.forced(answers)
        said = self._along(forced)
        if forced.goes_on and (self._stage.sampled or any(row[-1:] == [1.0] for row in said)):
            forced.complete()
            said = [row + tail for row, tail in zip(said, self._behind(forced), strict=True)]
        return [{None: self._table(forced, row, said[row])} for row in forced.rows]

    def _table(self, forced: Forced, row: int, said: Sequence[float]) -> Table:
        offered = [self._proposer.room(start, self._stage.reach) for start in forced.starts(row)]
        if self._stage.sampled:
            return forced.chances(row, offered, [said[k : k + self._stage.reach] for k in range(len(offered))])
        runs = [*accumulate(reversed(said), lambda run, hit: (run + 1) * int(hit), initial=0)][::-1]
        return Matches(offered=tuple(offered), matched=tuple(map(min, runs, offered)))

    def _along(self, forced: Forced) -> list[list[float]]:
        """Of each row's tokens behind the first of its answer: log q, or, greedily, 1 where a token is what the drafter
        says and 0 where it is not. Beyond its own positions it says nothing."""
        own = self._proposer
        fed = [own.known(ids[: min(len(ids) - 1, own.slots.length)]) for ids in forced.ids]
        firsts, size = [len(answer.prompt) for answer in forced.answers], max(map(len, forced.ids)) - 1
        judged = min(*firsts, *map(len, fed))
        found = torch.full((len(fed), size), self._stage.never, device=own.model.device)
        for columns, seen in self._held.feed(fed, judged=judged):
            if columns.start >= judged:
                tokens = forced.tokens[: len(seen.logits), columns.start + 1 : columns.stop + 1]
                found[: len(tokens), columns] = self._verdicts(seen.logits, tokens)
        ends = torch.tensor([[len(each)] for each in fed], device=found.device)
        beyond = torch.arange(size, device=found.device) >= ends
        rows = host(found.masked_fill(beyond, self._stage.never))
        return [row[first : len(ids) - 1] for row, first, ids in zip(rows, firsts, forced.ids, strict=True)]

    def _behind(self, forced: Forced) -> list[list[float]]:
        """The same of what the target says behind each row's end, in one forward for all rows; where the drafter's
        positions end within it, the window begins with tokens that were fed already."""
        own, said = self._proposer, [forced.said(row) for row in forced.rows]
        lasts = [len(ids) - 1 for ids in forced.ids]
        width = max(len(row) - 1 - last for row, last in zip(said, lasts, strict=True))
        at = [min(last, own.slots.length - width) for last in lasts]
        fed = [own.known(row[: len(row) - 1][b : b + width]) for row, b in zip(said, at, strict=True)]
        next_ = [row[b + 1 : b + 1 + width] for row, b in zip(said, at, strict=True)]
        device = own.model.device
        logits = own.model.forward(own.slots.rows(0, len(fed)), padded(fed, width, device, filler=0), at).logits
        rows = host(self._verdicts(logits, padded(next_, width, device)))
        return [row[last - b :] for row, last, b in zip(rows, lasts, at, strict=True)]

    def _verdicts(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """What only the target's padding has is never drafted."""
        return verdicts(logits[..., : self._proposer.vocab], tokens, self._stage.sampling)
