"""The folders are the registry: every file in them loads and is named after its file."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
import sys

import pytest

from speedbench import plugins
from speedbench.errors import Missing, UnknownName

EVERY = [(kind, name) for kind in plugins.ATTRIBUTES for name in plugins.names(kind)]


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=[f"{kind}/{name}" for kind, name in EVERY])
def test_every_plugin_loads_and_is_named_after_its_file(kind: plugins.Kind, name: str) -> None:
    if (kind, name) == ("backends", "native"):
        pytest.importorskip("torch")
    if kind == "executors" and name != "local":
        pytest.importorskip({"slurm": "submitit"}.get(name, name))
    found = plugins.load(kind, name)
    if kind in ("drafters", "backends", "executors"):
        assert found.name == name
        assert found.title
    elif kind == "metrics":
        assert isinstance(found, tuple)
        assert found
    else:
        assert callable(found)


def test_no_two_metrics_share_a_name() -> None:
    have = [metric.name for family in plugins.names("metrics") for metric in plugins.load("metrics", family)]
    assert len(set(have)) == len(have)


def test_every_folder_has_something_in_it() -> None:
    assert {"inline", "jsonl"} <= set(plugins.names("sources"))
    assert "none" in plugins.names("drafters")
    assert "native" in plugins.names("backends")
    assert plugins.names("metrics")
    assert {"local", "ray", "slurm"} <= set(plugins.names("executors"))


def test_names_and_titles_come_without_importing_any_plugin() -> None:
    code = """
import sys
from speedbench import plugins
for kind in plugins.ATTRIBUTES:
    for name in plugins.names(kind):
        assert plugins.title(kind, name), name
loaded = [name for name in sys.modules if name.startswith(tuple(f"speedbench.{kind}." for kind in plugins.ATTRIBUTES))]
assert not loaded and "torch" not in sys.modules, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no source named 'jsnl'\. Did you mean 'jsonl'\?"):
        plugins.load("sources", "jsnl")
    with pytest.raises(UnknownName, match="no source named '__init__'"):
        plugins.load("sources", "__init__")


def test_a_package_that_is_not_there_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch.nn")

    monkeypatch.setattr(plugins, "import_module", absent)
    with pytest.raises(Missing, match=r'source \'jsonl\' needs the package torch: pip install "speedbench\[native\]"'):
        plugins.load("sources", "jsonl")
