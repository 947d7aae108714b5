"""The C kernels of the lean forward give what torch's operators give, and a row's result is its own in any company."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ctypes
import platform
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from speedbench.native import kernels as module
from speedbench.native.decode import agreed
from speedbench.native.kernels import Kernels, kernels
from speedbench.native.lean import LeanTarget
from speedbench.native.packed import Product
from speedbench.native.verify import best, greedy

pytestmark = pytest.mark.skipif(kernels(torch.float32) is None, reason="no C compiler on this machine")

DTYPES = (torch.float32, torch.bfloat16)
WITHIN = {torch.float32: 1e-5, torch.bfloat16: 0.05}
FORMS = ("fused", "few", "torch")
"""All of a pass in C; all but its products, which are oneDNN's, as where ours do not pay; nothing in C."""
PORTABLE = ("-mno-avx512f", "-march=x86-64") if platform.machine() == "x86_64" else ()


def target(dtype: torch.dtype, form: str = "fused") -> LeanTarget:
    """The same random Llama, with 4 query heads to 2 KV heads."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with pytest.MonkeyPatch.context() as patch:
        own = kernels(dtype)
        assert own is not None
        own.pays = form == "fused"
        patch.setattr("speedbench.native.packed.kernels", lambda dtype: own)
        made = LeanTarget(config, model.state_dict(), dtype=dtype, device=torch.device("cpu"))
    if form == "torch":
        made._kernels = None
    assert (made._fused is not None) == (form == "fused")
    return made


@pytest.mark.parametrize("form", ["fused", "few"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 5, 9, 70])
def test_kernels_and_torch_agree_in_logits_and_taps(dtype: torch.dtype, width: int, form: str) -> None:
    ids = torch.randint(0, 96, (3, 70), generator=torch.Generator().manual_seed(1))
    seen = []
    for each in (form, "torch"):
        model = target(dtype, each)
        slots = model.slots(3, 100)
        model.forward(slots, ids[:, :30], [0, 0, 0])
        seen.append(model.forward(slots, ids[:, :width], [30, 12, 21], taps=(0, 2, 3)))
    few, plain = seen
    pairs = [(few.logits, plain.logits), *((few.features[tap], plain.features[tap]) for tap in (0, 2, 3))]
    for ours, theirs in pairs:
        assert (ours - theirs).abs().max() <= WITHIN[dtype] * theirs.abs().max()


@pytest.mark.parametrize("form", ["fused", "few"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_gets_the_same_bits_whatever_stands_beside_it(dtype: torch.dtype, form: str) -> None:
    model = target(dtype, form)
    ids = torch.randint(0, 96, (1, 40), generator=torch.Generator().manual_seed(2))
    one_by_one = model.slots(1, 64)
    alone = torch.cat([model.forward(one_by_one, ids[:, i : i + 1], [i]).logits for i in range(40)], 1)
    for width in (2, 3, 5, 8):
        slots = model.slots(2, 64)
        both = ids.repeat(2, 1)
        wide = [model.forward(slots, both[:, i : i + width], [i, i]).logits for i in range(0, 40, width)]
        assert torch.equal(torch.cat(wide, 1)[1:], alone), width


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_prompt_gets_the_bits_of_its_tokens_one_by_one(dtype: torch.dtype) -> None:
    """230 tokens: more than a chunk of rows, a block of queries and a span of slots; rows of other lengths beside."""
    model = target(dtype)
    ids = torch.randint(0, 96, (1, 230), generator=torch.Generator().manual_seed(3))
    slots, other = model.slots(1, 256), model.slots(3, 256)
    alone = torch.cat([model.forward(slots, ids[:, i : i + 1], [i]).logits for i in range(230)], 1)
    assert torch.equal(model.forward(model.slots(1, 240), ids, [0]).logits, alone)
    model.forward(other, ids[:, :100].repeat(3, 1), [0, 0, 0])
    assert torch.equal(model.forward(other, ids[:, 90:].repeat(3, 1), [0, 90, 40]).logits[1], alone[0, 90:])


def test_a_token_or_a_place_out_of_range_is_refused() -> None:
    model = target(torch.float32)
    slots = model.slots(1, 32)
    for ids, start in (([[96]], 0), ([[-1]], 0), ([[1, 2]], 31), ([[1]], -1)):
        with pytest.raises(IndexError, match="exceed 32 slots"):
            model.forward(slots, torch.tensor(ids), [start])


# ---- products ------------------------------------------------------------------------------------------------------


def check_products(own: Kernels) -> None:
    """Against float64, for ragged sizes, and each row's bits as when it is alone."""
    torch.manual_seed(4)
    for rows, depth in ((1, 2), (33, 64), (70, 96), (96, 128)):
        weight, bias = torch.randn(rows, depth).to(own.dtype), torch.randn(rows).to(own.dtype)
        product, x = Product(own, weight, bias), torch.randn(203, depth).to(own.dtype)
        exact = x.double() @ weight.double().T + bias.double()
        bound = {torch.float32: 1e-5, torch.bfloat16: 0.02}[own.dtype] * float(exact.abs().max())
        alone = torch.cat([product(x[i : i + 1]) for i in range(203)])
        assert float((alone.double() - exact).abs().max()) < bound
        for many in (2, 3, 5, 12, 13, 97, 203):
            assert torch.equal(product(x[:many]), alone[:many]), (rows, depth, many)
        assert product(x.view(29, 7, depth)).shape == (29, 7, rows)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_right_and_a_rows_bits_its_own(dtype: torch.dtype) -> None:
    own = kernels(dtype)
    assert own is not None
    check_products(own)


@pytest.mark.parametrize("flag", PORTABLE)
def test_without_wide_vectors_the_same_source_is_as_right(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kernels.so"
    module.build(shutil.which("cc") or "gcc", module.sources(), kept, flag)
    monkeypatch.setattr(module, "_library", lambda: ctypes.CDLL(str(kept)))
    for dtype in DTYPES:
        own = kernels(dtype)
        assert own is not None
        assert not (own.pays and flag == "-march=x86-64")
        check_products(own)
        test_kernels_and_torch_agree_in_logits_and_taps(dtype, 70, "fused")
        test_a_prompt_gets_the_bits_of_its_tokens_one_by_one(dtype)


# ---- picks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_token_is_the_first_of_equals(dtype: torch.dtype) -> None:
    own = kernels(dtype)
    assert own is not None
    logits = torch.randn(5, 2, 1100, generator=torch.Generator().manual_seed(5)).to(dtype)
    logits[0, 0, [3, 700, 1099]] = 9.0
    logits[1] = -torch.inf
    logits[2, 1, 1099] = 8.0
    assert own.best(logits) == best(logits).tolist()
    assert own.best(logits[:, :1]) == best(logits[:, :1]).tolist()


@given(st.integers(1, 4), st.integers(0, 5), st.integers(0, 2**31))
def test_what_the_host_accepts_is_what_verify_accepts(rows: int, width: int, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    picks, drafts = (torch.randint(0, 2, (rows, n), generator=dice) for n in (width + 1, width))
    counts = torch.randint(0, width + 1, (rows,), generator=dice)
    logits = torch.nn.functional.one_hot(picks, 2).float()
    accepted, added = greedy(logits, drafts, counts)
    ours = agreed(picks.tolist(), drafts.tolist(), counts.tolist())
    assert ours == accepted.tolist()
    assert [int(picks[b, n]) for b, n in enumerate(ours)] == added.tolist()


# ---- where there are none ------------------------------------------------------------------------------------------


def test_the_fallback_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    module._library.cache_clear()
    monkeypatch.setenv("SPEEDBENCH_KERNELS", "0")
    assert module.kernels(torch.float32) is None
    module._library.cache_clear()


def test_other_dtypes_have_no_kernels() -> None:
    assert kernels(torch.float64) is None
    assert kernels(torch.float16) is None


def test_a_target_that_could_have_had_kernels_says_that_it_has_none() -> None:
    assert target(torch.bfloat16, "torch").lacks_kernels  # a machine without a compiler looks like this
    for form in ("fused", "few"):
        assert target(torch.bfloat16, form).uses_kernels
        assert not target(torch.bfloat16, form).lacks_kernels
