"""Ours against a case of peers.py: the head read by our own `load` and run by our own proposers, on the same target."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import torch
from parity import noise
from safetensors import safe_open
from safetensors.torch import save_file
from serial_heads import serial
from torch import Tensor

from speedbench.native import dspark
from speedbench.native.checkpoint import load
from speedbench.native.dflash import DFlash
from speedbench.native.head import Head
from speedbench.native.proposer import Row
from speedbench.native.target import prefill


@dataclass(frozen=True)
class Found:
    """How far ours is from theirs."""

    furthest: float
    """The largest difference between two logits, or two confidences."""
    logits: int
    """How many were compared."""
    agreeing: float
    """The share of places with the same best logit."""
    same_drafts: bool


def frozen(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A case with its checkpoint: the config as saved, and of the tensors names and shapes, for they are noise."""
    with safe_open(folder / "model.safetensors", "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in sorted(opened.keys())}
    floats = {name: tuple(t.shape) for name, t in tensors.items() if t.is_floating_point()}
    for name, shape in floats.items():
        assert torch.equal(tensors[name], noise.noise(name, shape)), f"{name} was changed on the way"
    whole = {name: t.int().tolist() for name, t in tensors.items() if name not in floats}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.pop("_name_or_path", None)
    return {**case, "config": config, "tensors": floats, "whole": whole}


def thawed(case: dict[str, Any], folder: Path) -> Path:
    """The folder as it was saved."""
    tensors = {name: noise.noise(name, tuple(shape)) for name, shape in case["tensors"].items()}
    tensors |= {name: torch.tensor(x, dtype=_WHOLE[name]) for name, x in case["whole"].items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(case["config"]), "utf-8")
    return folder


_WHOLE = {"d2t": torch.int64, "t2d": torch.bool}


def target(case: dict[str, Any]) -> Any:
    """The case's target, its weights the same noise."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, rest = case["target"]["model_type"], {k: v for k, v in case["target"].items() if k != "model_type"}
    return tiny.lean(noise.fill(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **rest))))


def compare(case: dict[str, Any], folder: Path) -> Found:
    made = target(case)
    head = load(str(folder), made, mechanism=case["mechanism"])
    head = Head(replace(head.spec, **case.get("unlike", {})), head.tensors)
    if "rounds" in case:
        return _loop(case, head, made)
    return (_serial if "forced" in case else _block)(case, head, made)


def _found(pairs: list[tuple[Tensor, Any]], same_drafts: bool) -> Found:
    theirs = [torch.tensor(t) for _, t in pairs]
    ours = [o for o, _ in pairs]
    assert [o.shape for o in ours] == [t.shape for t in theirs], "as many logits as theirs"
    apart = [float((o - t).abs().max()) for o, t in zip(ours, theirs, strict=True)]
    best = torch.cat([(o.argmax(-1) == t.argmax(-1)).flatten() for o, t in zip(ours, theirs, strict=True)])
    return Found(max(apart), sum(t.numel() for t in theirs), float(best.float().mean()), same_drafts)


def _row(case: dict[str, Any], made: Any, taps: tuple[int, ...]) -> tuple[Row, dict[int, Tensor]]:
    """The prompt's row as the loop admits it, its first token said, and its states."""
    prompt = case["prompt"]
    logits, features = prefill(made, made.slots(1, 64), prompt, taps)
    ids = [*prompt, int(logits[0, -1].argmax())]
    return Row(0, ids, len(prompt), 32, np.random.default_rng(0)), features


@torch.inference_mode()
def _serial(case: dict[str, Any], head: Head, made: Any) -> Found:
    depth = len(case["drafts"])
    own = serial(head, made, tiny.plan(depth, length=64))
    row, features = _row(case, made, own.taps)
    pairs = [(_forced(own.body, row.ids, features, k), theirs) for k, theirs in enumerate(case["forced"])]
    said: list[Tensor] = []
    plain = own.body.logits
    own.body.logits = lambda output: said.append(plain(output)) or said[-1]
    own.begin(row, features)
    drafts = own.propose([row], [depth]).tokens[0].tolist()
    return _found([*pairs, (torch.cat(said), case["logits"])], drafts == case["drafts"])


def _forced(body: Any, ids: list[int], features: dict[int, Tensor], k: int) -> Tensor:
    """[N - k, ids]: true pairs up to i, then k steps that read the head's own state and the true token."""
    rows = []
    for i in range(len(ids) - 1 - k):
        slots = body.slots(1, 64, static=False)
        g = body.read({tap: state[:, : i + 1] for tap, state in features.items()})
        output = body.run(slots, torch.tensor([ids[1 : i + 2]]), g, [0])[:, -1]
        for step in range(k):
            token = torch.tensor([[ids[i + 2 + step]]])
            output = body.run(slots, token, body.recycled(output)[:, None], [i + 1 + step])[:, 0]
        rows.append(body.logits(output)[0])
    return torch.stack(rows)


@torch.inference_mode()
def _block(case: dict[str, Any], head: Head, made: Any) -> Found:
    depth = len(case["drafts"])
    shape = tiny.plan(depth, length=64)
    own = dspark.of(head, shape, made) if case["mechanism"] == "dspark" else DFlash(head, shape, made)
    row, features = _row(case, made, own.taps)
    own.begin(row, features)
    said, sure = _noting(own, case)
    drafts = own.propose([row], [depth]).tokens[0].tolist()
    pairs: list[tuple[Tensor, Any]] = [(said(), case["logits"])]
    if "confidence" in case:
        pairs.append((sure(), case["confidence"]))
    return _found(pairs, drafts == case["drafts"])


def _noting(own: DFlash, case: dict[str, Any]) -> tuple[Any, Any]:
    """What the block's slots say, corrected where there is a Markov head, and how sure it is of each."""
    logits: list[Tensor] = []
    confidences: list[Tensor] = []
    if case["mechanism"] == "dflash":
        plain = own.back.logits
        own.back.logits = lambda states: logits.append(plain(states)) or logits[-1]
        return lambda: logits[0][0], None
    markov: Any = own.pick
    bias = markov.bias

    def noting(h: Tensor, e: Tensor | None, state: Tensor | None) -> Any:
        if "confidence" in case:
            confidences.append(markov.confidence(h, e))
        more, state = bias(h, e, state)
        logits.append(own.back.logits(h[:, None])[:, 0] + more)
        return more, state

    markov.bias = noting
    return lambda: torch.cat(logits[-len(case["drafts"]) :]), lambda: torch.cat(confidences[-len(case["drafts"]) :])


def _loop(case: dict[str, Any], head: Head, made: Any) -> Found:
    depth = head.spec.longest or 0
    own = DFlash(head, tiny.plan(depth, length=128), made)
    said: list[Tensor] = []
    plain, helped = own.back.logits, noise.Helped(case["answer"])

    def noting(states: Tensor) -> Tensor:
        said.append(plain(states))
        return helped(said[-1][0])[None]

    own.back.logits = noting  # type: ignore[method-assign]
    prompts, cap = [case["prompt"]], len(case["answer"])
    (answer,) = tiny.decoded(made, own, tiny.plan(depth, length=128), prompts, cap)
    commits = answer.commits[: len(case["commits"])]
    pairs = [(ours[0], theirs) for ours, theirs in zip(said, case["rounds"], strict=False)]
    return _found(pairs, commits == case["commits"] and answer.tokens == case["answer"])
