"""What a pass costs, by whatever an engine tells of it: recorded logs and documented shapes, by arithmetic."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import measured, record, steps, values

from speedbench.errors import UserError
from speedbench.metrics import cost
from speedbench.serving import watch
from speedbench.serving.ladder import llamacpp, llamacpp_block, sglang, sglang_block, vllm_forward
from speedbench.serving.prometheus import NOTHING
from speedbench.types import Measured, PassCost

LOGS = Path(__file__).parent / "fixtures" / "engines"


def log(name: str) -> list[str]:
    """A recorded log, cut behind each request."""
    text = (LOGS / f"llamacpp-log-{name}.txt").read_text(encoding="utf-8")
    parts = text.split("stop processing")
    return [part + "stop processing" * (i < len(parts) - 1) for i, part in enumerate(parts)]


def told(found: PassCost | None) -> dict[str, Any]:
    assert found is not None
    return {field.name: getattr(found, field.name) for field in fields(found)}


# ---- llama.cpp ------------------------------------------------------------------------------------------------------


def test_a_plain_log_tells_the_seconds_of_a_pass() -> None:
    found = told(llamacpp([llamacpp_block("", "".join(log("none")))], batch=1, draft_length=0))
    # 40 tokens each, of which the prefill yields one
    seconds = (0.38794 + 0.24400 + 0.40394) / (3 * 39)
    assert found["t_verify_plain"] == found["t_verify"] == found["t_step"] == pytest.approx(seconds)
    assert (found["t_draft"], found["origin"], found["n"]) == (None, "derived", 3)


def test_a_look_up_drafter_has_its_seconds_over_its_calls_and_the_rest_is_the_target() -> None:
    found = told(llamacpp([llamacpp_block("", "".join(log("ngram")))], batch=1, draft_length=4))
    # 108 calls of 0.142 ms and 0.002 ms to note what was accepted; 40 − 1 − accepted passes: 35, 39 and 37
    draft, step = (0.142 + 0.002) / 1000 / 108, (0.43601 + 0.47599 + 0.46399) / (35 + 39 + 37)
    assert found["t_draft"] == pytest.approx(draft)
    assert found["t_step"] == pytest.approx(step)
    assert found["t_verify"] == pytest.approx(step - draft)
    assert (found["t_verify_plain"], found["origin"]) == (None, "derived")


def test_of_sums_since_the_start_a_block_has_what_they_moved_by() -> None:
    first, second, third, rest = log("ngram")
    found = told(llamacpp([llamacpp_block(first, second), llamacpp_block(first + second, third + rest)],
                          batch=1, draft_length=4))  # fmt: skip
    # from 34 calls and 0.046 + 0.001 ms to 108 and 0.142 + 0.002 ms
    assert found["t_draft"] == pytest.approx((0.144 - 0.047) / 1000 / (108 - 34))
    assert found["t_step"] == pytest.approx((0.47599 + 0.46399) / (39 + 37))


def test_sums_that_fell_belong_to_a_server_that_began_anew() -> None:
    first, second, *_ = log("ngram")
    found = told(llamacpp([llamacpp_block(second, first)], batch=1, draft_length=4))
    assert found["t_draft"] == pytest.approx(0.047 / 1000 / 34)


def test_a_model_drafts_for_all_slots_in_one_call_and_what_it_reads_besides_is_not_timed() -> None:
    found = told(llamacpp([llamacpp_block("", "".join(log("two")))], batch=2, draft_length=4))
    # 18 calls for the 32 steps of four answers of 8 each
    assert found["t_draft"] == pytest.approx((15.771 + 0.011) / 1000 / 18)
    assert found["t_step"] == pytest.approx((0.86407 + 0.82804 + 0.90804 + 0.82820) / 32)
    assert found["origin"] == "estimated"
    assert "without the draft model's own reading of verified tokens" in found["source"]


def test_a_log_without_drafting_or_without_requests_tells_less_or_nothing() -> None:
    quiet = [line for line in "".join(log("ngram")).splitlines() if "statistics" not in line]
    found = told(llamacpp([llamacpp_block("", "\n".join(quiet))], batch=1, draft_length=4))
    assert found["t_draft"] is found["t_verify"] is None
    assert found["t_step"] is not None
    assert llamacpp([llamacpp_block("", log("none")[0][:100])], batch=1, draft_length=0) is None


# ---- vLLM -----------------------------------------------------------------------------------------------------------


def case(batch: int, query: int, drafts: int, microseconds: float, scope: str = "target_only") -> dict[str, Any]:
    """As vllm/benchmarks/forward/main.py writes it."""
    request = {"query_len": query, "kv_len": 4096 + query, "num_draft_tokens": drafts, "chunked": False}
    ranks = [{"num_tokens": batch * query, "timing_scope": scope, "latency_us": {"median": microseconds}}]
    return {"case": "c", "requests": [request] * batch, "median_us": microseconds, "ranks": ranks}


FORWARD = [
    case(1, 1, 0, 5_000),
    case(8, 1, 0, 8_000),
    case(8, 5, 4, 10_000),
    case(8, 1, 0, 9_000, "target_and_drafter"),
    case(8, 5, 4, 12_500, "target_and_drafter"),
]


def test_forward_passes_with_and_without_the_drafter_give_both_terms() -> None:
    found = told(vllm_forward(FORWARD, batch=8, draft_length=4))
    assert found["t_verify_plain"] == pytest.approx(0.008)
    assert found["t_verify"] == pytest.approx(0.010)
    assert found["t_draft"] == pytest.approx(0.0125 - 0.010)
    assert found["t_step"] == pytest.approx(0.0125)
    assert found["origin"] == "estimated"
    assert told(vllm_forward(FORWARD, batch=1, draft_length=0))["t_verify_plain"] == pytest.approx(0.005)


def test_cases_of_another_batch_or_draft_length_say_nothing() -> None:
    assert vllm_forward(FORWARD, batch=16, draft_length=4) is None
    found = told(vllm_forward(FORWARD, batch=8, draft_length=3))
    assert found["t_verify"] is found["t_draft"] is found["t_step"] is None
    prefills = [{**case(8, 5, 4, 1.0), "requests": [{"query_len": 5, "kv_len": 5, "num_draft_tokens": 4}] * 8}]
    assert vllm_forward(prefills, batch=8, draft_length=4) is None


def test_a_drafter_that_is_faster_than_none_is_noise_and_unknown() -> None:
    odd = [case(8, 5, 4, 10_000), case(8, 5, 4, 9_900, "target_and_drafter")]
    assert told(vllm_forward(odd, batch=8, draft_length=4))["t_draft"] is None


def test_files_of_forward_passes_are_read_and_others_refused(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([{**FORWARD[1], "more": 1}]))
    bad.write_text('{"median_us": 1}')
    read = watch.forward({"forward": [str(good)]})
    assert told(vllm_forward(read, batch=8, draft_length=0))["t_step"] == pytest.approx(0.008)
    assert "more" not in read[0]
    with pytest.raises(UserError, match=r"engine.forward: '.*bad.json' is no --output-json of `vllm bench forward`"):
        watch.forward({"forward": [str(bad)]})
    with pytest.raises(UserError, match=r"engine.forward: cannot read '.*none.json' \(No such file"):
        watch.forward({"forward": [str(tmp_path / "none.json")]})


# ---- SGLang ---------------------------------------------------------------------------------------------------------


def test_step_times_of_a_block_are_those_that_came_meanwhile_and_their_median_counts() -> None:
    before, after = {8: (0.5, 0.02)}, {8: (0.5, 0.02, 0.9, 0.021, 0.023, 0.022), 3: (0.01,)}
    block = sglang_block(before, after)
    assert block == {"8": [0.9, 0.021, 0.023, 0.022], "3": [0.01]}
    found = told(sglang(block["8"], draft_length=4))
    assert found["t_step"] == pytest.approx((0.022 + 0.023) / 2)  # 0.9 s has a prefill in it
    assert (found["t_verify"], found["t_draft"], found["origin"], found["n"]) == (None, None, "estimated", 4)
    assert told(sglang([0.01], draft_length=0))["t_verify_plain"] == 0.01
    assert sglang([], draft_length=4) is None


def test_step_times_of_a_server_that_began_anew_are_all_the_blocks() -> None:
    assert sglang_block({8: (0.5, 0.02)}, {8: (0.03,)}) == {"8": [0.03]}


# ---- in a run -------------------------------------------------------------------------------------------------------


def cell(d: int, passes: dict[str, Any] | None, b: int = 8) -> Measured:
    raw = {"before": {}, "after": {}} if passes is None else {"passes": passes}
    return replace(measured(record(steps(1)), d=d, b=b), counted=(replace(NOTHING, raw=raw),))


def test_costs_fall_back_to_what_an_engine_told_otherwise() -> None:
    drafted = cell(4, {"sglang": {"8": [0.030, 0.030], "3": [9.0]}})
    plain = cell(0, {"sglang": {"8": [0.020]}})
    found = values(cost.METRICS, drafted, plain)
    assert (found["t_pass"], found["t_baseline"]) == (0.030, 0.020)
    assert found["break_even_al"] == pytest.approx(0.030 / 0.020)
    assert found["t_verify"] is found["t_draft"] is found["draft_overhead"] is found["verify_overhead"] is None
    t_pass = cost.t_pass(drafted, None)["t_pass"]
    assert (t_pass.origin, t_pass.n, t_pass.low) == ("estimated", 2, None)


def test_costs_by_forward_passes_and_by_a_log_have_both_terms() -> None:
    forward = {"vllm_forward": FORWARD}
    found = values(cost.METRICS, cell(4, forward), cell(0, forward))
    assert found["draft_overhead"] == pytest.approx(2.5 / 8)
    assert found["verify_overhead"] == pytest.approx(10 / 8)
    assert found["break_even_al"] == pytest.approx(12.5 / 8)
    assert found["t_baseline"] == pytest.approx(0.008)
    plain, drafted = ({"llamacpp": llamacpp_block("", "".join(log(name)))} for name in ("none", "ngram"))
    found = values(cost.METRICS, cell(4, drafted, b=1), cell(0, plain, b=1))
    assert found["break_even_al"] == pytest.approx((found["t_pass"] or 0) / (found["t_baseline"] or 1))
    assert found["draft_overhead"] == pytest.approx(0.144 / 108 / 1000 / (found["t_baseline"] or 1))


def test_an_engine_that_told_nothing_has_no_cost() -> None:
    assert set(values(cost.METRICS, cell(4, None), cell(0, None)).values()) == {None}
    assert set(values(cost.METRICS, cell(4, {"sglang": {"3": [0.01]}}), cell(0, None)).values()) == {None}


def test_a_block_keeps_what_its_engine_shows(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    first, second, *_ = log("ngram")
    path.write_text(first)
    up: Any = SimpleNamespace(plan=SimpleNamespace(engine="llamacpp"), log=path)
    block = watch.Watch(up)
    path.write_text(first + second)
    assert block.kept() == {"passes": {"llamacpp": llamacpp_block(first, second)}}
    states = iter([{"8": [0.5]}, {"8": [0.5, 0.02]}])
    up = SimpleNamespace(plan=SimpleNamespace(engine="sglang"), log=None,
                         info=lambda: {"internal_states": [{"step_time_dict": next(states)}]})  # fmt: skip
    assert watch.Watch(up).kept() == {"passes": {"sglang": {"8": [0.02]}}}
    up = SimpleNamespace(plan=SimpleNamespace(engine="vllm"), log=None)
    assert watch.Watch(up).kept() == {}
    assert watch.Watch(up, FORWARD[:1]).kept() == {"passes": {"vllm_forward": FORWARD[:1]}}
