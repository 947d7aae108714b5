"""D by batch size, as engines read it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from speedbench import plugins
from speedbench.errors import UserError
from speedbench.types import Drafting


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Batches from `low` to `high`, both included, and their D."""

    low: int
    high: int
    draft_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """D by batch for one drafter, up to the last batch looked at."""

    drafter: str
    mechanism: str
    ranges: tuple[Range, ...]

    @property
    def longest(self) -> int:
        return max(each.draft_length for each in self.ranges)

    @property
    def falls(self) -> bool:
        """Whether D never rises with the batch."""
        return all(a.draft_length >= b.draft_length for a, b in pairwise(self.ranges))

    def at(self, batch: float) -> int:
        """D at a batch; beyond the last, the last range's."""
        return next((each.draft_length for each in self.ranges if batch <= each.high), self.ranges[-1].draft_length)


def schedule(drafter: str, mechanism: str, best: Mapping[int, int]) -> Schedule:
    """From D by batch looked at. A batch between two of them gets the D of the larger, which is the more careful."""
    ranges: list[Range] = []
    low = 1
    for batch, d in sorted(best.items()):
        if ranges and ranges[-1].draft_length == d:
            ranges[-1] = Range(low=ranges[-1].low, high=batch, draft_length=d)
        else:
            ranges.append(Range(low=low, high=batch, draft_length=d))
        low = batch + 1
    return Schedule(drafter=drafter, mechanism=mechanism, ranges=tuple(ranges))


def vllm(found: Schedule) -> dict[str, Any]:
    """What goes into `--speculative-config`: [first batch, last batch, D] triples; 0 is no speculation."""
    triples = [[each.low, each.high, each.draft_length] for each in found.ranges]
    own = _own(found, "vllm").get("speculative_config", {"num_speculative_tokens": found.longest})
    return {**own, "num_speculative_tokens_per_batch_size": triples}


def trtllm(found: Schedule) -> dict[str, Any]:
    """`draft_len_schedule` under both meanings that TensorRT-LLM gave it, which must not be mixed up.

    Up to 1.2 a key is the first batch of its D, and 1 must be among them; since, it is the last batch, and beyond the
    last key speculation is off (`tensorrt_llm/llmapi/llm_args.py` of either). Both ask that the first D is
    `max_draft_len`, so a D that rises with the batch cannot be said: then the value is None.
    """
    if not found.falls:
        return {"max_draft_len": found.longest, "draft_len_schedule": None}
    return {
        "max_draft_len": found.longest,
        "draft_len_schedule": {each.high: each.draft_length for each in found.ranges if each.draft_length},
        "draft_len_schedule_by_first_batch": {each.low: each.draft_length for each in found.ranges},
    }


def vllm_arguments(found: Schedule) -> Sequence[str]:
    """What the schedule rests on beyond itself."""
    return (
        f"vLLM: with --max-num-seqs {found.ranges[-1].high} at most, for nothing is said of larger batches; not with "
        "data parallelism; checked by its authors with EAGLE, EAGLE-3 and DFlash",
        "TensorRT-LLM: draft_len_schedule's keys are last batches in current versions and first batches up to 1.2; "
        "look at llm_args.py of yours, or D is wrong at every batch",
    )


def _own(found: Schedule, backend: str) -> dict[str, Any]:
    """The engine's settings for this drafter; without what needs a checkpoint that nobody named."""
    drafting = Drafting(label=found.drafter, drafter=found.mechanism)
    try:
        return plugins.translated(backend, drafting, max(1, found.longest))
    except UserError:
        return {}
