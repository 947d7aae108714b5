"""The words everybody uses: values, and what an engine is. Import them from here."""

# SPDX-License-Identifier: Apache-2.0

from speedbench.types.engine import Backend, Conversation, Engine, Fit, Load, Session
from speedbench.types.machine import Hardware, Mixture, ModelFacts
from speedbench.types.profile import Kernel, Peaks, Prefill, Priced, Profile, Timed
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

__all__ = [
    "Backend",
    "Cell",
    "Conversation",
    "Counted",
    "Counts",
    "Drafter",
    "Drafting",
    "Engine",
    "Finish",
    "Fit",
    "Hardware",
    "Kernel",
    "Load",
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
    "Task",
    "Timed",
]
