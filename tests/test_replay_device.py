"""Labelling on a device that is not the host: no tensor is left on the other side, and results come over in a few
transfers. There need be no GPU: torch's fake tensors have a place and a shape and no content, and where two places
meet they raise."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import blocks
import pytest
import scripted_target as st
import serial_heads
import tiny
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from speedbench.native import dspark
from speedbench.native.dflash import DFlash
from speedbench.native.lean import LeanTarget
from speedbench.native.proposer import Plan, Proposer
from speedbench.native.replay import block, external, forced, serial
from speedbench.native.replay.forced import Stage
from speedbench.native.replay.routes import labeller
from speedbench.native.serial import Serial
from speedbench.types import Sampling

AWAY = torch.device("meta")
D, ROW = 4, [*tiny.prompt(9), *tiny.prompt(20)]


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.device]]:
    """Where each tensor lay that went through `host`, which finds that everything is right, or token 0."""
    places: list[torch.device] = []

    def host(x: Tensor) -> Any:
        places.append(x.device)
        content: Any = 0.0 if x.dtype == torch.float32 else x.dtype == torch.bool
        for size in reversed(x.shape):
            content = [content] * size
        return content

    plain = torch.tensor
    monkeypatch.setattr(  # of a list on the device itself it would not be a fake one
        torch, "tensor", lambda data, device=None, **more: plain(data, **more).to(device or "cpu")
    )
    for module in (forced, serial, block, external):
        monkeypatch.setattr(module, "host", host)
    monkeypatch.setattr(Serial, "_try", lambda self, target: None)  # they look at numbers
    monkeypatch.setattr(DFlash, "_smoke", lambda self: None)
    with FakeTensorMode():
        yield places


MODELS = {layers: tiny.model(dtype=torch.float32, num_hidden_layers=layers) for layers in (2, 4)}
SHAPES = {n: {name: each.shape for name, each in made.state_dict().items()} for n, made in MODELS.items()}


def lean(layers: int = 2) -> LeanTarget:
    weights = {name: torch.empty(shape, device=AWAY) for name, shape in SHAPES[layers].items()}
    return LeanTarget(MODELS[layers].config, weights, dtype=torch.float32, device=AWAY)


def made(name: str, target: LeanTarget, shape: Plan) -> Proposer:
    if name == "external":
        return tiny.external(lean(), shape)
    if name in ("eagle3", "mtp"):
        own: Proposer = serial_heads.serial(serial_heads.random(serial_heads.spec(name)), target, shape)
        return own
    if name == "dflash":
        return DFlash(blocks.head_of(), shape, target)
    return dspark.of(blocks.head_of(mechanism="dspark", markov="rnn", markov_rank=6), shape, target)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0, top_k=8, top_p=0.9)], ids=["greedy", "drawn"]
)
@pytest.mark.parametrize("name", ["external", "eagle3", "mtp", "dflash", "dspark"])
def test_labelling_stays_on_the_targets_device(name: str, sampling: Sampling, brought: list[torch.device]) -> None:
    target = lean(4 if name in ("dflash", "dspark") else 2)
    stops = frozenset({ROW[20]})
    asked = [st.answer(ROW, 9, 12), st.answer(ROW, 9, 16, stops), st.answer(ROW, 5, 3)]
    assert [each.finish for each in asked] == ["length", "stop", "length"]
    shape = tiny.plan(D, rows=3, length=64, device=AWAY, sampling=sampling)
    one = labeller(name, made(name, target, shape), Stage(target, 30, D, sampling, 3), [D])
    tables = one.tables(asked)
    assert [len(table[None].offered) for table in tables] == [11, 11, 2]
    assert set(brought) == {AWAY}
    assert 1 <= len(brought) <= 4 * D, "results come over by pass, not by token"


def test_a_tensor_on_the_wrong_side_would_be_seen(brought: list[torch.device]) -> None:
    with pytest.raises(Exception, match="same device"):
        torch.arange(3) + torch.arange(3, device=AWAY)
