"""Lists, ranges and settings on the command line: tolerant of slips that mean one thing only, strict about the rest."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedbench.cli import parse
from speedbench.errors import UnknownName, UserError

HAVE = ("coding", "math", "qa")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("coding, math", ["coding", "math"]),
        ("coding,", ["coding"]),
        (" ,math,,coding , math", ["math", "coding"]),
    ],
)
def test_names_bear_spaces_commas_and_repetition(text: str, found: list[str]) -> None:
    assert parse.names(text, "--category", "category", HAVE) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1-3", ([1, 2, 3], {})),
        ("1-3,mtp:2", ([1, 2, 3], {"mtp": [2]})),
        ("mtp : 2 , 1,mtp:4-5", ([1], {"mtp": [2, 4, 5]})),
        ("ngram:8,mtp:1", ([], {"ngram": [8], "mtp": [1]})),
    ],
)
def test_draft_lengths_behind_a_label_are_that_drafters_own(text: str, found: object) -> None:
    assert parse.lengths(text, ["ngram", "mtp"]) == found


def test_a_mistyped_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no category named 'codng'\. Did you mean 'coding'\?"):
        parse.names("math,codng", "--category", "category", HAVE)


@pytest.mark.parametrize("text", ["", " ", ",,"])
def test_an_empty_list_says_what_it_needs(text: str) -> None:
    said = re.escape(f"--category: is empty (got {text!r}); needs one category or more, of: coding, math, qa")
    with pytest.raises(UserError, match=said):
        parse.names(text, "--category", "category", HAVE)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1-4,8", [1, 2, 3, 4, 8]), ("8, 1-3 ,2,", [1, 2, 3, 8]), ("0", [0]), ("5-5", [5]), ("3,3,3", [3])],
)
def test_ranges_and_lists_of_numbers(text: str, found: list[int]) -> None:
    assert parse.integers(text, "-D") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,3,3,x", "-D: 'x' does not read (got '1,3,3,x'); needs whole numbers from 0, as 8 or 1-4,8"),
        ("-1", "-D: '-1' does not read (got '-1'); needs whole numbers from 0"),
        ("1.5", "-D: '1.5' does not read"),
        ("", "-D: is empty (got ''); needs whole numbers from 0"),
        ("4-1", "-D: '4-1' runs backwards"),
        ("1-", "-D: '1-' does not read"),
        ("٣", "-D: '٣' does not read"),
        ("0-99999999", "-D: '0-99999999' is more than 10000 values"),
    ],
)
def test_what_is_no_list_of_numbers_is_named_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        parse.integers(text, "-D")


def test_numbers_outside_the_range_are_named_with_the_range() -> None:
    with pytest.raises(UserError, match=r"--concurrency: '0' is out of range .* whole numbers from 1 to 64"):
        parse.integers("0,4", "--concurrency", low=1, high=64)
    with pytest.raises(UserError, match="'60-65' is out of range"):
        parse.integers("60-65", "--concurrency", low=1, high=64)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_any_set_of_numbers_survives_being_written_out(numbers: set[int]) -> None:
    assert parse.integers(",".join(map(str, numbers)), "-D") == sorted(numbers)


@given(st.text(max_size=12))
def test_any_text_gives_numbers_or_a_user_error(text: str) -> None:
    try:
        found = parse.integers(text, "-D")
    except UserError:
        return
    assert found == sorted(set(found))


def test_settings_are_typed_as_in_yaml_and_grouped_by_what_they_set() -> None:
    found = parse.settings(
        ["ngram.match=latest", "ngram.n=3", "engine.dtype=bfloat16", "engine.flags={a: 1.5}", "x.y=a=b"]
    )
    assert found == {
        "ngram": {"match": "latest", "n": 3},
        "engine": {"dtype": "bfloat16", "flags": {"a": 1.5}},
        "x": {"y": "a=b"},
    }


@pytest.mark.parametrize("pair", ["ngram", "ngram.n", "n=3", ".n=3", "ngram.=3", "="])
def test_a_setting_without_target_key_or_value_is_refused(pair: str) -> None:
    with pytest.raises(UserError, match=r"--set: .* does not read; needs DRAFTER\.KEY=VALUE or engine\.KEY=VALUE"):
        parse.settings([pair])


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"--set: ngram\.n is given twice"):
        parse.settings(["ngram.n=3", "ngram.n=4"])
