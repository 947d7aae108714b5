"""Settings: defaults filled in, and unknown keys, wrong types and odd words refused by name."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from speedbench.errors import UnknownName, UserError
from speedbench.settings import at_least, resolve

DEFAULTS: dict[str, Any] = {"depth": 64, "factor": 1.0, "static": False, "match": "earliest", "threads": None}


def test_what_is_not_given_has_its_default() -> None:
    assert resolve("x", {}, DEFAULTS) == DEFAULTS
    assert resolve("x", {"depth": 8}, DEFAULTS) == {**DEFAULTS, "depth": 8}


def test_the_defaults_stay_as_they_are() -> None:
    resolve("x", {"depth": 8}, DEFAULTS)
    assert DEFAULTS["depth"] == 64


def test_an_unknown_key_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"no setting of ngram named 'dept'\. Did you mean 'depth'\? Have: depth, "):
        resolve("ngram", {"dept": 8}, DEFAULTS)
    with pytest.raises(UnknownName, match=r"named 'zzz'\. Have: "):
        resolve("ngram", {"zzz": 8}, DEFAULTS)
    with pytest.raises(UnknownName, match=r"named 'a'\. Have: none"):
        resolve("none", {"a": 1}, {})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"depth": "8"}, r"x.depth: should be an integer \(got '8'\)"),
        ({"depth": 8.0}, r"x.depth: should be an integer \(got 8.0\)"),
        ({"depth": True}, r"x.depth: should be an integer \(got True\)"),
        ({"depth": None}, r"x.depth: should be an integer \(got None\)"),
        ({"factor": "1"}, r"x.factor: should be a number \(got '1'\)"),
        ({"factor": False}, r"x.factor: should be a number \(got False\)"),
        ({"static": 1}, r"x.static: should be true or false \(got 1\)"),
        ({"static": "yes"}, r"x.static: should be true or false \(got 'yes'\)"),
        ({"match": 3}, r"x.match: should be a word \(got 3\)"),
    ],
)
def test_a_value_of_another_type_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        resolve("x", given, DEFAULTS)


def test_an_integer_may_stand_for_a_number() -> None:
    assert resolve("x", {"factor": 2}, DEFAULTS)["factor"] == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_is_finite(value: float) -> None:
    for key in ("factor", "threads"):
        with pytest.raises(UserError, match=rf"x.{key}: should be a finite number"):
            resolve("x", {key: value}, DEFAULTS)


def test_what_has_no_default_takes_anything() -> None:
    for value in (None, 4, "four", [4]):
        assert resolve("x", {"threads": value}, DEFAULTS)["threads"] == value


def test_a_word_is_one_of_the_choices() -> None:
    choices = {"match": ("earliest", "latest")}
    assert resolve("x", {"match": "latest"}, DEFAULTS, choices)["match"] == "latest"
    with pytest.raises(UserError, match=r"x.match: one of earliest, latest \(got 'first'\)"):
        resolve("x", {"match": "first"}, DEFAULTS, choices)


def test_a_number_has_its_least() -> None:
    at_least("x", {"depth": 2, "threads": None}, depth=2, threads=1)
    with pytest.raises(UserError, match=r"x.depth: at least 2 \(got 1\)"):
        at_least("x", {"depth": 1}, depth=2)


@pytest.mark.parametrize("value", ["two", True, [1]])
def test_what_should_have_a_least_is_a_number(value: Any) -> None:
    with pytest.raises(UserError, match=r"x\.threads: should be a number"):
        at_least("x", {"threads": value}, threads=1)
