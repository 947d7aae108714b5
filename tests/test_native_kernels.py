"""The C kernels of the lean forward give what torch's operators give, and a row's result is its own in any company."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from speedbench.native.kernels import kernels
from speedbench.native.lean import LeanTarget

pytestmark = pytest.mark.skipif(kernels(torch.float32) is None, reason="no C compiler on this machine")

DTYPES = (torch.float32, torch.bfloat16)


def target(dtype: torch.dtype, *, small: bool) -> LeanTarget:
    """The same random Llama, with 4 query heads to 2 KV heads; `small` runs few rows in the kernels."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    made = LeanTarget(config, model.state_dict(), dtype=dtype, device=torch.device("cpu"))
    if not small:
        made._kernels = None
    return made


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_kernels_and_torch_agree_in_logits_and_taps(dtype: torch.dtype, within: float, width: int) -> None:
    ids = torch.randint(0, 96, (3, 30), generator=torch.Generator().manual_seed(1))
    seen = []
    for small in (True, False):
        model = target(dtype, small=small)
        slots = model.slots(3, 64)
        model.forward(slots, ids, [0, 0, 0])  # 90 tokens: a prefill, in torch either way
        seen.append(model.forward(slots, ids[:, :width], [30, 12, 21], taps=(0, 2, 3)))
    few, plain = seen
    pairs = [(few.logits, plain.logits), *((few.features[tap], plain.features[tap]) for tap in (0, 2, 3))]
    for ours, theirs in pairs:
        assert (ours - theirs).abs().max() <= within * theirs.abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_gets_the_same_bits_whatever_stands_beside_it(dtype: torch.dtype) -> None:
    model = target(dtype, small=True)
    ids = torch.randint(0, 96, (1, 40), generator=torch.Generator().manual_seed(2))
    one_by_one = model.slots(1, 64)
    alone = torch.cat([model.forward(one_by_one, ids[:, i : i + 1], [i]).logits for i in range(40)], 1)
    for width in (2, 3, 5, 8):
        slots = model.slots(2, 64)
        both = ids.repeat(2, 1)
        wide = [model.forward(slots, both[:, i : i + width], [i, i]).logits for i in range(0, 40, width)]
        assert torch.equal(torch.cat(wide, 1)[1:], alone), width


def test_the_fallback_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from speedbench.native import kernels as module

    module._library.cache_clear()
    monkeypatch.setenv("SPEEDBENCH_KERNELS", "0")
    assert module.kernels(torch.float32) is None
    module._library.cache_clear()


def test_other_dtypes_have_no_kernels() -> None:
    assert kernels(torch.float64) is None
    assert kernels(torch.float16) is None


def test_a_target_that_could_have_had_kernels_says_that_it_has_none() -> None:
    assert target(torch.bfloat16, small=False).lacks_kernels  # a machine without a compiler looks like this
    assert not target(torch.bfloat16, small=True).lacks_kernels
