"""The prepared GPU script: its logic runs on a CPU with tiny shapes, and it needs no package but torch's and theirs."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    return module


def test_every_drafter_equals_plain_decoding_in_float32(script: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert script.main(["--tiny", "--only", "correctness", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))["correctness"]
    drafters = {"ngram", "suffix", "oracle", "external", "eagle3", "mtp", "dflash", "dspark"}
    assert set(found["float32"]) == set(found["bfloat16"]) == drafters | {"transformers"}
    assert all(each["equal"] == each["of"] == 4 for each in found["float32"].values())
    assert found["float32"]["oracle"]["al"] > 3


def test_replayed_steps_are_those_that_ran(script: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert script.main(["--tiny", "--only", "replay", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))["replay"]
    assert found.pop("of") == 16
    assert found.pop("seconds") > 0
    assert set(found) == {"ngram", "suffix", "external", "eagle3", "mtp", "dflash", "dspark"}
    assert all(each == {"differ, 4 at once": 0, "differ, 1 at once": 0} for each in found.values())


def test_curves_and_kernels_come_out_whole(script: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    for section in ("curves", "kernels"):
        assert script.main(["--tiny", "--only", section, "--minutes", "0.5", "--out", str(out)]) == 0
        found = json.loads(out.read_text("utf-8"))[section]
        if section == "curves":
            assert {each["drafter"] for each in found["timed"]} == {None, "ngram", "external", "eagle3"}
            assert [each["batch"] for each in found["formula"]] == [1, 2]
            assert all(each["formula"] > 0 and each["speedup"] > 0 for each in found["formula"])
        else:
            assert {each["study"] for each in found["kernels"]} == {"gemm", "attention"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_it_is_for(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 2
    assert "--tiny" in capsys.readouterr().err


def test_a_section_that_fails_does_not_take_the_others_with_it(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(check: object) -> dict[str, object]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(script, "SECTIONS", {"curves": (0.5, broken), "kernels": (0.5, script.kernels)})
    out = tmp_path / "found.json"
    assert script.main(["--tiny", "--out", str(out)]) == 1
    found = json.loads(out.read_text("utf-8"))
    assert "out of memory" in found["curves"]["error"]
    assert found["kernels"]["kernels"]


def test_it_needs_nothing_of_speedbench_s_own_dependencies() -> None:
    """A machine with torch and transformers alone has no pydantic, typer, pandas or psutil."""
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'pydantic', 'typer', 'pandas', 'psutil', 'gguf', 'aiohttp'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='gpu_check')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
