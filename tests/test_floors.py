"""The house keeps its floors: a module imports only from floors below, and heavy packages stay in their rooms."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "speedbench"

FLOORS = (
    "types errors content",
    "catalog library plugins settings environment files resuming runfile locks attendant stats trained prepared "
    "costs modelfacts native serving",
    "task runner sizing workload walk prepare measure results columns pairing untrusted "
    "sources drafters backends metrics",
    "sweep executors replay summarise recommend validate profiles leaderboard interchange compare report advise",
    "cli",
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS, start=1) for room in rooms.split()}

EQUAL_ROOMS = {"sources", "drafters", "backends", "metrics", "executors"}
"""Folders whose files do not know each other."""

ALLOWED = {
    "torch": {"native", "backends/native"},
    "transformers": {"native", "backends/native"},
    "safetensors": {"native", "backends/native"},
    "gguf": {"native", "backends/native"},
    "tokenizers": {"native", "backends/native"},
    "pandas": {"interchange/frames", "results", "summarise", "columns", "leaderboard", "compare", "report"},
    "pyarrow": {"sources", "prepare", "prepared", "replay"},
    "huggingface_hub": {"prepare/origins", "native/counting", "native/weights", "modelfacts"},
    "tiktoken": {"prepare/lengths"},
    "pydantic": {"catalog", "runfile", "results", "compare", "leaderboard", "profiles", "sweep/orders"},
    "yaml": {"catalog", "interchange/acceptance"},
    "typer": {"cli"},
    "rich": {"cli"},
    "prometheus_client": {"serving/prometheus"},
    "click": set(),
    "aiohttp": {"serving"},
    "altair": {"report"},
    "vl_convert": {"report"},
    "ray": {"executors/ray"},
    "submitit": {"executors/slurm"},
    "aiconfigurator_core": {"advise/aiconfigurator"},
}
"""Where a package may be imported, by room or by file; a package that is not here may be imported anywhere."""

FILES = sorted(PACKAGE.rglob("*.py"))


def place(file: Path) -> tuple[str, str]:
    """A file's room and its name within the package: ('drafters', 'drafters/ngram')."""
    name = file.relative_to(PACKAGE).with_suffix("").as_posix()
    return name.partition("/")[0], name


def imported(file: Path) -> set[str]:
    """Every module a file imports, at the top or within a function, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} line {node.lineno}: write imports from speedbench in full"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def own(file: Path) -> set[str]:
    """The rooms and files of speedbench that a file imports: `drafters/ngram`, `types`."""
    found = set()
    for name in imported(file):
        first, _, rest = name.partition(".")
        parts = rest.split(".")
        if first != "speedbench" or parts[0] == "__version__":
            continue
        inner = "/".join(parts[:2])
        found.add(inner if (PACKAGE / f"{inner}.py").is_file() else parts[0])
    return found


def identity(file: Path) -> str:
    return place(file)[1]


@pytest.mark.parametrize("file", FILES, ids=identity)
def test_a_module_imports_only_from_floors_below(file: Path) -> None:
    room, name = place(file)
    if room in {"__init__", "__main__"}:
        return
    assert room in FLOOR, f"{name}: give it a floor here and in CONTRIBUTING"
    for other in own(file):
        there = other.partition("/")[0]
        if there == room and "/" in name:
            continue  # rooms of several files are looked at below
        assert FLOOR[there] < FLOOR[room], f"{name} (floor {FLOOR[room]}) imports {other} (floor {FLOOR[there]})"


@pytest.mark.parametrize("file", [file for file in FILES if place(file)[0] in EQUAL_ROOMS], ids=identity)
def test_equal_rooms_do_not_import_each_other(file: Path) -> None:
    room, name = place(file)
    neighbours = {other for other in own(file) if other.partition("/")[0] == room and other != name}
    assert not neighbours, f"{name} imports {neighbours}; what they share stands on a floor below"


@pytest.mark.parametrize("file", [file for file in FILES if place(file)[0] == "cli"], ids=identity)
def test_a_verb_does_not_import_another_verb(file: Path) -> None:
    for other in own(file) - {"cli"}:
        if other.startswith("cli/"):
            tree = ast.parse((PACKAGE / f"{other}.py").read_text(encoding="utf-8"))
            verb = any(isinstance(node, ast.FunctionDef) and node.name == "command" for node in tree.body)
            assert not verb, f"{identity(file)} imports the verb {other}"


@pytest.mark.parametrize("file", FILES, ids=identity)
def test_heavy_packages_are_imported_only_where_allowed(file: Path) -> None:
    room, name = place(file)
    for package in {module.partition(".")[0] for module in imported(file)} & set(ALLOWED):
        assert {room, name} & ALLOWED[package], f"{name} imports {package}"


@pytest.mark.parametrize("file", [*(PACKAGE / "types").glob("*.py"), PACKAGE / "errors.py"], ids=identity)
def test_the_ground_floor_stands_on_the_standard_library_alone(file: Path) -> None:
    outside = {module.partition(".")[0] for module in imported(file)} - sys.stdlib_module_names
    assert outside <= {"speedbench", "__future__"}, f"{file.name} imports {outside}"


@pytest.mark.parametrize("file", FILES, ids=identity)
def test_a_file_is_short_and_says_what_it_is_for(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 350, f"{file.name}: split it"
    assert ast.get_docstring(ast.parse(text)), f"{file.name}: begin with a sentence"
    only_a_docstring = len(ast.parse(text).body) == 1
    assert only_a_docstring or "SPDX-License-Identifier: Apache-2.0" in text, f"{file.name}: no licence line"
