"""`speedbench replay` on a tiny model: a sweep's cells without the sweep, from every source, and what is refused."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heads
import pytest
import tiny
from scripts import Bench, Said

from speedbench.cli import document
from speedbench.replay import trace
from speedbench.results import load
from speedbench.summarise import results

pytest.importorskip("pyarrow")

DRAFTERS = "ngram,suffix,shared,external"
LENGTHS = (1, 2, 5)
TURNS = ["abab ab", "the the the cat", "a b c a b c a b"]


class Small(Bench):
    """A tiny native model and a drafter that is right now and then."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, capsys)
        made, words = tiny.model(), tiny.tokenizer(size=64)
        tiny.folder(folder / "target", made, words)
        tiny.folder(folder / "drafter", tiny.noisy(made, 0.1), words)
        self.native = self.write("n.yaml", json.dumps(self.recipe()))
        rows = [{"id": f"q{i}", "category": "ab"[i % 2], "turns": [turn] * (1 + i % 2)} for i, turn in enumerate(TURNS)]
        self.asked = self.write("q.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def recipe(self, **engine: Any) -> dict[str, Any]:
        return {
            "title": "T", "backend": "native", "model": str(self.folder / "target"),
            "engine": {"dtype": "float64", "device": "cpu", **engine},
            "drafters": {
                "external": {"model": str(self.folder / "drafter")},
                "shared": {"drafter": "suffix", "max_cached_requests": 2},
                "ngram": {"min_n": 1},
            },
        }  # fmt: skip

    def measure(self, drafter: str = DRAFTERS, d: str = "1,2,5") -> Path:
        words = ["--task", self.asked, "--runner", self.native, "--drafter", drafter, "-D", d, "--max-tokens", "24"]
        done = self("run", *words, "--out", str(self.folder / "run"))
        assert done.code == 0, done.err
        return self.folder / "run"

    def replay(self, *words: str, out: str = "replay", drafter: str = DRAFTERS, d: str = "1,2,5") -> Said:
        given = ["--drafter", drafter, "-D", d, "--out", str(self.folder / out)]
        return self("replay", *given, *words)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Small:
    return Small(tmp_path, capsys)


def steps(path: Path) -> dict[tuple[str, str, int], list[tuple[Any, ...]]]:
    return {
        (each.cell.key, record.request, record.turn): [(s.proposed, s.accepted, s.committed) for s in record.steps]
        for each in load(path).measured
        for record in each.records
    }


def metrics(said: Said) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for cell in said.document["cells"]:
        yield cell["drafter"], cell["draft_length"], cell["metrics"]


def test_a_replayed_run_has_the_steps_of_the_run(small: Small) -> None:
    run = small.measure()
    done = small.replay("--outputs", str(run), "--task", small.asked, "--json")
    assert done.code == 0, done.err
    assert steps(small.folder / "replay") == steps(run)
    assert any(accepted > 1 for found in steps(run).values() for _, accepted, _ in found)
    for drafter, d, found in metrics(done):
        assert found["al"]["origin"] == "exact"
        assert found["decode_tps"]["value"] is None
        if d:
            assert found[f"accepted_at_marginal[{d}]"]["value"] is not None
            assert found["al_by_position[1]"]["value"] is not None, drafter
    assert small("validate", str(small.folder / "replay")).code == 0
    shown = small("show", str(small.folder / "replay"), "--by-category", "--by-position", "--by-context")
    assert "replayed, not run, so without times: the outputs of run" in shown.out
    assert "shared by look-ups behind every token for each D, in the order of requests" in shown.out
    of_trace = ("replay", "--from-trace", str(small.folder / "replay"), "--out")
    again = small(*of_trace, str(small.folder / "again"), "--json")
    assert list(metrics(again)) == list(metrics(done))
    fewer = small(*of_trace, str(small.folder / "two"), "-D", "2")
    assert fewer.code == 0
    assert {each.cell.draft_length for each in load(small.folder / "two").measured} == {0, 2}


def test_a_replay_gives_advice_its_curve_as_a_folder_a_file_of_it_or_what_it_printed(small: Small) -> None:
    run = small.measure("ngram,suffix,oracle")
    printed = small.replay("--outputs", str(run), "--task", small.asked, "--json", drafter="ngram,suffix")
    words = ["--model", "llama-3.1-8b", "--hardware", "h200", "-B", "1", "--json"]
    folder = small.folder / "replay"
    places = (folder, folder / "summary.json", folder / "run.json", small.write("printed.json", printed.out), run)
    found = [small("advise", "--al", str(place), *words) for place in places]
    assert [done.code for done in found] == [0] * 5, found[0].err
    offers = [done.document["batches"][0]["offers"] for done in found]
    assert {(each["drafter"], each["draft_length"]) for each in offers[0]} == {
        (label, d) for label in ("ngram", "suffix") for d in LENGTHS
    }
    assert all(each == offers[0] for each in offers), "replayed as measured, and never the oracle"
    al = {(c["drafter"], c["draft_length"]): c["metrics"]["al"]["value"] for c in printed.document["cells"]}
    assert all(each["al"] == al[each["drafter"], each["draft_length"]] for each in offers[0])


def test_outputs_can_be_made_first_and_a_stopped_replay_goes_on(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--task", small.asked, "--runner", small.native, "--max-tokens", "24"]
    done = small.replay(*words, out="whole", drafter="ngram,external")
    assert done.code == 0, done.err
    plain, labelled = trace.write, []

    def stopped(path: Path, *rest: Any) -> None:
        labelled.append(path)
        if len(labelled) == 3:
            raise KeyboardInterrupt
        plain(path, *rest)

    monkeypatch.setattr(trace, "write", stopped)
    assert small.replay(*words, drafter="ngram,external").code == 130
    monkeypatch.setattr(trace, "write", lambda path, *rest: (labelled.append(path), plain(path, *rest)))
    on = small.replay(*words, "--resume", drafter="ngram,external")
    assert on.code == 0, on.err
    assert len({path.name for path in labelled}) == len(labelled) - 1  # none but the one under way anew
    assert steps(small.folder / "replay") == steps(small.folder / "whole")
    assert load(small.folder / "replay").measured[0].records[0].first is not None  # measured, not replayed


def test_sampled_answers_give_expected_acceptance_for_drawn_drafts_and_steps_for_looked_up_ones(small: Small) -> None:
    words = ["--task", small.asked, "--runner", small.native, "--max-tokens", "24", "--temperature", "1.0", "--json"]
    done = small.replay(*words, drafter="external,ngram")
    assert done.code == 0, done.err
    al = {(drafter, d): each["al"] for drafter, d, each in metrics(done)}
    assert {al["external", d]["origin"] for d in LENGTHS} == {"estimated"}
    assert {al["ngram", d]["origin"] for d in LENGTHS} == {"exact"}
    assert 1 < al["external", 1]["value"] < al["external", 2]["value"] < al["external", 5]["value"]
    assert al["external", 1]["low"] < al["external", 1]["value"] < al["external", 1]["high"]
    assert small("validate", str(small.folder / "replay")).code == 0
    again = small(
        "replay", "--from-trace", str(small.folder / "replay"), "--out", str(small.folder / "again"), "--json"
    )
    told = {(drafter, d): each for drafter, d, each in metrics(done) if d}
    for key, each in ((key, each) for *key, each in metrics(again) if key[1]):
        other = told[key[0], key[1]]
        assert {n for n in each if each[n] != other[n]} <= {"t_baseline"}, key  # which was measured there
    for d in LENGTHS:
        known = {name: each["value"] for name, each in told["external", d].items()}
        assert known["al"] == pytest.approx(by_hand(small.folder / "replay" / trace.FILE, "external", d), abs=1e-9)
        marginal = sum(known[f"accepted_at_marginal[{i}]"] for i in range(1, d + 1))
        assert known["al_complete"] == pytest.approx(1 + marginal)
        # accepted drafts behind a stop token are in the shares and not in what was committed
        assert known["al"] <= 1 + sum(j * known[f"accepted_histogram[{j}]"] for j in range(d + 1)) + 1e-9
        assert sum(known[f"accepted_histogram[{j}]"] for j in range(d + 1)) == pytest.approx(1)
        assert known["al_by_position[1]"] == known["al_by_context[1]"] == pytest.approx(known["al"], 1e-6)
        assert 0 < known[f"accepted_at_marginal[{d}]"] <= known[f"accepted_at_conditional[{d}]"] < 1
        assert known["off_target"] is None, "drawn tokens need not be the likeliest"
    for found in results(load(small.folder / "replay").measured, document.metrics()):
        of_categories = [found.by_category[name] for name in "ab"]
        assert all(each["al_by_position[1]"].value is not None for each in of_categories)
        assert all(each["accepted_histogram[0]"].value is not None for each in of_categories)


def by_hand(file: Path, drafter: str, d: int) -> float:
    """AL out of the Parquet alone: Σ T / Σ V(1), V(g) = 1 + Σ s_n (1 - a_n) V(g+n+1) + s_p V(g+p+1)."""
    from pyarrow import parquet

    rows = [row for row in parquet.read_table(file).to_pylist() if row["drafter"] == drafter]
    answers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        answers.setdefault((row["request"], row["turn"]), []).append(row)
    tokens = steps = 0.0
    for answer in answers.values():
        size = len(answer)
        value = [0.0] * (size + d + 2)
        for g in range(size - 1, 0, -1):
            row, survives, value[g] = answer[g], 1.0, 1.0
            p = max(0, min(d, row["offered"], row["cap"] - g - 1))
            for n in range(p):
                q, right = row["log_q"][n], row["log_p"][n]
                a = 0.0 if q is None else min(1.0, math.exp(q - right))
                value[g] += survives * (1 - a) * value[min(g + n + 1, size)]
                survives *= a
            value[g] += survives * value[min(g + p + 1, size)]
        tokens, steps = tokens + size - 1, steps + value[1]
    return tokens / steps


def test_answers_that_the_target_would_not_give_are_flagged_by_name(small: Small) -> None:
    """MTP needs the target along the answers, so that its own tokens can be held against theirs; n-gram alone does not.
    The target's own outputs come first: none of their tokens is off."""
    recipe = small.recipe()
    recipe["drafters"]["mtp"] = {"checkpoint": str(heads.mtp("speculators").write(small.folder / "mtp"))}
    native = small.write("m.yaml", json.dumps(recipe))
    words = ["--task", small.asked, "--runner", native, "--max-tokens", "24", "--json"]
    own = small.replay(*words, drafter="ngram,mtp", d="1,2")
    assert own.code == 0, own.err
    assert {(each["off_target"]["value"], each["off_target"]["n"]) for _, d, each in metrics(own) if d} == {(0, 4)}
    said = {(r.request, r.turn): r for each in load(small.folder / "replay").measured for r in each.records}
    rows = [
        {"id": "own", "prompt": TURNS[0], "output_ids": list(said["q0", 0].output)},
        {"id": "foreign", "prompt": TURNS[0], "output_ids": [5, 9] * 6},
    ]
    file = written(small, *rows)
    other = small.replay("--outputs", file, "--runner", native, "--json", drafter="ngram,mtp", d="1,2", out="other")
    assert other.code == 0, other.err
    off = {each["off_target"]["value"] for _, _, each in metrics(other)}
    assert len(off) == 1
    assert 0 < off.pop() <= 12
    warned = [each for each in other.document["warnings"] if "would not say" in each]
    assert len(warned) == 1
    assert "1 answers have tokens that the target" in warned[0]
    assert "foreign turn 0 (" in warned[0]
    assert "off target" in small("show", str(small.folder / "other")).out
    again = small("replay", "--from-trace", str(small.folder / "other"), "--out", str(small.folder / "x"), "--json")
    assert list(metrics(again)) == list(metrics(other))
    plain = small.replay("--outputs", file, "--runner", native, "--json", drafter="ngram", d="1", out="plain")
    assert {each["off_target"]["value"] for _, _, each in metrics(plain)} == {None}


def test_answers_labelled_together_give_the_same_numbers(small: Small) -> None:
    run = small.measure("ngram,external", "1,5")
    words = ["--outputs", str(run), "--task", small.asked, "--json"]
    alone = small.replay(*words, drafter="ngram,external", d="1,5")
    together = small.replay(*words, "--batch-tokens", "4096", drafter="ngram,external", d="1,5", out="together")
    assert (alone.code, together.code) == (0, 0), together.err
    assert list(metrics(together)) == list(metrics(alone))
    assert "4/4 answers replayed" in together.err


def test_the_steps_of_one_run_give_the_ds_that_divide_and_bound_the_rest(small: Small) -> None:
    run = small.measure("external,ngram", "1-5")
    done = small("replay", "--from-steps", str(run), "--out", str(small.folder / "bounds"), "--json")
    assert done.code == 0, done.err
    right, found = steps(run), steps(small.folder / "bounds")
    al = {(drafter, d): each["al"] for drafter, d, each in metrics(done)}
    measured = {(drafter, d): each["al"] for drafter, d, each in metrics(small("summary", str(run), "--json"))}
    assert {d for drafter, d in al if drafter == "external"} == {1, 2, 5}
    assert {d for drafter, d in al if drafter == "external-least"} == {3, 4}
    for key, each in found.items():
        if key[0].startswith("external-d"):
            assert each == right[key]
    for d in (3, 4):
        assert al["external-least", d]["value"] <= measured["external", d]["value"] <= al["external-most", d]["value"]
        assert al["external-least", d]["origin"] == "estimated"
    assert al["external", 2]["origin"] == "exact"
    assert al["ngram", 2]["origin"] == "estimated"
    assert al["ngram", 5] == measured["ngram", 5]
    assert any("does not hold of ngram" in each for each in done.document["warnings"])
    wide = small("replay", "--from-steps", str(run), "-D", "9", "--out", str(small.folder / "wide"))
    assert (wide.code, "-D 9: external-d5-b1-r0 ran at D = 5" in wide.err) == (2, True)


# ---- a file of any engine's ------------------------------------------------------------------------------------------


def written(small: Small, *rows: dict[str, Any]) -> str:
    return small.write("o.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def test_a_file_of_ids_or_text_is_replayed_and_text_is_an_estimate(small: Small) -> None:
    ids = list(range(5, 9)) * 4
    chat = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "abab abab"}]
    file = written(
        small,
        {"id": "ids", "prompt_ids": [5, 6, 7, 8], "output_ids": [*ids, 1], "finish": "stop"},
        {"id": "cut", "prompt": "abc", "output_ids": ids},
        {"id": "nothing", "prompt": "abc", "output": ""},
    )
    done = small.replay("--outputs", file, "--runner", small.native, "--json", drafter="ngram", d="4")
    assert done.code == 0, done.err
    al = {drafter: each["al"] for drafter, _, each in metrics(done)}
    assert al["ngram"]["origin"] == "exact"
    # `ids` copies its prompt: 16 tokens behind the first in steps of 5, 5, 5 and 1, the stop being no copy
    assert steps(small.folder / "replay")["ngram-d4-b1-r0", "ids", 0] == [(4, 4, 5)] * 3 + [(4, 0, 1)]
    assert any("1 answers are empty and left out: nothing" in each for each in done.document["warnings"])
    words = written(small, {"id": "chat", "messages": chat})
    said = small.replay("--outputs", words, "--runner", small.native, "--json", drafter="ngram", d="4", out="words")
    assert said.code == 0, said.err
    assert {each["al"]["origin"] for _, d, each in metrics(said) if d} == {"estimated"}
    assert any("came without ids and were encoded here" in each for each in said.document["warnings"])


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt_ids": [5], "output_ids": [6, 64]}, "token id 64 is outside the target's vocabulary of 64"),
        ({"prompt_ids": [5], "output_ids": [6], "output": "zzz"}, "these ids are another tokenizer's"),
        ({"prompt": "a", "output": "ab€"}, "comes back as"),
        ({"prompt": "a", "output_ids": [5], "acceptance": "relaxed"}, "rule 'relaxed', which is lossy"),
        ({"prompt": "a", "output": ""}, "no answer is left to replay"),
        ({"prompt": "a"}, "has no output"),
        ({"output": "a"}, "one of prompt_ids, prompt or messages is needed (got none)"),
        ({"prompt": "a", "output_ids": ["x"]}, "output_ids: should be a list of token ids"),
        ({"prompt": "a", "output_ids": [5], "finish": "error"}, "finish: should be stop or length"),
    ],
)
def test_outputs_that_cannot_be_replayed_are_refused_by_name(small: Small, row: dict[str, Any], complaint: str) -> None:
    done = small.replay("--outputs", written(small, row), "--runner", small.native, drafter="ngram", d="2")
    assert done.code == 2
    assert complaint in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (small.folder / "replay").exists()


def test_a_run_that_asked_or_spoke_otherwise_is_refused(small: Small) -> None:
    run = small.measure("ngram", "1")
    other = small.write("other.jsonl", json.dumps({"id": "q0", "turns": ["else"]}) + "\n")
    refused = small.replay("--outputs", str(run), "--task", other, drafter="ngram")
    assert (refused.code, "does not ask what" in refused.err) == (2, True)
    unnamed = small.replay("--outputs", str(run), drafter="ngram")
    assert "name its file with --task" in unnamed.err
    document = json.loads((run / "run.json").read_text("utf-8"))
    document["config"]["runner"]["engine"]["acceptance"] = "relaxed"
    (run / "run.json").write_text(json.dumps(document), "utf-8")
    for source in ("--outputs", "--from-steps"):
        lossy = small("replay", source, str(run), "--task", small.asked, "-D", "1")
        assert "engine.acceptance is 'relaxed', a lossy rule" in lossy.err
    del document["config"]["runner"]["engine"]["acceptance"]
    document["config"]["target"]["template_sha"] = "0" * 16
    (run / "run.json").write_text(json.dumps(document), "utf-8")
    spoken = small.replay("--outputs", str(run), "--task", small.asked, drafter="ngram")
    assert "made with another chat template" in spoken.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "one of --outputs, --from-trace, --from-steps or --task is needed (got none)"),
        (["--from-trace", "nowhere", "--from-steps", "there"], "(got --from-trace, --from-steps)"),
        (["--from-trace", "nowhere"], "no trace at 'nowhere'"),
        (["--task", "demo", "--runner", "vllm-h200"], "a replay runs on 'native'"),
        (["--task", "demo", "--set", "engine.acceptance=relaxed"], "a lossy rule"),
        (["--task", "demo", "-D", "0"], "'0' is out of range"),
        (["--outputs", "run", "--top-k", "4"], "--top-k has no effect with --outputs"),
        (["--from-trace", "run", "--drafter", "ngram"], "--drafter has no effect with --from-trace"),
        (["--task", "demo", "--drafter", "ngrm"], "Did you mean 'ngram'?"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_line(bench: Bench, words: list[str], complaint: str) -> None:
    done = bench("replay", *words)
    assert done.code == 2
    assert complaint in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_drafter_that_replays_the_answer_is_refused(small: Small) -> None:
    done = small.replay("--task", small.asked, "--runner", small.native, drafter="oracle", d="2")
    assert (done.code, "'oracle' replays the answer itself" in done.err) == (2, True)
