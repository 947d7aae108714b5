"""Advice: the published curve on published constants prints a schedule; measured times recommend what was made best."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from builders import measured, passed, record, steps
from scripts import Bench
from timings import Law, dense, timed

from speedbench import catalog, profiles
from speedbench.advise import advice, asking, memory
from speedbench.advise.curves import Accepted, Curve, Seen, of_results, typed
from speedbench.advise.frontier import Point, frontier, matched, within
from speedbench.advise.offers import choose, offer
from speedbench.advise.roofline import Deployment, Roofline
from speedbench.advise.schedule import schedule, trtllm, vllm
from speedbench.cli.document import metrics
from speedbench.costs.linear import Place, Refused
from speedbench.costs.passes import Passes
from speedbench.errors import UserError
from speedbench.results import Run
from speedbench.summarise import results
from speedbench.types import Prefill, Profile

GRID = list(product((1, 2, 4, 8, 16), (0, 1, 2, 4, 8), (512,)))


def profile(law: Law = dense, *, draft: float = 1e-3, **given: Any) -> Profile:
    """Times of a law, and of a drafter `eagle3` that takes `draft` seconds a draft token."""
    plain = [timed(*at, law(*at), again=law(*at) * 1.01 if at[1] == 0 else None) for at in GRID]
    drafted = [timed(b, d, s, law(b, d, s), drafter="eagle3", draft=draft * d) for b, d, s in GRID if d]
    fixed: dict[str, Any] = {
        "target": {"model": "made up", "dtype": "bfloat16"}, "environment": {}, "timed": (*plain, *drafted),
        "config": json.loads((Path(__file__).parent.parent / "models" / "qwen3-32b.json").read_text("utf-8")),
        "prefills": (Prefill(tokens=512, seconds=0.0512),), "noise": 0.01,
    }  # fmt: skip
    return Profile(**{**fixed, **given})


def asked(**given: Any) -> asking.Asked:
    fixed: dict[str, Any] = {
        "curves": (curve(),), "seen": (), "targets": (), "profile": profile(), "profile_name": "p.json", "model": None,
        "hardware": None, "times": "constants", "gpus": 1, "weights": None, "kv": None, "batches": None,
        "context": None, "answer": None,
        "user_tps": None, "rho": None, "externals": {},
    }  # fmt: skip
    return asking.Asked(**{**fixed, **given})


def curve(al: dict[int, float] | None = None, label: str = "eagle3", width: float = 0.0) -> Curve:
    points = {
        d: Accepted(value=x, low=x * (1 - width) if width else None, high=x * (1 + width) if width else None)
        for d, x in (al or {1: 1.7, 2: 2.1, 4: 2.5, 8: 2.6}).items()
    }
    return Curve(label=label, mechanism=label, points=points, source="")


# ---- acceptance lengths --------------------------------------------------------------------------------------------


def test_a_golden_curve_is_read_by_name_and_mode() -> None:
    found = typed("qwen3.5-397b-mtp:thinking_on")
    assert found.mechanism == "mtp"
    assert [found.points[d].value for d in range(1, 9)] == [1.93, 2.73, 3.39, 3.97, 4.41, 4.8, 5.04, 5.21]


def test_a_golden_file_of_inferencex_s_own_form_is_read(tmp_path: Path) -> None:
    path = tmp_path / "minimaxm3_eagle3.yaml"
    path.write_text("_metadata:\n  draft-model: x\nminimax-m3:\n  thinking_on:\n    1: 1.78\n    2: 2.38\n", "utf-8")
    found = typed(str(path))
    assert (found.mechanism, found.longest) == ("eagle3", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qwen3.5-397b-mtp", "holds thinking_on, thinking_off; choose one"),
        ("qwen3.5-397b-mtp:thinking", "Did you mean 'thinking_on'"),
        ("qwen3.5-397b-mtq:thinking_on", "Did you mean 'qwen3.5-397b-mtp'"),
        ("1:1.8,2:2.3", "which drafter"),
        ("mtp=1:2.5", "AL at D=1 should be from 1 to 2"),
        ("mtp=0:1.0", "D should be a whole number from 1"),
        ("1:x", "does not read"),
    ],
)
def test_acceptance_lengths_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        typed(text)


def test_a_run_s_curve_has_its_intervals_its_held_back_steps_and_its_speedups() -> None:
    """Ten steps of which half propose: AL 1.5 over all, drafted share 0.5, 4 proposed where any are."""
    plain = measured(*(record(steps(0, 0, 0, d=0), request=f"r{i}") for i in range(5)), d=0)
    some = measured(*(record([*steps(1, d=4), *steps(0, d=0)], request=f"r{i}") for i in range(5)), d=4)
    curves, seen = of_results(results([plain, some], metrics()), {"ngram": "ngram"}, "run")
    assert [each.label for each in curves] == ["ngram"]
    point = curves[0].points[4]
    assert point.value == 1.5
    assert (point.drafted, point.proposed) == (0.5, 4)
    assert [(each.label, each.draft_length, each.batch, each.speedup) for each in seen] == [("ngram", 4, 1, 1.0)]


# ---- offers --------------------------------------------------------------------------------------------------------


def test_an_offer_is_the_formula_on_measured_times() -> None:
    found = offer(Passes(profile().timed, dense.facts), curve(), 4, 2, 512)
    plain, wide = dense(2, 0, 512), dense(2, 4, 512)
    assert found.speedup == pytest.approx(2.5 * (plain + 1e-4) / (wide + 4e-3 + 1e-4))
    assert found.break_even == pytest.approx((wide + 4e-3) / plain)
    assert found.draft_overhead == pytest.approx(4e-3 / plain)
    assert found.user_tps == pytest.approx(2.5 / (wide + 4e-3 + 1e-4))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.speedup < found.high


def test_where_a_drafter_holds_back_a_mean_pass_is_a_mix_of_wide_and_plain_ones() -> None:
    passes = Passes(profile(draft=0.0).timed, dense.facts)
    half = replace(curve(), points={4: Accepted(value=1.5, drafted=0.5, proposed=4)})
    alone, pair = (offer(passes, half, 4, b, 512) for b in (1, 2))
    assert alone.step == pytest.approx(0.5 * dense(1, 4, 512) + 0.5 * dense(1, 0, 512) + 1e-4)
    # of two rows one drafts in 1 − 0.5² of the passes
    assert pair.step == pytest.approx(0.75 * dense(2, 4, 512) + 0.25 * dense(2, 0, 512) + 1e-4)


def test_the_interval_holds_acceptance_and_times() -> None:
    passes = Passes(profile().timed, dense.facts)
    narrow, wide = (offer(passes, curve(width=w), 4, 2, 512) for w in (0.0, 0.1))
    assert narrow.low is not None
    assert wide.low is not None
    assert wide.low < narrow.low < narrow.speedup
    # 10 % of acceptance alone would be 0.9
    assert wide.low / wide.speedup < 0.9


def test_a_slow_drafter_is_not_to_be_used_and_a_break_even_says_what_it_would_take() -> None:
    found = choose(Passes(profile(draft=0.02).timed, dense.facts), [curve()], 1, 512)
    assert found.verdict == "do_not_speculate"
    assert found.draft_length == 0
    assert found.best is not None
    assert found.best.al < found.best.break_even


def test_a_gain_that_the_times_cannot_tell_is_within_noise() -> None:
    noisy = replace(profile(), timed=tuple(replace(each, spread=0.6) for each in profile().timed))
    found = choose(Passes(noisy.timed, dense.facts), [curve({1: 1.2})], 1, 512)
    assert found.best is not None
    assert found.best.speedup > 1
    assert (found.verdict, found.draft_length) == ("within_noise", 0)


def test_what_surely_pays_goes_before_what_may_pay_more() -> None:
    """D=8 looks faster, but its acceptance is so uncertain that it may be slower than nothing; D=4's is not."""
    points = {4: Accepted(value=2.0, low=1.9, high=2.1), 8: Accepted(value=2.2, low=1.0, high=4.0)}
    found = choose(Passes(profile(draft=1e-5).timed, dense.facts), [replace(curve(), points=points)], 1, 512)
    assert found.best is not None
    assert (found.verdict, found.best.draft_length) == ("speculate", 4)
    assert [each.draft_length for each in found.as_good] == [8]
    assert found.as_good[0].speedup > found.best.speedup


def test_the_drafter_of_the_lower_acceptance_length_is_chosen_where_its_passes_are_shorter() -> None:
    """Qwen3.5-397B on GSM8K at B=1, as the card of AQ-MedAI's EAGLE-3 has it: MTP with AL 3.54 does 241.9 tokens/s,
    EAGLE-3 with 3.40 does 248.7: passes of 14.63 and of 13.67 ms, of which 10 verify here."""
    plain = [timed(1, d, 512, 0.010, other=0.0) for d in (0, 3)]
    drafted = [
        timed(1, 3, 512, 0.010, drafter=label, draft=al / tps - 0.010, other=0.0)
        for label, al, tps in (("mtp", 3.54, 241.9), ("eagle3", 3.40, 248.7))
    ]
    curves = [curve({3: 3.54}, "mtp"), curve({3: 3.40}, "eagle3")]
    found = choose(Passes([*plain, *drafted], dense.facts), curves, 1, 512)
    assert found.best is not None
    assert found.best.drafter == "eagle3"
    assert {each.drafter: round(each.user_tps, 1) for each in found.offers} == {"mtp": 241.9, "eagle3": 248.7}


def test_nothing_is_said_of_a_batch_outside_the_profile() -> None:
    found = choose(Passes(profile().timed, dense.facts), [curve()], 32, 512)
    assert (found.verdict, found.draft_length) == ("unknown", None)
    assert "outside the measured 1 to 16" in found.refused[0]


# ---- the whole -----------------------------------------------------------------------------------------------------


def test_a_profile_and_a_curve_give_a_choice_for_each_batch_with_the_rules_beside_it() -> None:
    found = advice.advise(asking.question(asked()))
    assert [each.batch for each in found.choices] == [1, 2, 4, 8, 16]
    assert all(each.verdict == "speculate" for each in found.choices)
    rules = {each.number: each for each in found.guidelines[1]}
    assert set(rules) == {1, 2, 3, 4, 5}
    assert rules[5].value == "eagle3"
    assert rules[4].optimum == found.choices[0].best.draft_length  # type: ignore[union-attr]
    assert "the same measured twice differed by up to 1.0 %" in " ".join(found.warnings)
    json.dumps(advice.to_json(found), allow_nan=False)
    assert rules[1].value is None  # the profile has no peaks


def test_acceptance_of_another_target_than_the_times_is_said() -> None:
    said = asking.question(asked(targets=("made up in bfloat16", "made up in float32"))).notes
    assert said[0] == "the acceptance lengths are of made up in float32, the times of made up in bfloat16"
    assert sum("the acceptance lengths are of" in each for each in said) == 1


def test_a_rule_that_loses_to_what_was_measured_disagrees() -> None:
    """ρ by the times is tiny, so rule 4 takes the longest D; a run in which D=2 was the fastest says otherwise."""
    seen = (
        Seen(label="eagle3", draft_length=2, batch=1, speedup=1.9, low=1.8, high=2.0),
        Seen(label="eagle3", draft_length=8, batch=1, speedup=1.2, low=1.1, high=1.3),
    )
    found = advice.advise(asking.question(asked(seen=seen, profile=profile(draft=1e-5))))
    rule = next(each for each in found.guidelines[1] if each.number == 4)
    assert (rule.value, rule.optimum, rule.agrees) == (8, 2, False)
    assert rule.optimum_by == "measured end to end"
    assert any("measured (" in each for each in found.warnings)  # the prediction for D=8 is far off 1.2


def test_the_published_curve_on_an_h200_gives_a_schedule_off_line(bench: Bench) -> None:
    words = ["--model", "qwen3.5-397b-a17b", "--hardware", "h200", "--gpus", "8", "--weights", "fp8"]
    done = bench("advise", *words, "--al", "qwen3.5-397b-mtp:thinking_on", "--user-tps", "60", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["model"]["G"] == 16
    assert (said["model"]["full_attention_layers"], said["model"]["layers"]) == (15, 60)
    config = said["schedules"][0]["vllm"]
    assert config["method"] == "mtp"
    triples = config["num_speculative_tokens_per_batch_size"]
    assert triples[0][0] == 1
    assert all(low == before + 1 for (_, before, _), (low, _, _) in pairwise(triples))
    assert config["num_speculative_tokens"] == max(k for _, _, k in triples) <= 8
    assert all(each["verdict"] == "speculate" for each in said["batches"])
    assert said["frontier"]["at"]["speculating"]["gpu_tps"] > said["frontier"]["at"]["plain"]["gpu_tps"]
    assert any("guessed from the published peaks" in each for each in said["warnings"])
    rules = {each["number"]: each for each in said["batches"][0]["guidelines"]}
    assert rules[4]["value"] == 8
    assert "15 of 60 layers" in rules[2]["why"]


def test_the_same_in_words(bench: Bench) -> None:
    words = ["--model", "qwen3.5-397b-a17b", "--hardware", "h200", "--gpus", "8", "--weights", "fp8", "-B", "1,64"]
    done = bench("advise", *words, "--al", "qwen3.5-397b-mtp:thinking_on")
    assert done.code == 0, done.err
    for text in ("B=1: use mtp D=", "num_speculative_tokens_per_batch_size", "up to 1.2, where keys are first batches"):
        assert text in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--al: which acceptance lengths"),
        (["--al", "mtp=1:1.9"], "--model: which target"),
        (["--al", "mtp=1:1.9", "--model", "qwen3-32b"], "--hardware or --profile"),
        (["--al", "mtp=1:1.9", "--model", "qwen3-32b", "--hardware", "h20"], "Did you mean 'h200'"),
        (["--al", "mtp=1:1.9", "--model", "qwen3-32b", "--hardware", "h200", "--gpus", "3"], "do not divide"),
        (["--al", "mtp=1:1.9", "--al", "mtp=1:1.8", "--model", "qwen3-32b"], "'mtp' is given twice"),
        (["--al", "mtp=1:1.9", "--profile", "nowhere.json"], "no profile 'nowhere.json'"),
        (["--al", "mtp=1:1.9", "--external", "x"], "needs LABEL=CONFIG"),
        (["--al", "nowhere.json"], "no file 'nowhere.json'"),
    ],
)
def test_what_is_missing_is_said_in_a_line(bench: Bench, words: list[str], said: str) -> None:
    done = bench("advise", *words)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_drafter_whose_cost_nobody_knows_is_refused_by_name_and_rho_mends_it() -> None:
    constants = {"profile": None, "model": "qwen3-32b", "hardware": "h200", "batches": (1,)}
    found = advice.advise(asking.question(asked(curves=(curve(label="own"),), **constants)))
    assert "what 'own' costs is not known" in found.choices[0].refused[0]
    mended = advice.advise(asking.question(asked(curves=(curve(label="own"),), rho=0.05, **constants)))
    best = mended.choices[0].best
    assert best is not None
    assert best.draft_overhead == pytest.approx(0.05 * best.draft_length)


# ---- memory, frontier, schedule -----------------------------------------------------------------------------------


def test_memory_counts_weights_caches_and_the_batch_that_a_small_model_takes_away() -> None:
    on = Deployment(facts=dense.facts, hardware=catalog.hardware("h200"))
    small = memory.weight(on, "external", dense.facts)
    assert small is not None
    assert small.weights == on.weights == pytest.approx(65.5e9, rel=0.01)
    none = memory.room(on, "none", 0, memory.Weight(weights=0, per_token=0, origin="counted"), 8192)
    with_it = memory.room(on, "external", 4, small, 8192)
    # 64 layers · 2 · 8 heads · 128 wide · 2 bytes = 262144 bytes a token
    assert none.per_sequence == 8192 * 262144
    assert none.largest == int((0.9 * 141e9 - on.weights) / none.per_sequence)
    assert with_it.largest == 0
    assert with_it.lost == none.largest


def test_what_does_not_fit_into_memory_is_not_recommended() -> None:
    words = {"profile": None, "model": "qwen3-32b", "hardware": "h200", "batches": (1,), "context": 8192}
    found = asking.question(
        asked(curves=(curve(label="big"), curve({1: 1.2}, "ngram")), externals={"big": "qwen3-32b"}, **words)
    )
    choice = advice.advise(found).choices[0]
    assert choice.best is not None
    assert choice.best.drafter == "ngram"
    assert "would not fit into memory" in choice.refused[-1]


def test_the_frontier_drops_what_is_beaten_on_both_axes() -> None:
    def point(user: float, gpu: float) -> Point:
        return Point(batch=1, drafter="x", draft_length=1, user_tps=user, gpu_tps=gpu)

    some = [point(100, 10), point(90, 9), point(80, 30), point(80, 20), point(10, 100)]
    assert [(p.user_tps, p.gpu_tps) for p in frontier(some)] == [(100, 10), (80, 30), (10, 100)]
    assert within(some, 85) == some[0]
    assert within(some, 101) is None
    assert matched(some, 15) == some[2]


def test_a_batch_between_two_gets_the_length_of_the_larger() -> None:
    found = schedule("mtp", "mtp", {1: 5, 8: 5, 32: 2, 64: 0})
    assert vllm(found)["num_speculative_tokens_per_batch_size"] == [[1, 8, 5], [9, 32, 2], [33, 64, 0]]
    assert [found.at(b) for b in (1, 8, 9, 32, 64, 100)] == [5, 5, 2, 2, 0, 0]


def test_tensorrt_llm_s_schedule_is_said_under_both_meanings_of_its_keys() -> None:
    said = trtllm(schedule("mtp", "mtp", {8: 5, 32: 2, 64: 0}))
    assert said == {
        "max_draft_len": 5,
        "draft_len_schedule": {8: 5, 32: 2},  # last batches; beyond the last key it is off
        "draft_len_schedule_by_first_batch": {1: 5, 9: 2, 33: 0},
    }
    assert trtllm(schedule("mtp", "mtp", {8: 2, 32: 5}))["draft_len_schedule"] is None


# ---- files ---------------------------------------------------------------------------------------------------------


def test_a_profile_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profiles.write(path, profile())
    assert profiles.read(path) == profile()


def test_a_run_is_a_profile_of_its_full_passes_by_their_means() -> None:
    plain = measured(
        record(steps(*[0] * 10, d=0)), d=0, b=2, passes=[passed(verify=0.010, other=0.001, batch=2)] * 9
        + [passed(verify=0.020, batch=2), passed(verify=9.0, batch=1)],  # the last with a place of the batch free
    )  # fmt: skip
    some = measured(
        record(steps(*[1] * 10, d=2)), d=2, b=2, passes=[passed(verify=0.012, draft=0.003, batch=2, d=2)] * 6
        + [passed(verify=0.5, batch=2, d=1)],  # narrower than 1 + D
    )  # fmt: skip
    document = {"config": {"task": {}, "draftings": [], "target": {"dtype": "float32"}}, "processes": [{}]}
    found = profiles.of_run(Run(path=Path("r"), document=document, measured=(plain, some), noise=()))
    points = {(each.drafter, each.draft_length): each for each in found.timed}
    assert points.keys() == {(None, 0), (None, 2), ("ngram", 2)}
    assert points[None, 0].verify == pytest.approx(0.011)  # (9·10 + 20) / 10 ms
    assert points[None, 2].verify == points["ngram", 2].verify == pytest.approx(0.012)
    assert points["ngram", 2].draft == pytest.approx(0.003)
    assert {each.context for each in found.timed} == {13}  # 5 of the prompt, and half of 11 and of 21: 5 + 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 9}, "has schema 9; this speedbench reads schema 1"),
        ({"profile": {}}, "target"),
        ({"profile": None}, "the whole"),
    ],
)
def test_a_profile_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "p.json"
    profiles.write(path, profile())
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(UserError, match=said):
        profiles.read(path)


def test_constants_price_a_token_by_bytes_when_alone_and_by_operations_in_a_crowd() -> None:
    model = Roofline(Deployment(facts=dense.facts, hardware=catalog.hardware("h200")), {"d": "mtp"})
    linear = dense.facts.mixer_weights + dense.facts.mlp_weights
    parts = [model.parts(Place(batch=b, draft_length=0, context=1))["linear layers"] for b in (1, 64, 4096)]
    assert parts[0] == parts[1] == pytest.approx(2 * linear / (0.8 * 4.8e12))
    assert parts[2] == pytest.approx(2 * 4096 * linear / (0.7 * 989e12))
    with pytest.raises(Refused, match="for bfloat16 are not known"):
        Roofline(Deployment(facts=dense.facts, hardware=catalog.hardware("epyc-9005-socket")), {}).verify(
            Place(batch=1, draft_length=0, context=1)
        )
