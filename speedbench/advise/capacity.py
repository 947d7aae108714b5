"""How many devices a mix of requests needs, by mechanism: the fleet simulated on the same times and schedule."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speedbench import catalog
from speedbench.advise.advice import Advice
from speedbench.advise.curves import Curve
from speedbench.advise.fleet import Filling, Kind, Mix, Rate, Served, simulate
from speedbench.advise.rates import Rates, filling
from speedbench.advise.roofline import FREE
from speedbench.advise.schedule import Schedule
from speedbench.errors import UnknownName, UserError
from speedbench.types import Prefill

_KEYS = {
    "requests", "rate", "closed", "seconds", "seed", "max_batch", "ttft_p95", "tpot_p95", "prefill_seconds_per_token",
}  # fmt: skip
MOST_REQUESTS = 1_000_000
"""That are simulated."""
_OF_A_KIND = {"prompt", "output", "share", "spread"}
MOST = 4096
"""Replicas beyond which the search gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one mechanism needs. None: not even MOST replicas do, or it was not simulated."""

    mechanism: str
    replicas: int | None
    gpus: int | None
    busy: float | None
    batch: float | None
    """Mean sequences of a pass."""
    ttft_p95: float | None
    tpot_p95: float | None
    output_tps: float | None
    """Tokens a second of the whole fleet, prefills and idling in it."""
    decode_tps: float | None
    """Of one replica while it decodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A need for each mechanism, and what it rests on."""

    title: str
    needs: tuple[Need, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A mix with what it must meet."""

    mix: Mix
    ttft_p95: float
    tpot_p95: float | None
    prefill: float | None
    """Seconds per prompt token; None: as the times tell."""


def read(path: str) -> Wanted:
    """A mix out of a YAML; raises `UserError` naming the key that is wrong."""
    found = catalog.mapping(path)
    for key in found:
        if key not in _KEYS:
            raise UnknownName(f"key in {path}", key, _KEYS)
    kinds = found.get("requests")
    if not isinstance(kinds, list) or not kinds or not all(isinstance(each, dict) for each in kinds):
        raise UserError(f"{path}: requests: should be a list of kinds with prompt and output (got {kinds!r})")
    if ("rate" in found) == ("closed" in found):
        raise UserError(f"{path}: needs either rate, requests a second, or closed, sequences always under way")
    number = _Numbers(path)
    closed = number.of(found, "closed", whole=True) if "closed" in found else None
    mix = Mix(
        kinds=tuple(_kind(each, number) for each in kinds),
        rate=number.of(found, "rate") if "rate" in found else None, closed=None if closed is None else int(closed),
        seconds=number.of(found, "seconds", 600.0), seed=int(number.of(found, "seed", 0, whole=True, low=0)),
        max_batch=int(number.of(found, "max_batch", 256, whole=True)),
    )  # fmt: skip
    if (mix.rate or 0) * mix.seconds > MOST_REQUESTS:
        raise UserError(
            f"{path}: rate × seconds are {(mix.rate or 0) * mix.seconds:.3g} requests; at most {MOST_REQUESTS}"
        )
    return Wanted(
        mix=mix, ttft_p95=number.of(found, "ttft_p95", 5.0),
        tpot_p95=number.of(found, "tpot_p95") if "tpot_p95" in found else None,
        prefill=number.of(found, "prefill_seconds_per_token", low=0) if "prefill_seconds_per_token" in found else None,
    )  # fmt: skip


def _kind(found: Mapping[str, Any], number: _Numbers) -> Kind:
    for key in found:
        if key not in _OF_A_KIND:
            raise UnknownName(f"key of a request in {number.path}", key, _OF_A_KIND)
    return Kind(
        prompt=number.of(found, "prompt"), output=number.of(found, "output"), share=number.of(found, "share", 1.0),
        spread=number.of(found, "spread", 0.0, low=0, most=100),
    )  # fmt: skip


class _Numbers:
    """Numbers of a YAML, refused by key."""

    def __init__(self, path: str) -> None:
        self.path = path

    def of(
        self, found: Mapping[str, Any], key: str, default: float | None = None, *, whole: bool = False,
        low: float | None = None, most: float = 1e9,
    ) -> float:  # fmt: skip
        got = found.get(key, default)
        fine = isinstance(got, int) if whole else isinstance(got, (int, float))
        enough = fine and not isinstance(got, bool) and (got >= low if low is not None else got > 0)
        if not enough or got > most:
            what = "a whole number" if whole else "a number"
            raise UserError(f"{self.path}: {key}: should be {what} {'from' if low is not None else 'above'} "
                            f"{low or 0}, at most {most:g} (got {got!r})")  # fmt: skip
        return float(got)


def plan(wanted: Wanted, advice: Advice) -> Plan:
    """The plain target and each drafter's schedule; batches are those that the times cover."""
    ground, mix = advice.question.ground, wanted.mix
    batches = [each.batch for each in advice.choices if each.plain is not None]
    if not batches:
        raise UserError("--fleet: no batch has times to simulate with")
    read = advice.question.prefills
    if wanted.prefill is not None:
        read = (Prefill(tokens=1, seconds=wanted.prefill),)
    if not read:
        raise UserError("--fleet: what does a prompt's token take? Give prefill_seconds_per_token in the mix")
    top, contexts = max(batches), ground.contexts or _met(mix)
    curves = {curve.label: curve for curve in ground.curves}

    def need(name: str, curve: Curve | None, length: Callable[[int], int]) -> Need:
        rates = Rates(costs=ground.costs, curve=curve, length=length, batches=batches, contexts=contexts)
        return _need(wanted, mix.up_to(top), advice, name, rates, filling(read, name))

    needs = [need("none", None, lambda batch: 0)]
    needs += [need(each.drafter, curves[each.drafter], each.at) for each in advice.schedules]
    load = f"{mix.rate:g} requests/s" if mix.rate else f"{mix.closed} sequences always under way"
    return Plan(
        title=f"fleet: {load}, TTFT p95 within {wanted.ttft_p95:g} s", needs=tuple(needs),
        notes=tuple(_notes(mix, top, contexts, read, advice.schedules)),
    )  # fmt: skip


def _met(mix: Mix) -> tuple[int, int]:
    """The shortest and the longest context of a mean request of each kind."""
    ends = [kind.prompt for kind in mix.kinds] + [kind.prompt + kind.output for kind in mix.kinds]
    return max(1, round(min(ends))), max(2, round(max(ends)))


def _notes(
    mix: Mix, top: int, contexts: Sequence[int], read: Sequence[Prefill], schedules: Sequence[Schedule]
) -> Iterator[str]:
    low, high = _met(mix)
    if low < contexts[0] or high > contexts[-1]:
        yield (
            f"contexts go from {low} to {high} on the mean, times were measured at {contexts[0]} to {contexts[-1]}: "
            "beyond these, passes are priced as at the nearest"
        )
    if mix.max_batch > top:
        yield f"batches above {top}, the largest that times or memory allow, are not formed"
    told = {each.drafter for each in read}
    silent = [each.drafter for each in schedules if each.drafter not in told and each.mechanism not in FREE]
    if silent:
        yield f"what {', '.join(silent)} read of a prompt is not known, and taken to cost nothing"


def _need(wanted: Wanted, mix: Mix, advice: Advice, name: str, rate: Rate, prefill: Filling) -> Need:
    """The fewest replicas that keep within the demands: doubled until they do, then halved in between."""
    if mix.closed is not None:
        return _as_need(name, simulate(mix, rate, prefill, 1), 1, advice)

    def enough(replicas: int) -> bool:
        found = simulate(mix, rate, prefill, replicas)
        late = found.ttft_p95 is None or found.ttft_p95 > wanted.ttft_p95
        slow = wanted.tpot_p95 is not None and (found.tpot_p95 is None or found.tpot_p95 > wanted.tpot_p95)
        return not (late or slow)

    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            return Need(
                mechanism=name, replicas=None, gpus=None, busy=None, batch=None, ttft_p95=None, tpot_p95=None,
                output_tps=None, decode_tps=None,
            )  # fmt: skip
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return _as_need(name, simulate(mix, rate, prefill, high), high, advice)


def _as_need(name: str, found: Served, replicas: int, advice: Advice) -> Need:
    return Need(
        mechanism=name, replicas=replicas, gpus=replicas * advice.question.ground.on.gpus, busy=found.busy,
        batch=found.batch, ttft_p95=found.ttft_p95, tpot_p95=found.tpot_p95, output_tps=found.output_tps,
        decode_tps=found.decode_tps,
    )  # fmt: skip


def to_json(found: Plan) -> dict[str, Any]:
    return asdict(found)
