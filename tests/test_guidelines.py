"""The five guidelines as functions, with the arithmetic of each, and the identities of the formula below them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedbench import catalog, modelfacts
from speedbench.advise.curves import Accepted, Curve, typed
from speedbench.advise.guidelines import (
    align,
    attention_start,
    break_even,
    fullness,
    gemm_room,
    intensity,
    latency_limit,
    speedup,
)
from speedbench.advise.roofline import Deployment, Roofline
from speedbench.costs.linear import Place
from speedbench.types import ModelFacts

DENSE, MOE, HYBRID = (modelfacts.load(name) for name in ("qwen3-32b", "qwen3.5-397b-a17b", "qwen3.5-122b-a10b"))


def on(facts: ModelFacts = DENSE, hardware: str = "h200", **given: float) -> Deployment:
    return Deployment(facts=facts, hardware=catalog.hardware(hardware), **given)  # type: ignore[arg-type]


def curve(**al: float) -> Curve:
    points = {int(d.removeprefix("d")): Accepted(value=value) for d, value in al.items()}
    return Curve(label="mtp", mechanism="mtp", points=points, source="")


# ---- 1 -------------------------------------------------------------------------------------------------------------


def test_products_turn_compute_bound_at_the_published_peaks_ratio() -> None:
    # F·w/(2·BW), in rows
    assert on().turning_rows == pytest.approx(989e12 * 2 / (2 * 4.8e12))  # 206
    assert on(weight_bytes=1.0).turning_rows == pytest.approx(1979e12 / (2 * 4.8e12))
    assert round(on(hardware="gb300", weight_bytes=0.5625).turning_rows) == 527  # 15 PF, four bits and their scales
    assert round(on(hardware="a100-80gb").turning_rows) == 153


def test_at_batch_25_an_h200_has_room_for_seven_drafts_in_bfloat16() -> None:
    rule = gemm_room(on(), 25)
    assert rule.value == 7  # 25·8 = 200 ≤ 206 < 25·9
    assert rule.applies
    assert rule.inputs["binding"] == "linear layers"


@settings(deadline=None)
@given(st.integers(1, 200))
def test_seven_drafts_divide_the_batch_that_fills_products_by_exactly_eight(batch: int) -> None:
    room = gemm_room(on(), batch).value
    assert isinstance(room, int)
    assert batch * (1 + room) <= on().turning_rows < batch * (2 + room)
    assert (room >= 7) == (batch * 8 <= on().turning_rows)


def test_a_sparser_mixture_leaves_more_room_and_a_batch_beyond_the_knee_none() -> None:
    assert MOE.mixture is not None
    rooms = []
    for experts in (64, 128, 256, 512):
        facts = replace(MOE, mixture=replace(MOE.mixture, experts=experts))
        rooms.append(gemm_room(on(facts), 64).value)
    assert rooms == sorted(rooms)
    assert rooms[0] < rooms[-1]
    over = gemm_room(on(), 256)
    assert (over.value, over.applies) == (0, False)
    assert "paid in full" in over.why


def test_each_expert_gets_its_share_of_the_rows() -> None:
    # E=512, k=10: with every expert awake, rows an expert are x·10/512; 206 of them need x = 10549 = 64·165
    rule = gemm_room(on(MOE), 64)
    assert rule.value == 163  # x = 64·164 = 10496, x·10/512 = 205
    assert rule.inputs["binding"] == "experts"
    assert "every token passes have room up to D=2" in rule.why  # 64·3 = 192 ≤ 206


# ---- 2 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "start"), [(16, 7), (8, 15), (4, 31), (32, 3), (128, 0), (6, 20), (12, 9), (256, 0), (1, 127)]
)
def test_the_tile_of_attention_is_full_at(group: int, start: int) -> None:
    assert attention_start(group, share=0.8).value == start


def test_a_group_that_does_not_divide_the_tile_is_rounded_down_and_said_so() -> None:
    assert "126 of 128, which no D makes exact" in attention_start(6, share=0.8).why
    assert "no D" not in attention_start(16, share=0.8).why


def test_a_start_beyond_any_drafter_does_not_apply() -> None:
    rule = attention_start(1, share=0.9)
    assert (rule.value, rule.applies) == (127, False)
    assert "out of any drafter's reach" in rule.why


def test_latent_attention_has_no_start_and_no_alignment() -> None:
    for rule in (attention_start(128, latent=True, share=0.9), align(128, 3, latent=True, share=0.9)):
        assert (rule.value, rule.applies) == (None, False)
        assert "latent" in rule.why


def test_the_attention_rules_apply_only_where_attention_dominates() -> None:
    assert attention_start(16, share=0.51).applies
    assert not attention_start(16, share=0.5).applies
    assert not attention_start(16, share=None).applies
    assert align(16, 8, share=0.51).applies
    assert not align(16, 8, share=0.2).applies
    assert not align(16, 5, share=0.9).applies  # within the first tile nothing is wasted


def test_at_4k_attention_does_not_dominate_a_hybrid_and_at_32k_with_many_rows_it_takes_far_more() -> None:
    model = Roofline(on(HYBRID, gpus=4), {})

    def share(batch: int, context: int) -> float:
        parts = model.parts(Place(batch=batch, draft_length=0, context=context))
        return parts["attention"] / sum(parts.values())

    assert share(16, 4096) < 0.1 < share(128, 32768)
    assert (HYBRID.full, HYBRID.layers) == (12, 48)


# ---- 3 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "nearest"), [(7, 7), (8, 7), (10, 7), (12, 15), (15, 15), (20, 23), (31, 31)])
def test_with_sixteen_heads_a_group_tiles_are_full_at_7_15_23_31(d: int, nearest: int) -> None:
    assert align(16, d, share=0.8).value == nearest


def test_one_draft_too_many_leaves_nearly_half_a_tile_empty() -> None:
    assert fullness(16, 8) == 144 / 256
    assert fullness(16, 7) == 1
    assert "D=8 uses 56 % of its tiles' rows, D=7 100 %" in align(16, 8, share=0.8).why


def test_where_no_small_length_is_exact_the_fullest_nearby_is_said() -> None:
    # G=6: 6·(1+D) is a multiple of 128 only at 1+D a multiple of 64; of those near 22, D=20 fills 126 of 128
    assert align(6, 22, share=0.8).value == 20
    assert align(12, 11, share=0.8).value == 9  # 120 of 128


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 32))
def test_alignment_never_proposes_a_less_full_tile(group: int, d: int) -> None:
    value = align(group, d, share=0.8).value
    assert isinstance(value, int)
    assert fullness(group, value) >= fullness(group, d) - 1e-3


def test_attention_costs_the_same_within_a_tile_and_a_step_more_beyond() -> None:
    """With the FLOP branch made to rule, D = 8…15 cost the same: two tiles of 16 heads."""
    slow = replace(catalog.hardware("h200"), flops={"bfloat16": 1e12})
    facts = replace(DENSE, heads=128, kv_heads=8)
    model = Roofline(Deployment(facts=facts, hardware=slow), {})

    def attention(d: int) -> float:
        return model.parts(Place(batch=8, draft_length=d, context=32768 - d))["attention"]

    assert len({round(attention(d), 9) for d in range(8, 16)}) == 1
    assert attention(8) == pytest.approx(2 * attention(7))


def test_attention_intensity_is_two_g_only_for_bytes() -> None:
    assert intensity(16, 0, 1.0) == 32  # FP8: 2·G
    assert intensity(16, 0, 2.0) == 16  # bfloat16: G
    assert intensity(16, 7, 2.0) == 128


def test_more_devices_than_kv_heads_shrink_the_group_on_each() -> None:
    # 32 query and 2 KV heads: at 8 devices each holds 4 queries and a copy of one KV head
    assert [on(MOE, gpus=gpus).local_group for gpus in (1, 2, 4, 8, 16)] == [16, 16, 8, 4, 2]
    assert on(MOE, gpus=8).cache_bytes(1) == 4 * on(MOE, gpus=1).cache_bytes(1)  # 8 copies of 2 heads
    assert on(HYBRID).cache_bytes(1) == 2 * 12 * 2 * 256 * 2  # 24576 bytes


# ---- 4 -------------------------------------------------------------------------------------------------------------


def test_without_draft_cost_the_longest_draft_wins_and_with_constant_acceptance_none() -> None:
    assert latency_limit(curve(d1=1.8, d2=2.4, d3=2.8), 0.0).value == 3
    assert latency_limit(curve(d1=1.0, d2=1.0), 0.1).value == 0


def test_a_drafter_as_deep_as_its_target_is_not_worth_it() -> None:
    rule = latency_limit(curve(d1=1.8), 1.0)
    assert rule.value == 0
    assert "D=1 would give 0.90" in rule.why  # 1.8 / 2


def test_the_marginal_rule_stops_where_the_next_draft_costs_more_than_it_brings() -> None:
    # ρ = 0.2: 1.9/1.2 = 1.58, 2.5/1.4 = 1.79, 2.8/1.6 = 1.75
    rule = latency_limit(curve(d1=1.9, d2=2.5, d3=2.8), 0.2)
    assert rule.value == 2
    assert "D=3 would give 1.75" in rule.why


def test_the_published_curve_at_one_layer_of_sixty_is_best_at_its_edge_which_is_said() -> None:
    rule = latency_limit(typed("qwen3.5-397b-mtp:thinking_on"), 1 / 60)
    assert rule.value == 8  # 5.21 / (1 + 8/60) = 4.60, 5.04 / (1 + 7/60) = 4.51
    assert "edge of the measured range" in rule.why


def test_a_parallel_drafter_is_judged_by_what_each_length_takes() -> None:
    rule = latency_limit(curve(d4=3.0, d8=3.2), {4: 0.1, 8: 0.25})  # 2.73, 2.56
    assert rule.value == 4


# ---- the formula ---------------------------------------------------------------------------------------------------

seconds = st.floats(1e-5, 1.0)


@settings(deadline=None)
@given(seconds)
def test_no_drafts_are_a_speedup_of_one(t: float) -> None:
    assert speedup(1.0, t, t, 0.0) == 1


@settings(deadline=None)
@given(st.integers(1, 32), seconds)
def test_free_and_perfect_drafts_in_a_flat_pass_give_one_plus_d(d: int, t: float) -> None:
    assert speedup(1.0 + d, t, t, 0.0) == pytest.approx(1 + d)


@settings(deadline=None)
@given(seconds, seconds, st.floats(0, 1.0))
def test_break_even_is_where_the_speedup_is_one(t: float, verify: float, draft: float) -> None:
    assert speedup(break_even(t, verify, draft), t, verify, draft) == pytest.approx(1)


@settings(deadline=None)
@given(st.integers(1, 8))
def test_with_a_huge_batch_a_dense_model_gains_at_most_its_acceptance_over_its_width(d: int) -> None:
    """T(B·(1+D)) → (1+D)·T(B): AL/(1+D) ≤ 1, whatever is accepted."""
    model = Roofline(on(DENSE), {})
    plain = model.verify(Place(batch=8192, draft_length=0, context=1)).seconds
    wide = model.verify(Place(batch=8192, draft_length=d, context=1)).seconds
    assert speedup(1.0 + d, plain, wide, 0.0) == pytest.approx(1, abs=0.06)
