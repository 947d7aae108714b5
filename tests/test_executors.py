"""Units on workers: the files of a run without them, whoever is killed, and every answer once."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import Bench

from speedbench.attendant import attend
from speedbench.backends.scripted import BACKEND
from speedbench.errors import UserError
from speedbench.locks import held
from speedbench.results import load, writing
from speedbench.sweep import Notify, Sweep, dispatch, orders, worker
from speedbench.types import Cell, Drafting, Ended, Fit, Record, Request, Runner, Sampling, Sized, Task

WORDS = ("--concurrency", "1,2", "--repeats", "2")
"""8 cells of 5 turns, 40 in all: 2 concurrencies, which are the units, × 2 repeats × (baseline, ngram)."""
LOCAL, SUBMITIT = ("--executor", "local"), ("--executor", "slurm", "--set", "executor.cluster=local")


def files(out: Path) -> dict[str, bytes]:
    """All of a run, as it must be however it was made: without run.json's processes and what workers said."""
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    document = json.loads(found.pop("run.json"))
    del document["processes"]
    return {
        **{name: text for name, text in found.items() if not name.startswith("workers/")},
        "run.json": json.dumps(document).encode(),
    }


def once(out: Path) -> Counter[int]:
    """Asserts that every planned answer is there once; how many came from each process."""
    run = load(out)
    assert run.document["finished"]
    assert run.missing == []
    for measured in run.measured:
        assert set(Counter((record.request, record.turn) for record in measured.records).values()) == {1}
    assert {len(measured.records) for measured in run.measured} == {5}
    assert len(run.measured) == 8
    return Counter(record.process for measured in run.measured for record in measured.records)


# ---- on this machine -----------------------------------------------------------------------------------------------


def test_a_run_on_local_workers_is_byte_for_byte_the_run_without(bench: Bench) -> None:
    direct = bench.run(*WORDS, out="direct/out")
    there = bench.run(*WORDS, *LOCAL, out="there/out")
    assert (direct.code, there.code) == (0, 0)
    assert files(bench.folder / "there/out") == files(bench.folder / "direct/out")
    assert there.out == direct.out.replace("direct/out", "there/out")
    assert "b1: 0/20 turns, 0 s: none-d0-b1-r0\n" in there.err
    assert "b2: 15/20 turns, " in there.err
    assert sorted(path.name for path in (bench.folder / "there/out/workers").iterdir()) == [
        "b1.jsonl", "b1.log", "b2.jsonl", "b2.log",
    ]  # fmt: skip
    assert not list((bench.folder / "there").glob(".speedbench-*"))
    process = json.loads((bench.folder / "there/out/run.json").read_text("utf-8"))["processes"]
    assert [each["executor"]["name"] for each in process] == ["local"]


def test_a_dry_run_shows_the_units_and_leaves_nothing(bench: Bench) -> None:
    done = bench.run(*WORDS, *LOCAL, "--dry-run", "--json")
    assert done.code == 0
    assert done.document["preflight"]["units"] == {"b1": 4, "b2": 4}
    assert "units, each measured on one worker with its own baseline: b1 (4 cells), b2 (4 cells)" in done.err
    assert sorted(path.name for path in bench.folder.iterdir()) == ["s.yaml", "t.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--executor", "locl"), "no executor named 'locl'. Did you mean 'local'? Have: local, ray, slurm"),
        ((*LOCAL, "--set", "executor.retry=1"), "no setting of executor named 'retry'. Did you mean 'retries'?"),
        ((*LOCAL, "--set", "executor.retries=-1"), "executor.retries: at least 0 (got -1)"),
        (("--set", "executor.gpus=1"), "--set executor.gpus: there is no executor; name one with --executor"),
        ((*LOCAL, "--set", "executor.python=/no/python"), "executor.python: '/no/python' does not start: No such file"),
    ],
)
def test_a_wrong_executor_is_one_line_and_nothing_is_written(bench: Bench, words: Sequence[str], said: str) -> None:
    done = bench.run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err
    assert sorted(path.name for path in bench.folder.iterdir()) == ["s.yaml", "t.jsonl"]


def test_what_is_wrong_on_a_worker_is_said_here(bench: Bench) -> None:
    bench.runner(context=12)  # 3 words and 11 tokens are 14
    done = bench.run(*LOCAL)
    assert done.code == 2
    assert "error: 4 of 4 conversations could exceed the target's context of 12 tokens" in done.err.splitlines()[-1]
    assert not bench.out.exists()


# ---- units in this process, ended as told --------------------------------------------------------------------------

NGRAM = Drafting(label="ngram", drafter="ngram")


def asked() -> Sweep:
    """4 turns a cell; 3 units of 2 cells."""
    turns = {"a": 1, "b": 2, "c": 1}
    return Sweep(
        task=Task(name="t", title="T", version=1, licence="CC0-1.0", source="inline", where={}),
        requests=tuple(Request(id=name, category="c", turns=("w",) * n) for name, n in turns.items()),
        runner=Runner(name="u", title="T", backend="scripted", model="none"), draftings=(NGRAM,), lengths=(3,),
        concurrencies=(1, 2, 3), repeats=1, sampling=Sampling(max_tokens=5),
    )  # fmt: skip


class Killed(Exception):
    """Stands for kill -9."""


@dataclass
class Fated:
    """Workers in this process: by unit and try, how many turns until a kill; -1: the user's mistake; None: none."""

    fates: dict[str, list[int | None]]
    places: int | None = None
    ran: list[str] = field(default_factory=list)

    def start(self, name: str, words: Sequence[str], log: Path) -> Fate:
        self.ran.append(name)
        fates = self.fates.get(name, [])
        fate = fates.pop(0) if fates else None
        if fate == -1:
            return Fate(Ended(code=2, said="error: no such model"))
        try:
            worker.do(Path(words[1]), words[2], until(fate))
        except Killed:
            for file in log.parent.parent.glob(f"*-{name}-r0/records.jsonl"):
                file.write_bytes(file.read_bytes() + b'{"torn')
            return Fate(Ended(code=None, said="killed"))
        return Fate(Ended(code=0))


@dataclass
class Fate:
    end: Ended

    def ended(self) -> Ended:
        return self.end


def until(turns: int | None) -> worker.Progress:
    """Progress that dies with so many turns written."""

    @contextmanager
    def progress(_: int, __: int) -> Iterator[Notify]:
        written = 0

        def notify(cell: Cell, record: Record | None) -> None:
            nonlocal written
            written += record is not None
            if turns is not None and written >= turns:
                raise Killed

        yield notify

    return progress


def on(fates: Fated, out: Path, said: list[str], *, retries: int = 2, resume: bool = False) -> bool:
    """A run on such workers, as the command line has it."""
    pool = dispatch.Pool(
        workers=fates, desk=out.parent, retries=retries, tell=lambda unit, line: said.append(f"{unit}: {line}")
    )
    found = dispatch.ask(pool, asked(), skip_long=False)
    sweep = replace(asked(), requests=found.preflight.requests)
    config = {**sweep.config(), "target": found.target}
    with writing(out, config, found.environment, resume=resume) as writer:
        whole = dispatch.run(pool, sweep, found.preflight.fits, writer)
        if whole:
            writer.finish()
    return whole


fates = st.dictionaries(
    st.sampled_from(["b1", "b2", "b3"]), st.lists(st.one_of(st.none(), st.integers(-1, 8)), max_size=4)
)


@given(fates=fates)
@settings(max_examples=15, deadline=None)
def test_whatever_is_killed_every_answer_is_there_once_after_a_resume(fates: dict[str, list[int | None]]) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(dispatch, "POLL", 0)
        out, said = Path(folder) / "out", list[str]()
        whole = False
        with suppress(UserError):  # a mistake of the user in every unit
            whole = on(Fated({name: list(told) for name, told in fates.items()}), out, said)
        for measured in load(out).measured:
            assert set(Counter((r.request, r.turn) for r in measured.records).values()) <= {1}
        if not whole:
            assert on(Fated({}), out, said, resume=True)
        run = load(out)
        assert run.document["finished"]
        assert [len(measured.records) for measured in run.measured] == [4] * 6
        for measured in run.measured:
            assert set(Counter((r.request, r.turn) for r in measured.records).values()) == {1}


def test_a_unit_is_tried_again_so_often_and_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    fated, said = Fated({"b2": [1, 1, 1, 1]}), list[str]()
    assert not on(fated, tmp_path / "out", said)
    assert Counter(fated.ran) == {"preflight": 1, "b1": 1, "b2": 3, "b3": 1}  # b2: once, and twice again
    assert said == [
        "b2: lost (killed); handed out again, 1 of 2",
        "b2: lost (killed); handed out again, 2 of 2",
        "b2: given up: killed",
    ]
    run = load(tmp_path / "out")
    assert Counter(record.process for each in run.measured for record in each.records) == {0: 17, 1: 1, 2: 1}
    assert len(run.document["processes"]) == 3
    assert not run.document["finished"]


def test_a_mistake_of_the_user_is_not_tried_again_and_ends_nothing_else(tmp_path: Path) -> None:
    fated, said = Fated({"b2": [-1]}), list[str]()
    assert not on(fated, tmp_path / "out", said)
    assert Counter(fated.ran) == {"preflight": 1, "b1": 1, "b2": 1, "b3": 1}
    assert said == ["b2: given up: no such model"]


def test_a_mistake_in_all_units_is_the_run_s_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^no such model$"):
        on(Fated({name: [-1] for name in ("b1", "b2", "b3")}), tmp_path / "out", [])


def test_a_unit_holds_a_baseline_for_each_of_its_cells_and_no_cell_is_in_two() -> None:
    sweep = replace(asked(), repeats=2)
    cells = [
        [cell for cell, _ in replace(sweep, concurrencies=(concurrency,)).cells()]
        for concurrency in dispatch.units(sweep).values()
    ]
    assert [cell for unit in cells for cell in unit] == [cell for cell, _ in sweep.cells()]
    for unit in cells:
        there = {(cell.concurrency, cell.repeat) for cell in unit if cell.is_baseline}
        assert {(cell.concurrency, cell.repeat) for cell in unit} == there


def test_what_is_handed_out_comes_back_as_it_was(tmp_path: Path) -> None:
    sized = Sized(tokens=9, before="b", pieces=("p", "\ud800"), after="a", depth=0.5)  # half a pair is a text too
    requests = (Request(id="s", category="c", turns=(), columns={"tier": "low"}, sized=sized), *asked().requests)
    runner = replace(asked().runner, engine={"accepted": [1, 2], "context": None}, drafters={"ngram": {"max_n": 3}})
    fits = (Fit(request="s", prompt_tokens=None, most_tokens=None, prompt_sha="x"),)
    work = orders.Work(sweep=replace(asked(), requests=requests, runner=runner), fits=fits)
    orders.write(tmp_path / "work.json", work)
    _, order, token = orders.hand_out(tmp_path / "o.order", tmp_path / "work.json")
    assert orders.work(orders.order(Path(order), token)) == work


# ---- what a worker refuses -----------------------------------------------------------------------------------------


def handed(tmp_path: Path, **target: Any) -> tuple[Path, list[str]]:
    """A run that has begun, and an order for its first unit."""
    out, sweep = tmp_path / "out", asked()
    with BACKEND.open(sweep.runner) as session:
        facts = {**session.facts, **target}
        fits = session.fits(sweep.requests, 5)
    with writing(out, {**sweep.config(), "target": facts}, {}, resume=False):
        pass
    orders.write(tmp_path / "work.json", orders.Work(sweep=sweep, fits=fits))
    unit = orders.Unit(run=str(out), concurrency=1, process=0)
    (out / "workers").mkdir()
    return out, orders.hand_out(out / "workers" / "b1.order", tmp_path / "work.json", unit=unit)


def refused(out: Path, words: Sequence[str]) -> str:
    with pytest.raises(UserError) as caught:
        worker.do(Path(words[1]), words[2], until(None))
    assert not list(out.glob("*/records.jsonl"))
    return str(caught.value)


def test_a_worker_whose_order_went_to_another_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, words = handed(tmp_path)
    assert "is no order for this worker" in refused(out, [*words[:2], "0" * 16])
    monkeypatch.setattr(orders, "VISIBLE", 0)
    with writing(out, load(out).document["config"], {}, resume=True):  # which calls back whatever was handed out
        assert "the run was stopped, or gave it to another" in refused(out, words)


def test_a_worker_that_does_not_share_the_folder_says_so_and_an_answer_not_seen_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = attend(["work"], str(tmp_path / "elsewhere" / "b1.log"))
    assert (code, said) == (
        2, f"a worker does not see '{tmp_path / 'elsewhere'}': --out must be in a folder that all machines share"
    )  # fmt: skip
    monkeypatch.setattr(orders, "VISIBLE", 0)
    with pytest.raises(UserError, match="is not seen here: --out must be on a shared disk"):
        orders.answered(tmp_path / "preflight.answer", "token")


def test_a_run_whose_lock_is_not_seen_to_be_held_is_refused(tmp_path: Path) -> None:
    out, words = handed(tmp_path)
    assert "its file system carries no locks between machines" in refused(out, words)


def test_a_worker_with_another_target_measures_nothing(tmp_path: Path) -> None:
    out, words = handed(tmp_path, device="cuda")
    with held(out / ".lock", "busy"):
        assert 'the target on this worker is not the run\'s: device is "cuda" there, absent here' in refused(out, words)


def test_a_worker_on_other_hardware_says_so_in_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"cpu": {"model": "Other"}, "gpus": None}
    monkeypatch.setattr(worker, "snapshot", lambda: there)
    said: list[str] = []
    fated = Fated({})
    start = fated.start

    def elsewhere(name: str, words: Sequence[str], log: Path) -> Fate:
        if name == "b2":
            monkeypatch.setattr(worker, "snapshot", lambda: {"cpu": {"model": "Slow"}, "gpus": None})
        return start(name, words, log)

    fated.start = elsewhere  # type: ignore[method-assign]
    assert on(fated, tmp_path / "out", said)
    warned = load(tmp_path / "out").warned
    assert warned["none-d0-b1-r0"] == ()
    assert warned["none-d0-b2-r0"] == (
        'measured on another machine than run.json describes: cpu is {"model":"Slow"}, {"model":"Other"} there',
    )


def test_probes_of_two_machines_are_each_compared_with_their_own(tmp_path: Path) -> None:
    out, cells = tmp_path / "out", [cell for cell, _ in asked().cells()]
    with writing(out, asked().config(), {}, resume=False) as writer:
        for cell, seconds in ((cells[0], 1.0), (cells[0], 1.1), (cells[1], 0.9), (cells[2], 2.0), (cells[3], 2.0)):
            writer.add_noise(cell, [seconds])
    assert load(out).noise == (1.0, 1.1, 0.9, 2.0, 2.0)
    (out / "workers").mkdir()
    assert load(out).noise == (1.0, 1.1, 0.9, 1.0, 1.0)  # over the medians 1.0 of b1 and 2.0 of b2


# ---- killed for real -----------------------------------------------------------------------------------------------

posix = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")


def begun(bench: Bench, *words: str) -> subprocess.Popen[str]:
    """The run as a process of its own."""
    start = [sys.executable, "-c", "from speedbench.cli import main; main()", "run"]
    start += ["--task", f"{bench.folder}/t.jsonl", "--runner", f"{bench.folder}/s.yaml", "--drafter", "ngram"]
    start += ["-D", "3", "--max-tokens", "11", "--out", str(bench.out), *WORDS, *words]
    return subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def waited(ready: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 300) -> Any:
    until = time.monotonic() + seconds
    while not (found := ready()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def at_work(out: Path, unit: str) -> psutil.Process | None:
    """The worker that measures a unit and has written an answer or more, in the middle of a cell."""
    if not any(path.read_bytes().count(b"\n") for path in out.glob(f"none-d0-{unit}-r0/records.jsonl")):
        return None
    order = str(out / "workers" / f"{unit}.order")
    for process in psutil.process_iter(["cmdline"]):
        if order in (process.info["cmdline"] or ()):
            return process
    return None


def stopped(bench: Bench, unit: str, process: subprocess.Popen[str]) -> psutil.Process:
    """The worker that measures a unit, in the middle of a cell, where it stays until it is told to go on."""
    found: psutil.Process = waited(lambda: at_work(bench.out, unit), process)
    found.suspend()
    return found


def parent_killed(child: psutil.Process) -> None:
    """`kill -9` of whoever started a worker's command: the command must not outlive it."""
    parent = child.parent()
    assert parent is not None
    parent.kill()
    child.wait(30)


@posix
def test_a_worker_that_was_killed_in_a_cell_goes_on_in_another_process(bench: Bench) -> None:
    bench.runner(real_seconds=0.02)
    process = begun(bench, *LOCAL)
    waited(lambda: at_work(bench.out, "b1"), process).kill()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "b1: lost (" in err
    assert "); handed out again, 1 of 2\n" in err
    by_process = once(bench.out)
    assert by_process[0] > 20 > by_process[1] > 0  # all of b2 and the beginning of b1; the rest
    assert bench("validate", str(bench.out)).code == 0


@posix
def test_slurm_jobs_that_are_killed_are_handed_out_again(bench: Bench) -> None:
    pytest.importorskip("submitit")
    bench.runner(real_seconds=0.02)
    process = begun(bench, *SUBMITIT)
    parent_killed(waited(lambda: at_work(bench.out, "b1"), process))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "b1: lost (" in err
    assert set(once(bench.out)) == {0, 1}


@posix
def test_while_jobs_outlive_their_driver_a_resume_is_refused_and_then_goes_on_elsewhere(bench: Bench) -> None:
    pytest.importorskip("submitit")
    bench.runner(real_seconds=0.02)
    process = begun(bench, *SUBMITIT)
    jobs = [stopped(bench, unit, process) for unit in ("b1", "b2")]
    process.kill()
    process.wait()
    done = bench.run(*WORDS, *LOCAL, "--resume")
    assert done.code == 2
    assert f"error: a worker is still writing '{bench.out}' (b" in done.err
    for job in jobs:
        job.kill()
        job.wait(30)
    there = {file: file.read_bytes() for file in bench.out.glob("*/records.jsonl")}
    assert bench.run(*WORDS, *LOCAL, "--resume").code == 0
    assert set(once(bench.out)) == {0, 1}
    for file, before in there.items():
        assert file.read_bytes().startswith(before[: before.rfind(b"\n") + 1])


def test_a_job_says_to_slurm_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    from speedbench.executors import slurm

    (tmp_path / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def script(**more: Any) -> str:
        known = dispatch.settings("slurm", {"partition": "h200", "minutes": 30, **more})
        return str(slurm._executor(known, tmp_path)._executor._make_submission_file_text("COMMAND", "id"))

    plain = script()
    assert "#SBATCH --partition=h200\n" in plain
    assert "#SBATCH --time=30\n" in plain
    assert "#SBATCH --no-requeue\n" in plain  # or two processes' times would pass for one's
    assert "#SBATCH --exclusive\n" in plain  # two units on one node would measure each other
    card = script(gpus=1, cpus=8, sbatch={"account": "x"}, setup=["module load cuda"])
    assert "#SBATCH --gpus-per-node=1\n" in card
    assert "#SBATCH --cpus-per-task=8\n" in card
    assert "#SBATCH --account=x\n" in card
    assert "module load cuda\n" in card
    assert "--exclusive" not in card


@posix
def test_where_slurm_keeps_no_accounts_the_queue_tells_which_jobs_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    from speedbench.executors import slurm

    queue = {"7": "RUNNING", "8": "CONFIGURING", "9": "NODE_FAIL", "10": "PREEMPTED", "11": "REQUEUED"}
    lines = "\n".join(f"{job}|{state}|n1" for job, state in queue.items())
    for name, does in (("srun", "exit 0"), ("sacct", "exit 1"), ("squeue", f"echo '{lines}'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(slurm.SlurmJob, "watcher", None)
    with slurm.EXECUTOR.open(dispatch.settings("slurm", {}), tmp_path):
        watcher = slurm.SlurmJob.watcher
        for job in (*queue, "12"):  # of which the queue has forgotten the last
            watcher.register_job(job)
        assert [job for job in (*queue, "12") if watcher.is_done(job)] == ["9", "10", "12"]
        assert watcher.get_state("9") == "NODE_FAIL in squeue"
    monkeypatch.setattr(slurm.SlurmJob, "watcher", "sacct's")
    (tmp_path / "sacct").write_text("#!/bin/sh\nexit 0\n")
    with slurm.EXECUTOR.open(dispatch.settings("slurm", {}), tmp_path):
        assert slurm.SlurmJob.watcher == "sacct's"


# ---- a cluster -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        made.add_node(**small)
        yield made
    finally:
        made.shutdown()


@pytest.mark.slow
def test_a_ray_cluster_without_the_gpus_is_refused(bench: Bench, cluster: Any) -> None:
    on_ray = ("--executor", "ray", "--set", f"executor.address='{cluster.address}'")
    done = bench.run(*on_ray, "--set", "executor.gpus=1")
    assert done.code == 2
    assert "no node of the Ray cluster has GPU 1, CPU 1; the most that one has: GPU 0, CPU 1" in done.err


@posix
@pytest.mark.slow
def test_units_on_two_nodes_survive_a_worker_and_a_node(bench: Bench, cluster: Any) -> None:
    bench.runner(real_seconds=0.05)
    process = begun(bench, "--executor", "ray", "--set", f"executor.address='{cluster.address}'")
    first, second = (stopped(bench, unit, process) for unit in ("b1", "b2"))  # a node each: a unit has all CPUs of one
    first.resume()
    parent_killed(first)
    again = stopped(bench, "b1", process)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    for each in (second, again):
        each.resume()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err.count("handed out again") == 2
    once(bench.out)
    compared = [file.read_bytes() for file in bench.out.glob("*/mismatches.jsonl")]
    assert compared == [b""] * 8
