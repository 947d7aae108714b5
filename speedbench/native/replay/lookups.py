"""Drafters that look tokens up: the drafter itself is asked behind every token of an answer, on the host."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from speedbench.native.proposer import LookUp, Row
from speedbench.native.replay.forced import Forced, Stage
from speedbench.types import Answer, Matches, Tables


class LookUps:
    """What it holds is a function of what was committed, so that it can be asked at places where no step begins; one
    that depends on D is asked once for each."""

    def __init__(self, proposer: LookUp, stage: Stage, lengths: Sequence[int]) -> None:
        self._proposer, self._stage = proposer, stage
        self.stateful, self.facts = proposer.stateful, proposer.facts
        self._keys: list[int | None] = [*lengths] if proposer.depends_on_block_length else [None]
        each = " for each D" if proposer.depends_on_block_length else ""
        self.route = f"look-ups behind every token{each}" + ", in the order of requests" * proposer.stateful

    @torch.inference_mode()
    def tables(self, answers: Sequence[Answer]) -> list[Tables]:
        forced = self._stage.forced(answers)
        return [self._tables(forced, row) for row in forced.rows]

    def _tables(self, forced: Forced, row: int) -> Tables:
        found = dict[int | None, Matches]()
        for key, drafts in self._proposals(forced.answers[row]).items():
            pairs = zip(drafts, forced.starts(row), strict=True)
            matched = tuple(forced.matches(row, *pair) for pair in pairs)
            found[key] = Matches(offered=tuple(map(len, drafts)), matched=matched)
        return found

    def _proposals(self, answer: Answer) -> dict[int | None, list[Sequence[int]]]:
        """By D, the drafts behind each token; at most as many as the cap leaves room for, as an engine asks."""
        proposer = self._proposer
        found: dict[int | None, list[Sequence[int]]] = {key: [] for key in self._keys}
        most = answer.cap or len(answer.output) + self._stage.reach
        row = Row(0, [*answer.prompt, answer.output[0]], len(answer.prompt), most, np.random.default_rng(0))
        proposer.begin(row, {})
        for token in answer.output[1:]:
            for key, drafts in found.items():
                room = min(key or self._stage.reach, row.cap - row.generated - 1)
                drafts.append(proposer.look_up(row, room) if room > 0 else ())
            row.ids.append(token)
            proposer.commit([row], [0], {})
        proposer.end(row)
        return found
