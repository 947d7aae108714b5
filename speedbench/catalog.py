"""Reads the YAML of tasks and runners, by name or by path, into frozen values: the only parser of definitions."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speedbench.content import folder
from speedbench.errors import UnknownName, UserError
from speedbench.types import Hardware, Runner, Task

if TYPE_CHECKING:
    from importlib.abc import Traversable

Kind = Literal["tasks", "runners", "hardware", "golden"]
Schema = TypeVar("Schema", bound=BaseModel)

FILES = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
"""Files of prompts that are tasks as they are, with the source that reads them."""


class TaskFile(BaseModel):
    """What a task's YAML may say; its name is the file's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field(min_length=1)
    version: int = Field(ge=1)
    licence: str = Field(min_length=1)
    source: str
    where: dict[str, Any]
    max_tokens: int = Field(default=64, ge=1)
    system: str | None = None
    columns: list[str] = []
    representative: bool = True


class RunnerFile(BaseModel):
    """What a runner's YAML may say; its name is the file's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field(min_length=1)
    backend: str
    model: str = Field(min_length=1)
    engine: dict[str, Any] = {}
    drafters: dict[str, dict[str, Any]] = {}
    tokenizer: str = ""


class AcknowledgedFile(BaseModel):
    """A regression that somebody answers for, until a day."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gate: str
    until: date
    reason: str = Field(min_length=1)
    by: str = Field(min_length=1)
    cell: str = ""


class GatesFile(BaseModel):
    """What a file of gates may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gates: list[str] = Field(min_length=1)
    acknowledged: list[AcknowledgedFile] = []


class HardwareFile(BaseModel):
    """What a device's YAML may say: dense peaks in TB/s, TFLOPS, GB and GB/s one way; AIConfigurator's name of it."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(min_length=1)
    source: str = Field(min_length=1)
    bandwidth_tbs: float = Field(gt=0)
    memory_gb: float | None = Field(default=None, gt=0)
    tflops: dict[Literal["float32", "bfloat16", "fp8", "fp4"], float] = {}
    link_gbs: float | None = Field(default=None, gt=0)
    aiconfigurator: str | None = None


# ---- where definitions live -----------------------------------------------------------------------------------------


def names(kind: Kind) -> tuple[str, ...]:
    """The shipped definitions, sorted."""
    return tuple(
        sorted(item.name.removesuffix(".yaml") for item in folder(kind).iterdir() if item.name.endswith(".yaml"))
    )


def read(where: str, file: str) -> str:
    """The text of a file that a definition in the folder `where` refers to; shipped folders may lie inside a zip."""
    return _text(located(where, file), file)


def located(where: str, file: str) -> Traversable:
    """The same file, unread."""
    shipped = folder("tasks")
    base: Traversable = shipped if where == str(shipped) else Path(where)
    return base / file


# ---- definitions ----------------------------------------------------------------------------------------------------


def task(name: str) -> Task:
    """A shipped task by name, or the one in a .yaml; a file of prompts makes a task on the fly."""
    if Path(name).suffix in FILES:
        return _task_of_rows(Path(name))
    stem, base, spec = _definition("tasks", name, TaskFile)
    return Task(name=stem, folder=base, **{**spec.model_dump(), "columns": tuple(spec.columns)})


def runner(name: str) -> Runner:
    """A shipped runner by name, or the one in a .yaml."""
    stem, _, spec = _definition("runners", name, RunnerFile)
    return Runner(name=stem, **spec.model_dump())


def gates(path: str) -> GatesFile:
    """The gates that results must pass, as a file has them."""
    return _validated(_text(Path(path), path), path, GatesFile)


def hardware(name: str) -> Hardware:
    """A shipped device by name, or the one in a .yaml."""
    stem, _, spec = _definition("hardware", name, HardwareFile)
    return Hardware(
        name=stem,
        title=spec.title,
        bandwidth=spec.bandwidth_tbs * 1e12,
        memory=spec.memory_gb and spec.memory_gb * 1e9,
        flops={dtype: peak * 1e12 for dtype, peak in spec.tflops.items()},
        link=spec.link_gbs and spec.link_gbs * 1e9,
        tables=spec.aiconfigurator,
        source=spec.source,
    )


def golden(name: str) -> dict[str, Any]:
    """Published acceptance lengths by target and mode, as InferenceX writes them: shipped by name, or in a .yaml."""
    if name.endswith((".yaml", ".yml")):
        return mapping(name)
    if name not in names("golden"):
        raise UnknownName("golden curve", name, names("golden"))
    found = _tree(_text(folder("golden") / f"{name}.yaml", name), f"golden/{name}.yaml")[0]
    return dict(found)


def value(text: str) -> Any:
    """One value as YAML types it: `4` a number, `true` a switch, `[1, 2]` a list."""
    return _tree(text, repr(text))[0]


def mapping(path: str) -> dict[str, Any]:
    """The keys of any YAML file that holds one mapping."""
    found = _tree(_text(Path(path), path), path)[0]
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserError(f"{path} does not read: should hold keys and values (got {type(found).__name__})")
    return found


def _task_of_rows(path: Path) -> Task:
    if not path.is_file():
        raise UserError(f"no file '{path}'")
    return Task(
        name=path.stem,
        title=f"the prompts of {path.name}",
        version=1,
        licence="unknown",
        source=FILES[path.suffix],
        where={"file": path.name},
        folder=str(path.parent),
    )


def _definition(kind: Kind, name: str, schema: type[Schema]) -> tuple[str, str, Schema]:
    """The stem, the folder and the validated content of a definition. Only a path reaches outside what is shipped."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return path.stem, str(path.parent), _validated(_text(path, name), name, schema)
    if name not in names(kind):
        endings = f".yaml, .yml, {_either(FILES)}" if kind == "tasks" else ".yaml or .yml"
        beside = f"; or a path ending in {endings}" if "/" in name or Path(name).suffix else ""
        raise UnknownName(kind.removesuffix("s"), name, names(kind), beside)
    base = folder(kind)
    return name, str(base), _validated(_text(base / f"{name}.yaml", name), f"{kind}/{name}.yaml", schema)


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def _text(file: Traversable, shown: str) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, KeyError):
        raise UserError(f"no file '{shown}'") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown} does not read: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise UserError(f"{shown} does not read: {error.strerror}") from None


# ---- YAML -----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Safe loading that refuses what hides a mistake: the same key twice, and aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed here", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the safe loader refuses it as unhashable
            if key.value in first:
                problem = f"key '{key.value}' stands twice, first on line {first[key.value]}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            first[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(  # YAML 1.1 takes 1.0e-7 for a number and 1e-7 for text
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _tree(text: str, shown: str) -> tuple[Any, yaml.Node | None]:
    """The data of a YAML text and its nodes, which know their lines."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except yaml.MarkedYAMLError as error:
        raise UserError(f"{shown} does not read: {_complaint(error)}") from None
    except (yaml.YAMLError, ValueError) as error:  # a control character; a date such as 2026-13-40
        raise UserError(f"{shown} does not read: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{shown} does not read: nested too deeply") from None


def _complaint(error: yaml.MarkedYAMLError) -> str:
    """A fault of the YAML itself in words: `line 3: expected ',' or ']' (begun on line 2)`."""
    mark, begun = error.problem_mark or error.context_mark, error.context_mark
    place = f"line {mark.line + 1}: " if mark else ""
    since = f" (begun on line {begun.line + 1})" if mark and begun and begun.line != mark.line else ""
    return f"{place}{error.problem or error.context}{since}"


def _validated(text: str, shown: str, schema: type[Schema]) -> Schema:
    data, node = _tree(text, shown)
    if data is None:
        raise UserError(f"{shown} does not read: it is empty; needs {', '.join(_needed(schema))}")
    if not isinstance(data, dict):
        raise UserError(f"{shown} does not read: should be a mapping of keys (got {type(data).__name__})")
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        faults = [_fault(fault, node, schema) for fault in error.errors(include_url=False)]
        raise UserError(f"{shown} does not read: {'; '.join(faults)}") from None


def _needed(schema: type[BaseModel]) -> list[str]:
    return [name for name, field in schema.model_fields.items() if field.is_required()]


def _fault(fault: Mapping[str, Any], node: yaml.Node | None, schema: type[BaseModel]) -> str:
    """One wrong key in words: `max_tokens: should be an integer (got 'many'), line 6`."""
    place = [str(part) for part in fault["loc"] if part != "[key]"]
    key, line = ".".join(place), _line(node, place)
    if fault["type"] == "missing":
        return f"{key}: is missing"
    if fault["type"] == "extra_forbidden":
        close = get_close_matches(key, schema.model_fields, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        return f"{key}: unknown key, line {line}.{hint} Have: {', '.join(schema.model_fields)}"
    said = fault["msg"].removeprefix("Input ").removeprefix("String ")
    for formal, plain in (
        ("a valid integer", "an integer"),
        ("a valid string", "text"),
        ("a valid dictionary", "a mapping"),
    ):
        said = said.replace(formal, plain)
    return f"{key}: {said} (got {_short(fault['input'])}), line {line}"


def _short(got: object) -> str:
    shown = repr(got)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _line(node: yaml.Node | None, place: Sequence[str]) -> int:
    """The line of the deepest key on the way to `place`."""
    line = 1
    for part in place:
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
            continue
        if not isinstance(node, yaml.MappingNode):
            break
        found = [(key, inner) for key, inner in node.value if key.value == part]
        if not found:
            break
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line
