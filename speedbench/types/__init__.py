"""The words everybody uses: values, and what an engine is. Import them from here."""

# SPDX-License-Identifier: Apache-2.0

from speedbench.types.engine import Backend, Conversation, Engine, Fit, Load, Session
from speedbench.types.machine import Hardware, Mixture, ModelFacts
from speedbench.types.profile import Kernel, Peaks, Prefill, Priced, Profile, Timed
from speedbench.types.replay import Answer, Chances, Labeller, Matches, Table, Tables
from speedbench.types.tasks import Request, Sized, Task
from speedbench.types.values import (
    Cell,
    Counted,
    Counts,
    Drafter,
    Drafting,
    Finish,
    Measured,
    Measurement,
    Metric,
    Mismatch,
    Origin,
    Pass,
    Record,
    Result,
    Runner,
    Sampling,
    Settings,
    Step,
)
from speedbench.types.work import Ended, Executor, Job, Workers

__all__ = [
    "Answer",
    "Backend",
    "Cell",
    "Chances",
    "Conversation",
    "Counted",
    "Counts",
    "Drafter",
    "Drafting",
    "Ended",
    "Engine",
    "Executor",
    "Finish",
    "Fit",
    "Hardware",
    "Job",
    "Kernel",
    "Labeller",
    "Load",
    "Matches",
    "Measured",
    "Measurement",
    "Metric",
    "Mismatch",
    "Mixture",
    "ModelFacts",
    "Origin",
    "Pass",
    "Peaks",
    "Prefill",
    "Priced",
    "Profile",
    "Record",
    "Request",
    "Result",
    "Runner",
    "Sampling",
    "Session",
    "Settings",
    "Sized",
    "Step",
    "Table",
    "Tables",
    "Task",
    "Timed",
    "Workers",
]
