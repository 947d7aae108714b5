"""Suffix decoding against its published example, its definition by brute force, and recorded cases of the order."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench.drafters.suffix import DRAFTER
from speedbench.errors import UserError
from speedbench.native import suffix
from speedbench.native.proposer import Row
from speedbench.native.suffix import Suffix, SuffixTree

EXAMPLE = [*range(1, 9), 1, 2, 3, 4]


def row_of(ids: Sequence[int], index: int = 0) -> Row:
    return Row(index, list(ids), len(ids) - 1, 99, np.random.default_rng(0))


def built(**given: Any) -> Suffix:
    chosen = dict(DRAFTER.backends["native"](8, given))
    assert chosen.pop("module") == "speedbench.native.suffix"
    return suffix.build(tiny.plan(8), None, **chosen)  # type: ignore[arg-type]


def proposed(ids: Sequence[int], room: int, **given: Any) -> list[int]:
    drafter, row = built(**given), row_of(ids)
    drafter.begin(row, {})
    return list(drafter.look_up(row, room))


# ---- the published example -----------------------------------------------------------------------------------------


def test_a_pattern_seen_once_goes_on_with_probability_one_half() -> None:
    """1..8, 1, 2, 3, 4 at depth 24 proposes 5, 6, 7, 8, each at .5, score 2.0: the context itself counts, unended."""
    tree = SuffixTree(24)
    tree.extend(0, EXAMPLE)
    found = tree.speculate(EXAMPLE, 8, 1.0, 0.0, 0.1)
    assert found.tokens == [5, 6, 7, 8]
    assert float(found.score) == 2.0
    assert proposed(EXAMPLE, 8, depth=24) == [5, 6, 7, 8]


def test_the_factor_bounds_the_draft_by_the_match() -> None:
    assert proposed(EXAMPLE, 16, depth=24, factor=2.0) == [5, 6, 7, 8, 1, 2, 3, 4]
    assert proposed(EXAMPLE, 16, depth=24, factor=0.5) == [5, 6]
    assert proposed(EXAMPLE, 16, depth=24, factor=0.0) == []
    assert proposed(EXAMPLE, 16, depth=24, factor=0.0, offset=3.0) == [5, 6, 7]
    assert proposed(EXAMPLE, 3, depth=24) == [5, 6, 7]


def test_a_draft_stops_where_the_probability_falls_below_the_least() -> None:
    assert proposed(EXAMPLE, 8, min_probability=0.51) == []
    assert proposed(EXAMPLE, 8, min_probability=0.5) == [5, 6, 7, 8]


def test_nothing_seen_before_nothing_proposed() -> None:
    assert proposed([1, 2, 3, 4], 8) == []
    assert proposed([1, 2], 8) == []


# ---- the definition ------------------------------------------------------------------------------------------------


def best_scores(ids: Sequence[int], room: int, depth: int, factor: float) -> tuple[float, float]:
    """The best score over all matching suffixes, with counts by brute force: least and most, since the order of equally
    frequent continuations decides which is followed."""
    counts: Counter[tuple[int, ...]] = Counter()
    for start in range(len(ids)):
        for end in range(start + 1, min(start + depth, len(ids)) + 1):
            counts[tuple(ids[start:end])] += 1

    def follow(path: tuple[int, ...], left: int, chance: float, pick: Any) -> float:
        after = {k[-1]: n for k, n in counts.items() if len(k) == len(path) + 1 and k[:-1] == path}
        if not left or not after:
            return 0.0
        most = max(after.values())
        share = chance * most / counts[path]
        if share < 0.1:
            return 0.0
        rest: float = pick(follow((*path, t), left - 1, share, pick) for t, n in after.items() if n == most)
        return share + rest

    context, low, high = ids[-depth:], 0.0, 0.0
    for length in range(1, len(context)):
        path = tuple(context[-length:])
        if path not in counts:
            break
        cap = min(room, int(length * factor + 1e-6))
        low, high = max(low, follow(path, cap, 1.0, min)), max(high, follow(path, cap, 1.0, max))
    return low, high


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=22),
    st.integers(2, 8),
    st.integers(1, 6),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_the_score_is_that_of_the_definition(ids: list[int], depth: int, room: int, factor: float) -> None:
    tree = SuffixTree(depth)
    tree.extend(0, ids)
    found = tree.speculate(ids[-depth:], room, factor, 0.0, 0.1)
    low, high = best_scores(ids, room, depth, factor)
    assert low - 1e-5 <= float(found.score) <= high + 1e-5
    assert len(found.tokens) <= room


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(2, 8))
def test_extending_bit_by_bit_is_extending_at_once(ids: list[int], depth: int) -> None:
    whole, parts = SuffixTree(depth), SuffixTree(depth)
    whole.extend(0, ids)
    for token in ids:
        parts.extend(0, [token])
    assert shape(whole._root) == shape(parts._root)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=2, max_size=4), st.integers(2, 6))
def test_a_forgotten_sequence_leaves_the_counts_of_the_others(sequences: list[list[int]], depth: int) -> None:
    both, kept = SuffixTree(depth), SuffixTree(depth)
    for index, ids in enumerate(sequences):
        both.extend(index, ids)
        if index:
            kept.extend(index, ids)
    both.remove(0)
    assert counts(both._root) == counts(kept._root)
    for node in nodes(both._root):
        falling = [node.children[t].count for t in node.order]
        assert falling == sorted(falling, reverse=True)


def shape(node: Any) -> Any:
    return node.count, [(t, shape(node.children[t])) for t in node.order]


def counts(node: Any) -> Any:
    return node.count, {t: counts(c) for t, c in node.children.items()}


def nodes(node: Any) -> list[Any]:
    return [node, *(n for child in node.children.values() for n in nodes(child))]


# ---- the order of equally frequent continuations, recorded by the library's rule -----


@pytest.mark.parametrize(
    ("after", "order"),
    [
        ([1, 2], [1, 2]),  # new ones go last
        ([1, 2, 2], [2, 1]),
        ([1, 2, 2, 1], [1, 2]),  # one behind: to the head of its new group
        ([1, 2, 3, 3, 2], [3, 2, 1]),
        ([1, 2, 3, 3, 2, 1], [1, 3, 2]),
        ([1, 2, 3, 2], [2, 1, 3]),  # equal: before the head of its old group, behind the next one's tail
        ([1, 2, 3, 2, 3], [2, 3, 1]),
        ([1, 1, 2, 3, 3], [1, 3, 2]),
    ],
)
def test_the_order_of_siblings(after: list[int], order: list[int]) -> None:
    node = SuffixTree(2)._root
    for token in after:
        node.grow(token)
    assert node.order == order


# ---- over rows and requests ----------------------------------------------------------------------------------------


def test_rows_do_not_learn_from_each_other_by_default() -> None:
    drafter = built()
    first, second = row_of(EXAMPLE), row_of([9, 9, 9, 1, 2, 3, 4], 1)
    drafter.begin(first, {})
    drafter.begin(second, {})
    draft = drafter.propose([first, second], [4, 4])
    assert draft.counts == [4, 0]
    assert not drafter.stateful


def test_what_was_committed_is_known_at_the_next_step() -> None:
    drafter, row = built(), row_of([1, 2, 3])
    drafter.begin(row, {})
    assert drafter.look_up(row, 4) == []
    row.ids.extend([4, 5, 1, 2, 3])
    drafter.commit([row], [0], {})
    assert drafter.look_up(row, 3) == [4, 5, 1]


def talk(drafter: Suffix, prompt: Sequence[int], answer: Sequence[int], room: int = 4, index: int = 0) -> list[int]:
    """One request: what it is proposed after its first token, then its answer committed."""
    row = Row(index, [*prompt, answer[0]], len(prompt), 99, np.random.default_rng(0))
    drafter.begin(row, {})
    found = list(drafter.look_up(row, room))
    row.ids.extend(answer[1:])
    drafter.commit([row], [len(answer) - 2], {})
    drafter.end(row)
    return found


def test_earlier_answers_but_not_prompts_are_remembered_when_asked() -> None:
    drafter = built(max_cached_requests=-1)
    assert drafter.stateful
    assert talk(drafter, [50, 51], [60, 61, 62, 63]) == []
    assert talk(drafter, [90, 60], [61, 7]) == [62, 63]  # of the answer 60, 61, 62, 63
    assert talk(drafter, [90, 50], [51, 7]) == []  # 50, 51 was a prompt


def test_the_oldest_request_is_forgotten_first() -> None:
    drafter = built(max_cached_requests=2)
    talk(drafter, [0, 0], [10, 11, 12])
    talk(drafter, [0, 0], [20, 21, 22])
    assert talk(drafter, [90, 20], [21, 7]) == [22]
    assert talk(drafter, [90, 10], [11, 7]) == []


def test_age_counts_from_a_requests_beginning_also_where_a_later_one_ended_first() -> None:
    """Rows 0 and 1 run side by side, and the one that began first ends last: it is still the first to go."""
    drafter = built(max_cached_requests=2)
    old = Row(0, [0, 10], 1, 99, np.random.default_rng(0))
    new = Row(1, [0, 20], 1, 99, np.random.default_rng(0))
    for row, rest in ((old, [11, 12]), (new, [21, 22])):
        drafter.begin(row, {})
        row.ids.extend(rest)
        drafter.commit([row], [1], {})
    drafter.end(new)
    drafter.end(old)
    assert talk(drafter, [90, 20], [21, 7]) == [22]
    assert talk(drafter, [90, 10], [11, 7]) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"depth": 1}, "depth: at least 2"),
        ({"depht": 8}, "Did you mean 'depth'"),
        ({"factor": -1}, "factor: at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        built(**settings)
