"""Whole runs against servers that speak as vLLM does, through the command line: what is measured, and what is said."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_server import CUT, DONE, Refuse, chunk
from scripts import Bench
from served import TOKENS, TURNS, numbers, pair, run, validated, warned
from speaking_server import Speaking

from speedbench.results import load

# ---- all is well ----


def test_a_run_over_two_servers_measures_acceptance_cost_and_speedup(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, cached=0.25)):
        done = run(bench)
    assert done.code == 0, done.err
    found = numbers(done)
    assert found["al"] == 10 / 4
    assert found["al_complete"] == 10 / 4
    assert found["acceptance_rate"] == 6 / 12
    assert found["al_server"] == 1 + 6 / 4
    assert found["effective_d"] == 3
    assert [found[f"accepted_at_marginal[{i}]"] for i in (1, 2, 3)] == [3 / 4, 2 / 4, 1 / 4]
    assert found["lossless"] == 1
    assert found["failed_requests"] == 0
    assert found["observed_batch"] in (1, None)  # None where it was over before the first reading
    assert 0 < (found["prefix_cached"] or 0) < 1
    for name in ("speedup", "step_cost", "t_step", "decode_tps", "ttft_p50"):
        assert (found[name] or 0) > 0
    # the clock has one definition: AL / step_cost is the speedup where no chunk was merged
    assert found["speedup"] == pytest.approx(found["al"] / found["step_cost"], rel=1e-6)
    assert found["t_verify"] is found["speedup_formula"] is None
    assert numbers(done, 0)["al"] == 1
    assert warned(done) == []
    assert any(each.startswith("the engine tells no pass times, so") for each in done.document["warnings"])
    assert validated(bench) == "out: 2 cells, 14 records, nothing wrong\n"


def test_records_and_counters_are_kept_raw(bench: Bench) -> None:
    with pair(bench):
        run(bench)
    base, cell = load(bench.out).measured
    assert {(record.told, len(record.steps), record.size) for record in base.records} == {("exact", 10, TOKENS)}
    for record in cell.records:
        assert [step.committed for step in record.steps] == [4, 1, 3, 2]
        assert record.raw["metrics"]["speculative_decoding"]["per_step_drafted"] == [3, 3, 3, 3]
        assert len(record.output) == TOKENS
        assert record.text is not None
        assert record.text.split()[0] == f"{record.request}-turn{record.turn}0"
    # two blocks at most, the proof's request outside of them
    assert [each.generated for each in cell.counted] == [TURNS * TOKENS]
    assert [each.accepted_at for each in cell.counted] == [(21, 14, 7)]
    facts = json.loads((bench.out / "ngram-d3-b1-r0" / "cell.json").read_text())["facts"]
    assert facts["proof"] == {
        "requests": 1, "drafts_by_answers": facts["proof"]["drafts_by_counters"],
        "drafts_by_counters": facts["proof"]["drafts_by_answers"], "speculates": True,
    }  # fmt: skip
    assert facts["context"] == 4096


def test_every_cell_gets_its_turns_interleaved_and_counted_apart(bench: Bench) -> None:
    with pair(bench, blocks=2):
        bench.task([{"id": f"r{n}", "turns": ["x"]} for n in range(10)])
        run(bench)
    base, cell = load(bench.out).measured
    assert [each.generated for each in cell.counted] == [5 * TOKENS, 5 * TOKENS]
    assert max(r.last or 0 for r in base.records[:5]) < min(r.sent for r in cell.records[:5])
    assert max(r.last or 0 for r in cell.records[:5]) < min(r.sent for r in base.records[5:])


def test_each_turn_quotes_the_live_answers(bench: Bench) -> None:
    with pair(bench) as (_, theirs):
        run(bench)
        third = [each.body["messages"] for each in theirs.asked if each.path.endswith("completions")][-1]
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert third[1]["content"].startswith("b2-turn00 b2-turn01 ")


def test_concurrency_holds_several_at_once_on_both_arms(bench: Bench) -> None:
    with pair(bench):
        done = run(bench, "--concurrency", "1,3")
    assert done.code == 0
    assert [numbers(done, n)["al"] for n in range(4)] == [1, 2.5, 1, 2.5]
    assert [numbers(done, n)["al_server"] for n in range(4)] == [None, 2.5, None, 2.5]


def test_the_model_asked_for_is_the_runners_where_the_server_has_several(bench: Bench) -> None:
    several = ("other", "m")
    with pair(bench, Speaking(models=several), Speaking(d=3, models=several)) as servers:
        assert run(bench).code == 0
        assert {each.body["model"] for server in servers for each in server.asked if each.body} == {"m"}
    with pair(bench, Speaking(models=("x", "y"))):
        done = bench.run(out="other")
    assert done.code == 2
    assert "serves several models, none of them 'm': x, y; set the runner's model" in done.err


# ---- proof that speculation is on, or off ----


def test_a_baseline_that_drafts_is_refused(bench: Bench) -> None:
    with pair(bench, Speaking(d=3)):
        done = bench.run()
    assert (done.code, done.out) == (2, "")
    assert "error: the baseline's server drafts, so it is no baseline; start it without speculation" in done.err


def test_a_baseline_whose_counters_alone_show_drafts_is_refused(bench: Bench) -> None:
    class Quiet(Speaking):
        def _stats(self, steps: Any) -> dict[str, Any]:
            return {}

    with pair(bench, Quiet(d=3)):
        assert "the baseline's server drafts" in bench.run().err


@pytest.mark.parametrize("tells", ["steps", "histogram"])
def test_case_52_a_model_drafter_that_does_not_draft_is_refused(bench: Bench, tells: Any) -> None:
    class Idle(Speaking):
        """Is set to draft, and does not."""

        def _steps(self, rest: int) -> list[tuple[int, int]]:
            return []

        def _events(self, prompt: list[str], words: list[str], steps: Any) -> Any:
            real, self.d = self.d, 0
            events = Speaking._events(self, prompt, words, Speaking._steps(self, len(words) - 1))
            self.d = real
            return events

    with pair(bench, drafted=Idle(d=3, tells=tells), drafter="external"):
        done = bench.run(drafter="external")
    assert done.code == 2
    assert "the server drafted nothing in its first requests: the drafter is not engaged" in done.err
    with pair(bench, drafted=Idle(d=3, tells=tells)):
        done = run(bench, out="other")
    assert done.code == 0
    said = "the drafter found nothing to draft in the first requests; it may not be engaged"
    assert f"ngram-d3-b1-r0: {said}" in warned(done)


def test_case_53_drafts_that_are_never_accepted_are_an_alarm(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, accepts=(0,))):
        done = run(bench)
    assert numbers(done)["al"] == 1
    assert any("no draft was ever accepted; is the drafter made for this target" in each for each in warned(done))


def test_a_server_set_to_another_d_is_a_warning_that_names_both(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, configured=5)):
        done = run(bench)
    assert done.code == 0
    assert "ngram-d3-b1-r0: vllm per step: the server is set to 5 drafts a step; D = 3" in warned(done)


def test_warnings_that_differ_from_turn_to_turn_do_not_drown_the_others(bench: Bench) -> None:
    class Drifting(Speaking):
        def _stats(self, steps: Any) -> dict[str, Any]:
            self.configured = (self.configured or 10) + 1
            return super()._stats(steps)

    with pair(bench, drafted=Drifting(d=3)):
        said = warned(run(bench))
    assert sum("the server is set to" in each for each in said) == 5
    assert f"ngram-d3-b1-r0: {TURNS - 5} more like these in its warnings.jsonl" in said
    kept = (bench.out / "ngram-d3-b1-r0" / "warnings.jsonl").read_text().splitlines()
    assert sum("the server is set to" in each for each in kept) == TURNS


def test_a_server_that_drafts_more_than_d_has_no_acceptance_length(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=5, counts=False)):
        done = run(bench)
    assert numbers(done)["al"] is None
    assert "ngram-d3-b1-r0: vllm per step: a step of 5 drafts with D = 3" in warned(done)


def test_a_drafter_that_is_the_baselines_own_server_is_not_proven_and_has_no_length(bench: Bench) -> None:
    with pair(bench) as (ours, _):
        done = run(bench, "--set", f"external.url={ours.url}", drafter="external")
    assert numbers(done)["al"] is None
    assert any("so that it speculates at all is not proven" in each for each in warned(done))


# ---- what servers do not tell ----


def test_a_server_that_tells_nothing_has_a_dash_one_warning_and_no_error(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, tells="nothing")):
        done = bench.run(d="3,5")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()[3:6]]
    assert [row[:4] for row in rows] == [["none", "0", "1", "1.00"], ["ngram", "3", "1", "-"], ["ngram", "5", "1", "-"]]
    assert all(float(row[7]) > 0 for row in rows)  # tokens per second
    assert done.out.count("acceptance stats requested but not found; the response has choices") == 1
    assert done.out.count("so that it speculates at all is not proven") == 1
    assert "no step was measured" not in done.out
    assert "nothing wrong" in validated(bench)


def test_chunks_are_counted_only_when_asked_and_then_it_is_an_estimate(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, tells="nothing"), al_from_chunks=True):
        done = run(bench)
    al = done.document["cells"][1]["metrics"]["al"]
    assert al["value"] >= 2.5  # more where chunks came together, as on a busy machine
    assert al["origin"] == "estimated"
    assert done.document["cells"][0]["metrics"]["al"]["origin"] == "exact"
    assert "nothing wrong" in validated(bench)


def test_a_histogram_gives_the_same_length_derived(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, tells="histogram")):
        done = run(bench)
    al = done.document["cells"][1]["metrics"]["al"]
    assert (al["value"], al["origin"]) == (2.5, "derived")
    assert warned(done) == []
    assert "nothing wrong" in validated(bench)


@pytest.mark.parametrize(("there", "asked"), [(False, "/metrics"), (True, "")])
def test_a_server_without_metrics_has_no_counters_and_all_else(bench: Bench, there: bool, asked: str) -> None:
    with pair(bench, drafted=Speaking(d=3, counts=there), metrics=asked):
        done = run(bench)
    assert done.code == 0
    found = numbers(done)
    assert (found["al"], found["al_server"], found["prefix_cached"]) == (2.5, None, None)
    assert not (bench.out / "ngram-d3-b1-r0" / "counted.jsonl").exists()
    assert warned(done) == []


def test_answers_without_ids_are_compared_by_their_text(bench: Bench) -> None:
    def wrong(body: Any, words: list[str]) -> list[str]:
        return ["b1-turn00 ", "other ", *words[2:]] if words[0] == "b1-turn00 " else words

    with pair(bench, Speaking(ids=False), Speaking(d=3, ids=False, says=wrong)):
        done = bench.run()
    assert done.code == 0  # it cannot be said whether it is a near tie
    assert "6/7 (1 unexplained)" in done.out
    (mismatch,) = load(bench.out).measured[1].mismatches or ()
    assert (mismatch.request, mismatch.turn, mismatch.index) == ("b1", 0, len("b1-turn00 "))
    assert (mismatch.expected, mismatch.got, mismatch.kind) == (None, None, "unknown")
    assert "nothing wrong" in validated(bench)


def test_ids_on_one_arm_alone_are_no_difference(bench: Bench) -> None:
    class Short(Speaking):
        """Keeps the ids of its answers back, and tells those of the prompt."""

        def _events(self, prompt: list[str], words: list[str], steps: Any) -> Any:
            first, *rest = super()._events(prompt, words, steps)
            self.ids = False
            _, *rest = super()._events(prompt, words, steps)
            self.ids = True
            return [first, *rest]

    with pair(bench, drafted=Short(d=3)):
        found = numbers(run(bench))
    base, cell = load(bench.out).measured
    assert (len(base.records[0].output), len(cell.records[0].output)) == (TOKENS, 0)
    assert (found["lossless"], cell.mismatches) == (1, ())
    assert "nothing wrong" in validated(bench)


def test_case_90_what_is_no_number_breaks_no_file(bench: Bench) -> None:
    class Odd(Speaking):
        def _stats(self, steps: Any) -> dict[str, Any]:
            return {**super()._stats(steps), "mean_acceptance_length": float("nan"), "rates": [float("inf"), 0.5]}

    with pair(bench, drafted=Odd(d=3)):
        done = run(bench)
    assert (done.code, numbers(done)["al"]) == (0, 2.5)
    told = load(bench.out).measured[1].records[0].raw["metrics"]["speculative_decoding"]
    assert (told["mean_acceptance_length"], told["rates"]) == (None, [None, 0.5])


# ---- counters that lie ----


def test_case_15_counters_that_began_anew_are_a_fault_and_give_no_number(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, begins_anew_at=4)):
        done = run(bench)
    assert done.code == 0
    assert (numbers(done)["al"], numbers(done)["al_server"]) == (2.5, None)  # the answers are as good as before
    said = [each for each in warned(done) if "counters were reset meanwhile" in each]
    assert said
    assert all(each.startswith("ngram-d3-b1-r0: ") for each in said)
    assert "nothing wrong" in validated(bench)


def test_counters_that_other_traffic_moved_are_a_named_contradiction(bench: Bench) -> None:
    class Shared(Speaking):
        def _count(self, prompt: int, words: int, steps: Any) -> None:
            super()._count(prompt, words, steps)
            self.moved.update(generated=100, accepted=50, drafts=25, drafted=75)
            self.at.update({0: 25, 1: 25})

    with pair(bench, drafted=Shared(d=3)):
        done = run(bench)
    assert numbers(done)["al"] == 2.5
    assert any("output tokens: the responses tell 77, the server's counters 777" in each for each in warned(done))


# ---- requests that fail ----


def test_case_30_failed_requests_are_counted_left_out_and_exit_5(bench: Bench) -> None:
    def refuses(body: Any, number: int) -> Any:
        bad = {"b1-turn0": Refuse(503, {"error": {"message": "busy"}}), "b2-turn1": [CUT]}
        return bad.get(body["messages"][-1]["content"])

    with pair(bench, drafted=Speaking(d=3, refuses=refuses)):
        done = run(bench)
    assert done.code == 5
    found = done.document["cells"][1]["metrics"]
    # b1's one turn and b2's second failed, so b2's third was not asked
    assert (found["failed_requests"]["value"], found["failed_requests"]["n"]) == (2, 6)
    assert found["al"]["value"] == 2.5
    assert found["lossless"]["n"] == 4
    assert any("2 of 6 turns failed, the first b1: http: HTTP 503: busy" in each for each in warned(done))
    assert "nothing wrong" in validated(bench)


def test_a_server_that_refuses_everything_is_an_error_at_once(bench: Bench) -> None:
    with pair(bench, drafted=Speaking(d=3, refuses=lambda body, n: Refuse(500, "no GPU"))):
        done = bench.run()
    assert done.code == 2
    assert "the server answers no request; the first says http: HTTP 500: no GPU" in done.err


def test_a_server_that_counts_no_tokens_is_an_error_at_once(bench: Bench) -> None:
    mute = Speaking(d=3, refuses=lambda body, n: [chunk("word"), chunk(finish="stop"), DONE])
    with pair(bench, drafted=mute):
        done = bench.run()
    assert done.code == 2
    assert "the server tells neither usage nor token ids, so nothing can count the tokens of its answers" in done.err


def test_a_server_that_is_not_there_is_an_error_at_once(bench: Bench) -> None:
    with pair(bench):
        pass
    done = bench.run()
    assert done.code == 2
    assert "/v1/models: no answer" in done.err


def test_a_prompt_too_long_for_a_server_that_counts_tokens_is_refused_before_anything_is_asked(bench: Bench) -> None:
    with pair(bench, Speaking(longest=40), Speaking(d=3, longest=40)) as (ours, theirs):
        bench.task([{"id": "short", "turns": ["x"]}, {"id": "long", "turns": ["word " * 30, "word " * 9]}])
        done = run(bench)
        # 39 words and two answers of 11
        assert (
            "1 of 2 conversations could exceed the target's context of 40 tokens, answers included: long (61)"
            in done.err
        )
        assert "leave them out with --skip-long" in done.err
        assert done.code == 2
        assert not bench.out.exists()
        assert "/v1/chat/completions" not in ours.paths() + theirs.paths()
        left = run(bench, "--skip-long")
    assert left.code == 0
    assert {record.request for each in load(bench.out).measured for record in each.records} == {"short"}
    assert any("left out: 1 of 2 conversations could exceed" in each for each in warned(left))


def test_only_what_could_be_too_long_is_counted(bench: Bench) -> None:
    with pair(bench) as (ours, _):
        bench.task([{"id": "short", "turns": ["x"]}, {"id": "half", "turns": ["word " * 420]}])
        done = run(bench)
    assert done.code == 0
    # 2100 bytes are more than half of 4096 tokens
    assert [each.body["prompt"].split() for each in ours.asked if each.path == "/tokenize"] == [["word"] * 420]


def test_a_prompt_too_long_for_a_server_that_counts_none_is_a_failed_request_with_its_own_reason(bench: Bench) -> None:
    with pair(bench, Speaking(longest=40, tokenizes=False), Speaking(d=3, longest=40)):
        bench.task([{"id": "short", "turns": ["x"]}, {"id": "long", "turns": ["word " * 60]}])
        done = run(bench)
    assert done.code == 5
    reason = "http: HTTP 400: This model's maximum context length is 40 tokens; the prompt has 60"
    assert [each for each in warned(done) if reason in each] == [
        f"{key}: 1 of 2 turns failed, the first long: {reason}" for key in ("none-d0-b1-r0", "ngram-d3-b1-r0")
    ]


def test_an_answer_that_the_context_cut_short_is_warned_of(bench: Bench) -> None:
    with pair(bench, Speaking(longest=60, tokenizes=False), Speaking(d=3, longest=60)):
        bench.task([{"id": "short", "turns": ["x"]}, {"id": "long", "turns": ["word " * 54]}])
        done = run(bench)
    assert done.code == 0
    assert warned(done) == [
        "none-d0-b1-r0, ngram-d3-b1-r0: answers end at the server's limit, before the 11 tokens asked for"
    ]


def test_what_a_run_says_itself_no_recipe_may_put_into_requests(bench: Bench) -> None:
    with pair(bench, request={"temperature": 1.0}):
        done = bench.run()
    assert done.code == 2
    assert "engine.request.temperature: the run says this itself; use --temperature" in done.err


# ---- keys ----


def test_case_93_every_request_carries_the_key_and_no_file_does(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-TESTKEY12345")
    servers = Speaking(key="sk-TESTKEY12345"), Speaking(d=3, key="sk-TESTKEY12345")
    with pair(bench, *servers, api_key_env="MY_KEY"):
        done = run(bench)
    assert done.code == 0
    for server in servers:
        assert {each.headers["Authorization"] for each in server.asked} == {"Bearer sk-TESTKEY12345"}
    every = b"".join(path.read_bytes() for path in bench.out.rglob("*") if path.is_file())
    assert b"TESTKEY" not in every
    assert "TESTKEY" not in done.out + done.err


def test_a_key_that_is_wrong_or_missing_is_an_error_that_does_not_tell_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-OTHERKEY9876")
    with pair(bench, Speaking(key="right"), api_key_env="MY_KEY"):
        done = bench.run()
    assert done.code == 2
    assert "HTTP 401" in done.err
    assert "OTHERKEY" not in done.err
    monkeypatch.delenv("MY_KEY")
    with pair(bench, api_key_env="MY_KEY"):
        assert "the environment variable MY_KEY holds no key" in bench.run(out="other").err


def test_a_cell_whose_server_fails_is_given_up_the_others_go_on_and_a_resume_tries_it_again(bench: Bench) -> None:
    def answers(body: Any, n: int) -> Any:
        return Refuse(500, "no GPU") if broken else None

    broken = True
    with pair(bench), Speaking(d=3, refuses=answers) as third:
        runner = json.loads((bench.folder / "s.yaml").read_text())
        runner["drafters"]["late"] = {"drafter": "ngram", "url": third.url}
        bench.write("s.yaml", json.dumps(runner))
        done = run(bench, drafter="ngram,late")
        assert done.code == 1
        assert [len(each.records) for each in load(bench.out).measured] == [TURNS, TURNS, 0]
        assert numbers(done)["al"] == 10 / 4
        assert [
            each for each in done.document["warnings"] if "late-d3-b1-r0: this cell was given up: the server" in each
        ]
        assert "the run is not finished; the same command with --resume goes on with it" in done.document["warnings"]
        broken = False
        again = run(bench, "--resume", drafter="ngram,late")
    assert again.code == 0, again.err
    assert [len(each.records) for each in load(bench.out).measured] == [TURNS] * 3
