"""From a drafter's name to a head: whose dialect the checkpoint is in, and what of it this program runs.

The config is asked first, then the tensors' names, which tell more: third parties rewrite `architectures`. What is
another kind of drafter is refused by its name, never read as the nearest one served.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from speedbench.errors import UserError
from speedbench.native import dialect_mtp, weights
from speedbench.native.dialect import Source
from speedbench.native.dialect_block import block
from speedbench.native.dialect_eagle3 import eagle3
from speedbench.native.head import Head, Mechanism
from speedbench.native.target import Target

_REFUSED_TENSORS = {
    "mask_hidden": "it is P-EAGLE, which drafts in parallel from a learned mask state",
    "medusa": "it is Medusa, whose heads guess each position alone",
    "prefix_gru": "it is Domino, DFlash with a GRU over the block",
    "candidate_selector": "it is DFlash2, DFlash with convolutions and a selector",
    "attention_conv": "it is DFlash2, DFlash with convolutions and a selector",
    "xpress": "it is xPress",
}
_REFUSED_WORDS = {
    "peagle": "it is P-EAGLE, which drafts in parallel from a learned mask state",
    "medusa": "it is Medusa, whose heads guess each position alone",
    "domino": "it is Domino, DFlash with a GRU over the block",
    "dflash2": "it is DFlash2, DFlash with convolutions and a selector",
    "xpress": "it is xPress",
    "gemma4": "its layers are Gemma's (scaled embeddings, capped logits), which speedbench does not draft with",
    "deepseekv2": "its attention is latent (MLA); speedbench drafts with plain dense layers",
}
"""Found in an architecture, a `speculators_model_type` or a `projector_type`."""

_SERVED = "EAGLE-3, MTP, DFlash and DSpark"


def load(where: str, target: Target, *, mechanism: Mechanism | None = None, allow_bin: bool = False) -> Head:
    """The head at a folder or hub id, held against the target it is to draft for.

    `mechanism`: what it has to be. With `mtp` it may also be the target's own folder. `allow_bin` reads pickled weights
    where there are no safetensors, and never more of them than tensors (`weights_only`).
    """
    assert mechanism is None or mechanism in get_args(Mechanism), mechanism
    home = weights.folder(where)
    source = _opened(home, where, allow_bin)
    if mechanism == "mtp" and "speculators_model_type" not in source.config:
        return dialect_mtp.built_in(source, target)
    found = _loaded(source, target)
    if mechanism is not None and found.spec.mechanism != mechanism:
        raise UserError(f"the drafter '{where}' is a {found.spec.mechanism} head; '{mechanism}' was asked for")
    return found


def load_mtp(home: Path, target: Target) -> Head:
    """The MTP head inside the target's own folder."""
    return dialect_mtp.built_in(_opened(home, str(home), False), target)


def _loaded(source: Source, target: Target) -> Head:
    kind, dialect = recognise(source)
    if kind == "eagle3":
        return eagle3(source, target, dialect)
    if kind == "block":
        return block(source, target, dialect)
    return dialect_mtp.speculators(source, target) if dialect == "speculators" else dialect_mtp.built_in(source, target)


# ---- files ---------------------------------------------------------------------------------------------------------


def _opened(home: Path, name: str, allow_bin: bool) -> Source:
    try:
        config = json.loads((home / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"config.json of the drafter '{name}' does not read: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"config.json of the drafter '{name}' should be an object")
    if (home / "mask_embedding.pt").exists():
        raise UserError(f"drafter '{name}' is refused: it has a mask embedding of its own (mask_embedding.pt)")
    pickled = sorted(home.glob("pytorch_model*.bin"))
    if any(home.glob("*.safetensors")) or not pickled:
        return Source(name=name, config=config, tensors=weights.Tensors(home))
    if not allow_bin:
        raise UserError(
            f"the drafter '{name}' has only pickled weights ({pickled[0].name}), which can carry code; convert them to "
            "safetensors, or set allow_bin if you trust who made them"
        )
    return Source(name=name, config=config, tensors=_unpickled(pickled, name))


def _unpickled(files: Collection[Path], name: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise UserError(
                f"'{file.name}' of the drafter '{name}' holds more than tensors, or is torn: {error}"
            ) from None
        tensors.update({key: value for key, value in found.items() if isinstance(value, Tensor)})
    return tensors


# ---- whose it is ---------------------------------------------------------------------------------------------------


def recognise(source: Source) -> tuple[str, str]:
    """Kind (`eagle3`, `block` for DFlash and DSpark, `mtp`) and dialect. Raises for what is not served, by its name."""
    config, names = source.config, [name.removeprefix("model.") for name in source.tensors]
    architecture = str((config.get("architectures") or [""])[0])
    _refuse(source, architecture, names)
    if "speculators_model_type" in config:
        return _of_speculators(source, str(config["speculators_model_type"])), "speculators"
    if architecture == "Qwen3DSparkModel":
        return "block", "deepspec"
    if architecture == "Qwen3Eagle3Model":
        return "eagle3", "deepspec"
    of_block = _of_block(config, architecture, names)
    if of_block:
        return "block", of_block
    if dialect_mtp.has_mtp(source):
        return "mtp", "built-in"
    return "eagle3", _of_eagle(source, architecture, names)


def _refuse(source: Source, architecture: str, names: Collection[str]) -> None:
    for mark, why in _REFUSED_TENSORS.items():
        found = next((name for name in names if mark in name), None)
        if found:
            raise source.refuse(f"{why} (tensor '{found}'); speedbench runs {_SERVED}")
    config = source.config
    inner = config.get("dflash_config") or {}
    words = [
        architecture,
        config.get("speculators_model_type"),
        config.get("projector_type"),
        inner.get("projector_type"),
    ]
    for word in (str(word) for word in words if word):
        for mark, why in _REFUSED_WORDS.items():
            if mark in word.lower().replace("-", "").replace("_", ""):
                raise source.refuse(f"{why} ('{word}'); speedbench runs {_SERVED}")
    projector = inner.get("projector_type")
    if projector not in (None, "dflash", "dspark"):
        raise source.refuse(f"its projector is '{projector}' ('dflash_config.projector_type'); dflash and dspark run")
    if (config.get("speculators_config") or {}).get("default_proposal_method") == "tree":
        raise source.refuse("it drafts trees ('default_proposal_method'); speedbench drafts chains")
    if "dspark_block_size" in config:
        raise source.refuse("it is DeepSeek-V4's DSpark, inside a target of experts ('dspark_block_size')")


def _of_speculators(source: Source, kind: str) -> str:
    kinds = {"eagle3": "eagle3", "dflash": "block", "dspark": "block", "mtp": "mtp"}
    if kind == "eagle":
        raise source.refuse(f"it is EAGLE-1 or EAGLE-2 ('speculators_model_type'); speedbench runs {_SERVED}")
    if kind not in kinds:
        raise source.refuse(f"its 'speculators_model_type' is '{kind}'; speedbench runs {', '.join(kinds)}")
    return kinds[kind]


def _of_block(config: Mapping[str, Any], architecture: str, names: Collection[str]) -> str | None:
    """Whose DFlash or DSpark; None when it is neither. Markov tensors tell more than `architectures`."""
    if any("markov_head." in name for name in names):
        return "specforge" if "dflash_config" in config else "deepspec"
    if any(name.startswith("markov_w1.") for name in names):
        return "modelopt"
    projector = (config.get("dflash_config") or {}).get("projector_type")
    if architecture == "DSparkDraftModel" or projector == "dspark":
        return "specforge" if architecture == "DSparkDraftModel" else "modelopt"
    if "dflash_config" in config or architecture == "DFlashDraftModel" or "hidden_norm.weight" in names:
        return "z-lab"
    return None


def _of_eagle(source: Source, architecture: str, names: Collection[str]) -> str:
    named = "eagle3" in architecture.lower() or "eagle_config" in source.config
    if any(name.startswith("midlayer.") for name in names):
        return "specforge" if named else "eagle"
    if named or "layers.0.hidden_norm.weight" in names or "d2t" in names:
        return "modelopt"
    raise _no_head(source, names)


def _no_head(source: Source, names: Collection[str]) -> UserError:
    if "layers.0.input_layernorm.weight" in names and "embed_tokens.weight" in names and "norm.weight" in names:
        return source.refuse("it is a whole language model; the drafter 'external' runs one")
    if "fc.weight" in names:
        return source.refuse(f"it is EAGLE-1 or EAGLE-2 (it reads the last state alone); speedbench runs {_SERVED}")
    return source.refuse(f"nothing in its config or tensors says what it is; speedbench runs {_SERVED}")


# ---- what is told before a run -------------------------------------------------------------------------------------


def describe(head: Head) -> str:
    """One line: what it is, what it reads, what it may be asked for."""
    spec = head.spec
    size = sum(tensor.numel() * tensor.element_size() for tensor in head.tensors.values())
    parts = [
        f"{spec.mechanism} ({spec.dialect})",
        f"reads hidden states {', '.join(str(tap) for tap in spec.taps)}",
        f"{spec.layers} layer{'s' if spec.layers > 1 else ''}",
    ]
    if spec.block is not None:
        parts.append(f"block {spec.block}")
    if spec.markov != "none":
        parts.append(f"{spec.markov} Markov head of rank {spec.markov_rank}")
    if spec.confidence:
        parts.append("confidence head")
    of = f" of {spec.target_vocab}" if spec.target_vocab not in (None, spec.vocab) else ""
    parts.append(f"draft vocabulary {spec.vocab}{of}")
    parts.append(f"{head.parameters:,} parameters, {size / 1e6:.1f} MB")
    parts.append(f"D {'any' if spec.longest is None else f'up to {spec.longest}'}")
    return "; ".join(parts)
