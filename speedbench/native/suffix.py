"""Suffix decoding (arXiv 2411.04975): draft the most frequent continuation of the longest useful suffix seen before.

Follows ArcticInference's rule (`csrc/suffix_decoding/suffix_tree.cc`, chain mode), with its float32 scores and its
order of siblings, on a plain trie whose paths are the suffixes of every sequence, cut at `depth` tokens.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from speedbench.native.proposer import LookUp, Near, Plan, Row

_ONE = np.float32(1)


class _Node:
    """How many suffixes pass here, and what follows; `order` lists the children by falling count."""

    __slots__ = ("children", "count", "order")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, _Node] = {}
        self.order: list[int] = []

    def grow(self, token: int) -> _Node:
        """Count one more suffix going to `token`, and move it in the order as ArcticInference does.

        A child whose count reaches its left neighbour's old group comes to stand at that group's head when the
        neighbour was one ahead, and behind the next group's tail when they were equal.
        """
        child = self.children.get(token)
        if child is None:
            child = self.children[token] = _Node()
            child.count = 1
            self.order.append(token)
            return child
        place = self.order.index(token)
        if place and (ahead := self.children[self.order[place - 1]].count) <= child.count + 1:
            to = place - 1
            while to and self.children[self.order[to - 1]].count == ahead:
                to -= 1
            self.order.insert(to, self.order.pop(place))
        child.count += 1
        return child

    def shrink(self, token: int) -> _Node | None:
        """Count one suffix less; None when the child is gone."""
        child = self.children[token]
        child.count -= 1
        place = self.order.index(token)
        if not child.count:
            del self.children[token], self.order[place]
            return None
        to = place
        while to + 1 < len(self.order) and self.children[self.order[to + 1]].count > child.count:
            to += 1
        self.order.insert(to, self.order.pop(place))
        return child


@dataclass(slots=True)
class Found:
    """A proposal and the sum of its probabilities, by which proposals compete."""

    tokens: list[int] = field(default_factory=list)
    score: np.float32 = field(default_factory=lambda: np.float32(0))


class SuffixTree:
    """The suffixes of sequences, each no longer than `depth`."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._root = _Node()
        self._active: dict[int, deque[_Node]] = {}
        self._sequences: dict[int, list[int]] = {}

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._sequences

    def extend(self, sequence: int, tokens: Sequence[int]) -> None:
        """Append tokens to a sequence: every suffix still short enough grows by each."""
        active = self._active.setdefault(sequence, deque())
        self._sequences.setdefault(sequence, []).extend(tokens)
        for token in tokens:
            active.append(self._root)
            self._root.count += 1
            if len(active) > self._depth:
                active.popleft()
            for index, node in enumerate(active):
                active[index] = node.grow(token)

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        tokens = self._sequences.pop(sequence)
        del self._active[sequence]
        for start in range(len(tokens)):
            node: _Node | None = self._root
            self._root.count -= 1
            for token in tokens[start : start + self._depth]:
                node = node.shrink(token) if node else None
                if node is None:
                    break

    def speculate(self, context: Sequence[int], room: int, factor: float, offset: float, least: float) -> Found:
        """The best-scored proposal over all matching suffixes of the context; ties go to the longer match."""
        best = Found()
        for length in range(1, len(context)):
            node = self._match(context[len(context) - length :])
            if node is None:
                break
            cap = max(0, min(room, int(length * factor + offset + 1e-6)))
            found = _walk(node, cap, np.float32(least))
            if found.score >= best.score:
                best = found
        return best

    def _match(self, tokens: Sequence[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in tokens:
            node = node.children.get(token) if node else None
        return node


def _walk(node: _Node, cap: int, least: np.float32) -> Found:
    """Follow the first child while the running probability stays at `least` or above."""
    found, chance = Found(), _ONE
    while len(found.tokens) < cap and node.order:
        token = node.order[0]
        child = node.children[token]
        chance = chance * (np.float32(child.count) / np.float32(node.count))
        if chance < least:
            break
        found.tokens.append(token)
        found.score = found.score + chance
        node = child
    return found


@dataclass(slots=True)
class Suffix(LookUp):
    """One tree a row over prompt and answer; with `max_cached_requests` other than 0 also one over earlier answers,
    which makes results depend on the order of requests (`stateful`)."""

    depth: int = 64
    factor: float = 1.0
    offset: float = 0.0
    least: float = 0.1
    max_cached_requests: int = 0
    depends_on_block_length: bool = True
    _local: dict[int, SuffixTree] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _shared: SuffixTree | None = None
    _cached: dict[int, None] = field(default_factory=dict)
    """Sequences in the shared tree by when they began, oldest first."""
    _running: dict[int, int] = field(default_factory=dict)
    """Row → its sequence in the shared tree."""
    _next: int = 0

    def begin(self, row: Row, features: Mapping[int, Tensor]) -> None:
        self._local[row.index] = SuffixTree(self.depth)
        self._local[row.index].extend(0, row.ids[: row.prompt])
        self._seen[row.index] = row.prompt
        if self.max_cached_requests:
            self._shared = self._shared or SuffixTree(self.depth)
            self._running[row.index] = self._next
            self._cached[self._next] = None
            self._next += 1
            self._evict()
        self._learn(row)

    def _evict(self) -> None:
        while 0 < self.max_cached_requests < len(self._cached):
            sequence = next(iter(self._cached))
            del self._cached[sequence]
            if self._shared is not None and sequence in self._shared:
                self._shared.remove(sequence)

    def _learn(self, row: Row) -> None:
        fresh = row.ids[self._seen[row.index] :]
        self._seen[row.index] = len(row.ids)
        self._local[row.index].extend(0, fresh)
        if self._shared is not None and self._running[row.index] in self._cached:
            self._shared.extend(self._running[row.index], fresh)

    def look_up(self, row: Row, room: int) -> Sequence[int]:
        context = row.ids[-self.depth :]
        best = self._local[row.index].speculate(context, room, self.factor, self.offset, self.least)
        if self._shared is not None:
            other = self._shared.speculate(context, room, self.factor, self.offset, self.least)
            best = best if best.score >= other.score else other
        return best.tokens

    def commit(self, batch: Sequence[Row | None], accepted: Sequence[int], features: Mapping[int, Tensor]) -> None:
        for row in batch:
            if row is not None:
                self._learn(row)

    def end(self, row: Row) -> None:
        self._local.pop(row.index, None)
        self._seen.pop(row.index, None)
        self._running.pop(row.index, None)


def build(
    plan: Plan,
    near: Near,
    *,
    depth: int,
    factor: float,
    offset: float,
    min_probability: float,
    max_cached_requests: int,
) -> Suffix:
    return Suffix(
        device=plan.device,
        depth=depth,
        factor=factor,
        offset=offset,
        least=min_probability,
        max_cached_requests=max_cached_requests,
        stateful=max_cached_requests != 0,
    )
