"""Servers of a sweep: which are up, for how long, what is kept of them, and what happens when one dies."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import alive, eventually, pids, program, tiny
from scripted_server import HANG, Refuse, ScriptedServer, answer
from speaking_server import Speaking

from speedbench import sweep as sweeps
from speedbench.errors import UserError
from speedbench.results import load, writing
from speedbench.serving.plan import LaunchPlan
from speedbench.serving.session import ServedEngine, ServedSession, served
from speedbench.sweep import Sweep
from speedbench.types import Conversation, Counted, Drafting, Load, Record, Request, Runner, Sampling, Task

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")

LOAD = Load(sampling=Sampling(max_tokens=4), longest=None, widest=3)
NONE, NGRAM = Drafting(label="none", drafter="none"), Drafting(label="ngram", drafter="ngram")

Planner = Callable[[Drafting, int, int, int], LaunchPlan]


def talks(*names: str, turns: int = 1) -> list[Conversation]:
    return [Conversation(request=Request(id=name, category="c", turns=("hello",) * turns)) for name in names]


def noting(folder: Path, **more: Any) -> Planner:
    """Plans tiny servers that write their process ids into one file for each cell."""
    folder.mkdir(exist_ok=True)

    def plan(drafting: Drafting, d: int, concurrency: int, port: int) -> LaunchPlan:
        write = f"Path({str(folder)!r}, '{drafting.label}-{d}').open('a').write(f'{{os.getpid()}}\\n')"
        return tiny(port, extra=write, **more)

    return plan


def attached(server: ScriptedServer, **more: Any) -> Planner:
    return lambda drafting, d, concurrency, port: replace(program(url=server.url, **more), mode="attach")


@contextmanager
def opened(planner: Planner, folder: Path, **engine: Any) -> Iterator[ServedSession]:
    runner = Runner(name="u", title="T", backend="b", model="tiny", engine={"patience": 60.0, **engine})
    with served(runner, planner) as session:
        session.keep_in(folder / "servers")
        yield session


def engine(session: ServedSession, drafting: Drafting = NONE, d: int = 0, concurrency: int = 1) -> ServedEngine:
    return session.engine(drafting, d, concurrency, LOAD)


def serve(one: ServedEngine, *work: Conversation) -> list[Record]:
    return [each for each in one.serve(work or talks("r")) if isinstance(each, Record)]


def running(folder: Path) -> list[str]:
    """The cells with a server that runs."""
    return sorted(file.name for file in folder.iterdir() if any(map(alive, pids(file))))


# ---- which are up ----


def test_nothing_is_started_to_make_a_plan_or_an_engine(tmp_path: Path) -> None:
    with opened(noting(tmp_path / "pids"), tmp_path) as session:
        one = engine(session, NGRAM, 3)
        assert session.plan(NGRAM, 3, 1) == one.facts["plan"]
        assert running(tmp_path / "pids") == []


@pytest.mark.parametrize("at_once", [1, 2])
def test_only_so_many_servers_are_up_and_the_one_that_waited_longest_goes(tmp_path: Path, at_once: int) -> None:
    folder = tmp_path / "pids"
    with opened(noting(folder), tmp_path, at_once=at_once) as session:
        cells = [engine(session), engine(session, NGRAM, 2), engine(session, NGRAM, 3)]
        names = ["none-0", "ngram-2", "ngram-3"]
        order = [0, 1, 0, 2]
        for n, cell in enumerate(order):
            cells[cell].warm_up()
            last = list(dict.fromkeys(reversed(order[: n + 1])))[:at_once]
            assert eventually(lambda last=last: running(folder) == sorted(names[i] for i in last))
        # with two places the baseline stayed for its second turn; with one it was started anew
        assert len(pids(folder / "none-0")) == (2 if at_once == 1 else 1)
    assert running(folder) == []


def test_a_block_reuses_the_server_that_was_warmed_up_for_it(tmp_path: Path) -> None:
    with opened(noting(tmp_path / "pids"), tmp_path) as session:
        one = engine(session)
        one.warm_up()
        assert [record.size for record in serve(one, *talks("a", "b", turns=2))] == [4] * 4
        serve(one)
        assert len(pids(tmp_path / "pids" / "none-0")) == 1


def test_cells_of_two_concurrencies_have_servers_of_their_own(tmp_path: Path) -> None:
    with opened(noting(tmp_path / "pids"), tmp_path, at_once=2) as session:
        for concurrency in (1, 2):
            engine(session, concurrency=concurrency).warm_up()
        assert len(pids(tmp_path / "pids" / "none-0")) == 2
    assert sorted(folder.name for folder in (tmp_path / "servers").iterdir()) == ["none-d0-b1", "none-d0-b2"]


def test_whatever_ends_a_session_ends_its_servers(tmp_path: Path) -> None:
    def interrupted() -> None:
        with opened(noting(tmp_path / "pids"), tmp_path, at_once=2) as session:
            engine(session).warm_up()
            engine(session, NGRAM, 3).warm_up()
            assert running(tmp_path / "pids") == ["ngram-3", "none-0"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert running(tmp_path / "pids") == []


def test_a_cell_whose_server_does_not_come_up_leaves_none_behind(tmp_path: Path) -> None:
    def plan(drafting: Drafting, d: int, concurrency: int, port: int) -> LaunchPlan:
        good = noting(tmp_path / "pids")(drafting, d, concurrency, port)
        return replace(good, argv=("false",)) if d else good

    with opened(plan, tmp_path, at_once=2) as session:
        engine(session).warm_up()
        with pytest.raises(UserError, match="tiny ended with exit code 1 before it answered"):
            engine(session, NGRAM, 3).warm_up()
        assert running(tmp_path / "pids") == ["none-0"]
    assert running(tmp_path / "pids") == []


def test_a_key_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    planner = noting(tmp_path / "pids", api_key_env="NO_SUCH_KEY")
    with opened(planner, tmp_path) as session, pytest.raises(UserError, match="NO_SUCH_KEY holds no key"):
        engine(session).warm_up()
    assert list((tmp_path / "pids").iterdir()) == []


# ---- what is kept of them ----


def test_logs_of_all_launches_are_kept_beside_the_result(tmp_path: Path) -> None:
    with opened(noting(tmp_path / "pids"), tmp_path) as session:
        for drafting, d in ((NONE, 0), (NGRAM, 3), (NONE, 0)):
            engine(session, drafting, d).warm_up()
    logs = {file.parent.name: file.read_text() for file in (tmp_path / "servers").rglob("server.log")}
    assert sorted(logs) == ["ngram-d3-b1", "none-d0-b1"]
    assert logs["none-d0-b1"].count("listening on ") == 2


def test_facts_hold_the_plan_in_force_the_proof_and_what_the_server_says_of_itself(tmp_path: Path) -> None:
    with Speaking(d=3) as server, opened(attached(server, info="/v1/models"), tmp_path) as session:
        one = engine(session, NGRAM, 3)
        before = one.facts
        one.warm_up()
        assert one.facts["proof"]["speculates"] is True
        assert one.facts["context"] == 4096
        assert one.facts["server"]["data"][0]["id"] == "m"
        assert one.facts["plan"]["url"] == server.url
        assert "proof" not in before
        json.dumps(one.facts, allow_nan=False)


def test_caches_are_emptied_before_every_block_and_a_refusal_is_a_warning(tmp_path: Path) -> None:
    resets = (("POST", "/reset_prefix_cache"), ("GET", "/gone"))
    with Speaking() as server, opened(attached(server, resets=resets), tmp_path) as session:
        one = engine(session)
        one.warm_up()
        serve(one)
        serve(one)
        assert server.paths().count("/reset_prefix_cache") == 2
        assert server.paths()[-1] != "/reset_prefix_cache"
        assert list(one.facts["warnings"]) == ["/gone answered 404: that cache was not emptied between blocks"]


# ---- drafters ----


@pytest.mark.parametrize(("base", "refused"), [("ngram", False), ("external", True)])
def test_forced_acceptance_is_as_sure_to_draft_as_what_it_is_based_on(tmp_path: Path, base: str, refused: bool) -> None:
    class Idle(Speaking):
        """Counts its drafts, of which there are none."""

        def _steps(self, rest: int) -> list[tuple[int, int]]:
            return []

        def _events(self, prompt: list[str], words: list[str], steps: Any) -> Any:
            return answer(*words)

    drafting = Drafting(label="forced", drafter="synthetic", settings={"base": base})
    with Idle(d=3) as server, opened(attached(server), tmp_path) as session:
        one = engine(session, drafting, 3)
        if refused:
            with pytest.raises(UserError, match="the drafter is not engaged"):
                one.warm_up()
        else:
            one.warm_up()
            assert "it may not be engaged" in one.facts["warnings"][0]


def test_case_52_a_draft_that_is_the_target_itself_is_said(tmp_path: Path) -> None:
    with opened(noting(tmp_path / "pids"), tmp_path) as session:
        itself = Drafting(label="self", drafter="external", settings={"model": "tiny"})
        other = Drafting(label="other", drafter="external", settings={"model": "else"})
        assert engine(session, itself, 3).facts["warnings"] == [
            "drafts with the target itself: its acceptance is a ceiling, at full cost"
        ]
        assert engine(session, other, 3).facts["warnings"] == []


def test_requests_before_the_first_block_that_fail_in_part_are_a_warning(tmp_path: Path) -> None:
    some = Speaking(refuses=lambda body, number: Refuse(503, "busy") if number == 1 else None)
    with some as server, opened(attached(server), tmp_path) as session:
        one = engine(session, concurrency=3)
        one.warm_up()
        assert list(one.facts["warnings"]) == [
            "1 of 3 requests before the first block failed, the first with http: HTTP 503: busy"
        ]


# ---- one that dies ----


def test_a_server_that_dies_in_a_block_fails_its_turns_is_named_and_comes_up_for_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "pids"
    with opened(noting(folder), tmp_path) as session:
        one = engine(session)
        one.warm_up()
        made = []
        for record in one.serve(talks("a", "b", "c")):
            assert isinstance(record, Record)
            made.append(record.finish)
            if len(made) == 1:
                (pid,) = pids(folder / "none-0")
                os.kill(pid, signal.SIGKILL)
                assert eventually(lambda pid=pid: not alive(pid))
        assert made[0] == "stop"
        assert made[-1] == "error"
        (said,) = one.facts["warnings"]
        assert said.startswith("tiny ended with exit code -9; see ")
        assert said.endswith("none-d0-b1/server.log, while it was asked")
        assert [record.finish for record in serve(one)] == ["stop"]
        assert len(pids(folder / "none-0")) == 2


def test_counters_that_cannot_be_read_after_a_block_are_a_fault_of_it(tmp_path: Path) -> None:
    with Speaking(d=3) as server, opened(attached(server), tmp_path) as session:
        one = engine(session, NGRAM, 3)
        one.warm_up()
        made: list[Any] = []
        for each in one.serve(talks("r")):
            made.append(each)
            server.counts = False
        assert isinstance(made[-1], Counted)
        assert made[-1].faults == ("counters were not read after the block: the server tells its counters no more",)
        assert list(one.facts["warnings"]) == list(made[-1].faults)


def test_a_block_that_is_given_up_leaves_no_thread_and_no_call_behind(tmp_path: Path) -> None:
    def script(body: Mapping[str, Any], number: int) -> Sequence[Any]:
        return [*answer("x")[:2], HANG] if body["messages"][-1]["content"] == "hang" else answer("x")

    class Hanging(Speaking):
        def _speak(self, body: Any, number: int) -> Any:
            return script(body, number)

    work = [Conversation(request=Request(id=name, category="c", turns=(name,))) for name in ("a", "hang")]
    with Hanging() as server, opened(attached(server), tmp_path) as session:
        before = set(threading.enumerate())
        one = engine(session)
        events = one.serve(work)
        next(events)
        assert eventually(lambda: any(each.body and "hang" in str(each.body["messages"]) for each in server.asked))
        events.close()  # type: ignore[attr-defined]
        assert {thread.name for thread in set(threading.enumerate()) - before} <= {"speedbench-client"}
        assert [record.finish for record in serve(one, work[0])] == ["stop"]


# ---- through the sweep ----


def test_a_sweep_keeps_logs_and_warnings_with_the_result(tmp_path: Path) -> None:
    task = Task(name="t", title="T", version=1, licence="CC0-1.0", source="inline", where={})
    requests = tuple(Request(id=f"r{n}", category="c", turns=("hello",)) for n in range(8))
    runner = Runner(name="u", title="T", backend="b", model="tiny", engine={"patience": 60.0})
    sweep = Sweep(
        task=task, requests=requests, runner=runner, draftings=(NGRAM,), lengths=(3,), concurrencies=(1,), repeats=1,
        sampling=Sampling(max_tokens=8),
    )  # fmt: skip
    out = tmp_path / "out"
    with served(runner, noting(tmp_path / "pids")) as session, writing(out, sweep.config(), {}, resume=False) as writer:
        sweeps.run(sweep, session, session.fits(requests, 8), writer, lambda cell, record: None)
        writer.finish()
    run = load(out)
    assert {key: len(pids(tmp_path / "pids" / key)) for key in ("none-0", "ngram-3")} == {"none-0": 2, "ngram-3": 2}
    assert sorted(file.parent.name for file in (out / "servers").rglob("server.log")) == ["ngram-d3-b1", "none-d0-b1"]
    assert run.warned["none-d0-b1-r0"] == ()
    assert [text.partition(";")[0] for text in run.warned["ngram-d3-b1-r0"]] == [
        "the server tells nothing of its drafts, so that it speculates at all is not proven",
        "acceptance stats requested but not found",
    ]
    assert running(tmp_path / "pids") == []


def sweep_of(*requests: Request) -> Sweep:
    task = Task(name="t", title="T", version=1, licence="CC0-1.0", source="inline", where={})
    runner = Runner(name="u", title="T", backend="b", model="m", engine={"patience": 60.0})
    return Sweep(
        task=task, requests=requests, runner=runner, draftings=(NGRAM,), lengths=(3,), concurrencies=(1,), repeats=1,
        sampling=Sampling(max_tokens=8),
    )  # fmt: skip


@pytest.mark.parametrize("words", [4088, 4089])
def test_what_is_too_long_for_a_server_that_had_to_be_started_ends_the_run_before_its_first_block(
    tmp_path: Path, words: int
) -> None:
    requests = (talks("short")[0].request, Request(id="long", category="c", turns=("word " * words,)))
    wanted, out = sweep_of(*requests), tmp_path / "out"
    with Speaking() as server:

        def started(drafting: Drafting, d: int, concurrency: int, port: int) -> LaunchPlan:
            return program(url=server.url)  # a plan of a server to start, which is up

        with served(wanted.runner, started) as session, writing(out, wanted.config(), {}, resume=False) as writer:
            fits = session.fits(requests, 8)
            assert [fit.most_tokens for fit in fits] == [None, None]
            assert server.asked == []

            def run() -> None:
                sweeps.run(wanted, session, fits, writer, lambda cell, record: None)

            if words + 8 > 4096:
                with pytest.raises(
                    UserError, match=r"1 of 2 conversations could exceed .* 4096 .*: long \(4097\); .* to"
                ):
                    run()
                assert load(out).measured == ()
            else:
                run()
                assert len(load(out).measured[0].records) == 2


def test_a_server_that_is_not_there_yet_counts_nothing_and_is_no_error(tmp_path: Path) -> None:
    with served(sweep_of().runner, lambda *_: replace(program(), mode="attach")) as session:
        assert [fit.most_tokens for fit in session.fits([talks("r")[0].request], 8)] == [None]
        assert session.context is None
