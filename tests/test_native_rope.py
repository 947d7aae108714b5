"""Stretched positions: the frequencies are transformers' own, and fixed, so that answers do not depend on D."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from speedbench.backends.native import BACKEND
from speedbench.errors import UserError
from speedbench.native import weights
from speedbench.native.lean import inverse_frequencies
from speedbench.native.rope import scaled, warning
from speedbench.types import Runner


def saved(folder: Path, **given: Any) -> Path:
    return tiny.folder(folder, tiny.model(dtype=torch.float32, max_position_embeddings=64, **given))


def loaded(folder: Path, rope_scaling: Any = None, form: str = "auto") -> Any:
    return weights.target(
        folder, dtype=torch.float32, device=tiny.CPU, form=form, rope_scaling=rope_scaling, pack=False
    )


def logits(target: Any, ids: list[int]) -> torch.Tensor:
    seen = target.forward(target.slots(1, len(ids)), torch.tensor([ids]), [0])
    return torch.as_tensor(seen.logits)


@pytest.mark.parametrize("factor", [2, 4.0])
def test_dynamic_has_the_base_that_transformers_comes_to_at_the_longest_row(factor: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
    theirs = LlamaConfig(**sizes, rope_theta=10_000.0, rope_scaling={"rope_type": "dynamic", "factor": factor})
    right, _ = ROPE_INIT_FUNCTIONS["dynamic"](theirs, tiny.CPU, seq_len=int(64 * factor))
    ours = scaled(LlamaConfig(**sizes), {"rope_type": "dynamic", "factor": factor})
    assert ours.max_position_embeddings == 64 * factor
    torch.testing.assert_close(inverse_frequencies(ours, 16), right)


@pytest.mark.parametrize(("kind", "form"), [("linear", "lean"), ("dynamic", "lean"), ("yarn", "transformers")])
def test_a_stretched_model_takes_four_times_its_positions_and_says_so(tmp_path: Path, kind: str, form: str) -> None:
    asked = {"rope_type": kind, "factor": 4}
    target = loaded(saved(tmp_path), asked)
    assert (target.form, target.context) == (form, 256)
    ids = tiny.prompt(200)
    assert torch.isfinite(logits(target, ids)).all()
    assert not torch.allclose(logits(target, ids[:50]), logits(loaded(tmp_path), ids[:50]))
    assert f"positions are stretched to 256 (engine.rope_scaling: {kind}, factor 4" in warning(asked, target.context)


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_the_lean_form_stretches_as_transformers_does(tmp_path: Path, kind: str) -> None:
    asked, ids = {"rope_type": kind, "factor": 4}, tiny.prompt(150)
    saved(tmp_path)
    ours, theirs = (logits(loaded(tmp_path, asked, form), ids) for form in ("lean", "transformers"))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_short_prompt_gives_the_same_whatever_follows_it(tmp_path: Path) -> None:
    """Transformers' own dynamic rule would turn the first tokens otherwise in the longer row."""
    target, ids = loaded(saved(tmp_path), {"rope_type": "dynamic", "factor": 4}), tiny.prompt(200)
    torch.testing.assert_close(logits(target, ids)[:, :50], logits(target, ids[:50]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("dynamic", "engine.rope_scaling: should be {rope_type: linear | dynamic | yarn, factor: N} (got 'dynamic')"),
        ({"rope_type": "longrope", "factor": 4}, "engine.rope_scaling: should be {rope_type: linear | dynamic | yarn"),
        ({"rope_type": "linear"}, "engine.rope_scaling.factor: should be a number above 1, up to 64 (got None)"),
        ({"rope_type": "linear", "factor": 1}, "engine.rope_scaling.factor: should be a number above 1"),
        ({"rope_type": "linear", "factor": True}, "engine.rope_scaling.factor: should be a number above 1"),
        (
            {"rope_type": "linear", "factor": 4, "beta_fast": 1},
            "beta_fast: unknown to 'linear'. Have: rope_type, factor",
        ),
        ({"rope_type": "yarn", "factor": 4, "beta_fast": "x"}, "engine.rope_scaling.beta_fast: should be a number"),
    ],
)
def test_a_request_that_does_not_read_is_named(asked: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        scaled(tiny.config(), asked)
    assert said in str(caught.value)


def test_a_model_that_is_stretched_already_is_refused() -> None:
    twice = tiny.config(rope_scaling={"rope_type": "linear", "factor": 2.0})
    with pytest.raises(UserError, match="the model has its own already: linear"):
        scaled(twice, {"rope_type": "linear", "factor": 4})


def test_a_run_says_that_positions_were_stretched(tmp_path: Path) -> None:
    engine = {"rope_scaling": {"rope_type": "dynamic", "factor": 4}, "threads": 1}
    runner = Runner(name="u", title="T", backend="native", model=str(saved(tmp_path)), engine=engine)
    with BACKEND.open(runner) as session:
        assert session.context == 256
        assert session.facts["engine"]["rope_scaling"] == engine["rope_scaling"]
        assert any(
            "a test of the mechanism, no result about long contexts" in each for each in session.facts["warnings"]
        )
