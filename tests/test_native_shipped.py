"""Packed drafters: how far off a code may be, what is borrowed, that what comes out loads everywhere, and damage."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import heads
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from speedbench import cli, content
from speedbench.errors import Missing, UserError
from speedbench.native import checkpoint, shipped, weights
from speedbench.native.head import Mechanism
from speedbench.native.training.external import external
from speedbench.native.training.parts import frozen

MADE: dict[str, Callable[[], heads.Made]] = {
    "eagle3": lambda: heads.eagle3("specforge"),
    "mtp": lambda: heads.mtp("speculators"),
    "dflash": lambda: heads.dflash("z-lab"),
    "dspark": lambda: heads.dspark("specforge"),
}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPEEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target in float32, as a GGUF's copy is; its embedding is its head."""
    made = tiny.model(num_hidden_layers=7, dtype=torch.float32, tie_word_embeddings=True)
    return tiny.folder(tmp_path_factory.mktemp("lender"), made)


def head(name: str, folder: Path) -> Path:
    """A random head in bfloat16, as one is published."""
    made = MADE[name]()
    small = {key: t.bfloat16() if t.is_floating_point() else t for key, t in made.tensors.items()}
    return replace(made, tensors=small).write(folder)


def manifest(folder: Path) -> Any:
    return json.loads((folder / "packed.json").read_text("utf-8"))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


# ---- codes ---------------------------------------------------------------------------------------------------------


def test_a_number_is_its_code_times_the_scale_of_its_64() -> None:
    """A row of 130: steps of 1 where the largest is 127, of 1/4 where it is 31.75, and of 2 in the two left over."""
    row = torch.zeros(1, 130)
    row[0, 0], row[0, 1], row[0, 63] = 127.0, -64.4, 0.4
    row[0, 64], row[0, 65] = -31.75, 3.1
    row[0, 128], row[0, 129] = 254.0, 5.2
    codes, scales = shipped.coded(row)
    assert scales.tolist() == [[1.0, 0.25, 2.0]]
    assert codes.shape == row.shape
    found = shipped.decoded(codes, scales, torch.float32)[0]
    assert [found[i].item() for i in (0, 1, 63, 64, 65, 128, 129)] == [127, -64, 0, -31.75, 3.0, 254, 6]  # 5.2/2 = 2.6


def test_random_rows_come_back_within_half_a_step_and_0_8_percent() -> None:
    """A step is the largest of 64 / 127; the scale in bfloat16 is off by at most 1/512 of itself, at 127 steps a
    quarter of one more."""
    rows = heads.noise("rows", 200, 192)
    found = shipped.decoded(*shipped.coded(rows), torch.float32)
    steps = rows.view(200, 3, 64).abs().amax(-1) / 127
    off = (found - rows).view(200, 3, 64).abs()
    assert bool((off <= 0.75 * steps[..., None]).all())
    assert float((found - rows).norm() / rows.norm()) < 0.008


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 70), (1, 64), (4, 1)])
def test_any_shape_comes_back_in_its_own(shape: tuple[int, ...]) -> None:
    tensor = heads.noise("shape", *shape).bfloat16()
    codes, scales = shipped.coded(tensor)
    assert codes.shape == tensor.shape
    assert scales.shape == (*shape[:-1], -(-shape[-1] // 64))
    assert torch.allclose(shipped.decoded(codes, scales, torch.bfloat16).float(), tensor.float(), atol=0.03)


def test_nothing_but_zeros_and_next_to_nothing_make_no_nan() -> None:
    tensor = torch.zeros(2, 64)
    tensor[1] = 1e-44
    found = shipped.decoded(*shipped.coded(tensor), torch.float32)
    assert torch.allclose(found, tensor, atol=1e-43)


# ---- heads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", get_args(Mechanism))
def test_a_packed_head_loads_as_the_plain_one_within_one_percent(name: Mechanism, tmp_path: Path) -> None:
    plain, packed = head(name, tmp_path / "plain"), tmp_path / "packed"
    shipped.pack(plain, packed)
    target = heads.target()
    was, now = (checkpoint.load(str(folder), target, mechanism=name) for folder in (plain, packed))
    assert now.spec == was.spec
    assert now.tensors.keys() == was.tensors.keys()
    for key, tensor in was.tensors.items():
        other = now.tensors[key]
        assert other.dtype == tensor.dtype
        if tensor.dim() < 2:
            assert torch.equal(other, tensor), key
        else:
            assert float((other.float() - tensor.float()).norm()) <= 0.0102 * float(tensor.float().norm()), key
    kinds = {said["kind"] for said in manifest(packed)["tensors"].values()}
    assert kinds == {"int8", "kept"}


def test_a_matrix_that_codes_would_spoil_is_kept_as_it_is(tmp_path: Path) -> None:
    """One 10 among 63 numbers of 0.3: a step is 10/127 = 0.079, an error 0.079/√12 = 0.0227 and of the row's
    √(100 + 63 · 0.09) = 10.28 it is 0.0227 · √63 / 10.28 = 1.75 %, beyond 1 %."""
    matrix = 0.3 * heads.noise("small", 48, 64)
    matrix[:, 7] = 10.0
    spoilt = (shipped.decoded(*shipped.coded(matrix), torch.float32) - matrix).norm() / matrix.norm()
    assert float(spoilt) == pytest.approx(0.0175, rel=0.1)
    plain = head("mtp", tmp_path / "plain")
    tensors = load_file(plain / "model.safetensors")
    save_file({**tensors, "mtp_layers.0.mlp.up_proj.weight": matrix}, plain / "model.safetensors")
    shipped.pack(plain, tmp_path / "packed")
    said = manifest(tmp_path / "packed")["tensors"]
    assert said["mtp_layers.0.mlp.up_proj.weight"]["kind"] == "kept"
    assert said["mtp_layers.0.mlp.gate_proj.weight"]["kind"] == "int8"
    found = weights.Tensors(shipped.unpacked(tmp_path / "packed"))
    assert torch.equal(found["mtp_layers.0.mlp.up_proj.weight"], matrix)


def test_shards_stay_shards(tmp_path: Path) -> None:
    plain = head("mtp", tmp_path / "plain")
    tensors = load_file(plain / "model.safetensors")
    (plain / "model.safetensors").unlink()
    names = sorted(tensors)
    for file, part in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: tensors[name] for name in part}, plain / file)
    files = {name: "ab"[i % 2] + ".safetensors" for i, name in enumerate(names)}
    (plain / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), "utf-8")
    shipped.pack(plain, tmp_path / "packed")
    found = shipped.unpacked(tmp_path / "packed")
    assert {path.name for path in found.glob("*.safetensors")} == {"a.safetensors", "b.safetensors"}
    assert {name: weights.Tensors(found).file(name) for name in names} == files


# ---- what is borrowed ----------------------------------------------------------------------------------------------


def small_model(lender: Path, folder: Path) -> Path:
    """Three layers of the target, its embedding and its tokenizer, moved a little as training would."""
    made = external(frozen(lender), torch.arange(64), lender)
    with torch.no_grad():
        for name, weight in made.weights.items():
            weight.add_(0.01 * heads.noise(name, *weight.shape))
    made.save(folder, "tiny")
    return folder


def test_a_small_models_embedding_and_tokenizer_are_the_targets_and_not_stored(lender: Path, tmp_path: Path) -> None:
    plain, packed = small_model(lender, tmp_path / "plain"), tmp_path / "packed"
    shipped.pack(plain, packed, str(lender))
    assert "model.embed_tokens.weight" not in load_file(packed / "packed.safetensors")
    assert not (packed / "tokenizer.json").exists()
    assert size(packed) < 0.7 * size(plain)
    found = weights.folder(str(packed))
    ours, theirs = weights.Tensors(found), weights.Tensors(plain)
    assert torch.equal(ours["model.embed_tokens.weight"], theirs["model.embed_tokens.weight"])
    assert (found / "tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()
    assert {path.name for path in found.iterdir()} == {path.name for path in plain.iterdir()}


def test_what_is_unpacked_is_an_ordinary_model_for_transformers_too(lender: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain, packed = small_model(lender, tmp_path / "plain"), tmp_path / "packed"
    shipped.pack(plain, packed, str(lender))
    found = weights.folder(str(packed))
    theirs: Any = AutoModelForCausalLM
    model, told = theirs.from_pretrained(found, output_loading_info=True, dtype=torch.float32)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    ids = torch.tensor([tiny.prompt(12)])
    target = weights.target(found, dtype=torch.float32, device=tiny.CPU)
    with torch.inference_mode():
        torch.testing.assert_close(target.forward(target.slots(1, 12), ids, [0]).logits, model(ids).logits)
    assert AutoTokenizer.from_pretrained(found).decode([5]) == "a"
    stored = {t.dtype for t in load_file(found / "model.safetensors").values()}
    assert stored == {torch.bfloat16}


def test_a_reduced_head_is_rows_of_the_targets(lender: Path, tmp_path: Path) -> None:
    """The draft vocabulary keeps ids 1, 3, 6, …: draft id k is the target's k + d2t[k]."""
    plain, packed = head("eagle3", tmp_path / "plain"), tmp_path / "packed"
    tensors = load_file(plain / "model.safetensors")
    rows = load_file(lender / "model.safetensors")["model.embed_tokens.weight"][heads.KEPT].bfloat16()
    save_file({**tensors, "lm_head.weight": rows}, plain / "model.safetensors")
    shipped.pack(plain, packed, str(lender))
    said = manifest(packed)["tensors"]["lm_head.weight"]
    assert (said["kind"], said["name"], said["rows"]) == ("borrowed", "model.embed_tokens.weight", "d2t")
    assert torch.equal(weights.Tensors(weights.folder(str(packed)))["lm_head.weight"], rows)


def test_a_target_that_is_not_the_one_it_was_packed_beside_is_refused(lender: Path, tmp_path: Path) -> None:
    other = tmp_path / "lender"
    shutil.copytree(lender, other)
    packed = tmp_path / "packed"
    shipped.pack(small_model(lender, tmp_path / "plain"), packed, str(other))
    tensors = load_file(other / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 3] += 1
    save_file(tensors, other / "model.safetensors")
    with pytest.raises(UserError, match=r"packed beside another target: 'model\.embed_tokens\.weight'"):
        weights.folder(str(packed))
    (other / "tokenizer.json").unlink()
    shutil.copy(lender / "model.safetensors", other / "model.safetensors")
    with pytest.raises(UserError, match=r"borrows tokenizer\.json from .* which has none"):
        weights.folder(str(packed))
    shutil.rmtree(other)
    with pytest.raises(Missing, match="no model at"):
        weights.folder(str(packed))


# ---- the cache -----------------------------------------------------------------------------------------------------


def test_it_is_unpacked_once_and_again_when_it_changes(tmp_path: Path, own_cache: Path) -> None:
    packed = tmp_path / "packed"
    shipped.pack(head("mtp", tmp_path / "plain"), packed)
    first = shipped.unpacked(packed)
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert shipped.unpacked(packed) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    tensors = load_file(tmp_path / "plain" / "model.safetensors")
    tensors["mtp_layers.0.final_layernorm.weight"] += 1
    save_file(tensors, tmp_path / "plain" / "model.safetensors")
    shipped.pack(tmp_path / "plain", packed)
    again = shipped.unpacked(packed)
    assert again != first
    assert torch.equal(weights.Tensors(again)["mtp_layers.0.final_layernorm.weight"],
                       tensors["mtp_layers.0.final_layernorm.weight"])  # fmt: skip
    assert len([path for path in (own_cache / "drafters").iterdir() if path.is_dir()]) == 2


def test_a_plain_folder_is_itself(tmp_path: Path) -> None:
    plain = head("mtp", tmp_path)
    assert shipped.unpacked(plain) == plain


def edited(key: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        said = manifest(folder)
        (folder / "packed.json").write_text(json.dumps({**said, key: value}), "utf-8")

    return edit


def torn(folder: Path) -> None:
    data = (folder / "packed.safetensors").read_bytes()
    (folder / "packed.safetensors").write_bytes(data[:-9])


def in_tensor(key: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        said = manifest(folder)
        said["tensors"]["mtp_layers.0.mlp.up_proj.weight"][key] = value
        (folder / "packed.json").write_text(json.dumps(said), "utf-8")

    return edit


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "torn weights": (torn, "is not whole"),
    "no weights": (lambda folder: (folder / "packed.safetensors").unlink(), "is not whole"),
    "no manifest": (lambda folder: (folder / "packed.json").unlink(), "lacks packed.json"),
    "no JSON": (lambda folder: (folder / "packed.json").write_text("{", "utf-8") and None, "does not read"),
    "a list": (lambda folder: (folder / "packed.json").write_text("[]", "utf-8") and None, "does not read"),
    "a later format": (edited("format", 2), "is packed in format 2; this speedbench reads format 1"),
    "no tensors": (edited("tensors", None), "does not fit its weights"),
    "a tensor too many": (edited("tensors", {"x": {"kind": "kept", "dtype": "BF16"}}), "does not fit its weights"),
    "another shape": (in_tensor("shape", [3, 3]), "does not fit its weights"),
    "another dtype": (in_tensor("dtype", "F9"), "does not fit its weights"),
    "a file elsewhere": (in_tensor("file", "../x.safetensors"), "does not fit its weights"),
    "a loan from nobody": (in_tensor("kind", "borrowed"), "does not fit its weights"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_one_sentence_and_leaves_nothing(case: str, tmp_path: Path, own_cache: Path) -> None:
    damage, said = DAMAGE[case]
    packed = tmp_path / "packed"
    shipped.pack(head("mtp", tmp_path / "plain"), packed)
    damage(packed)
    with pytest.raises(UserError, match=said) as caught:
        weights.folder(str(packed))
    assert "\n" not in str(caught.value)
    assert str(packed) in str(caught.value)
    left = own_cache / "drafters"
    assert not left.is_dir() or all(path.suffix == ".lock" for path in left.iterdir())


def test_what_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    plain, packed = head("mtp", tmp_path / "plain"), tmp_path / "packed"
    shipped.pack(plain, packed)
    with pytest.raises(UserError, match="is packed already"):
        shipped.pack(packed, tmp_path / "twice")
    with pytest.raises(UserError, match="into itself"):
        shipped.pack(plain, plain)
    tensors = load_file(plain / "model.safetensors")
    tensors["mtp_layers.0.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(tensors, plain / "model.safetensors")
    with pytest.raises(UserError, match=r"up_proj\.weight' .* no finite number"):
        shipped.pack(plain, tmp_path / "nan")
    assert not (tmp_path / "nan").exists()


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout's `drafters`, and a working directory elsewhere."""
    monkeypatch.setattr(content, "drafters", lambda: tmp_path / "checkout" / "drafters")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "checkout" / "drafters"


def test_a_relative_name_is_found_here_then_in_the_checkout(checkout: Path) -> None:
    there = head("mtp", checkout / "tiny" / "mtp")
    assert weights.folder("drafters/tiny/mtp") == there
    here = head("mtp", Path("drafters/tiny/mtp"))
    assert weights.folder("drafters/tiny/mtp") == here


def test_an_absent_one_says_where_it_comes_from_and_how_to_train_it(checkout: Path) -> None:
    with pytest.raises(Missing) as caught:
        weights.folder("drafters/smollm2-135m/eagle3")
    assert "it comes with a checkout of the repository" in str(caught.value)
    assert "speedbench train --runner smollm2-135m --drafter eagle3 --out drafters/smollm2-135m" in str(caught.value)


# ---- the verbs -----------------------------------------------------------------------------------------------------


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli._exit_code(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def runner(lender: Path, folder: Path) -> str:
    path = folder / "tiny.yaml"
    path.write_text(f"title: t\nbackend: native\nmodel: {lender}\nengine:\n  threads: 1\n", "utf-8")
    return str(path)


def test_a_folder_of_drafters_is_packed_and_one_unpacked_for_other_engines(
    lender: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "given", tmp_path / "packed"
    head("mtp", given / "mtp")
    small_model(lender, given / "external")
    (given / "README.md").write_text("what they are", "utf-8")
    (given / "mtp" / "training.json").write_text("{}", "utf-8")
    words = ["pack", str(given), "--out", str(out), "--runner", runner(lender, tmp_path)]
    code, said, _ = said_by(capsys, *words)
    assert code == 0
    assert len(said.splitlines()) == 2
    assert (out / "README.md").read_text() == "what they are"
    assert (out / "mtp" / "training.json").is_file()
    code, _, error = said_by(capsys, *words)
    assert code == 2
    assert "is there already" in error
    code, said, _ = said_by(capsys, "unpack", str(out / "external"))
    assert Path(said.strip()) == weights.folder(str(out / "external"))
    code, said, _ = said_by(capsys, "unpack", str(out / "external"), "--out", str(tmp_path / "plain"))
    assert code == 0
    assert sorted(load_file(tmp_path / "plain" / "model.safetensors")) == sorted(
        load_file(given / "external" / "model.safetensors")
    )
    assert said_by(capsys, "unpack", str(out / "mtp"), "--out", str(tmp_path / "plain"))[0] == 2
    assert said_by(capsys, "pack", str(tmp_path / "cache"), "--out", str(tmp_path / "none"))[0] == 2


def test_training_writes_packed_drafters_when_asked_and_plain_ones_over_them(
    lender: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedbench.cli.train._shipped_turns", list)
    out = tmp_path / "out"
    words = ["train", "-r", runner(lender, tmp_path), "-d", "mtp", "-o", str(out)]
    words += ["--tokens", "2000", "--minutes", "0.01"]
    words += ["--work", str(tmp_path / "work"), "--self-written", "0", "--licence", "MIT"]
    code, _, error = said_by(capsys, *words, "--pack")
    assert code == 0, error
    files = {"config.json", "packed.json", "packed.safetensors", "training.json", "training_log.jsonl"}
    assert {path.name for path in (out / "mtp").iterdir()} == files
    assert "packed.json" in (out / "README.md").read_text()

    def loaded() -> Tensor:
        target = weights.target(lender, dtype=torch.float32, device=tiny.CPU)
        return checkpoint.load(str(out / "mtp"), target, mechanism="mtp").tensors["fc.weight"].float()

    was = loaded()
    code, _, error = said_by(capsys, *words, "--resume")
    assert code == 0, error
    assert {path.name for path in (out / "mtp").iterdir()} == files - {"packed.json", "packed.safetensors"} | {
        "model.safetensors"
    }
    assert float((loaded() - was).norm() / was.norm()) < 0.011
