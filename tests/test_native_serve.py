"""Conversations through the native backend on a tiny model folder: turns, records, passes, failures."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from speedbench.backends.native import BACKEND, NativeSession
from speedbench.errors import Unsupported, UserError
from speedbench.native.chat import sha
from speedbench.native.serve import NativeEngine
from speedbench.types import Conversation, Drafting, Load, Pass, Record, Request, Runner, Sampling

TURNS = {
    "one": ("hi there",),
    "two": ("why is it so", "and then"),
    "three": ("tell me a story", "go on", "the end"),
    "four": ("what",),
    "five": ("a b c a b c a b c", "a b c"),
}
REQUESTS = [Request(id=id, category=f"c{len(turns)}", turns=turns) for id, turns in TURNS.items()]
MAX_TOKENS = 12


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose answers are words of its tokenizer, which has a token for each of its rows."""
    where = tmp_path_factory.mktemp("models") / "model"
    return tiny.folder(where, tiny.model(dtype=torch.float32), tiny.tokenizer(size=64))


@contextmanager
def opened(home: Path, **engine: Any) -> Iterator[NativeSession]:
    chosen = {"dtype": "float64", "device": "cpu", **engine}
    with BACKEND.open(Runner(name="t", title="t", backend="native", model=str(home), engine=chosen)) as session:
        yield session


@pytest.fixture
def session(home: Path) -> Iterator[NativeSession]:
    with opened(home) as made:
        yield made


def load(session: NativeSession, d: int, **sampling: Any) -> Load:
    chosen = Sampling(**{"max_tokens": MAX_TOKENS, **sampling})
    most = max(fit.most_tokens for fit in session.fits(REQUESTS, chosen.max_tokens))
    return Load(sampling=chosen, longest=most, widest=d)


def engine(
    session: NativeSession, name: str = "ngram", d: int = 3, concurrency: int = 1, given: Any = None, **sampling: Any
) -> NativeEngine:
    drafting = Drafting(label=name, drafter=name, settings=given or {})
    return session.engine(drafting, d, concurrency, load(session, d, **sampling))


def held(
    made: NativeEngine, requests: Sequence[Request] = REQUESTS, **more: Any
) -> tuple[dict[tuple[str, int], Record], list[Pass]]:
    events = list(made.serve([Conversation(request=r, **more) for r in requests]))
    return (
        {(e.request, e.turn): e for e in events if isinstance(e, Record)},
        [e for e in events if isinstance(e, Pass)],
    )


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_each_turn_is_its_own_call_with_the_models_own_answers(
    session: NativeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, list[tuple[int, ...]]]] = []
    asked = session.chat.prompt

    def spy(request: Request, answers: Sequence[Sequence[int]]) -> list[int]:
        calls.append((request.id, [tuple(a) for a in answers]))
        return asked(request, answers)

    made = engine(session)
    monkeypatch.setattr(session.chat, "prompt", spy)
    records, _ = held(made, REQUESTS[2:3])
    answers = [records["three", turn].output for turn in range(3)]
    assert calls == [("three", answers[:turn]) for turn in range(3)]
    for turn in range(3):
        record = records["three", turn]
        ids = asked(REQUESTS[2], answers[:turn])
        assert (record.prompt_tokens, record.prompt_sha) == (len(ids), sha(ids))
        assert record.output == tuple(plain(session, ids))


def plain(session: NativeSession, ids: Sequence[int], count: int = MAX_TOKENS) -> list[int]:
    """The greedy answer token by token, from scratch each time, up to and with the first stop token."""
    target, row = session.target, list(ids)
    for _ in range(count):
        logits = target.forward(target.slots(1, len(row)), torch.tensor([row]), [0], last_only=True).logits
        row.append(int(logits[0, -1].argmax()))
        if row[-1] in session.chat.stops:
            break
    return row[len(ids) :]


@pytest.mark.parametrize("concurrency", [1, 2, 4, 9])
@pytest.mark.parametrize("name", ["none", "ngram", "suffix"])
def test_every_answer_is_plain_greedys_at_every_concurrency(
    session: NativeSession, name: str, concurrency: int
) -> None:
    records, passes = held(engine(session, name, 0 if name == "none" else 3, concurrency))
    assert set(records) == {(id, turn) for id, turns in TURNS.items() for turn in range(len(turns))}
    answers: dict[str, list[tuple[int, ...]]] = {}
    for (id, _turn), record in sorted(records.items()):
        request = next(r for r in REQUESTS if r.id == id)
        ids = session.chat.prompt(request, answers.setdefault(id, []))
        assert record.output == tuple(plain(session, ids))
        assert record.category == request.category
        answers[id].append(record.output)
    assert max(p.batch for p in passes) == min(concurrency, len(REQUESTS))


@pytest.mark.parametrize("form", ["lean", "transformers"])
@pytest.mark.parametrize("given", [{"static": True}, {"exact": True}])
def test_static_and_exact_cells_say_the_same(home: Path, form: str, given: dict[str, bool]) -> None:
    with opened(home, form=form, **given) as session:
        told = load(session, 5)
        drafting, none = Drafting(label="n", drafter="ngram"), Drafting(label="none", drafter="none")
        baseline, base_passes = held(session.engine(none, 0, 2, told))
        records, passes = held(session.engine(drafting, 3, 2, told))
        assert {k: r.output for k, r in records.items()} == {k: r.output for k, r in baseline.items()}
        assert {p.width for p in passes} == {6 if "exact" in given else 4}
        assert {p.width for p in base_passes} == {6 if "exact" in given else 1}


def test_turns_answered_before_a_resume_are_not_asked_again(session: NativeSession) -> None:
    whole, _ = held(engine(session), REQUESTS[2:3])
    done = tuple(whole["three", turn].output for turn in range(2))
    rest, _ = held(engine(session), REQUESTS[2:3], done=done)
    assert list(rest) == [("three", 2)]
    assert rest["three", 2].output == whole["three", 2].output
    assert rest["three", 2].prompt_sha == whole["three", 2].prompt_sha
    nothing, passes = held(engine(session), REQUESTS[:1], done=((1, 2),))
    assert (nothing, passes) == ({}, [])


# ---- records and passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(("name", "d"), [("none", 0), ("ngram", 4), ("suffix", 4)])
def test_records_and_passes_tell_one_story(session: NativeSession, name: str, d: int, concurrency: int) -> None:
    records, passes = held(engine(session, name, d, concurrency))
    for record in records.values():
        assert record.error is None
        assert 1 + sum(s.committed for s in record.steps) == len(record.output) <= MAX_TOKENS
        assert record.first_tokens == 1
        ended = record.output[-1] in session.chat.stops
        assert record.finish == ("stop" if ended else "length")
        assert not set(record.output[:-1]) & session.chat.stops
        for step in record.steps[:-1]:
            assert step.accepted is not None
            assert step.committed == step.accepted + 1
        for step in record.steps:
            assert step.proposed is not None
            assert step.accepted is not None
            assert 0 <= step.accepted <= step.proposed <= d
        times = [record.sent, record.first, *(s.at for s in record.steps), record.last]
        assert None not in times
        assert times == sorted(times, key=float)  # type: ignore[arg-type]
        assert record.prefill is not None
        assert record.first is not None
        assert 0 < record.prefill <= record.first - record.sent
    steps = [s for r in records.values() for s in r.steps]
    assert sum(p.batch for p in passes) == len(steps)
    assert sum(p.proposed for p in passes) == sum(s.proposed or 0 for s in steps)
    assert [p.at for p in passes] == sorted(p.at for p in passes)
    for each in passes:
        assert 1 <= each.width <= d + 1
        assert each.width == 1 if each.proposed == 0 else each.proposed <= each.batch * (each.width - 1)
        assert min(each.draft, each.verify, each.other) >= 0
        assert each.verify > 0


def test_the_times_of_the_passes_and_prefills_make_up_the_wall_time(session: NativeSession) -> None:
    records, passes = held(engine(session, "none", 0))
    spent = sum(p.draft + p.verify + p.other for p in passes) + sum(r.prefill or 0 for r in records.values())
    first, last = min(r.sent for r in records.values()), max(p.at for p in passes)
    assert spent <= last - first
    assert spent > 0.7 * (last - first)


def test_the_budget_of_one_token_takes_no_pass(session: NativeSession) -> None:
    records, passes = held(engine(session, max_tokens=1))
    assert passes == []
    assert all(len(r.output) == 1 and r.steps == () and r.last == r.first for r in records.values())


def test_drafting_beyond_the_budget_counts_what_was_proposed(session: NativeSession) -> None:
    baseline, _ = held(engine(session, "none", 0))
    expected = tuple(baseline["one", turn].output for turn in range(1))
    records, _ = held(engine(session, "oracle", 8), REQUESTS[:1], expected=expected)
    record = records["one", 0]
    assert record.output == expected[0]
    assert len(record.output) == 12
    assert [(s.proposed, s.committed) for s in record.steps] == [(8, 9), (1, 2)]


def test_forced_acceptance_through_the_backend(session: NativeSession) -> None:
    baseline, _ = held(engine(session, "none", 0))
    expected = (baseline["four", 0].output,)
    for length, commits in ((1.0, [1] * 11), (2.0, [2] * 5 + [1]), (4.0, [4, 4, 3])):
        made = engine(session, "synthetic", 3, given={"acceptance_length": length})
        records, _ = held(made, REQUESTS[3:4], expected=expected)
        assert records["four", 0].output == expected[0]
        assert [s.committed for s in records["four", 0].steps] == commits


def test_sampled_answers_depend_on_the_seed_and_not_on_the_batch(session: NativeSession) -> None:
    def outputs(concurrency: int, seed: int) -> dict[tuple[str, int], tuple[int, ...]]:
        records, _ = held(engine(session, "ngram", 3, concurrency, {"min_n": 1}, temperature=1.0, seed=seed))
        return {key: record.output for key, record in records.items()}

    assert outputs(1, 7) == outputs(1, 7) == outputs(4, 7)
    assert outputs(1, 7) != outputs(1, 8)


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_request_that_raises_fails_alone_and_is_counted(
    session: NativeSession, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = held(engine(session, concurrency=concurrency))
    asked = session.chat.prompt

    def refusing(request: Request, answers: Sequence[Sequence[int]]) -> list[int]:
        if request.id == "three" and len(answers) == 1:
            raise ValueError("not this one\nfor many reasons")
        return asked(request, answers)

    made = engine(session, concurrency=concurrency)
    monkeypatch.setattr(session.chat, "prompt", refusing)
    records, _ = held(made)
    failed = records.pop(("three", 1))
    assert (failed.finish, failed.error) == ("error", "ValueError: not this one")
    assert (failed.output, failed.steps, failed.prompt_tokens, failed.prompt_sha) == ((), (), 0, "")
    assert (failed.first, failed.last, failed.prefill) == (None, None, None)
    assert set(records) == set(expected) - {("three", 1), ("three", 2)}
    assert all(records[key].output == expected[key].output for key in records)


def test_a_failing_pass_fails_the_rows_in_it_and_the_next_ones_go_on(
    session: NativeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(session, "none", 0, 2)
    run, left = session.target.forward, [3]

    def breaking(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("out of memory")
        return run(*args, **more)

    monkeypatch.setattr(session.target, "forward", breaking)
    records, _ = held(made)
    failed = {key for key, record in records.items() if record.finish == "error"}
    assert failed == {("one", 0), ("two", 0)}  # two prefills, then the pass
    assert records["one", 0].error == "RuntimeError: out of memory"
    assert set(records) - failed == {("three", 0), ("three", 1), ("three", 2), ("four", 0), ("five", 0), ("five", 1)}


def test_a_failing_prefill_frees_its_row(session: NativeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(session, "ngram", 3, 1)
    begun = made._decoder.proposer
    assert begun is not None
    begin, left = begun.begin, [1]

    def breaking(row: Any, features: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyError("gone")
        begin(row, features)

    monkeypatch.setattr(type(begun), "begin", lambda self, row, features: breaking(row, features))
    records, _ = held(made)
    assert [key for key, record in records.items() if record.error] == [("one", 0)]
    assert len(records) == 9


def test_an_over_long_prompt_is_an_error_and_not_cut(tmp_path: Path) -> None:
    small = tiny.model(dtype=torch.float32, max_position_embeddings=40)
    home = tiny.folder(tmp_path / "model", small, tiny.tokenizer(size=64))
    with opened(home) as session:
        long = Request(id="long", category="x", turns=("a" * 30,))
        told = Load(sampling=Sampling(max_tokens=MAX_TOKENS), longest=40, widest=3)
        made = session.engine(Drafting(label="n", drafter="ngram"), 3, 2, told)
        records, _ = held(made, [REQUESTS[0], long, REQUESTS[3]])
    failed = records["long", 0]
    assert failed.finish == "error"
    assert "33 prompt tokens and 12 to answer exceed the target's context of 40" in (failed.error or "")
    assert failed.prompt_tokens == 33
    assert failed.prompt_sha != ""
    assert records["one", 0].error is None
    assert records["four", 0].error is None


def test_a_conversation_longer_than_was_planned_for_harms_no_other_row(session: NativeSession) -> None:
    """Re-encoded answers can be longer than they were; such a turn fails instead of writing into the next row."""
    told = Load(sampling=Sampling(max_tokens=MAX_TOKENS), longest=40, widest=3)
    long = Request(id="long", category="x", turns=("a" * 90,))
    records, _ = held(
        session.engine(Drafting(label="n", drafter="ngram"), 3, 3, told), [REQUESTS[3], long, REQUESTS[0]]
    )
    expected, _ = held(engine(session, "ngram", 3, 3), [REQUESTS[3], REQUESTS[0]])
    assert records["long", 0].finish == "error"
    assert "planned" in (records["long", 0].error or "")
    assert records["four", 0].output == expected["four", 0].output
    assert records["one", 0].output == expected["one", 0].output


# ---- warm-up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "d"), [("none", 0), ("ngram", 3), ("suffix", 3), ("oracle", 3)])
def test_warming_up_changes_no_answer(session: NativeSession, name: str, d: int) -> None:
    cold, warm = engine(session, name, d, 2), engine(session, name, d, 2)
    expected, _ = held(cold)
    warm.warm_up()
    records, _ = held(warm)
    assert {k: (r.output, len(r.steps)) for k, r in records.items()} == {
        k: (r.output, len(r.steps)) for k, r in expected.items()
    }


def test_warming_up_teaches_a_drafter_with_a_memory_nothing(session: NativeSession) -> None:
    made = engine(session, "suffix", 3, 1, {"max_cached_requests": -1})
    made.warm_up()
    cold, _ = held(engine(session, "suffix", 3, 1, {"max_cached_requests": -1}))
    warm, _ = held(made)
    assert {k: r.steps and [(s.proposed, s.accepted) for s in r.steps] for k, r in warm.items()} == {
        k: r.steps and [(s.proposed, s.accepted) for s in r.steps] for k, r in cold.items()
    }


# ---- the session ---------------------------------------------------------------------------------------------------


def test_how_requests_fit_is_known_before_anything_runs(session: NativeSession) -> None:
    fits = {f.request: f for f in session.fits(REQUESTS, MAX_TOKENS)}
    records, _ = held(engine(session))
    for id, turns in TURNS.items():
        assert (fits[id].prompt_tokens, fits[id].prompt_sha) == (
            records[id, 0].prompt_tokens,
            records[id, 0].prompt_sha,
        )
        last = records[id, len(turns) - 1]
        assert last.prompt_tokens + len(last.output) <= fits[id].most_tokens


def test_the_gap_is_the_targets_after_the_last_token(session: NativeSession) -> None:
    outputs = [[10, 11, 12], [13, 14]]
    ids = [*session.chat.prompt(REQUESTS[1], outputs[:1]), *outputs[1]]
    target = session.target
    best = target.forward(target.slots(1, 64), torch.tensor([ids]), [0], last_only=True).logits[0, -1].topk(2).values
    assert session.gap(REQUESTS[1], outputs) == pytest.approx(float(best[0] - best[1]), abs=1e-9)


def test_what_the_target_is_is_told(session: NativeSession, home: Path) -> None:
    facts = session.facts
    assert facts["model"] == str(home)
    assert (facts["form"], facts["dtype"], facts["device"]) == ("lean", "float64", "cpu")
    assert facts["stops"] == [1]
    assert facts["context"] == session.context == 512
    assert facts["vocab"] == 64
    assert facts["template_sha"] == session.chat.template_sha
    assert facts["engine"]["acceptance"] == "lossless"
    assert session.probe() > 0
    pace = session.pace(2)
    assert pace is not None
    assert min(pace) > 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtipe": "float32"}, "Did you mean 'dtype'"),
        ({"dtype": "float8"}, "dtype: one of float32"),
        ({"form": "fat"}, "form: one of auto"),
        ({"threads": 0}, "threads: at least 1"),
        ({"threads": "two"}, "threads: should be a number"),
        ({"device": "gpu"}, "device"),
        ({"cuda_graphs": True}, "cuda_graphs needs a CUDA device"),
        ({"compile": True, "form": "transformers"}, "compile needs the lean form"),
        ({"acceptance": "loose"}, "acceptance: one of lossless, relaxed"),
    ],
)
def test_engine_settings_that_make_no_sense_are_refused(home: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says), opened(home, **given):
        pass


def test_the_acceptance_rule_is_told(home: Path) -> None:
    with opened(home) as session:
        assert engine(session).facts["acceptance"] == "greedy"
        assert engine(session, temperature=1.0).facts["acceptance"] == "rejection"
    with opened(home, acceptance="relaxed", relaxed_top_k=3, relaxed_delta=0.5) as session:
        assert engine(session).facts["acceptance"] == "relaxed (lossy): top 3, delta 0.5"
        assert engine(session, "none", 0).facts["acceptance"] == "greedy"
        with pytest.raises(UserError, match="needs --temperature 0"):
            engine(session, temperature=1.0)


@pytest.mark.parametrize("name", ["oracle", "synthetic"])
def test_a_replayed_answer_needs_greedy(session: NativeSession, name: str) -> None:
    with pytest.raises(UserError, match=f"drafter '{name}' replays.*--temperature 0"):
        engine(session, name, temperature=1.0)


def test_a_drafter_without_a_native_form_is_unsupported(
    session: NativeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speedbench import plugins
    from speedbench.types import Drafter

    elsewhere = Drafter(name="eagle9", title="t", inputs="i", backends={"vllm": lambda d, s: s})
    monkeypatch.setattr(plugins, "load", lambda kind, name: elsewhere)
    with pytest.raises(Unsupported, match="'eagle9' does not run on 'native'; it runs on: vllm"):
        engine(session, "eagle9")
