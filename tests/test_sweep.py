"""Which cells there are, in what order they run, what is refused before, and what is said of outputs that differ."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import record, steps

from speedbench import sweep as sweeps
from speedbench.backends.scripted import BACKEND
from speedbench.errors import UserError
from speedbench.measure import mismatches, noise, outputs
from speedbench.results import load, writing
from speedbench.sweep import Sweep
from speedbench.types import (
    Cell,
    Conversation,
    Drafting,
    Engine,
    Load,
    Measured,
    Pass,
    Record,
    Request,
    Runner,
    Sampling,
    Session,
    Task,
)

NGRAM, ORACLE, NONE = (Drafting(label=name, drafter=name) for name in ("ngram", "oracle", "none"))
TASK = Task(name="t", title="T", version=1, licence="CC0-1.0", source="inline", where={})


def request(name: str, turns: int = 1, words: int = 3) -> Request:
    return Request(id=name, category="c", turns=(" ".join(["word"] * words),) * turns)


def asked(
    *requests: Request, draftings: Sequence[Drafting] = (NGRAM,), lengths: Sequence[int] = (3,),
    concurrencies: Sequence[int] = (1,), repeats: int = 1, temperature: float = 0.0, **engine: Any,
) -> Sweep:  # fmt: skip
    return Sweep(
        task=TASK, requests=requests or (request("r"),), draftings=tuple(draftings), lengths=tuple(lengths),
        runner=Runner(name="u", title="T", backend="scripted", model="none", engine=engine), repeats=repeats,
        concurrencies=tuple(concurrencies), sampling=Sampling(max_tokens=11, temperature=temperature),
    )  # fmt: skip


def opened(sweep: Sweep) -> Any:
    return BACKEND.open(sweep.runner)


@dataclass
class Spy:
    """A session that notes every conversation handed to an engine, and passes it on."""

    inner: Session
    handed: list[tuple[str, Conversation]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> Engine:
        engine = self.inner.engine(drafting, draft_length, concurrency, load)
        return SpyEngine(engine, f"{drafting.label}-{draft_length}", self.handed)


@dataclass
class SpyEngine:
    inner: Engine
    name: str
    handed: list[tuple[str, Conversation]]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.inner.facts

    def warm_up(self) -> None: ...

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass]:
        self.handed += [(self.name, each) for each in work]
        yield from self.inner.serve(work)


def ran(sweep: Sweep, path: Path, *, resume: bool = False) -> tuple[list[Measured], Spy]:
    """The cells as written, and who was handed what."""
    with opened(sweep) as session, writing(path, sweep.config(), {}, resume=resume) as writer:
        spy = Spy(session)
        fits = session.fits(sweep.requests, sweep.sampling.max_tokens)
        sweeps.run(sweep, spy, fits, writer, lambda cell, record: None)
        writer.finish()
    return list(load(path).measured), spy


def keys(sweep: Sweep) -> list[str]:
    return [cell.key for cell, _ in sweep.cells()]


# ---- cells ---------------------------------------------------------------------------------------------------------


def test_the_baseline_stands_once_before_the_others_at_each_concurrency_and_repeat() -> None:
    made = keys(asked(draftings=(NGRAM, ORACLE), lengths=(0, 2, 4), concurrencies=(1, 8), repeats=2))
    # 2 concurrencies × 2 repeats × (1 baseline + 2 drafters × 2 lengths) = 20
    assert len(made) == len(set(made)) == 20
    assert made[:5] == ["none-d0-b1-r0", "ngram-d2-b1-r0", "ngram-d4-b1-r0", "oracle-d2-b1-r0", "oracle-d4-b1-r0"]
    assert made[::5] == ["none-d0-b1-r0", "none-d0-b1-r1", "none-d0-b8-r0", "none-d0-b8-r1"]


@pytest.mark.parametrize(("draftings", "lengths"), [((NGRAM,), (0,)), ((NONE,), (2, 4)), ((), (2,))])
def test_without_drafter_or_length_the_baseline_is_alone(draftings: list[Drafting], lengths: list[int]) -> None:
    assert keys(asked(draftings=draftings, lengths=lengths)) == ["none-d0-b1-r0"]


def test_none_among_the_drafters_adds_no_second_baseline() -> None:
    assert keys(asked(draftings=(NONE, NGRAM))) == ["none-d0-b1-r0", "ngram-d3-b1-r0"]


def test_the_size_is_known_without_making_the_cells() -> None:
    sweep = asked(draftings=(NGRAM, ORACLE), lengths=(0, 2, 4), concurrencies=(1, 8), repeats=3)
    assert sweep.size == len(sweep.cells()) == 30


# ---- before anything runs ------------------------------------------------------------------------------------------


def test_prompts_that_could_be_too_long_are_all_named_with_their_sizes() -> None:
    long = [request(f"long{i}", words=90) for i in range(7)]
    with (
        opened(asked(context=100)) as session,
        pytest.raises(UserError) as caught,
    ):
        sweeps.preflight(asked(request("short"), *long), session)
    # 90 words and 11 to answer are 101
    assert str(caught.value) == (
        "7 of 8 conversations could exceed the target's context of 100 tokens, answers included: long0 (101), "
        "long1 (101), long2 (101), long3 (101), long4 (101) and 2 more; shorten them, lower --max-tokens, or leave "
        "them out with --skip-long"
    )


def test_what_is_too_long_can_be_left_out_and_is_named_and_counted() -> None:
    requests = [request("a"), request("long", words=90), request("b")]
    with opened(asked(context=100)) as session:
        ahead = sweeps.preflight(asked(*requests), session, skip_long=True)
    assert [each.id for each in ahead.requests] == [fit.request for fit in ahead.fits] == ["a", "b"]
    assert (ahead.skipped, ahead.turns) == (("long",), 4)  # two conversations in two cells
    assert ahead.document()["skipped"] == ahead.workload["skipped"] == ["long"]
    said = (
        "left out: 1 of 3 conversations could exceed the target's context of 100 tokens, answers included: long (101)"
    )
    assert said in ahead.warnings


def test_an_engines_own_limit_is_one_too() -> None:
    sweep = asked(request("a", words=90))
    told = replace(sweep, runner=replace(sweep.runner, engine={"max_model_len": 100}))
    with opened(sweep) as session, pytest.raises(UserError, match=r"exceed engine.max_model_len of 100 tokens"):
        sweeps.preflight(told, session)


def test_a_prompt_beyond_a_drafters_context_is_refused_and_an_answer_beyond_it_is_told() -> None:
    class Short(Spy):
        def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> Engine:
            engine = SpyEngine(self.inner.engine(drafting, draft_length, concurrency, load), "", [])
            engine.inner.facts = {"context": 50}  # type: ignore[misc]
            return engine

    # a answers up to 40 + 11 = 51 tokens, b to 3 + 11 = 14; c's prompt has 60
    sweep = asked(request("a", words=40), request("b"), request("c", words=60))
    with opened(sweep) as session:
        with pytest.raises(
            UserError, match=r"1 of 3 conversations exceed the context of ngram of 50 tokens: c \(60\);"
        ):
            sweeps.preflight(sweep, Short(session))
        ahead = sweeps.preflight(sweep, Short(session), skip_long=True)
    assert ahead.skipped == ("c",)
    assert ahead.warnings[-1] == (
        "1 of 2 conversations could go beyond the context of ngram, 50 tokens, where it drafts nothing more"
    )


def test_with_nothing_left_there_is_no_run() -> None:
    with (
        opened(asked(context=100)) as session,
        pytest.raises(UserError, match="--skip-long: no conversation is left; 1"),
    ):
        sweeps.preflight(asked(request("long", words=90)), session, skip_long=True)


def test_the_lengths_and_categories_are_known_before_anything_runs() -> None:
    requests = [request("a", words=100), request("b", words=200), request("c", words=1000)]
    with opened(asked()) as session:
        ahead = sweeps.preflight(asked(*requests), session)
    assert ahead.workload["lengths"] == {"≤128": 1, "≤512": 1, "≤1024": 1}
    assert ahead.workload["categories"] == {"c": 3}


def test_every_turn_and_its_answer_count_towards_the_context() -> None:
    with opened(asked(context=27)) as session, pytest.raises(UserError, match=r"r \(28\)"):
        sweeps.preflight(asked(request("r", turns=2)), session)  # 2 · (3 + 11)
    with opened(asked(context=28)) as session:
        sweeps.preflight(asked(request("r", turns=2)), session)


def test_a_draft_longer_than_the_context_is_refused_with_the_limit() -> None:
    sweep = asked(lengths=(2, 100), context=100)
    with opened(sweep) as session, pytest.raises(UserError, match="-D 100: beyond the target's context of 100 tokens"):
        sweeps.preflight(sweep, session)


def test_a_drafter_that_does_not_come_up_is_found_before_anything_runs() -> None:
    class Refusing(Spy):
        def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> Engine:
            raise UserError(f"{drafting.label} at D={draft_length}: tokenizers differ")

    sweep = asked(draftings=(NONE, NGRAM), lengths=(0, 2, 7))
    with opened(sweep) as session, pytest.raises(UserError, match="ngram at D=7: tokenizers differ"):
        sweeps.preflight(sweep, Refusing(session))


def test_the_estimate_is_the_plain_pace_times_the_tokens() -> None:
    sweep = asked(request("a"), request("b", turns=2), lengths=(2, 4), concurrencies=(1, 2), verify_seconds=0.5)
    with opened(sweep) as session:
        ahead = sweeps.preflight(sweep, session)
    # 3 turns of 11 tokens in 3 cells at B = 1 and 3 at B = 2: 3 · 33 · 0.5 + 3 · 33 · 0.5 / 2
    assert ahead.estimated_seconds == pytest.approx(49.5 + 24.75, abs=0.05)
    assert (ahead.cells, ahead.turns, ahead.most_tokens) == (6, 18, 198)
    assert ahead.document()["prompt_tokens"] == [3, 3]
    assert ahead.document()["rows"] == 2


def test_an_unknown_pace_is_null_and_not_zero() -> None:
    class Silent(Spy):
        def pace(self, concurrency: int) -> None:
            return None

    sweep = asked()
    with opened(sweep) as session:
        assert sweeps.preflight(sweep, Silent(session)).document()["estimated_seconds"] is None


# ---- running -------------------------------------------------------------------------------------------------------


def test_cells_take_turns_block_by_block_with_the_baseline_first(tmp_path: Path) -> None:
    requests = [request(f"r{i:02d}") for i in range(10)]  # blocks of 4: 4, 4, 2
    measured, spy = ran(asked(*requests, draftings=(NGRAM, ORACLE)), tmp_path / "run")
    order = [name for name, _ in spy.handed]
    changes = [order[0], *(b for a, b in pairwise(order) if a != b)]
    forth, back = ["none-0", "ngram-3", "oracle-3"], ["none-0", "oracle-3", "ngram-3"]
    assert changes == forth + back + forth
    assert [each.request.id for name, each in spy.handed if name == "ngram-3"] == [each.id for each in requests]
    assert [len(each.records) for each in measured] == [10, 10, 10]


def test_a_block_grows_with_the_concurrency(tmp_path: Path) -> None:
    requests = [request(f"r{i:02d}") for i in range(9)]
    _, spy = ran(asked(*requests, concurrencies=(2,)), tmp_path / "run")
    assert [name for name, _ in spy.handed] == ["none-0"] * 8 + ["ngram-3"] * 8 + ["none-0", "ngram-3"]


def test_a_drafter_is_handed_the_baselines_answers_of_the_same_repeat_and_the_baseline_none(tmp_path: Path) -> None:
    measured, spy = ran(asked(request("r", turns=2), draftings=(ORACLE,)), tmp_path / "run")
    theirs = tuple(each.output for each in measured[0].records)
    assert len(theirs) == 2
    assert [(name, each.expected) for name, each in spy.handed] == [("none-0", None), ("oracle-3", theirs)]


def test_a_failing_request_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    sweep = asked(request("a"), request("b", turns=2), request("c"), fails=["b"])
    measured, _ = ran(sweep, tmp_path / "run")
    for each in measured:
        found = [(r.request, r.turn, r.finish) for r in each.records]
        assert found == [("a", 0, "length"), ("b", 0, "error"), ("c", 0, "length")]


def test_a_resume_repeats_nothing_and_goes_on_within_a_conversation(tmp_path: Path) -> None:
    sweep = asked(request("a"), request("b", turns=3), request("c"))
    whole, _ = ran(sweep, tmp_path / "run")
    file = tmp_path / "run" / "none-d0-b1-r0" / "records.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:3]), encoding="utf-8")  # a, and two turns of b
    again, spy = ran(sweep, tmp_path / "run", resume=True)
    first, second = whole[0].records[1:3]
    assert [(name, each.request.id, each.done) for name, each in spy.handed] == [
        ("none-0", "b", (first.output, second.output)),
        ("none-0", "c", ()),
    ]
    assert [(r.request, r.turn, r.process) for r in again[0].records] == [
        ("a", 0, 0), ("b", 0, 0), ("b", 1, 0), ("b", 2, 1), ("c", 0, 1),
    ]  # fmt: skip
    assert [r.output for r in again[0].records] == [r.output for r in whole[0].records]


def test_a_failed_request_is_not_asked_again_on_resume(tmp_path: Path) -> None:
    sweep = asked(request("a"), request("b", turns=2), fails=["b"])
    ran(sweep, tmp_path / "run")
    _, spy = ran(sweep, tmp_path / "run", resume=True)
    assert spy.handed == []


def test_sampled_answers_are_not_compared(tmp_path: Path) -> None:
    measured, _ = ran(asked(temperature=1.0), tmp_path / "run")
    assert [each.mismatches for each in measured] == [None, None]


@pytest.mark.parametrize(("gap", "kind"), [(1e-7, "near_tie"), (2.0, "real")])
def test_answers_that_differ_are_classed_by_the_targets_gap(tmp_path: Path, gap: float, kind: str) -> None:
    sweep = asked(request("a"), request("b", turns=2), flips=["b"], gap=gap)
    (baseline, here), _ = ran(sweep, tmp_path / "run")
    assert baseline.mismatches == ()
    # the second turn of b follows another first answer, so it is another prompt and is not compared
    (found,) = here.mismatches or ()
    assert (found.request, found.turn, found.index, found.gap, found.kind) == ("b", 0, 0, gap, kind)


# ---- what is said of outputs ---------------------------------------------------------------------------------------


@dataclass
class Gaps:
    """A session that knows one gap, and notes what it was asked."""

    known: float | None
    asked: list[tuple[str, list[tuple[int, ...]]]] = field(default_factory=list)

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        self.asked.append((request.id, [tuple(each) for each in outputs]))
        return self.known

    def near_tie(self) -> float:
        return 1e-3


def answer(*tokens: int, name: str = "r", turn: int = 0, sha: str | None = None) -> Record:
    made = record(steps(*[0] * (len(tokens) - 1)), request=name, turn=turn, prompt_sha=sha)
    return replace(made, output=tokens)


def compared(ours: Sequence[Record], theirs: Sequence[Record], gaps: Gaps) -> list[dict[str, Any]]:
    requests = {each.request: request(each.request) for each in ours}
    return [asdict(each) for each in mismatches(ours, theirs, requests, gaps)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gap", "kind"), [(1e-7, "near_tie"), (1e-3, "near_tie"), (1.1e-3, "real"), (2.0, "real"), (None, "unknown")]
)
def test_a_mismatch_has_its_index_both_tokens_and_the_gap(gap: float | None, kind: str) -> None:
    gaps = Gaps(gap)
    (found,) = compared([answer(5, 6, 8, 9)], [answer(5, 6, 7, 9)], gaps)
    right = {"request": "r", "turn": 0, "index": 2, "expected": 7, "got": 8, "gap": gap, "kind": kind}
    assert found == right
    assert gaps.asked == [("r", [(5, 6)])]  # the gap after the tokens that both share


def test_in_a_later_turn_the_gap_is_asked_for_after_the_baselines_earlier_answers() -> None:
    gaps = Gaps(2.0)
    ours = [answer(1, 2), answer(3, 9, turn=1)]
    theirs = [answer(1, 2), answer(3, 4, turn=1)]
    (found,) = compared(ours, theirs, gaps)
    assert (found["turn"], found["index"]) == (1, 1)
    assert gaps.asked == [("r", [(1, 2), (3,)])]


def test_an_answer_that_ends_earlier_or_later_parts_at_its_end() -> None:
    ((shorter,), (longer,)) = (
        compared([answer(1, 2)], [answer(1, 2, 3)], Gaps(2.0)),
        compared([answer(1, 2, 3)], [answer(1, 2)], Gaps(2.0)),
    )
    assert (shorter["index"], shorter["expected"], shorter["got"]) == (2, 3, None)
    assert (longer["index"], longer["expected"], longer["got"]) == (2, None, 3)


def test_equal_answers_other_prompts_and_unanswered_turns_are_no_mismatches() -> None:
    gaps = Gaps(2.0)
    ours = [answer(1, 2), answer(3, turn=1, sha="x"), answer(4, name="only ours"), answer(5, name="failed there")]
    failed = replace(answer(name="failed there"), finish="error")
    assert compared(ours, [answer(1, 2), answer(9, turn=1, sha="y"), failed], gaps) == []
    assert gaps.asked == []


def test_outputs_are_in_the_order_of_the_turns_and_without_failures() -> None:
    failed = replace(answer(9, turn=2), finish="error")
    assert outputs([answer(3, turn=1), failed, answer(1), answer(7, name="other")], "r") == ((1,), (3,))


@pytest.mark.parametrize(("seconds", "times"), [(0.5, 5), (0.01, 20), (0.0001, 50), (None, 0)])
def test_the_probe_runs_five_times_and_for_a_fifth_of_a_second_but_not_for_ever(
    seconds: float | None, times: int
) -> None:
    with opened(asked()) as session:
        spy = Spy(session)
        spy.probe = lambda: seconds  # type: ignore[attr-defined]
        assert list(sweeps._probes(spy)) == [seconds] * times  # type: ignore[arg-type]


def test_noise_is_the_spread_of_the_probes_and_unknown_of_few() -> None:
    # 1 … 11: p10 = 2, p50 = 6, p90 = 10
    assert noise([float(i) for i in range(1, 12)]) == pytest.approx(8 / 6)
    assert noise([1.0] * 4) is None
    assert noise([0.0] * 9) is None


def test_cells_of_one_sweep_have_distinct_folders(tmp_path: Path) -> None:
    measured, _ = ran(asked(draftings=(NGRAM, ORACLE), lengths=(2, 3), repeats=2), tmp_path / "run")
    cells: list[Cell] = [each.cell for each in measured]
    assert len(cells) == 10
    assert sum(1 for path in (tmp_path / "run").iterdir() if path.is_dir()) == 10
