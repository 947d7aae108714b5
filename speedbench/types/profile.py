"""Times measured on one machine without any task, as `speedbench profile` writes them; and a time with its error."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speedbench.types.values import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of a pass of `batch` rows, each 1 + `draft_length` tokens wide on `context` tokens before it: medians
    where it was profiled, means where a run was read."""

    drafter: str | None
    """None: nothing was drafted, the draft tokens were given."""
    batch: int
    draft_length: int
    context: int
    verify: float
    draft: float | None
    """None where there was no drafter."""
    other: float
    spread: float
    """(p90 − p10) / p50: of a profile, of the ratio to the baseline in the same round; of a run, of its passes."""
    rounds: int
    again: float | None = None
    """The same measured once more in turns with it: its A/A partner's seconds of verify; None: not repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a study. `share` is what it reaches of this machine's own measured peak, 0…1, by `bound`."""

    study: str
    """gemm or attention."""
    batch: int
    draft_length: int
    rows: int
    """The M of the product: B·(1+D) of a linear layer, G·(1+D) of decode attention."""
    seconds: float
    flops: float
    bytes: float
    share: float
    bound: str
    """compute or memory: which of the two a perfect kernel would be bound by here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What this machine reached: a large product and a large copy. None: not tried."""

    flops: float | None
    bandwidth: float | None
    dtype: str
    product: int
    """Size of the square product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Seconds to run a prompt of so many tokens, one row."""

    tokens: int
    seconds: float
    drafter: str | None = None
    """Whose own reading of the prompt is in the seconds too; None: the target's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Times of a target and its drafters on one machine, without any task; `advise` reads it."""

    target: Mapping[str, Any]
    """The session's facts."""
    config: Mapping[str, Any]
    """The text model's config, for its shapes."""
    environment: Mapping[str, Any]
    timed: tuple[Timed, ...]
    kernels: tuple[Kernel, ...] = ()
    peaks: Peaks | None = None
    prefills: tuple[Prefill, ...] = ()
    noise: float | None = None
    """The A/A noise floor: the largest relative difference between the two medians of a repeated point."""
    drafters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By label, the drafter's facts: parameters, bytes, bytes_per_token."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was left out and why."""
    kernel_name: str | None = None
    """What ran the attention study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Seconds of something, and by how many they may be off on the mean; None: nobody measured how wrong this is."""

    seconds: float
    doubt: float | None
    origin: Origin
