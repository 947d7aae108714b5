"""A head says which weights it was trained for, and a run with others says so before its acceptance falls."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import foretold
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from scripts import Bench
from torch import Tensor

from speedbench.native import checkpoint, publish
from speedbench.native.fingerprint import fingerprint

# ---- what moves it and what does not -------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """In bfloat16, as models are shipped."""
    return tiny.folder(tmp_path / "model", tiny.model(dtype=torch.bfloat16))


def copy(home: Path, name: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """The folder again, its tensors changed."""
    out = home.parent / name
    out.mkdir()
    (out / "config.json").write_bytes((home / "config.json").read_bytes())
    tensors = change(load_file(home / "model.safetensors"))
    save_file({key: t.contiguous() for key, t in tensors.items()}, out / "model.safetensors")
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_copy_in_another_dtype_is_the_same_version(home: Path, dtype: torch.dtype) -> None:
    """Also in float16, which holds no number below 2^-14 as exactly as bfloat16 does: the smallest here is 2^-20."""
    small = {"model.norm.weight": torch.full((32,), 1.125 * 2.0**-20, dtype=torch.bfloat16)}
    base = copy(home, "base", lambda tensors: {**tensors, **small})
    assert len(fingerprint(base)) == 16
    other = copy(base, "other", lambda tensors: {name: t.to(dtype) for name, t in tensors.items()})
    assert fingerprint(other) == fingerprint(base)


def test_float32_weights_and_their_bfloat16_rounding_are_the_same_version(tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32))
    rounded = copy(home, "rounded", lambda tensors: {name: t.bfloat16() for name, t in tensors.items()})
    assert fingerprint(rounded) == fingerprint(home)


def test_other_files_other_prefixes_and_heads_of_its_own_change_nothing(home: Path, tmp_path: Path) -> None:
    """Two shards with an index; no `model.`; no lm_head; an MTP head in each layout beside it."""
    tensors = load_file(home / "model.safetensors")
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    (sharded / "config.json").write_bytes((home / "config.json").read_bytes())
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, sharded / file)
    places = {name: file for file, own in parts.items() for name in own}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")
    noise = torch.ones(8, 8, dtype=torch.bfloat16)
    same = [
        sharded,
        copy(home, "bare", lambda found: {name.removeprefix("model."): t for name, t in found.items()}),
        copy(home, "tied", lambda found: {name: t for name, t in found.items() if name != "lm_head.weight"}),
        copy(home, "qwen", lambda found: {**found, "mtp.fc.weight": noise}),
        copy(home, "deepseek", lambda found: {**found, "model.layers.2.eh_proj.weight": noise}),
    ]
    assert {fingerprint(each) for each in same} == {fingerprint(home)}


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"])
def test_an_adapter_merged_into_one_matrix_is_another_version(home: Path, name: str) -> None:
    """A rank-1 update of 2 % of the matrix's size, rounded to bfloat16 again."""

    def merged(found: dict[str, Tensor]) -> dict[str, Tensor]:
        weight = found[name].float()
        update = torch.outer(torch.randn(weight.shape[0]), torch.randn(weight.shape[1]))
        return {**found, name: (weight + 0.02 * weight.std() * update).bfloat16()}

    torch.manual_seed(0)
    assert fingerprint(copy(home, "merged", merged)) != fingerprint(home)


def test_one_step_of_a_norm_or_of_the_embedding_is_another_version(home: Path) -> None:
    def stepped(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        return lambda found: {**found, name: found[name] * 1.01}

    found = {fingerprint(home)}
    for name in ("model.norm.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"):
        found.add(fingerprint(copy(home, name, stepped(name))))
    assert len(found) == 4


# ---- what a head says ----------------------------------------------------------------------------------------------


def published(folder: Path, **stamped: Path) -> Path:
    """The MTP head that foretells the copying target."""
    head = foretold.perfect("mtp", "embedding", rope={"rope_theta": 10000.0})
    publish.publish(head, folder, "some/target", context=512)
    if stamped:
        publish.stamp(folder, stamped["target"])
    return folder


def test_a_stamp_is_read_back_and_all_else_is_as_it_was(home: Path, tmp_path: Path) -> None:
    target = tiny.lean(foretold.copying())
    plain = checkpoint.load(str(published(tmp_path / "plain")), target)
    stamped = checkpoint.load(str(published(tmp_path / "stamped", target=home)), target)
    assert (plain.made_for, stamped.made_for) == (None, fingerprint(home))
    assert stamped.spec == plain.spec
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("plain", "stamped"))
    assert after == {**before, "speedbench": {"target_fingerprint": fingerprint(home)}}


def test_a_block_heads_stamp_has_the_layers_that_z_labs_reader_asks_for(home: Path, tmp_path: Path) -> None:
    """dflash 0.1.0 `model.py` DFlashDraftModel reads `num_target_layers` before anything else."""
    made = blocks.head_of(taps=(1, 2), layers=1)
    publish.publish(made, tmp_path / "head", "t")
    publish.stamp(tmp_path / "head", home)
    assert json.loads((tmp_path / "head" / "config.json").read_text("utf-8"))["num_target_layers"] == 2


# ---- a run ---------------------------------------------------------------------------------------------------------


PROMPTS = ("abc", "jig", "a bad fig", "cab", "deaf", "a hag", "big dad", "fade", "jade", "hide a bag", "ice", "egg")


def tuned(by: float) -> Any:
    """The copying target, whose layers add nothing, after a little training: now they add something."""
    made = foretold.copying()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.add_(by * torch.randn_like(weight))
    return made


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Any:
    """16 tokens, as many as the target has rows: five specials, ten letters, a space. An answer goes from the odd
    `<|assistant|>` to the next but one for ever, and the stop token is even."""
    monkeypatch.setattr(tiny, "SPECIALS", ("<|end|>", "<s>", "<|user|>", "<|assistant|>", "<|system|>"))
    monkeypatch.setattr(tiny, "LETTERS", "abcdefghij ")
    return tiny.tokenizer()


def measured(bench: Bench, model: Path, head: Path) -> tuple[float, list[str]]:
    """AL at D = 3 and what the run warns of the drafter."""
    runner = {"title": "T", "backend": "native", "model": str(model), "engine": {"dtype": "float64", "device": "cpu"}}
    bench.write("s.yaml", json.dumps(runner))
    bench.task([{"id": str(i), "category": "c", "turns": [text]} for i, text in enumerate(PROMPTS)])
    words = ("--json", "--max-tokens", "41", "--set", f"mtp.checkpoint={head}")
    found = bench.run(*words, drafter="mtp", out=f"out-{model.name}").document
    cell = next(each for each in found["cells"] if each["drafter"] == "mtp")
    return cell["metrics"]["al"]["value"], [each for each in found["warnings"] if each.startswith("mtp: ")]


def test_a_target_fine_tuned_a_little_makes_al_drop_and_the_run_says_so(
    bench: Bench, tmp_path: Path, words: Any
) -> None:
    """D = 3 and a head that is always right: 12 answers of 41 tokens, 40 of them in 10 passes of 4, AL 4.00. After the
    noise 2.75, a third less; a copy in bfloat16 keeps AL and version."""
    own = tiny.folder(tmp_path / "own", foretold.copying(), words)
    head = published(tmp_path / "head", target=own)
    assert measured(bench, own, head) == (4.0, [])
    assert measured(bench, tiny.folder(tmp_path / "copy", foretold.copying().bfloat16(), words), head) == (4.0, [])
    other = tiny.folder(tmp_path / "other", tuned(0.27), words)
    al, warned = measured(bench, other, head)
    assert al == pytest.approx(2.75, abs=0.2)
    versions = f"weights {fingerprint(own)}, here {fingerprint(other)}"
    assert warned == [
        f"mtp: it was trained for another version of the target ({versions}), "
        "so one of the two was fine-tuned, merged or quantised otherwise; expect a lower acceptance length"
    ]


def test_a_head_that_says_nothing_of_its_target_is_not_warned_of(bench: Bench, tmp_path: Path, words: Any) -> None:
    """Unknown is not another."""
    other = tiny.folder(tmp_path / "other", tuned(0.27), words)
    al, warned = measured(bench, other, published(tmp_path / "head"))
    assert al == pytest.approx(2.75, abs=0.2)
    assert warned == []
