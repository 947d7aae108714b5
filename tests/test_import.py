"""Other tools' result files: told by their shape, each number by our name for what its definition makes it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import Bench

from speedbench.errors import UserError
from speedbench.interchange.foreign import Figure, read

FOREIGN = Path(__file__).parent / "fixtures" / "foreign"

VLLM: dict[str, Any] = {
    "date": "20261130-010203", "backend": "vllm", "model_id": "m", "num_prompts": 4, "request_rate": "inf",
    "duration": 10.0, "completed": 4, "failed": 0, "total_input_tokens": 100, "total_output_tokens": 400,
    "request_throughput": 0.4, "output_throughput": 40.0, "total_token_throughput": 50.0, "ttfts": [0.1, 0.2],
    "mean_ttft_ms": 12.5, "median_ttft_ms": None, "mean_tpot_ms": 25.0, "mean_itl_ms": 60.0,
    "spec_decode_acceptance_rate": 60.0, "spec_decode_acceptance_length": 2.8, "spec_decode_num_drafts": 100,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
}  # fmt: skip
"""1 + (0.8 + 0.6 + 0.4) = 2.8; 180 of 300 drafts are 60 %."""


def ms(**numbers: float) -> dict[str, Any]:
    return {"unit": "ms", **numbers}


AIPERF: dict[str, Any] = {
    "schema_version": "1.4", "aiperf_version": "0.13.0", "is_complete": True, "was_cancelled": False,
    "output_token_throughput": {"unit": "tokens/sec", "avg": 123.0},
    "error_request_count": {"unit": "requests", "avg": 1},
    "time_to_first_token": ms(avg=100.0, p50=90.0, p99=400.0), "inter_token_latency": ms(avg=5.0, p50=4.0),
    "spec_decode_acceptance_length": {"unit": "ratio", "avg": 4.19},
    "spec_decode_token_weighted_acceptance_length": {"unit": "ratio", "avg": 4.63},
    "spec_decode_overall_draft_acceptance_rate": {"unit": "%", "avg": 72.65},
    "pooled_spec_decode_acceptance_histogram": {"0": 13, "1": 9, "2": 7, "3": 6, "4": 4, "5": 61},
}  # fmt: skip
"""A published run: the same requests give 4.19 by request and 4.63 pooled."""

ACCEPTANCE: dict[str, Any] = {
    "Request_AL": {"q1": 2.0, "q2": 3.0, "q3": 4.0}, "Category_AL": {"math": 2.5, "qa": 4.0}, "Average_AL": 3.0,
    "Acceptance_Length_Histogram": {"1": 2, "2": 1, "4": 1},
    "Conditional_Acceptance_Rate": {"1": 1.0, "2": 0.5, "4": 0.5},
    "Joint_Acceptance_Rate": {"1": 1.0, "2": 0.5, "4": 0.25},
}  # fmt: skip

TIMING: dict[str, Any] = {
    "Output TPS": 200.5, "Output TPS/gpu": 200.5, "E2E Request Time": {"mean": "2.0000"},
    "TTFT Time": {"mean": "0.1500", "quantiles": {"0.25": "0.1", "0.5": "0.1250", "0.75": "0.2"}},
    "Request Generation Step Time": {"mean": "0.0200"}, "Request Generation Tokens Per Second": {"mean": "nan"},
}  # fmt: skip


def kept(tmp_path: Path, content: Any, name: str = "r.json") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def found(path: Path) -> dict[str, Figure]:
    return {figure.metric: figure for figure in read(path)}


def test_vllms_acceptance_length_is_over_steps_with_a_draft(tmp_path: Path) -> None:
    path = kept(tmp_path, VLLM)
    figures = found(path)
    al = figures["al_drafted"]
    assert (al.value, al.tool, al.source) == (2.8, "vllm bench serve", f"{path}: spec_decode_acceptance_length")
    assert "steps with a draft only" in al.definition
    assert "al" not in figures
    assert figures["acceptance_rate"].value == pytest.approx(0.6)
    assert [figures[f"accepted_at_marginal[{i}]"].value for i in (1, 2, 3)] == [0.8, 0.6, 0.4]
    assert (figures["ttft_mean"].value, figures["tpot_mean"].value) == (0.0125, 0.025)  # seconds
    assert "ttft_p50" not in figures  # null is not known, and not 0


def test_aiperf_has_two_acceptance_lengths_and_each_keeps_its_name(tmp_path: Path) -> None:
    figures = found(kept(tmp_path, AIPERF))
    assert (figures["al_per_request"].value, figures["al_drafted"].value) == (4.19, 4.63)
    assert figures["al_per_request"].definition.startswith("mean over requests")
    shares = {i: figures[f"accepted_histogram[{i}]"].value for i in range(6)}
    assert 1 + sum(i * share for i, share in shares.items()) == pytest.approx(4.62)  # printed: 4.63
    assert (figures["ttft_p99"].value, figures["tpot_p50"].value) == (0.4, 0.004)


def test_specdec_bench_counts_chunks_and_weighs_conversations(tmp_path: Path) -> None:
    figures = found(kept(tmp_path, [ACCEPTANCE]))
    assert (figures["al_per_request"].value, figures["al_macro"].value) == (3.0, 3.25)
    assert figures["al"].value == (2 * 1 + 1 * 2 + 1 * 4) / 4
    assert all("chunk" in each.definition for each in figures.values())
    assert figures["accepted_at_marginal[3]"].value == 0.25  # chunk length 4 is 3 drafts
    # no chunk had 3 tokens, so its rate at 4 is not conditional on the draft before
    assert "accepted_at_conditional[3]" not in figures
    assert figures["accepted_at_conditional[1]"].value == 0.5


def test_specdec_bench_over_turns_says_so(tmp_path: Path) -> None:
    by_turn = {**ACCEPTANCE, "Request_AL": {"0": {"0": 2.0, "1": 4.0}}, "Category_AL": None}
    assert found(kept(tmp_path, by_turn))["al_per_request"].definition.startswith("mean over turns")


def written(name: str) -> dict[str, Figure]:
    """What a tool itself wrote (fixtures/foreign/README.md)."""
    return found(FOREIGN / name)


def test_a_file_of_vllm_bench_serve_is_read_whole() -> None:
    figures = written("vllm-bench-serve.json")  # the last of two runs
    accepted, drafts = 63, 27
    assert figures["al_drafted"].value == pytest.approx(1 + accepted / drafts)
    assert figures["acceptance_rate"].value == pytest.approx(accepted / (3 * drafts))
    marginal = [figures[f"accepted_at_marginal[{i}]"].value for i in (1, 2, 3)]
    assert sum(marginal) == pytest.approx(accepted / drafts)
    assert figures["output_tps"].value == pytest.approx(288 / 35.9125839)
    assert figures["output_tps"].source.startswith(f"{FOREIGN / 'vllm-bench-serve.json'}[1]: ")
    ttft = [figures[f"ttft_{rank}"].value for rank in ("p50", "p90", "p99")]
    assert ttft == sorted(ttft)
    assert {f"{wait}_p90" for wait in ("ttft", "tpot", "inter_event")} < figures.keys()
    assert figures["failed_requests"].value == 0


def test_a_file_of_aiperf_is_read_whole() -> None:
    figures = written("aiperf.json")
    counts = {0: 116, 1: 51, 2: 32, 3: 188}
    steps, accepted = sum(counts.values()), sum(i * n for i, n in counts.items())
    assert figures["al_drafted"].value == pytest.approx(1 + accepted / steps)
    assert figures["acceptance_rate"].value == pytest.approx(accepted / (3 * steps), rel=1e-4)
    assert [figures[f"accepted_histogram[{i}]"].value for i in counts] == [n / steps for n in counts.values()]
    waits = [figures[f"{wait}_{rank}"].value for wait in ("ttft", "tpot", "inter_event") for rank in ("mean", "p90")]
    assert all(0.01 < wait < 3 for wait in waits)  # seconds


def test_files_of_specdec_bench_are_read_whole() -> None:
    by_turn, by_conversation = written("specdec-acceptance-turns.json"), written("specdec-acceptance-mtbench.json")
    assert by_turn["al_per_request"].definition.startswith("mean over turns")
    assert by_conversation["al_per_request"].definition.startswith("mean over conversations")
    assert by_conversation["al_macro"].value == pytest.approx(2.04, abs=1e-3)
    chunks = {1: 143, 2: 75, 3: 45, 4: 53}
    assert by_conversation["al"].value == sum(length * n for length, n in chunks.items()) / 316
    assert by_conversation["accepted_at_marginal[3]"].value == pytest.approx(53 / 316)
    assert by_conversation["accepted_at_conditional[3]"].value == pytest.approx(53 / (45 + 53))
    timing = written("specdec-timing.json")
    assert {"output_tps", "ttft_mean", "ttft_p50", "decode_tps", "inter_event_mean"} == timing.keys()


def test_times_that_are_text_are_numbers_and_nan_is_unknown(tmp_path: Path) -> None:
    figures = found(kept(tmp_path, [TIMING]))
    assert (figures["output_tps"].value, figures["ttft_mean"].value, figures["ttft_p50"].value) == (200.5, 0.15, 0.125)
    assert "decode_tps" not in figures


def test_a_file_of_several_runs_says_which(tmp_path: Path) -> None:
    appended = kept(tmp_path, json.dumps(VLLM) + "\n" + json.dumps(VLLM) + "\n")
    listed = kept(tmp_path, [ACCEPTANCE, ACCEPTANCE], "l.json")
    for path in (appended, listed):
        sources = {figure.source.partition(": ")[0] for figure in read(path)}
        assert sources == {f"{path}[0]", f"{path}[1]"}


def test_our_own_profile_is_read_back(bench: Bench) -> None:
    bench.run()
    path = kept(bench.folder, bench("export", str(bench.out), "--as", "profile").out)
    figures = found(path)
    assert figures["al"].value == 2.5
    assert [figures[f"accepted_at_marginal[{i}]"].value for i in (1, 2, 3)] == [0.75, 0.5, 0.25]


def test_the_table_and_the_json_show_metric_value_definition_and_source(bench: Bench) -> None:
    path = kept(bench.folder, VLLM)
    done = bench("import", str(path))
    assert done.code == 0
    assert "1 + Σ accepted / Σ drafts" in next(line for line in done.out.splitlines() if "al_drafted" in line)
    first = bench("import", str(path), "--json").document["figures"][0]
    assert first.keys() == {"metric", "value", "definition", "tool", "source"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": ' * 60 + "1" + "}" * 60, "is nested too deeply; at most 32 levels are read"),
        ("[]", "is of no known shape: it holds a list; known: specdec_bench acceptance, "),
        ("17", "is of no known shape: it holds a int"),
        ({"what": 1, "ever": 2}, "is of no known shape: its keys are ever, what …; known: "),
        ({**VLLM, "total_output_tokens_retokenized": 1}, "looks like a file of SGLang's bench_serving, which is not"),
        ({"benchmarks": []}, "looks like a file of GuideLLM"),
        ({"Request_AR": {}}, "looks like a file of an older specdec_bench"),
        ([{"AA Output TPS": 1.0}], "looks like a file of specdec_bench's aa_timing"),
        ({**VLLM, "output_throughput": "<b>fast</b>"}, "output_throughput: should be a number (got '<b>fast</b>')"),
        ({**VLLM, "output_throughput": True}, "output_throughput: should be a number (got 'True')"),
        ({**ACCEPTANCE, "Acceptance_Length_Histogram": {"a": 1}}, "should have whole numbers for keys (got 'a')"),
        ({**ACCEPTANCE, "Request_AL": "2.5"}, "Request_AL: should be an object (got '2.5')"),
        ({**AIPERF, "is_complete": False, "incomplete_reason": "stalled"}, "the run is partial (stalled)"),
        ({**AIPERF, "time_to_first_token": {"unit": "sec", "avg": 1}}, "unit: should be ms (got 'sec')"),
        ({**AIPERF, "was_cancelled": True}, "the run is partial (cancelled)"),
        ({"aiperf_version": "0.13.0"}, "holds no number that speedbench has a name for"),
        (json.dumps(VLLM) + "\n" + json.dumps(VLLM)[:40], "line 2 is not JSON"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: Any, said: str) -> None:
    path = kept(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_speedbenchs_own_summary_is_named(bench: Bench) -> None:
    bench.run()
    done = bench("import", str(bench.out / "summary.json"))
    assert (done.code, "speedbench itself" in done.err, done.err.count("\n")) == (2, True, 1)


def test_a_file_that_is_not_there_or_is_a_folder_is_said(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.json", "none.json is not there"), (tmp_path, "is no plain file")):
        with pytest.raises(UserError, match=said):
            read(path)
