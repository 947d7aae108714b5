"""An external drafter over an answer: one forward. As long as its drafts are right its context is the answer itself,
so whether it says a token of it does not depend on where the proposal began."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch

from speedbench.native.external import External
from speedbench.native.replay.forced import Stage, chances, logs, passed
from speedbench.native.verify import best, probabilities
from speedbench.types import Answer, Matches, Tables


class OneForward:
    """Hits of single tokens make the table: a proposal matches as far as its tokens are hits without a gap."""

    stateful = False
    route = "one forward over each answer"

    def __init__(self, proposer: External, stage: Stage) -> None:
        self._proposer, self._stage, self.facts = proposer, stage, proposer.facts

    def tables(self, answer: Answer) -> Tables:
        forced, own = self._stage.forced(answer), self._proposer
        offered = [own.room(start, self._stage.reach) for start in forced.starts]
        prompt = own.known(answer.prompt[: own.slots.length])
        for _ in passed(own.model, own.slots, prompt, judged=len(prompt)):
            pass
        said = self._judged(forced.ids, len(answer.prompt))
        if forced.goes_on and (self._sampled or said[-1:] == [1.0]):
            said += self._judged(forced.said(len(forced.ids)), len(forced.ids) - 1)
        if self._sampled:
            return {None: chances(forced, offered, [said[k:] for k in range(len(offered))])}
        runs = [*accumulate(reversed(said), lambda run, hit: (run + 1) * int(hit), initial=0)][::-1]
        return {None: Matches(offered=tuple(offered), matched=tuple(map(min, runs, offered)))}

    @property
    def _sampled(self) -> bool:
        return self._stage.sampling.temperature > 0

    def _judged(self, ids: Sequence[int], begin: int) -> list[float]:
        """Of each token behind index `begin`, up to which the slots hold the row: log q, or, greedily, 1 where it is
        what the drafter says and 0 where it is not. Beyond its own positions it says nothing."""
        own, found = self._proposer, list[float]()
        fed = own.known(ids[: min(len(ids) - 1, own.slots.length)])
        for _, seen in passed(own.model, own.slots, fed, begin=begin, judged=begin):
            logits, at = seen.logits[0, :, : own.vocab], begin + 1 + len(found)
            tokens = torch.tensor(ids[at : at + len(logits)], device=logits.device)
            if self._sampled:
                q = torch.nn.functional.pad(probabilities(logits, self._stage.sampling), (0, 1))
                found += logs(q, tokens.clamp(max=own.vocab))  # what only the target's padding has is never drafted
            else:
                found += (best(logits) == tokens).double().tolist()
        never = -math.inf if self._sampled else 0.0
        return found + [never] * (len(ids) - 1 - begin - len(found))
