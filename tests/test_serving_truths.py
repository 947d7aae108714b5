"""Made-up answers, told as each engine would count them, must come back with the length they had."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_serving_acceptance import check, shown, taken

from speedbench.serving.acceptance import Acceptance, acceptance
from speedbench.serving.payloads import Told


@dataclass(frozen=True)
class Truth:
    """An answer as it was: (proposed, accepted) of every pass after the prefill, and what the end cut off the last."""

    d: int
    passes: tuple[tuple[int, int], ...]
    cut: int

    @property
    def tokens(self) -> int:
        return 1 + sum(a + 1 for _, a in self.passes) - self.cut

    @property
    def drafted(self) -> list[tuple[int, int]]:
        return [(p, a) for p, a in self.passes if p]

    @property
    def histogram(self) -> list[int]:
        return [sum(a == j for _, a in self.drafted) for j in range(self.d + 1)]

    @property
    def plain(self) -> int:
        return len(self.passes) - len(self.drafted)


@st.composite
def truths(draw: st.DrawFn, fixed: bool = False) -> Truth:
    """Any answer; `fixed` makes every pass propose D."""
    d = draw(st.integers(1, 8))
    proposed = draw(st.lists(st.just(d) if fixed else st.integers(0, d), min_size=1, max_size=20))
    passes = tuple((p, draw(st.integers(0, p))) for p in proposed)
    return Truth(d, passes, draw(st.integers(0, passes[-1][1])))


def vllm_stats(truth: Truth, *, detailed: bool) -> dict[str, Any]:
    """As vLLM counts: drafted steps only, before the cut."""
    steps, accepted = len(truth.drafted), sum(a for _, a in truth.drafted)
    stats = {
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "acceptance_histogram": truth.histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": sum(p for p, _ in truth.drafted),
        "num_spec_tokens": truth.d,
    }
    if detailed and steps:
        stats |= {"per_step_accepted": [a for _, a in truth.drafted], "per_step_drafted": [p for p, _ in truth.drafted]}
    return stats


def vllm(truth: Truth, *, detailed: bool) -> dict[str, Any]:
    stats = vllm_stats(truth, detailed=detailed)
    return {"usage": {"completion_tokens": truth.tokens}, "metrics": {"speculative_decoding": stats}}


def sglang(truth: Truth) -> dict[str, Any]:
    """Every pass is a verify step of the full width, whatever was proposed."""
    accepted = [a for _, a in truth.passes]
    stats = {
        "spec_accept_length": truth.tokens / len(accepted),
        "spec_num_correct_drafts": sum(accepted),
        "spec_num_proposed_drafts": len(accepted) * truth.d,
        "spec_verify_ct": len(accepted),
        "spec_correct_drafts_histogram": [accepted.count(j) for j in range(truth.d + 1)],
    }
    return {"usage": {"completion_tokens": truth.tokens}, "sglext": {"spec_tokens_details": stats}}


def trtllm(truth: Truth, *, stats: bool) -> dict[str, Any]:
    """Tokens sent over all iterations, the prefill's too; drafted steps before the cut."""
    choice: dict[str, Any] = {"index": 0, "avg_decoded_tokens_per_iter": truth.tokens / (len(truth.passes) + 1)}
    if stats and truth.drafted:
        choice["speculative_decoding"] = {
            "total_accepted_draft_tokens": sum(a for _, a in truth.drafted),
            "total_draft_tokens": sum(p for p, _ in truth.drafted),
            "num_spec_steps": len(truth.drafted),
            "acceptance_histogram": truth.histogram,
        }
    return {"usage": {"completion_tokens": truth.tokens}, "choices": [choice]}


def llamacpp(truth: Truth, *, rounds: bool) -> dict[str, Any]:
    timings = {"predicted_n": truth.tokens}
    if truth.drafted:
        timings |= {"draft_n": sum(p for p, _ in truth.drafted), "draft_n_accepted": sum(a for _, a in truth.drafted)}
        timings |= {"draft_rounds": len(truth.drafted)} if rounds else {}
    return {"timings": timings}


def passes(found: Acceptance, truth: Truth) -> int:
    """Passes found, after the checks that hold for all: no fault, and a record that `validate` accepts."""
    assert found.faults == ()
    check(found, tokens=truth.tokens, d=truth.d)
    return found.counts.steps if found.counts is not None else len(found.steps)


@settings(max_examples=150, deadline=None)
@given(truths(fixed=True))
def test_vllms_steps_are_exact_where_every_pass_drafts(truth: Truth) -> None:
    found = taken(vllm(truth, detailed=True), d=truth.d, fixed=True)
    assert passes(found, truth) == len(truth.passes)
    assert found.origin == "exact"
    *whole, (p, a) = truth.passes
    assert shown(found) == [*((p, a, a + 1) for p, a in whole), (p, a, a + 1 - truth.cut)]


@settings(max_examples=300, deadline=None)
@given(truths(), st.booleans())
def test_vllms_steps_miss_at_most_as_many_plain_ones_as_the_end_cut_off(truth: Truth, detailed: bool) -> None:
    found = taken(vllm(truth, detailed=detailed), d=truth.d)
    assert passes(found, truth) == len(truth.passes) - min(truth.plain, truth.cut)  # the bias of G2 with G1
    if detailed and truth.drafted:
        drafted = [(step.proposed, step.accepted) for step in found.steps if step.proposed]
        assert drafted == truth.drafted  # in order, each as it was


@settings(max_examples=150, deadline=None)
@given(truths())
def test_sglangs_histogram_gives_the_exact_length(truth: Truth) -> None:
    found = taken(sglang(truth), d=truth.d)
    assert passes(found, truth) == len(truth.passes)
    assert sorted(step.accepted or 0 for step in found.steps) == sorted(a for _, a in truth.passes)


@settings(max_examples=150, deadline=None)
@given(truths(), st.booleans())
def test_trtllms_iterations_give_the_exact_length_with_and_without_its_histogram(truth: Truth, stats: bool) -> None:
    assert passes(taken(trtllm(truth, stats=stats), d=truth.d), truth) == len(truth.passes)


@settings(max_examples=300, deadline=None)
@given(truths(), st.booleans())
def test_sums_give_the_exact_length_unless_a_stop_cut_the_last_step(truth: Truth, rounds: bool) -> None:
    found = taken(llamacpp(truth, rounds=rounds), d=truth.d)
    assert len(truth.passes) - truth.cut <= passes(found, truth) <= len(truth.passes)
    if rounds and not truth.plain:
        assert passes(found, truth) == len(truth.passes)  # the rounds show the cut


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 40), st.integers(0, 6), st.integers(0, 30))
def test_no_histogram_whatever_makes_a_record_that_cannot_be(
    histogram: list[int], tokens: int, d: int, proposed: int
) -> None:
    accepted = sum(j * n for j, n in enumerate(histogram))
    made = Told(source="any", histogram=tuple(histogram), drafted=sum(histogram), proposed=proposed, accepted=accepted)
    check(acceptance(made, tokens=tokens, draft_length=d, finish="stop"), tokens=tokens, d=d)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 40)),
)
def test_no_sums_whatever_make_a_record_that_cannot_be(
    tokens: int, d: int, accepted: int | None, proposed: int | None, forwards: int | None
) -> None:
    made = Told(source="any", accepted=accepted, proposed=proposed, forwards=forwards)
    check(acceptance(made, tokens=tokens, draft_length=d, finish="stop"), tokens=tokens, d=d)
