"""Definitions read by name or by path, and what is wrong with them is said with file, key and line."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedbench import catalog
from speedbench.errors import UnknownName, UserError

GOOD = """\
title: Mine
version: 3
licence: CC0-1.0
source: inline
where:
  prompts: [Hello.]
max_tokens: 32
"""


def written(folder: Path, text: str, name: str = "x.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as caught:
        catalog.task(written(folder, text))
    said = str(caught.value)
    assert "\n" not in said
    return said.removeprefix(f"{folder}/")


def test_a_path_gives_a_task_named_after_its_file(tmp_path: Path) -> None:
    task = catalog.task(written(tmp_path, GOOD, "mine.yaml"))
    assert (task.name, task.title, task.version, task.max_tokens) == ("mine", "Mine", 3, 32)
    assert task.where == {"prompts": ["Hello."]}
    assert task.folder == str(tmp_path)


def test_every_shipped_name_reads() -> None:
    assert [catalog.task(name).name for name in catalog.names("tasks")] == list(catalog.names("tasks"))
    assert [catalog.runner(name).name for name in catalog.names("runners")] == list(catalog.names("runners"))
    assert "smollm2-135m" in catalog.names("runners")


def test_a_wrong_value_is_named_with_its_key_value_and_line(tmp_path: Path) -> None:
    said = complaint(tmp_path, GOOD.replace("32", "many"))
    assert said == "x.yaml does not read: max_tokens: should be an integer (got 'many'), line 7"


def test_numbers_are_not_guessed_from_text(tmp_path: Path) -> None:
    assert "version: should be an integer (got '3')" in complaint(tmp_path, GOOD.replace("3\n", "'3'\n", 1))
    assert "version: should be an integer (got True)" in complaint(tmp_path, GOOD.replace("3\n", "yes\n", 1))
    assert "max_tokens: should be greater than or equal to 1 (got 0)" in complaint(tmp_path, GOOD.replace("32", "0"))


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    said = complaint(tmp_path, GOOD.replace("max_tokens", "max_token"))
    assert "max_token: unknown key, line 7. Did you mean 'max_tokens'?" in said


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert "licence: is missing" in complaint(tmp_path, GOOD.replace("licence: CC0-1.0\n", ""))


def test_the_same_key_twice_is_an_error_with_both_lines(tmp_path: Path) -> None:
    assert "line 8: key 'title' stands twice, first on line 1" in complaint(tmp_path, GOOD + "title: Other\n")


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    said = complaint(tmp_path, "title: Mine\nversion: [1\n")
    assert said.startswith("x.yaml does not read: line 3: expected ',' or ']'")
    assert said.endswith("(begun on line 2)")


def test_aliases_and_python_objects_are_refused(tmp_path: Path) -> None:
    assert "aliases" in complaint(tmp_path, "title: &t Mine\nlicence: *t\n")
    assert "could not determine a constructor" in complaint(tmp_path, "title: !!python/object/apply:os.getcwd []\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "it is empty"), ("# only a comment\n", "it is empty"), ("- 1\n", "should be a mapping of keys")],
)
def test_an_empty_file_or_a_list_is_not_a_task(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"title: \xff\xfe\n")
    with pytest.raises(UserError, match=r"x\.yaml does not read: not UTF-8 at byte 7"):
        catalog.task(str(path))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"no file 'nowhere/x\.yaml'"):
        catalog.task("nowhere/x.yaml")


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"no task named 'dmeo'\. Did you mean 'demo'\?"):
        catalog.task("dmeo")
    with pytest.raises(UnknownName, match="no runner named"):
        catalog.runner("../runners/smollm2-135m")


def test_what_lies_in_the_current_folder_does_not_shadow_a_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = catalog.task("demo")
    (tmp_path / "demo").mkdir()
    written(tmp_path, GOOD, "demo.yaml")
    monkeypatch.chdir(tmp_path)
    assert catalog.task("demo") == shipped
    assert catalog.task("demo.yaml").title == "Mine"


def test_a_jsonl_is_a_task_on_the_fly(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt": "Hello."}\n', "own.jsonl")
    task = catalog.task(path)
    assert (task.name, task.licence, task.source, task.where) == ("own", "unknown", "jsonl", {"file": "own.jsonl"})
    with pytest.raises(UserError, match="no file"):
        catalog.task(str(tmp_path / "absent.jsonl"))


def test_a_runner_keeps_its_settings_as_they_are(tmp_path: Path) -> None:
    text = "title: T\nbackend: native\nmodel: m\nengine: {dtype: bfloat16, deep: {a: [1, 2]}}\n"
    text += "drafters: {tiny: {drafter: external}}\n"
    runner = catalog.runner(written(tmp_path, text))
    assert runner.engine == {"dtype": "bfloat16", "deep": {"a": [1, 2]}}
    assert runner.drafters == {"tiny": {"drafter": "external"}}


@given(st.text(alphabet=st.sampled_from(" \n:-[]{},?!&*#|>'\"%@`~01.ab\x00\t<"), max_size=30))
def test_any_text_is_a_value_or_a_user_error(text: str) -> None:
    with contextlib.suppress(UserError):
        catalog.value(text)


@pytest.mark.parametrize("text", ["? [a, b]\n: 1", "a\x00b", "2026-13-40", "[" * 3000, "{a: 1, a: 2}", "- - -\n?"])
def test_odd_yaml_is_a_user_error(text: str) -> None:
    with pytest.raises(UserError, match="does not read"):
        catalog.value(text)


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("0.5", 0.5), ("true", True), ("latest", "latest"), ("[1, 2]", [1, 2]), ("", None)]
)
def test_a_setting_is_typed_as_in_yaml(text: str, value: object) -> None:
    assert catalog.value(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-7", 1e-7), ("1e3", 1000.0), ("-2E+2", -200.0), ("1e", "1e"), ("e7", "e7"), ("1e-7x", "1e-7x")],
)
def test_a_number_with_an_exponent_is_a_number(text: str, value: object) -> None:
    assert catalog.value(text) == value
    assert type(catalog.value(text)) is type(value)
