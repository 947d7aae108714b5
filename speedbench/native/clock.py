"""Seconds between marks: perf_counter on CPU, events on CUDA, where kernels run behind the host."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from typing import Any

import torch


class Clock:
    """Marks of one device; `between` is good only after `settle`."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def settle(self) -> None:
        """Wait until the device has passed every mark."""
        if self._cuda:
            torch.cuda.synchronize()

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1e3 if self._cuda else float(second - first)
