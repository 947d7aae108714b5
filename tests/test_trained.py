"""Drafters compared: every mechanism says what it takes, and trained ones are told from their files alone."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from speedbench import cli, content, plugins, trained
from speedbench.cli.list import FACTS, TRAITS, _dealt
from speedbench.errors import UserError

CHECKOUT = Path(__file__).parent.parent / "drafters"
MOST = 60e6
"""Bytes of all that `drafters/` holds: whoever clones the repository fetches them."""


def header(tensors: dict[str, dict[str, Any]]) -> bytes:
    """The beginning of a safetensors file, which is all that is read of it."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    return len(text).to_bytes(8, "little") + text


TENSORS = {
    "fc.weight": {"dtype": "BF16", "shape": [4, 12]},
    "norm.weight": {"dtype": "F32", "shape": [4]},
    "d2t": {"dtype": "I64", "shape": [3]},
}
CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(content, "drafters", lambda: tmp_path / "drafters")
    made = tmp_path / "drafters" / "tiny" / "eagle3"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (made / "model.safetensors").write_bytes(header(TENSORS))
    return made


# ---- from files ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_told_from_its_headers(folder: Path) -> None:
    """4 · 12 + 4 = 52 numbers, 104 bytes in bfloat16; a token's keys and values are 2 · 2 layers · 2 heads · 24/4
    wide = 48 numbers, 96 bytes. The map d2t is no parameter."""
    (only,) = trained.checkpoints()
    assert (only.name, only.drafter) == ("drafters/tiny/eagle3", "eagle3")
    assert (only.parameters, only.bytes_bf16, only.kv_bytes_per_token) == (52, 104, 96)
    assert only.bytes_stored == sum(path.stat().st_size for path in folder.iterdir())
    assert (only.trained_tokens, only.trained_seconds, only.al_d4) == (None, None, None)


def test_a_packed_one_and_a_log_say_the_rest(folder: Path) -> None:
    """The layers of speculators' heads are described one level down."""
    (folder / "model.safetensors").unlink()
    (folder / "packed.json").write_text(json.dumps({"tensors": TENSORS}), "utf-8")
    (folder / "config.json").write_text(json.dumps({"transformer_layer_config": {**CONFIG, "head_dim": 8}}), "utf-8")
    told = {"drafter": "mtp", "tokens_seen": 1000, "seconds": 2.5, "val_al_d4": 1.75}
    (folder / "training.json").write_text(json.dumps(told), "utf-8")
    (only,) = trained.checkpoints()
    assert (only.drafter, only.parameters, only.kv_bytes_per_token) == ("mtp", 52, 2 * 2 * 2 * 8 * 2)
    assert (only.trained_tokens, only.trained_seconds, only.al_d4) == (1000, 2.5, 1.75)


def test_no_folder_is_no_checkpoint(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.parent.rmdir()
    folder.parent.parent.rmdir()
    assert trained.checkpoints() == ()


def test_a_config_without_attention_has_no_cache_that_is_known(folder: Path) -> None:
    (folder / "config.json").write_text("{}", "utf-8")
    assert trained.checkpoints()[0].kv_bytes_per_token is None


@pytest.mark.parametrize(
    ("file", "text"), [("config.json", "{"), ("packed.json", "{}"), ("training.json", "[]"), ("model.safetensors", "x")]
)
def test_a_file_that_does_not_read_names_its_drafter(file: str, text: str, folder: Path) -> None:
    (folder / file).write_text(text, "utf-8")
    with pytest.raises(UserError, match="'drafters/tiny/eagle3' does not read"):
        trained.checkpoints()


# ---- the list ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", plugins.names("drafters"))
def test_every_drafter_says_what_it_takes(name: str) -> None:
    drafter = plugins.load("drafters", name)
    unsaid = [key for key in TRAITS if getattr(drafter, key) in ("", {})]
    assert not unsaid


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli._exit_code(["list", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_comparison_has_every_drafter_and_the_trained_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = listed(capsys, "drafters", "--verbose", "--json")
    assert code == 0
    items = {item["name"]: item for item in json.loads(said)["items"]}
    assert items.keys() == set(plugins.names("drafters"))
    assert items["eagle3"]["trained"][0]["parameters"] == 52
    assert items["eagle3"]["trained"][0]["al_d4"] is None
    assert items["ngram"]["trained"] == []
    assert items["oracle"]["servable"] is False
    code, said, _ = listed(capsys, "drafters", "--verbose")
    lines = said.splitlines()
    assert code == 0
    assert any(all(title in line for title in TRAITS.values()) for line in lines)
    (row,) = (line for line in lines if "drafters/tiny/eagle3" in line)
    assert row.split() == ["drafters/tiny/eagle3", "52", "104", f"{_size(folder):,}", "96", "-", "-", "-"]
    assert any(all(title in line for title in FACTS.values()) for line in lines)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_where_nothing_is_trained_it_says_where_to_get_some(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(content, "drafters", lambda: tmp_path / "drafters")
    assert "no trained drafter here" in listed(capsys, "drafters", "-v")[1]


def test_only_drafters_have_more_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, error = listed(capsys, "tasks", "--verbose")
    assert (code, said) == (2, "")
    assert "--verbose: is for drafters" in error


def test_a_narrow_page_gets_more_tables_each_with_the_names() -> None:
    """3 + 3, 20 + 3 and 20 + 3 are 52: on 30 columns two tables, on 52 or with no limit one."""
    columns = {"who": ["abc"], "first": ["x" * 20], "second": ["y" * 20]}
    assert [[column.header for column in table.columns] for table in _dealt(columns, 30)] == [
        ["who", "first"],
        ["who", "second"],
    ]
    assert len(_dealt(columns, 52)) == len(_dealt(columns, None)) == 1


def test_the_comparison_comes_without_torch_pandas_or_numpy() -> None:
    code = """
import sys
from speedbench.cli import main
sys.argv = ["speedbench", "list", "drafters", "--verbose"]
try:
    main()
finally:
    heavy = {"torch", "transformers", "safetensors", "pandas", "numpy", "yaml"} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr


# ---- what the checkout has -----------------------------------------------------------------------------------------


def test_content_is_beside_the_package_and_other_paths_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert content.drafters() == CHECKOUT
    assert content.located(Path("drafters/tiny/x")) == CHECKOUT / "tiny" / "x"
    for path in (Path("elsewhere/x"), tmp_path / "drafters" / "x", Path("org/name"), Path()):
        assert content.located(path) == path


shipped = pytest.mark.skipif(not CHECKOUT.is_dir(), reason="this checkout has no drafters/")


@shipped
def test_the_repositorys_drafters_are_at_most_60_megabytes() -> None:
    sizes = {path: path.stat().st_size for path in CHECKOUT.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= MOST, sorted(sizes.items(), key=lambda item: -item[1])[:5]


@shipped
def test_the_repositorys_drafters_are_packed_and_say_how_they_were_trained() -> None:
    for one in trained.checkpoints():
        folder = CHECKOUT.parent / one.name
        assert (folder / "packed.json").is_file(), f"{one.name}: speedbench pack makes it small"
        assert one.trained_tokens
        assert one.al_d4
        assert (folder.parent / "README.md").is_file()


def test_shipped_runners_name_the_trained_drafters_of_their_target() -> None:
    pytest.importorskip("yaml")
    from speedbench import runner

    for name in ("smollm2-135m", "smollm2-135m-bf16"):
        settings = runner.load(name).drafters
        assert set(settings) >= {"eagle3", "mtp", "external", "dflash", "dspark"}
        for drafting in runner.draftings(runner.load(name), settings):
            runner.check(runner.load(name), drafting, [1, 4])
            where = drafting.settings.get("checkpoint") or drafting.settings["model"]
            assert where == f"drafters/smollm2-135m/{drafting.drafter}"
