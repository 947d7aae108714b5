"""What is like for like: the facts of two runs, and which cell stands against which."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
from typing import Any

import pytest
from builders import cell

from speedbench.compare import cells, identity
from speedbench.compare.values import Facet

RUN: dict[str, Any] = {
    "schema": 1,
    "run": "r",
    "config": {
        "task": {"name": "demo", "content_hash": "aaaa", "requests": 80},
        "runner": {"name": "u", "backend": "native", "model": "org/model", "engine": {"dtype": "bfloat16"}},
        "target": {
            "model": "org/model", "dtype": "bfloat16", "weights": "1234", "threads": 2, "form": "lean",
            "engine": {"dtype": "bfloat16", "static": False},
        },
        "sampling": {"temperature": 0.0, "top_k": None, "top_p": None, "max_tokens": 64, "seed": 0},
        "draftings": [{"label": "ngram", "drafter": "ngram", "settings": {"max_n": 4}}],
        "drafters": {"ngram": {"settings": {"max_n": 4}, "warnings": ["w"]}},
    },
    "processes": [{"cpu": {"model": "EPYC", "usable": 2}, "gpus": [], "packages": {"torch": "2.13"}}],
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """The run with one fact another; `absent` takes it out."""
    made = copy.deepcopy(RUN)
    *way, last = path.split(".")
    place: Any = made
    for key in way:
        place = place[int(key)] if key.isdigit() else place[key]
    if value == "absent":
        del place[last]
    else:
        place[last] = value
    return made


def facet(name: str, base: dict[str, Any], cand: dict[str, Any], *vary: str) -> Facet:
    return next(each for each in identity.facets(base, cand, vary) if each.name == name)


def test_equal_documents_are_alike() -> None:
    assert all(each.same and not each.refuses for each in identity.facets(RUN, copy.deepcopy(RUN), ()))


@pytest.mark.parametrize(
    ("path", "value", "name", "said"),
    [
        ("config.task.content_hash", "bbbb", "data", "content_hash aaaa → bbbb"),
        ("config.target.weights", "5678", "target", "weights 1234 → 5678"),
        ("config.target.engine.static", True, "engine", "static false → true"),
        ("processes.0.packages.torch", "2.14", "engine", "packages.torch 2.13 → 2.14"),
        ("config.sampling.max_tokens", 128, "sampling", "max_tokens 64 → 128"),
        ("config.target.weights", "absent", "target", "weights 1234 → unknown"),
    ],
)
def test_what_differs_is_told_and_refused(path: str, value: Any, name: str, said: str) -> None:
    found = facet(name, RUN, changed(path, value))
    assert (found.told, found.refuses) == ((said,), True)
    same = [each.name for each in identity.facets(RUN, changed(path, value), ()) if each.same]
    assert len(same) == 4
    assert facet(name, RUN, changed(path, value), name).refuses == (name == "data")  # which may never vary


def test_other_hardware_refuses_nothing_but_is_told() -> None:
    found = facet("hardware", RUN, changed("processes.0.cpu.model", "Xeon"))
    assert (found.same, found.refuses, found.told) == (False, False, ("cpu EPYC → Xeon",))


def test_unknown_is_not_equal_to_unknown() -> None:
    nothing = changed("processes.0.gpus", None)
    found = facet("hardware", nothing, {**copy.deepcopy(nothing), "run": "s"})
    assert (found.same, found.told) == (False, ("gpus unknown",))


def test_a_run_is_like_itself_known_or_not() -> None:
    nothing = changed("processes.0.gpus", None)
    assert facet("hardware", nothing, nothing).same


def test_a_run_that_went_on_elsewhere_has_no_hardware() -> None:
    moved = copy.deepcopy(RUN)
    moved["processes"].append({**moved["processes"][0], "cpu": {"model": "Xeon", "usable": 2}})
    assert facet("hardware", RUN, moved).told == ("cpu EPYC → unknown",)


def test_nothing_is_known_of_a_summary_alone() -> None:
    assert all(each.refuses for each in identity.facets({}, RUN, ()) if each.name != "hardware")
    assert facet("data", {}, {}).told == ("content_hash unknown",)


def test_the_seed_matters_only_to_what_is_sampled() -> None:
    assert facet("sampling", RUN, changed("config.sampling.seed", 1)).same
    warm = changed("config.sampling.temperature", 1.0)
    other = copy.deepcopy(warm)
    other["config"]["sampling"]["seed"] = 1
    assert facet("sampling", warm, other).told == ("seed 0 → 1",)


def test_a_drafter_differs_by_its_settings_and_not_by_its_warnings() -> None:
    other = changed("config.drafters.ngram.warnings", [])
    assert identity.drafter(RUN, "ngram", other, "ngram") == ()
    other = changed("config.drafters.ngram.settings", {"max_n": 3})
    assert identity.drafter(RUN, "ngram", other, "ngram") == ("settings.max_n 4 → 3",)


@pytest.mark.parametrize("value", [None, 7, "x", [], [1], {"a": {"b": []}}], ids=repr)
def test_whatever_stands_in_a_run_json_only_makes_it_differ(value: Any) -> None:
    for path in (
        "config.task", "config.runner", "config.target", "config.sampling", "config.drafters", "config.target.engine",
        "config.drafters.ngram", "processes.0.cpu", "processes.0.gpus", "processes.0.packages", "config.runner.engine",
    ):  # fmt: skip
        other = changed(path, value)
        assert len(identity.facets(RUN, other, ())) == 5
        assert len(identity.facets(other, RUN, ())) == 5
        identity.drafter(RUN, "ngram", other, "ngram")
        assert identity.subject(other).isprintable()
        assert identity.version(other)


# ---- cells ---------------------------------------------------------------------------------------------------------

VARY = ("drafter", "D")


def paired(base: list[Any], cand: list[Any], vary: tuple[str, ...] = VARY) -> list[tuple[str, str]]:
    pairs, _, _ = cells.against(base, cand, vary)
    return [(cells.named(one), cells.named(other)) for one, other in pairs]


def test_equal_cells_stand_against_each_other() -> None:
    every = [cell("ngram", d) for d in (2, 4)]
    assert paired(every, every) == [("ngram D=2", "ngram D=2"), ("ngram D=4", "ngram D=4")]


def test_other_drafters_stand_against_each_other_at_the_same_d() -> None:
    base, cand = [cell("ngram", d) for d in (2, 4)], [cell("suffix", d) for d in (4, 2)]
    assert paired(base, cand) == [("ngram D=2", "suffix D=2"), ("ngram D=4", "suffix D=4")]
    assert paired(base, cand, ("D",)) == []


def test_one_cell_each_stands_against_whatever_may_vary() -> None:
    assert paired([cell("eagle3", 5)], [cell("mtp", 3)]) == [("eagle3 D=5", "mtp D=3")]
    assert paired([cell("eagle3", 5)], [cell("mtp", 3)], ("drafter",)) == []


def test_nothing_is_paired_by_guess() -> None:
    pairs, mine, theirs = cells.against([cell("a", 2), cell("b", 2)], [cell("c", 2)], VARY)
    assert (pairs, len(mine), len(theirs)) == ([], 2, 1)


def test_other_batch_sizes_are_never_paired() -> None:
    assert paired([cell("ngram", 4, b=1)], [cell("ngram", 4, b=4)]) == []
