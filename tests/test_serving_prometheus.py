"""A server's own counters: lines, label sets, differences, resets."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_serving_payloads import ENGINES, payload, turns

from speedbench.serving.prometheus import NOTHING, Scrape, counted, scrape, server_info
from speedbench.types import Counted

DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def page(name: str) -> Scrape:
    return scrape(Path(ENGINES / f"{name}.txt").read_text(encoding="utf-8"))


def moved(session: str, *during: str) -> Counted:
    """What a session's counters moved by, with readings in between."""
    return counted(page(f"{session}-before"), page(f"{session}-after"), [page(f"{session}-{each}") for each in during])


# ---- lines ---------------------------------------------------------------------------------------------------------


def test_series_are_summed_over_engines_and_ranks() -> None:
    found = page("vllm-metrics-before")
    assert found.series[DRAFTS] == 800 + 200
    assert found.positions[AT] == {0: 250 + 60, 1: 100 + 30, 2: 50 + 10}
    assert found.warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        f'{DRAFTS}{{engine="0"}} 123',
        f'{DRAFTS}{{engine="0",}} 1.23e+02',
        f'{DRAFTS}{{engine="0", model_name="a, b}} 7"}} 123.0 1790000000000',
        f"{DRAFTS} 123",
        f"   {DRAFTS}\t123  ",
    ],
)
def test_labels_exponents_and_timestamps_are_read(line: str) -> None:
    found = scrape(f"# HELP {DRAFTS} Drafts.\n# TYPE {DRAFTS} counter\n\n# a comment\n{line}\n")
    assert (found.series, found.warnings) == ({DRAFTS: 123.0}, ())


@pytest.mark.parametrize("d", [1, 7, 16])
@pytest.mark.parametrize("order", ["{p},{e},{m}", "{e},{p},{m}", "{e},{m},{p}"])
def test_a_position_is_found_wherever_its_label_stands(d: int, order: str) -> None:
    def text(each: int) -> str:
        lines = (order.format(p=f'position="{i}"', e='engine="0"', m='model_name="m"') for i in range(d))
        return "\n".join(f"{AT}{{{labels}}} {each * (d - i)}" for i, labels in enumerate(lines))

    found = counted(scrape(text(1)), scrape(text(3)))
    assert found.accepted_at == tuple(2 * (d - i) for i in range(d))


@pytest.mark.parametrize(
    "line", [f'{DRAFTS}{{engine="0" 5', f'{DRAFTS}{{engine="0"}}', DRAFTS, f"{DRAFTS} five", f'{DRAFTS} x{{a="b"}} 1']
)
def test_a_malformed_line_is_named_and_the_rest_is_read(line: str) -> None:
    found = scrape(f"{ACCEPTED} 7\n{line}\nvllm:generation_tokens_total 9\n")
    assert found.series == {ACCEPTED: 7.0, "vllm:generation_tokens_total": 9.0}
    (warning,) = found.warnings
    assert warning.startswith(f"metrics line not read: {line}")
    assert counted(found, found).faults == (warning,)  # a series that is needed: nothing is used
    assert counted(found, found).generated is None


def test_a_malformed_line_of_another_series_is_named_and_forbids_nothing() -> None:
    found = scrape(f"{ACCEPTED} 7\nprocess_cpu{{oops 1\n")
    assert len(found.warnings) == 1
    assert (counted(found, found).accepted, counted(found, found).faults) == (0, ())


def test_a_gauge_that_nothing_has_set_is_left_out() -> None:
    assert scrape("vllm:num_requests_running NaN\nvllm:x +Inf\n") == Scrape(series={})


# ---- differences ---------------------------------------------------------------------------------------------------


def test_counters_count_from_the_servers_start_and_are_differenced() -> None:
    # drafts 1000 → 1100 and accepted 500 → 800: 1 + 300/100 = 4, and not 1 + 800/1100
    found = moved("vllm-metrics")
    assert (found.drafted, found.accepted) == (1100 - 1000, 800 - 500)
    assert 1 + 300 / 100 == 4.0
    assert found.proposed == (2700 + 700) - (2400 + 600)
    assert found.accepted_at == ((350 - 250) + (100 - 60), (175 - 100) + (55 - 30), (100 - 50) + (20 - 10))
    assert sum(found.accepted_at) == found.accepted == 300
    assert found.generated == (1504 + 400) - (1200 + 300)
    assert (found.cached, found.prompted) == (26 - 10, 150)
    assert found.preempted == 2
    assert (found.steps, found.faults) == (None, ())  # vLLM counts no undrafted ones


def test_what_is_kept_raw_can_be_read_again() -> None:
    found = moved("vllm-metrics")
    raw = json.loads(json.dumps(found.raw))
    assert raw["before"][f'{DRAFTS}{{engine="1",model_name="m"}}'] == 200.0
    again = ["\n".join(f"{sample} {value}" for sample, value in raw[when].items()) for when in ("before", "after")]
    assert counted(*map(scrape, again)).accepted == found.accepted


def test_a_counter_that_fell_is_a_reset_and_nothing_is_used() -> None:
    found = counted(page("vllm-metrics-after"), page("vllm-metrics-before"))
    fell = f'counters were reset meanwhile: {DRAFTS}{{engine="0",model_name="m"}} fell from 875 to 800'
    assert fell in found.faults
    assert {getattr(found, name) for name in NOTHING.__slots__ if name not in ("faults", "process", "raw")} == {None}


def test_one_engine_that_began_anew_shows_although_the_sum_rose() -> None:
    before = scrape(f'{ACCEPTED}{{engine="0"}} 10\n{ACCEPTED}{{engine="1"}} 10')
    after = scrape(f'{ACCEPTED}{{engine="0"}} 3\n{ACCEPTED}{{engine="1"}} 90')
    fell = f'counters were reset meanwhile: {ACCEPTED}{{engine="0"}} fell from 10 to 3'
    assert counted(before, after).faults == (fell,)


def test_a_series_that_vanished_is_a_reset() -> None:
    before, after = scrape(f"{ACCEPTED} 10\n{DRAFTS} 4"), scrape(f"{DRAFTS} 9")
    assert counted(before, after).faults == (f"counters were reset meanwhile: {ACCEPTED} was 10 and is gone",)
    assert len(counted(before, scrape("")).faults) == 2  # and a page with nothing left on it


@pytest.mark.parametrize("clock", ["process_start_time_seconds", "vllm:generation_tokens_created"])
def test_a_server_that_began_anew_shows_although_every_counter_rose(clock: str) -> None:
    before = scrape(f"{ACCEPTED} 10\n{clock} 1.79e9")
    after = scrape(f"{ACCEPTED} 20\n{clock} 1.79e9")
    assert counted(before, after).accepted == 10
    later = scrape(f"{ACCEPTED} 20\n{clock} 1.7900001e9")
    changed = f"counters were reset meanwhile: {clock} changed, so the server began anew"
    assert counted(before, later).faults == (changed,)


def test_a_series_that_begins_meanwhile_began_at_0() -> None:
    before, after = "vllm:generation_tokens_total 5", f"{ACCEPTED} 3\nvllm:generation_tokens_total 9"
    found = counted(scrape(before), scrape(after))
    assert (found.accepted, found.generated, found.faults) == (3, 4, ())


def test_a_baseline_has_no_series_of_drafts_and_that_is_fine() -> None:
    text = 'vllm:generation_tokens_total{{engine="0"}} {n}\nprocess_cpu_seconds_total 1.5\n'
    found = counted(scrape(text.format(n=10)), scrape(text.format(n=35)))
    assert (found.generated, found.faults) == (25, ())
    assert (found.drafted, found.proposed, found.accepted, found.accepted_at) == (None, None, None, None)


def test_a_server_of_unknown_series_tells_nothing() -> None:
    found = counted(scrape("http_requests_total 1"), scrape("http_requests_total 5"), process=2)
    assert found == replace(NOTHING, process=2)


def test_counters_that_contradict_each_other_are_named_with_their_values_and_not_used() -> None:
    proposed = "vllm:spec_decode_num_draft_tokens_total"
    found = counted(scrape(f"{ACCEPTED} 0\n{proposed} 0"), scrape(f"{ACCEPTED} 112\n{proposed} 100"))
    assert found.faults == ("vllm: counters: 112 accepted of 100 proposed drafts",)  # and no rate of 1.12
    assert (found.accepted, found.proposed) == (None, None)
    by = f'{AT}{{position="0"}}'
    found = counted(scrape(f"{ACCEPTED} 0\n{by} 0"), scrape(f"{ACCEPTED} 7\n{by} 6"))
    assert found.faults == ("vllm: counters: 6 accepted by position; 7 in all",)


# ---- by engine -----------------------------------------------------------------------------------------------------


def test_sglang_counts_verify_steps_and_its_gauges_are_left_alone() -> None:
    found = moved("sglang-metrics")
    assert (found.steps, found.generated) == (110 - 10, 308 - 40)
    assert 268 / 100 != 3.9  # what its gauge says of the last interval
    assert (found.drafted, found.proposed, found.accepted) == (None, None, None)
    assert (found.cached, found.prompted, found.preempted) == (64, 400, 0)


def test_trtllm_counts_no_steps_but_drafts_by_position() -> None:
    found = moved("trtllm-metrics")  # its series appear with their first count
    assert (found.proposed, found.accepted) == (40 + 40 + 38, 30 + 12)
    assert (found.drafted, found.accepted_at) == (40, (30, 12))  # what drafted at all drafted a first token
    assert (found.steps, found.generated, found.prompted) == (None, 96 - 10, 35 - 7)


def test_trtllm_counts_sixteen_positions_at_most_so_its_totals_are_used_then() -> None:
    lines = [f'trtllm_spec_decode_drafted_tokens_total{{token_position="{i}"}} 5' for i in range(16)]
    lines += ["trtllm_spec_decode_num_draft_tokens_total 100", "trtllm_spec_decode_num_accepted_tokens_total 60"]
    lines += [f'trtllm_spec_decode_accepted_tokens_total{{token_position="{i}"}} 3' for i in range(16)]
    found = counted(scrape(""), scrape("\n".join(lines)))
    assert (found.drafted, found.proposed, found.accepted) == (5, 100, 60)
    assert (sum(found.accepted_at or ()), found.faults) == (16 * 3, ())  # 12 of the 60 lie beyond, and that is no fault


def test_llamacpps_counters_are_those_of_its_answers() -> None:
    for session in ("none", "self", "forced", "ngram", "other"):
        found = moved(f"llamacpp-{session}")
        calls = [turn["counted"] for turn in turns(session)]
        assert found.accepted == sum(call["accepted"] for call in calls)
        assert found.proposed == sum(call["proposed"] for call in calls)
        assert found.drafted == sum(call["drafts"] for call in calls)
        assert sum(found.accepted_at or ()) == found.accepted
        assert found.cached == 0


def test_llamacpp_counts_cached_prompt_tokens_beside_the_others() -> None:
    found = counted(scrape(""), scrape("llamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 70"))
    assert (found.cached, found.prompted) == (70, 70 + 30)


def test_the_running_batch_is_the_mean_of_the_readings_in_between() -> None:
    found = moved("llamacpp-two", "during-0", "during-1")  # two slots, four requests at once
    assert found.running == 2.0
    assert moved("llamacpp-two").running is None  # no reading, no mean
    text = 'vllm:num_requests_running{{engine="0"}} {a}\nvllm:num_requests_running{{engine="1"}} {b}'
    samples = [scrape(text.format(a=a, b=b)) for a, b in ((4, 4), (4, 3), (1, 0))]
    assert counted(samples[0], samples[0], samples).running == (8 + 7 + 1) / 3


# ---- SGLang's server_info ------------------------------------------------------------------------------------------


def test_sglangs_lifetime_mean_is_kept_as_reported_and_step_times_by_batch() -> None:
    found = server_info(payload("sglang", "server_info"))
    assert found.reported_al == (2.61, 2.58)  # one a rank, since the server started
    assert found.step_seconds == {1: (0.0101, 0.0103), 4: (0.0121, 0.0125)}
    assert server_info({}).reported_al == ()
    assert server_info({"internal_states": [{"avg_spec_accept_length": None}]}).reported_al == ()
