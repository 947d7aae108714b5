"""N-gram drafting (prompt lookup): copy what followed the last time these tokens stood here.

Rules, as the engines have them (vLLM `v1/spec_decode/ngram_proposer.py`; transformers `PromptLookupCandidateGenerator`;
TensorRT-LLM `_torch/speculative/ngram.py`): the longest suffix of the row, of max_n down to min_n tokens, that occurs
earlier in the row; of its occurrences the earliest or the latest; up to D tokens that follow it, overlap allowed.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from speedbench.native.proposer import LookUp, Near, Plan, Row


@dataclass(slots=True)
class NGram(LookUp):
    """Keeps, per row and size, where each n-gram that has a continuation ends."""

    min_n: int = 2
    max_n: int = 4
    latest: bool = False
    cut_before: frozenset[int] = frozenset()
    """Stop tokens before which a proposal ends (transformers' rule); empty for the others."""
    _index: dict[int, list[dict[tuple[int, ...], int]]] = field(default_factory=dict)
    _indexed: dict[int, int] = field(default_factory=dict)

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self._index[row.index] = [{} for _ in range(self.max_n + 1)]
        self._indexed[row.index] = 0
        self._extend(row)

    def _extend(self, row: Row) -> None:
        """Index every n-gram that is followed by a token; the last one is not, so a suffix never finds itself."""
        ids, index = row.ids, self._index[row.index]
        for end in range(self._indexed[row.index] + 1, len(ids)):
            for n in range(self.min_n, min(self.max_n, end) + 1):
                key = tuple(ids[end - n : end])
                if self.latest:
                    index[n][key] = end
                else:
                    index[n].setdefault(key, end)
        self._indexed[row.index] = len(ids) - 1

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        ids, index = row.ids, self._index[row.index]
        for n in range(min(self.max_n, len(ids) - 1), self.min_n - 1, -1):
            end = index[n].get(tuple(ids[-n:]))
            if end is not None:
                return self._cut(ids[end : end + room])
        return ()

    def _cut(self, found: list[int]) -> list[int]:
        stop = next((i for i, token in enumerate(found) if token in self.cut_before), len(found))
        return found[:stop]

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        for row in batch:
            if row is not None:
                self._extend(row)

    def end(self, row: Row) -> None:
        self._index.pop(row.index, None)
        self._indexed.pop(row.index, None)


def build(plan: Plan, near: Near, *, rule: str, min_n: int, max_n: int, match: str) -> NGram:
    stops = plan.stops if rule == "transformers" else frozenset()
    return NGram(device=plan.device, min_n=min_n, max_n=max_n, latest=match == "latest", cut_before=stops)
