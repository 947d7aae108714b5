"""What other tools' result files hold: how each is told by its keys, and what its numbers are by their definition.

Read in specdec_bench of Model-Optimizer (its metrics/), aiperf 0.13 and vllm 0.33 (benchmarks/serve.py), and tried on
what they write (tests/fixtures/foreign).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

Document = Mapping[str, Any]


class _Key(NamedTuple):
    """A number that stands under a key: `a/b` is b within a; its value times `scale` is in our unit."""

    metric: str
    key: str
    scale: float
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of file."""

    tool: str
    has: Callable[[Document], bool]
    figures: Callable[[Document], Iterator[tuple[str, str, float | None, str]]]
    """(metric, key, value, definition) of every number that it may hold; None for one that it does not."""


# ---- numbers ---------------------------------------------------------------------------------------------------------


class Odd(Exception):
    """A value that is not what its key says."""


def _number(value: Any, key: str) -> float | None:
    """A finite number, also one spelt as text; None for null, and for what a tool writes where it has none."""
    if value is None:
        return None
    try:
        found = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except ValueError:
        found = None
    except OverflowError:
        found = math.inf
    if found is None:
        raise Odd(f"{key}: should be a number (got {str(value)[:40]!r})")
    return found if math.isfinite(found) else None


def _at(document: Document, key: str) -> Any:
    found: Any = document
    for part in key.split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _by_keys(keys: Sequence[_Key], document: Document) -> Iterator[tuple[str, str, float | None, str]]:
    for metric, key, scale, definition in keys:
        value = _number(_at(document, key), key)
        yield metric, key.replace("/", "."), None if value is None else value * scale, definition


def _counts(document: Document, key: str) -> dict[int, float]:
    """An object whose keys are whole numbers, as {length: how often}."""
    found = document.get(key)
    if not isinstance(found, Mapping):
        return {}
    if not all(str(name).isdecimal() and len(str(name)) < 6 for name in found):
        raise Odd(f"{key}: should have whole numbers for keys (got {', '.join(map(str, found))[:40]!r})")
    numbers = {int(name): _number(value, f"{key}.{name}") for name, value in found.items()}
    return {name: value for name, value in sorted(numbers.items()) if value is not None}


def _list(document: Document, key: str) -> list[float | None]:
    found = document.get(key)
    return [_number(each, key) for each in found] if isinstance(found, list) else []


_RANKS = {"mean": "unweighted mean", "p50": "median", "p90": "percentile 90", "p99": "percentile 99"}
_WAITS = {
    "ttft": "over requests of the time to the first chunk",
    "tpot": "over requests of (latency − ttft) / (tokens − 1)",
    "inter_event": "of the gaps between chunks, which may carry several tokens",
}


def _waits(form: str, median: str, *, mean: str = "mean", **names: str) -> list[_Key]:
    """Milliseconds of each rank of each wait, under a tool's names for both."""
    ranks = {"mean": mean, "p50": median}
    return [
        _Key(f"{ours}_{rank}", form.format(name=name, rank=ranks.get(rank, rank)), 1e-3, f"{said} {_WAITS[ours]}")
        for ours, name in names.items()
        for rank, said in _RANKS.items()
    ]


# ---- vllm bench serve ------------------------------------------------------------------------------------------------

_VLLM = (
    _Key("al_drafted", "spec_decode_acceptance_length", 1, "1 + Σ accepted / Σ drafts of the server's counters: steps "
         "with a draft only, and drafts accepted beyond a stop are in it"),
    _Key("acceptance_rate", "spec_decode_acceptance_rate", 0.01, "Σ accepted / Σ proposed of the server's counters"),
    _Key("output_tps", "output_throughput", 1, "Σ output tokens / seconds of the whole benchmark, its beginning, "
         "prefills and end included"),
    _Key("failed_requests", "failed", 1, "requests that failed"),
    *_waits("{rank}_{name}_ms", "median", ttft="ttft", tpot="tpot", inter_event="itl"),
)  # fmt: skip


def _vllm(document: Document) -> Iterator[tuple[str, str, float | None, str]]:
    yield from _by_keys(_VLLM, document)
    key = "spec_decode_per_position_acceptance_rates"
    for index, share in enumerate(_list(document, key), start=1):
        said = "drafts accepted at this position / drafts: P(at least i accepted) over steps with a draft"
        yield f"accepted_at_marginal[{index}]", f"{key}[{index - 1}]", share, said


# ---- AIPerf ----------------------------------------------------------------------------------------------------------

_AIPERF = (
    _Key("al_drafted", "spec_decode_token_weighted_acceptance_length/avg", 1, "1 + Σ accepted / Σ steps with a draft"),
    _Key("al_per_request", "spec_decode_acceptance_length/avg", 1, "mean over requests of 1 + accepted / steps, steps "
         "with a draft only"),
    _Key("acceptance_rate", "spec_decode_overall_draft_acceptance_rate/avg", 0.01, "Σ accepted / Σ proposed"),
    _Key("output_tps", "output_token_throughput/avg", 1, "Σ output tokens / seconds of the benchmark"),
    _Key("failed_requests", "error_request_count/avg", 1, "requests that failed"),
    *_waits("{name}/{rank}", "p50", mean="avg", ttft="time_to_first_token", tpot="inter_token_latency",
            inter_event="inter_chunk_latency"),
)  # fmt: skip


_UNITS = {1: ("ratio", "tokens/sec", "requests"), 1e-3: ("ms",), 0.01: ("%",)}
"""What the file must say of a number, by what makes ours of it."""


def _aiperf(document: Document) -> Iterator[tuple[str, str, float | None, str]]:
    if document.get("is_complete") is False or document.get("was_cancelled"):
        raise Odd(f"the run is partial ({document.get('incomplete_reason') or 'cancelled'}); numbers of it say little")
    for _, name, scale, _ in _AIPERF:
        unit, wanted = _at(document, f"{name.partition('/')[0]}/unit"), _UNITS[scale]
        if unit not in (None, *wanted):
            raise Odd(f"{name.partition('/')[0]}.unit: should be {wanted[0]} (got {str(unit)[:40]!r})")
    yield from _by_keys(_AIPERF, document)
    key = "pooled_spec_decode_acceptance_histogram"
    yield from _shares(_counts(document, key), key, "steps with a draft that accepted j drafts, all requests pooled")


def _shares(counts: Mapping[int, float], key: str, said: str) -> Iterator[tuple[str, str, float | None, str]]:
    total = sum(counts.values())
    for accepted, n in counts.items():
        yield f"accepted_histogram[{accepted}]", f"{key}.{accepted}", n / total if total else None, said


# ---- specdec_bench ---------------------------------------------------------------------------------------------------

_CHUNKS = (
    "a stream's chunks for steps, the prefill's too unless its version trims them, two merged are one, and vLLM's end "
    "token is left out"
)

_TIMING = (
    _Key("output_tps", "Output TPS", 1, "Σ tokens / (last arrival − first request), beginning and end included"),
    _Key("ttft_mean", "TTFT Time/mean", 1, "unweighted mean over turns"),
    _Key("ttft_p50", "TTFT Time/quantiles/0.5", 1, "median over turns"),
    _Key("decode_tps", "Request Generation Tokens Per Second/mean", 1, "unweighted mean over turns of (tokens − 1) / "
         "(last chunk − first chunk); ours is a ratio of sums"),
    _Key("inter_event_mean", "Request Generation Step Time/mean", 1, "mean gap between chunks, the wait for the first "
         "included"),
)  # fmt: skip


def _acceptance(document: Document) -> Iterator[tuple[str, str, float | None, str]]:
    by_request = document["Request_AL"]
    if not isinstance(by_request, Mapping):
        raise Odd(f"Request_AL: should be an object (got {str(by_request)[:40]!r})")
    by_turn = any(isinstance(each, Mapping) for each in by_request.values())
    mean = "mean over turns of their" if by_turn else "mean over conversations of their"
    yield "al_per_request", "Average_AL", _number(document["Average_AL"], "Average_AL"), f"{mean} mean chunk; {_CHUNKS}"
    categories = document.get("Category_AL")
    if isinstance(categories, Mapping) and categories:
        means = [_number(value, f"Category_AL.{name}") for name, value in categories.items()]
        known = [each for each in means if each is not None]
        if known:
            said = f"mean over categories of the mean over conversations; {_CHUNKS}"
            yield "al_macro", "Category_AL", sum(known) / len(known), said
    lengths = _counts(document, "Acceptance_Length_Histogram")
    chunks = sum(lengths.values())
    if chunks:
        pooled = sum(length * n for length, n in lengths.items()) / chunks
        yield "al", "Acceptance_Length_Histogram", pooled, f"Σ tokens / Σ chunks of its histogram; {_CHUNKS}"
    for ours, theirs in (("conditional", "Conditional"), ("marginal", "Joint")):
        key = f"{theirs}_Acceptance_Rate"
        shares = _counts(document, key)
        for length, share in shares.items():
            # a length that never occurred has no key, and the next is then conditional on another
            if length > 1 and (ours == "marginal" or length - 1 in shares):
                yield f"accepted_at_{ours}[{length - 1}]", f"{key}.{length}", share, f"by chunk length − 1; {_CHUNKS}"


def _profile(document: Document) -> Iterator[tuple[str, str, float | None, str]]:
    keys = (
        _Key("al", "mean_accept_length", 1, f"Σ tokens / Σ steps; of specdec_bench: {_CHUNKS}"),
        _Key("al_per_request", "mean_accept_length_per_request", 1, "mean over requests of each one's own"),
    )
    yield from _by_keys(keys, document)
    for ours in ("conditional", "marginal"):
        key = f"{ours}_accept_rates"
        for index, share in enumerate(_list(document, key), start=1):
            yield f"accepted_at_{ours}[{index}]", f"{key}[{index - 1}]", share, "by draft position, steps pooled"


# ---- the shapes ------------------------------------------------------------------------------------------------------


def _with(*keys: str) -> Callable[[Document], bool]:
    return lambda document: all(key in document for key in keys)


SHAPES = (
    Shape(tool="specdec_bench acceptance", has=_with("Request_AL", "Average_AL"), figures=_acceptance),
    Shape(tool="specdec_bench timing", has=_with("Output TPS", "E2E Request Time"), figures=partial(_by_keys, _TIMING)),
    Shape(tool="speculation profile", has=_with("conditional_accept_rates", "marginal_accept_rates"), figures=_profile),
    Shape(tool="AIPerf", has=lambda d: "aiperf_version" in d or isinstance(_at(d, "output_token_throughput/unit"), str),
          figures=_aiperf),
    Shape(tool="vllm bench serve", has=lambda d: "total_output_tokens_retokenized" not in d
          and _with("completed", "duration", "total_token_throughput", "request_throughput")(d), figures=_vllm),
)  # fmt: skip

OTHERS = {
    "SGLang's bench_serving": "total_output_tokens_retokenized",
    "GuideLLM": "benchmarks",
    "speedbench itself (see: speedbench show, speedbench compare)": "recommendation",
    "an older specdec_bench, whose AR are lengths": "Request_AR",
    "specdec_bench's aa_timing, whose tokens are another tokenizer's": "AA Output TPS",
}
"""Tools whose files are recognised, by a key of theirs, and not read."""
