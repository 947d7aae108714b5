"""The workflows in examples/ci: nothing runs that comes from a stranger, and every command line in them is one."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from speedbench import catalog
from speedbench.cli import document
from speedbench.cli import run as run_verb
from speedbench.compare import gates
from speedbench.compare.markdown import MARKER
from speedbench.compare.operand import key
from speedbench.types import Cell

FOLDER = Path(__file__).parent.parent / "examples" / "ci"
WORKFLOWS = sorted(FOLDER.glob("compare*.yml"))


def workflow(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def steps(name: str) -> list[Any]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def scripts(name: str) -> list[str]:
    return [step["run"] for step in steps(name) if "run" in step]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_is_shaped_as_github_reads_it(file: Path) -> None:
    found = workflow(file.name)
    assert found.keys() <= {"name", True, "permissions", "concurrency", "jobs"}  # `on` is true to YAML 1.1
    assert "permissions" in found
    for job in found["jobs"].values():
        assert {"runs-on", "steps", "timeout-minutes"} <= job.keys()
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_an_action_is_pinned_and_no_script_is_pasted_together(file: Path) -> None:
    for step in steps(file.name):
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", "actions/x@" + "0" * 40))
    for script in scripts(file.name):
        assert "${{" not in script, "what comes from outside goes through env, where no shell reads it as code"


def test_what_runs_a_pull_request_reads_only_and_has_no_secret() -> None:
    text = (FOLDER / "compare.yml").read_text("utf-8")
    assert workflow("compare.yml")[True] == {"pull_request": None}
    assert workflow("compare.yml")["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    checkouts = [step for step in steps("compare.yml") if "checkout" in step.get("uses", "")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_what_may_write_comments_runs_nothing_of_a_pull_request() -> None:
    found = workflow("compare-comment.yml")
    assert found[True]["workflow_run"]["workflows"] == [workflow("compare.yml")["name"]]
    assert found["permissions"] == {}
    assert found["jobs"]["comment"]["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert not any("checkout" in step.get("uses", "") for step in steps("compare-comment.yml"))
    assert "pull_request_target" not in (FOLDER / "compare-comment.yml").read_text("utf-8")
    assert MARKER in "".join(scripts("compare-comment.yml"))
    up, down = (
        next(step["with"]["name"] for step in steps(name) if part in step.get("uses", ""))
        for name, part in (("compare.yml", "upload-artifact"), ("compare-comment.yml", "download-artifact"))
    )
    assert up == down


def test_every_option_in_a_workflow_is_one() -> None:
    from scripts import Bench  # noqa: F401  the folder of tests is on the path

    from speedbench.cli import compare

    known = {"run": {f"--{name.replace('_', '-')}" for name in run_verb.DEFAULTS} | {"--config"}}
    known["compare"] = set(re.findall(r"--[a-z-]+", Path(compare.__file__).read_text("utf-8"))) | {
        "--gate", "--gates", "--vary", "--write", "--render",
    }  # fmt: skip
    found = 0
    for file in WORKFLOWS:
        for script in scripts(file.name):
            for line in script.splitlines():
                words = shlex.split(line) if line.startswith("speedbench ") else []
                for option in (word for word in words if word.startswith("--")):
                    assert option in known[words[1]], f"{file.name}: {line}"
                    found += 1
    assert found > 5


def cells() -> list[Cell]:
    """Those of bench.yaml."""
    asked = catalog.mapping(str(FOLDER / "bench.yaml"))
    like = {"task": asked["task"], "runner": asked["runner"], "concurrency": 1, "repeat": None}
    return [Cell(**like, drafter=asked["drafter"], draft_length=asked["draft_length"])]


def test_every_gate_of_the_example_asks_of_what_it_measures() -> None:
    found, known = gates.read(str(FOLDER / "gates.yaml"), document.metrics())
    assert [gate.text for gate in found if not any(gate.asks(cell) for cell in cells())] == []
    assert len(found) == 3
    assert known == []


def test_the_acknowledgement_of_the_example_reads(tmp_path: Path) -> None:
    text = (FOLDER / "gates.yaml").read_text("utf-8").replace("# acknowledged:", "acknowledged:").replace("#   ", "  ")
    (tmp_path / "gates.yaml").write_text(text, encoding="utf-8")
    _, known = gates.read(str(tmp_path / "gates.yaml"), document.metrics())
    assert [each.cell for each in known] == [key(cell) for cell in cells()]


def test_the_options_of_the_example_are_those_of_run() -> None:
    assert catalog.mapping(str(FOLDER / "bench.yaml")).keys() <= run_verb.DEFAULTS.keys()


@pytest.mark.parametrize("linter", [["actionlint"], ["zizmor", "--offline", "--quiet"]], ids=lambda words: words[0])
def test_a_linter_that_is_here_finds_nothing(linter: list[str]) -> None:
    if shutil.which(linter[0]) is None:
        pytest.skip(f"{linter[0]} is not installed")
    done = subprocess.run([*linter, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
