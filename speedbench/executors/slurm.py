"""Jobs of a Slurm cluster, through submitit; its local executor (`executor.cluster=local`) is for trying that out."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import submitit
from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

from speedbench.attendant import attend
from speedbench.errors import UserError, first_line
from speedbench.settings import at_least
from speedbench.types import Ended, Settings

_DEFAULTS: Mapping[str, Any] = {
    "cluster": "slurm",
    "partition": "",
    "gpus": 0,
    "cpus": None,
    "minutes": 240,
    "setup": [],
    "sbatch": None,
}
"""`gpus` and `minutes` are of one unit. Without GPUs a unit has its node to itself, since two on one node would measure
each other. `cpus` None: as the cluster has it. `setup`: shell lines before the worker. `sbatch`: any other option of
sbatch, as {account: x, constraint: h200}. Slurm does not begin a lost job anew (`no-requeue`): that is handed out again
under another number, for it is another process with a clock of its own."""


_UNDER_WAY = re.compile(
    "CONFIGURING|COMPLETING|PENDING|REQUEUED?|REQUEUE_FED|REQUEUE_HOLD|RESIZING|RESV_DEL_HOLD|RUNNING|SIGNALING|"
    "SPECIAL_EXIT|STAGE_OUT|STOPPED|SUSPENDED"
)
"""States of squeue that a job may yet leave (squeue's manual, JOB STATE CODES)."""


@dataclass(frozen=True, slots=True)
class _Slurm:
    name: str = "slurm"
    title: str = "jobs of a Slurm cluster (submitit)"
    settings: Settings = field(default_factory=lambda: _DEFAULTS)

    @contextmanager
    def open(self, settings: Settings, folder: Path) -> Iterator[_Workers]:
        at_least("executor", settings, gpus=0, cpus=1, minutes=1)
        if settings["cluster"] == "slurm" and not _keeps_accounts():
            SlurmJob.watcher = _Queue(delay_s=60)
        workers = _Workers(_executor(settings, folder), settings["python"])
        try:
            yield workers
        finally:
            workers.close()


EXECUTOR = _Slurm()


class _Queue(SlurmInfoWatcher):
    """States of jobs from `squeue`, for clusters that keep no accounts: submitit asks `sacct` alone, which has nothing
    to say there, and would wait for ever for a job that was killed with its node."""

    def _make_command(self) -> list[str] | None:
        asked = ["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%N"]
        return asked if self._registered - self._finished else None

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        """What the queue does not know any more is over, and what it has no other word for still to come."""
        text = string if isinstance(string, str) else string.decode()
        told = dict(line.split("|")[:2] for line in text.splitlines() if "|" in line)
        states = {job: told.get(job, "forgotten") for job in self._registered}
        return {
            job: {"JobID": job, "State": "RUNNING" if _UNDER_WAY.fullmatch(state) else f"{state} in squeue"}
            for job, state in states.items()
        }


def _keeps_accounts() -> bool:
    if which("sacct") is None:
        return False
    return subprocess.run(["sacct", "--noheader"], capture_output=True, check=False).returncode == 0


def _executor(settings: Settings, folder: Path) -> submitit.AutoExecutor:
    try:
        executor = submitit.AutoExecutor(folder=folder / "submitit", cluster=settings["cluster"])
    except (RuntimeError, ValueError) as error:
        raise UserError(f"executor.cluster: {settings['cluster']}: {error}") from None
    more = settings["sbatch"] or {}
    if not isinstance(more, Mapping):
        raise UserError(f"executor.sbatch: should be keys and values, as {{account: x}} (got {more!r})")
    executor.update_parameters(
        name="speedbench", timeout_min=settings["minutes"], gpus_per_node=settings["gpus"],
        cpus_per_task=settings["cpus"], slurm_partition=settings["partition"] or None,
        slurm_setup=settings["setup"] or None, slurm_exclusive=None if settings["gpus"] else True,
        slurm_additional_parameters={"no-requeue": True, **more},
    )  # fmt: skip
    return executor


class _Workers:
    places: int | None = None

    def __init__(self, executor: submitit.AutoExecutor, python: str) -> None:
        self._executor, self._python = executor, python
        self._begun: list[submitit.Job[tuple[int, str]]] = []

    def start(self, name: str, words: Sequence[str], log: Path) -> _Job:
        try:
            job = self._executor.submit(attend, list(words), str(log), self._python)
        except submitit.core.utils.FailedJobError as error:
            raise UserError(f"sbatch refused the job: {first_line(error)}") from None
        self._begun.append(job)
        return _Job(job)

    def close(self) -> None:
        for job in self._begun:
            if not job.done():
                job.cancel()


@dataclass(frozen=True, slots=True)
class _Job:
    job: submitit.Job[tuple[int, str]]

    def ended(self) -> Ended | None:
        if not self.job.done():
            return None
        try:
            code, said = self.job.result()
        except submitit.core.utils.UncompletedJobError:
            return Ended(code=None, said=f"job {self.job.job_id} left no result: {self.job.state}")
        except Exception as error:  # submitit raises whatever ended the job: killed, out of time, requeued
            return Ended(code=None, said=first_line(error))
        return Ended(code=code, said=said)
