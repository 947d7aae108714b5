"""N-gram look-up against its rule by brute force, and against transformers' own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from speedbench.drafters.ngram import DRAFTER
from speedbench.errors import UserError
from speedbench.native import ngram
from speedbench.native.ngram import NGram
from speedbench.native.proposer import Row


def row_of(ids: Sequence[int]) -> Row:
    return Row(0, list(ids), len(ids), 99, np.random.default_rng(0))


def proposed(ids: Sequence[int], room: int = 4, **settings: Any) -> list[int]:
    drafter = NGram(device=tiny.CPU, **settings)
    row = row_of(ids)
    drafter.begin(row, {})
    return list(drafter.look_up(row, room))


def by_definition(ids: Sequence[int], room: int, min_n: int, max_n: int, latest: bool) -> list[int]:
    """The longest suffix of max_n … min_n tokens that stands earlier; of its places the first or last."""
    for n in range(min(max_n, len(ids) - 1), min_n - 1, -1):
        places = [at for at in range(len(ids) - n) if list(ids[at : at + n]) == list(ids[-n:])]
        if places:
            after = (places[-1] if latest else places[0]) + n
            return list(ids[after : after + room])
    return []


# ---- the rule ------------------------------------------------------------------------------------------------------


def test_what_followed_the_same_tokens_is_proposed() -> None:
    assert proposed([1, 2, 3, 4, 5, 9, 1, 2]) == [3, 4, 5, 9]


def test_the_longest_suffix_wins_over_an_earlier_shorter_one() -> None:
    assert proposed([2, 3, 7, 1, 2, 3, 8, 1, 2, 3], room=1) == [8]
    assert proposed([2, 3, 7, 1, 2, 3, 8, 1, 2, 3], room=1, max_n=2) == [7]


def test_of_equal_suffixes_the_earliest_or_the_latest() -> None:
    ids = [1, 2, 7, 1, 2, 8, 1, 2]
    assert proposed(ids, room=1) == [7]
    assert proposed(ids, room=1, latest=True) == [8]


def test_a_match_may_overlap_the_suffix_and_the_proposal_end_with_the_row() -> None:
    assert proposed([5, 5, 5]) == [5]
    assert proposed([1, 2, 1, 2, 1, 2], room=9) == [1, 2]  # 1 2 1 2 stands at 0
    assert proposed([1, 2, 1, 2, 1, 2], room=9, max_n=2) == [1, 2, 1, 2]


def test_a_suffix_never_finds_itself() -> None:
    for latest in (False, True):
        assert proposed([1, 2, 3, 4], latest=latest) == []
        assert proposed([1, 2], latest=latest) == []
        assert proposed([1], min_n=1, latest=latest) == []


def test_at_most_the_room_is_proposed() -> None:
    assert [len(proposed([1, 2, 3, 4, 5, 1, 2], room=n)) for n in (1, 2, 3, 5)] == [1, 2, 3, 5]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=6),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_index_kept_token_by_token_finds_what_brute_force_finds(
    prompt: list[int], chunks: list[list[int]], min_n: int, more: int, room: int, latest: bool
) -> None:
    drafter = NGram(device=tiny.CPU, min_n=min_n, max_n=min_n + more, latest=latest)
    row = row_of(prompt)
    drafter.begin(row, {})
    for chunk in [[], *chunks]:
        row.ids.extend(chunk)
        drafter.commit([row], [0], {})
        assert list(drafter.look_up(row, room)) == by_definition(row.ids, room, min_n, min_n + more, latest)


def test_rows_have_their_own_index_and_a_new_row_starts_afresh() -> None:
    drafter = NGram(device=tiny.CPU)
    first, second = Row(0, [1, 2, 3, 1, 2], 5, 9, np.random.default_rng(0)), row_of([7, 8, 1, 2])
    second.index = 1
    drafter.begin(first, {})
    drafter.begin(second, {})
    draft = drafter.propose([first, second, None], [3, 3, 0])
    assert draft.counts == [3, 0, 0]
    assert draft.tokens[0].tolist() == [3, 1, 2]
    drafter.end(first)
    again = row_of([1, 2, 9, 1, 2])
    drafter.begin(again, {})
    assert drafter.look_up(again, 1) == [9]


def test_no_match_is_a_plain_step() -> None:
    """A target that never repeats itself: nothing proposed, one committed, every step."""
    made = tiny.model(seed=3)
    ids = tiny.prompt(9)
    expected, _ = tiny.plain(made, ids, 3)
    assert not set(expected) & set(ids)
    answer = tiny.decoded(tiny.lean(made), NGram(device=tiny.CPU), tiny.plan(4), [ids], 3)[0]
    assert answer.tokens == expected
    assert [(s.proposed, s.accepted, s.committed) for s in answer.steps] == [(0, 0, 1)] * 2


# ---- the engines' rules --------------------------------------------------------------------------------------------


def built(stops: frozenset[int] = frozenset(), **settings: Any) -> NGram:
    chosen = dict(DRAFTER.backends["native"](4, settings))
    assert chosen.pop("module") == "speedbench.native.ngram"
    return ngram.build(tiny.plan(4, stops=stops), None, **chosen)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=40),
    st.integers(1, 3),
    st.integers(1, 6),
    st.frozensets(st.integers(0, 4), max_size=2),
)
def test_the_transformers_rule_is_that_of_transformers(
    ids: list[int], max_n: int, room: int, stops: frozenset[int]
) -> None:
    from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

    oracle = PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(sorted(stops)) if stops else None,
        num_output_tokens=room,
        max_matching_ngram_size=max_n,
        max_length=1000,
    )
    expected = oracle.get_candidates(torch.tensor([ids]))[0][0, len(ids) :].tolist()
    drafter = built(stops, rule="transformers", max_n=max_n)
    row = row_of(ids)
    drafter.begin(row, {})
    assert list(drafter.look_up(row, room)) == expected


def test_the_rules_differ_in_sizes_and_in_stopping_before_an_end_token() -> None:
    stops = frozenset({9})
    vllm, transformers, trtllm = (built(stops, rule=r) for r in ("vllm", "transformers", "trtllm"))
    assert (vllm.min_n, vllm.max_n, vllm.latest, vllm.cut_before) == (2, 4, False, frozenset())
    assert (transformers.min_n, transformers.max_n, transformers.cut_before) == (1, 2, stops)
    assert (trtllm.min_n, trtllm.max_n, trtllm.cut_before) == (1, 2, frozenset())
    assert built(rule="trtllm", match="latest").latest
    assert (built(min_n=5, max_n=5).min_n, built().max_n) == (5, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rule": "llama"}, "rule: one of vllm, transformers, trtllm"),
        ({"match": "first"}, "match: one of earliest, latest"),
        ({"min_n": 0}, "min_n: at least 1"),
        ({"min_n": 5}, "min_n: at most ngram.max_n = 4"),
        ({"max_n": "4"}, "max_n: should be an integer"),
        ({"max_m": 4}, "Did you mean 'max_n'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        built(**settings)
