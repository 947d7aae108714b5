"""Drafters as the repository ships them: a byte a weight, and nothing that the target has already.

A packed folder holds `packed.json` and `packed.safetensors` where an ordinary one has its safetensors, and all else as
it was. Matrices are int8 codes with a bfloat16 scale for every 64 numbers of a row: the root mean square of the error
is 0.7 % of the matrix's own (bfloat16's is 0.15 %), and one that would be off by more than 1 % stays as it is, as
vectors and integers do. A tensor or a file that is bit for bit the target's is only named. Nothing computes with
codes: a packed folder is unpacked once into the user's cache, as an ordinary folder that every engine reads.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from speedbench.content import user_cache
from speedbench.errors import UserError
from speedbench.native import weights

MANIFEST, WEIGHTS, FORMAT, GROUP = "packed.json", "packed.safetensors", 1, 64
MOST_OFF = 0.01
"""The error of a matrix's codes, relative to the matrix, beyond which it is kept as it is."""
_SCALE = "scale:"
"""Before a tensor's name: its scales."""
_DTYPES = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8,
}  # fmt: skip
"""As a safetensors header names them."""
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


# ---- in ------------------------------------------------------------------------------------------------------------


def pack(plain: Path, out: Path, lender: str | None = None) -> None:
    """Write the ordinary folder `plain` into `out`, packed; weights that `out` had before are gone.

    `lender` is the model it drafts for, as a runner names it; None: nothing is borrowed. Raises `UserError` for a
    folder that is packed already, has no safetensors, or holds what is no finite number.
    """
    if (plain / MANIFEST).is_file():
        raise UserError(f"'{plain}' is packed already")
    if plain.resolve() == out.resolve():
        raise UserError(f"'{plain}' cannot be packed into itself; name another folder")
    home = None if lender is None else weights.folder(lender)
    told, kept = _packed(plain, {} if home is None else weights.Tensors(home))
    out.mkdir(parents=True, exist_ok=True)
    clear(out)
    files = _copied(plain, out, home)
    save_file(kept, out / WEIGHTS, metadata={"format": "pt"})
    manifest = {"format": FORMAT, "group": GROUP, "sha256": _sha_of(out / WEIGHTS), "lender": lender, "files": files}
    scratch = out / f"{MANIFEST}.tmp"
    scratch.write_text(json.dumps({**manifest, "tensors": told}, indent=1) + "\n", encoding="utf-8")
    os.replace(scratch, out / MANIFEST)


def _packed(plain: Path, theirs: Mapping[str, Tensor]) -> tuple[dict[str, dict[str, Any]], dict[str, Tensor]]:
    """What the manifest says of every tensor, and what is kept of them."""
    tensors = weights.Tensors(plain)
    told: dict[str, dict[str, Any]] = {}
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in _CODES or not torch.isfinite(tensor).all():
            raise UserError(f"tensor '{name}' of '{plain}' is {tensor.dtype}, or holds what is no finite number")
        told[name] = {"file": tensors.file(name), "dtype": _CODES[tensor.dtype], "shape": list(tensor.shape)}
        loan = _loan(name, tensor, theirs, tensors.get("d2t")) if tensor.is_floating_point() else None
        if loan is not None:
            told[name] |= {"kind": "borrowed", **loan, "sha256": _sha(tensor)}
        else:
            told[name]["kind"], parts = _stored(name, tensor)
            kept |= parts
    return told, kept


def _stored(name: str, tensor: Tensor) -> tuple[str, dict[str, Tensor]]:
    """`int8` with codes and scales, or `kept` with the tensor, each under the name that it is stored by."""
    if tensor.dim() > 1 and tensor.is_floating_point() and tensor.numel():
        codes, scales = coded(tensor)
        whole = tensor.float()
        if (decoded(codes, scales, torch.float32) - whole).norm() <= MOST_OFF * whole.norm():
            return "int8", {name: codes, _SCALE + name: scales}
    return "kept", {name: tensor}


def clear(out: Path) -> None:
    """Take the weights of an earlier drafter out of a folder, packed or not, before another is written there."""
    for path in (out / MANIFEST, out / "model.safetensors.index.json", *out.glob("*.safetensors")):
        path.unlink(missing_ok=True)


def coded(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, int8 of the same shape, and scales [..., groups]: a number is about its code times its group's scale."""
    groups = _grouped(tensor.float())
    scales = (groups.abs().amax(-1) / 127).to(torch.bfloat16)
    tiny = torch.finfo(torch.float32).tiny
    codes = (groups / scales.float().clamp(min=tiny)[..., None]).round().clamp(-127, 127).to(torch.int8)
    return codes.flatten(-2)[..., : tensor.shape[-1]].contiguous(), scales


def decoded(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What `coded` made codes of, as near as they say it."""
    groups = _grouped(codes.float()) * scales.float()[..., None]
    return groups.flatten(-2)[..., : codes.shape[-1]].to(dtype).contiguous()


def _grouped(rows: Tensor) -> Tensor:
    """[..., size] → [..., groups, 64], the last group filled up with zeros."""
    filled = F.pad(rows, (0, -rows.shape[-1] % GROUP))
    return filled.view(*rows.shape[:-1], -1, GROUP)


def _loan(name: str, tensor: Tensor, theirs: Mapping[str, Tensor], offsets: Tensor | None) -> dict[str, Any] | None:
    """Where the lender has the very same numbers: a tensor of the same name, its embedding or its head, whole or the
    rows that a draft vocabulary keeps. None: it has not."""
    for other in dict.fromkeys((name, "model.embed_tokens.weight", "lm_head.weight")):
        if other not in theirs:
            continue
        found = theirs[other]
        if found.shape == tensor.shape and torch.equal(found.to(tensor.dtype), tensor):
            return {"name": other}
        rows = _rows(offsets, len(tensor)) if tensor.dim() == 2 and found.shape[1:] == tensor.shape[1:] else None
        if rows is not None and int(rows.max()) < len(found) and torch.equal(found[rows].to(tensor.dtype), tensor):
            return {"name": other, "rows": "d2t"}
    return None


def _rows(offsets: Tensor | None, count: int) -> Tensor | None:
    """The target's id of each of `count` draft ids; None where the offsets are not of so many."""
    return None if offsets is None or len(offsets) != count else offsets.long() + torch.arange(count)


def _copied(plain: Path, out: Path, home: Path | None) -> list[str]:
    """Copy what is no weights. Returns the names of the files that are the lender's, and are not copied."""
    borrowed = []
    for path in sorted(path for path in plain.iterdir() if path.is_file() and path.suffix != ".safetensors"):
        theirs = None if home is None or path.name == "config.json" else home / path.name
        if theirs is not None and theirs.is_file() and theirs.read_bytes() == path.read_bytes():
            borrowed.append(path.name)
            (out / path.name).unlink(missing_ok=True)
        else:
            shutil.copyfile(path, out / path.name)
    return borrowed


# ---- out -----------------------------------------------------------------------------------------------------------


def unpacked(home: Path) -> Path:
    """The folder itself, or the ordinary copy of a packed one, made in the user's cache on first use; whole or not
    there. Raises `UserError` for a packed folder that is damaged, `Missing` for a lender that is not there."""
    if not (home / MANIFEST).is_file():
        if (home / WEIGHTS).is_file():
            raise UserError(f"'{home}' lacks {MANIFEST}, without which {WEIGHTS} says nothing")
        return home
    manifest = _manifest(home)
    digest = _digest(path for path in home.iterdir() if path.is_file())
    done = user_cache() / "drafters" / f"{home.resolve().name}-{digest}"
    if done.is_dir():
        return done
    lender = None if manifest["lender"] is None else weights.folder(manifest["lender"])
    done.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(done) + ".lock"):
        if not done.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=done.parent))
            try:
                _unpack(home, manifest, lender, scratch)
                scratch.chmod(0o755)
                scratch.rename(done)
            except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
                raise UserError(f"{MANIFEST} of '{home}' does not fit its weights: {error!r}") from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return done


def _manifest(home: Path) -> dict[str, Any]:
    """`packed.json`, of a format that is known and with weights that are whole."""
    try:
        found = json.loads((home / MANIFEST).read_text("utf-8"))
        made, wanted, _ = found["format"], found["sha256"], found["lender"]
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{MANIFEST} of '{home}' does not read: fetch the folder again") from None
    if made != FORMAT or found.get("group") != GROUP:
        raise UserError(f"'{home}' is packed in format {made}; this speedbench reads format {FORMAT}")
    path = home / WEIGHTS
    if not path.is_file() or _sha_of(path) != wanted:
        raise UserError(f"{WEIGHTS} of '{home}' is not whole, or not what {MANIFEST} is about: fetch the folder again")
    return dict(found)


def _unpack(home: Path, manifest: Mapping[str, Any], lender: Path | None, out: Path) -> None:
    kept = load_file(home / WEIGHTS)
    files: dict[str, dict[str, Tensor]] = {}
    for name, said in manifest["tensors"].items():
        if said["kind"] == "borrowed":
            tensor = _borrowed(home, said, lender, kept)
        else:
            dtype = _DTYPES[said["dtype"]]
            tensor = decoded(kept[name], kept[_SCALE + name], dtype) if said["kind"] == "int8" else kept[name]
        if list(tensor.shape) != said["shape"] or tensor.dtype != _DTYPES[said["dtype"]]:
            raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}")
        files.setdefault(_plain(said["file"]), {})[name] = tensor
    for file, tensors in files.items():
        save_file(tensors, out / file, metadata={"format": "pt"})
    for path in home.iterdir():
        if path.is_file() and path.name not in (MANIFEST, WEIGHTS):
            shutil.copyfile(path, out / path.name)
    for name in manifest["files"]:
        theirs = None if lender is None else lender / _plain(name)
        if theirs is None or not theirs.is_file():
            raise UserError(f"'{home}' borrows {name} from '{manifest['lender']}', which has none")
        shutil.copyfile(theirs, out / name)


def _borrowed(home: Path, said: Mapping[str, Any], lender: Path | None, kept: Mapping[str, Tensor]) -> Tensor:
    theirs = {} if lender is None else weights.Tensors(lender)
    found = theirs.get(said["name"])
    if found is not None:
        rows = _rows(kept[said["rows"]], said["shape"][0]) if "rows" in said else None
        found = (found if rows is None else found[rows]).to(_DTYPES[said["dtype"]])
    if found is None or _sha(found) != said["sha256"]:
        raise UserError(f"'{home}' was packed beside another target: '{said['name']}' of this one is not what it was")
    return found


def _plain(name: str) -> str:
    """A file's name that stays in its folder."""
    if Path(name).name != name:
        raise ValueError(f"{name} is no file's name")
    return name


# ---- hashes --------------------------------------------------------------------------------------------------------


def _sha(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().flatten().view(torch.uint8).numpy().data).hexdigest()


def _sha_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(paths: Iterable[Path]) -> str:
    """Twelve hex digits for all that a packed folder holds; of its weights the manifest says the hash."""
    every = hashlib.sha256()
    for path in sorted(path for path in paths if path.name != WEIGHTS):
        every.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return every.hexdigest()[:12]
