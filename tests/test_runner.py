"""Labels become draft mechanisms with settings, and pairs that do not work are refused before anything loads."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from speedbench import catalog, plugins, runner
from speedbench.errors import UnknownName, Unsupported, UserError
from speedbench.types import Drafting, Runner

RUNNER = Runner(
    name="r",
    title="R",
    backend="native",
    model="m",
    engine={"dtype": "float32", "threads": 2},
    drafters={"tiny": {"drafter": "external", "model": "m2"}, "ngram": {"match": "latest"}},
)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three mechanisms and two backends, whatever the package ships; `external` runs on one of them only."""
    have = {"drafters": ("external", "ngram", "none"), "backends": ("native", "vllm")}
    tables = {"external": {"vllm": None}, "ngram": {"native": None, "vllm": None}, "none": {"native": None}}
    monkeypatch.setattr(plugins, "names", lambda kind: have[kind])
    monkeypatch.setattr(plugins, "load", lambda _, name: SimpleNamespace(name=name, backends=tables[name]))


@pytest.mark.usefixtures("house")
def test_a_label_is_first_a_drafter_of_the_runner_then_a_mechanism() -> None:
    assert runner.draftings(RUNNER, ["tiny", "ngram", "external", "none"]) == [
        Drafting(label="tiny", drafter="external", settings={"model": "m2"}),
        Drafting(label="ngram", drafter="ngram", settings={"match": "latest"}),
        Drafting(label="external", drafter="external"),
        Drafting(label="none", drafter="none"),
    ]


@pytest.mark.usefixtures("house")
def test_a_label_given_twice_counts_once() -> None:
    assert [one.label for one in runner.draftings(RUNNER, ["ngram", "tiny", "ngram"])] == ["ngram", "tiny"]


@pytest.mark.usefixtures("house")
def test_an_unknown_label_gets_the_nearest_of_labels_and_mechanisms() -> None:
    with pytest.raises(UnknownName, match=r"no drafter named 'tinny'\. Did you mean 'tiny'\?"):
        runner.draftings(RUNNER, ["tinny"])
    with pytest.raises(UnknownName, match=r"Did you mean 'ngram'\?"):
        runner.draftings(RUNNER, ["ngrm"])


@pytest.mark.usefixtures("house")
def test_overrides_reach_the_engine_and_the_drafters_and_leave_the_rest() -> None:
    overrides = {"engine": {"dtype": "bfloat16"}, "ngram": {"match": "first", "n": 3}, "tiny": {"drafter": "ngram"}}
    assert runner.overridden(RUNNER, overrides).engine == {"dtype": "bfloat16", "threads": 2}
    ngram, tiny = runner.draftings(RUNNER, ["ngram", "tiny"], overrides)
    assert ngram.settings == {"match": "first", "n": 3}
    assert (tiny.drafter, tiny.settings) == ("ngram", {"model": "m2"})
    assert RUNNER.engine["dtype"] == "float32"


@pytest.mark.usefixtures("house")
def test_an_override_that_reaches_nothing_in_this_run_is_an_error() -> None:
    with pytest.raises(UnknownName, match=r"no --set target in this run named 'ngrm'\. Did you mean 'ngram'\?"):
        runner.draftings(RUNNER, ["ngram"], {"ngrm": {"n": 3}})
    with pytest.raises(UnknownName, match="named 'external'"):
        runner.draftings(RUNNER, ["ngram"], {"external": {"model": "x"}})


@pytest.mark.usefixtures("house")
def test_a_pair_that_does_not_work_names_what_does() -> None:
    ngram, tiny = runner.draftings(RUNNER, ["ngram", "tiny"])
    runner.check(RUNNER, ngram)
    with pytest.raises(Unsupported, match="drafter 'external' does not run on 'native'; it runs on: vllm"):
        runner.check(RUNNER, tiny)


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("backend: natve", "no backend named 'natve'. Did you mean 'native'?"),
        ("backend: native\ndrafters: {a/b: {}}", "drafters.a/b: a label should be letters, digits, - and _"),
        ("backend: native\ndrafters: {engine: {drafter: ngram}}", "and not 'engine'"),
        (
            "backend: native\ndrafters: {tiny: {drafter: extrenal}}",
            "no drafter named 'extrenal'. Did you mean 'external'?",
        ),
        ("backend: native\ndrafters: {tiny: {}}", "no drafter named 'tiny'"),
        ("backend: native\ndrafters: {1: {}}", "drafters.1: should be text"),
        ("backend: native\nengin: {}", "engin: unknown key, line 4. Did you mean 'engine'?"),
    ],
)
def test_a_malformed_runner_is_named(tmp_path: Path, lines: str, said: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"title: T\nmodel: m\n{lines}\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        runner.load(str(path))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", catalog.names("runners"))
def test_every_shipped_runner_loads_and_its_drafters_run_on_its_backend(name: str) -> None:
    loaded = runner.load(name)
    for drafting in runner.draftings(loaded, ["none", *loaded.drafters]):
        runner.check(loaded, drafting)
