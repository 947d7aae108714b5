"""A fleet of equal replicas under a mix of requests, as discrete events; the same seed gives the same numbers."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from speedbench.stats import percentile

Rate = Callable[[int, float], tuple[float, float]]
"""Seconds of a pass and tokens committed by each sequence in it, by the batch and its mean context."""

Filling = Callable[[float], float]
"""Seconds to prefill a prompt, by its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of request. Lengths are means; `spread` is their relative standard deviation (log-normal), 0: fixed."""

    prompt: float
    output: float
    share: float = 1.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Requests as they come: `rate` a second at random, or `closed` always under way (then the other is None)."""

    kinds: tuple[Kind, ...]
    rate: float | None
    closed: int | None
    seconds: float
    """How long they come."""
    seed: int
    max_batch: int
    """Sequences that a replica holds at once."""

    def up_to(self, batch: int) -> Mix:
        return replace(self, max_batch=min(self.max_batch, batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a fleet did; None where no request ended."""

    finished: int
    ttft_p95: float | None
    tpot_p95: float | None
    output_tps: float
    """Tokens a second of all replicas from the first arrival to the last token."""
    decode_tps: float | None
    """Tokens after each first / replica-seconds of decoding: without prefills and idling."""
    busy: float
    """Share of the replicas' time in which they worked."""
    batch: float
    """Mean sequences of a pass."""


@dataclass(slots=True)
class _Request:
    at: float
    prompt: float
    output: float
    first: float = math.inf
    last: float = math.inf
    then: _Request | None = field(default=None, kw_only=True)
    """The conversation's next turn, which comes when this one ends and is held in its row."""


class _Replica:
    """One engine: it prefills what waits, one prompt at a time, and between prefills runs passes over all it holds.

    Every sequence commits as many tokens a pass, so each ends when a running total passes its own mark, by half a pass
    at most: an acceptance length counts what is cut off the last step already, and to wait for whole passes would
    count it twice.
    """

    def __init__(self, rate: Rate, prefill: Filling, room: int) -> None:
        self._rate, self._prefill, self._room = rate, prefill, room
        self.waiting: deque[_Request] = deque()
        self._live: list[tuple[float, int, _Request]] = []
        self._total, self._count = 0.0, 0
        self._held = 0.0
        """Of all live sequences, the tokens of the prompt and the first, less the running total when they began."""
        self.now = 0.0
        self.worked, self.decoding, self.passes, self.rows, self.tokens = 0.0, 0.0, 0, 0, 0.0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self._live)

    def run(self, until: float) -> list[_Request]:
        """Work up to a time, or beyond it to the end of what is under way; the requests that ended."""
        done: list[_Request] = []
        while self.now < until and self.load:
            if self.waiting and len(self._live) < self._room:
                self._admit(self.waiting.popleft(), done)
            else:
                self._decode(until, done)
        if self.now < until and not math.isinf(until):
            self.now = until
        return done

    def _admit(self, request: _Request, done: list[_Request]) -> None:
        """Its prompt, which yields its first token; nobody else's pass runs meanwhile."""
        spent = self._prefill(request.prompt)
        self.now = max(self.now, request.at) + spent
        self.worked += spent
        request.first = self.now
        if request.output <= 1:
            self._end(request, done)
            return
        self._count += 1
        self._held += request.prompt + 1 - self._total
        heapq.heappush(self._live, (self._total + request.output - 1, self._count, request))

    def _decode(self, until: float, done: list[_Request]) -> None:
        """All passes until a sequence ends or, where there is room for an arrival, until then; at least one."""
        batch = len(self._live)
        context = self._held / batch + self._total
        _, tokens = self._rate(batch, context)
        passes = max(1, math.floor((self._live[0][0] - self._total) / tokens + 0.5))
        seconds, _ = self._rate(batch, context + passes * tokens / 2)  # in the middle of them
        if batch < self._room and not math.isinf(until):
            passes = min(passes, max(1, math.ceil((until - self.now) / seconds)))
        self.now += passes * seconds
        self.worked += passes * seconds
        self.decoding += passes * seconds
        self.passes += passes
        self.rows += passes * batch
        before = self._total
        self._total += passes * tokens
        self.tokens += (self._total - before) * batch
        while self._live and self._live[0][0] - self._total < tokens / 2 - 1e-9:
            mark, _, request = heapq.heappop(self._live)
            self._held -= request.prompt + 1 - (mark - (request.output - 1))
            self.tokens -= self._total - mark  # what the last pass would have committed beyond its length, or short
            self._end(request, done)

    def _end(self, request: _Request, done: list[_Request]) -> None:
        request.last = self.now
        done.append(request)
        if request.then:
            request.then.at = self.now
            self.waiting.appendleft(request.then)


def simulate(mix: Mix, rate: Rate, prefill: Filling, replicas: int) -> Served:
    """Each request goes to the less loaded of two replicas picked at random; all that came are served to their end.

    With `closed`, there is one replica and the next request comes as one ends.
    """
    dice = np.random.default_rng(mix.seed)
    fleet = [_Replica(rate, prefill, mix.max_batch) for _ in range(replicas)]
    done = _closed(mix, dice, fleet[0]) if mix.closed is not None else _open(mix, dice, fleet)
    return _served(done, fleet)


def serve(conversations: Sequence[Sequence[tuple[float, float]]], rate: Rate, prefill: Filling, rows: int) -> Served:
    """One replica of so many rows given conversations all at once, served in their order.

    Of each the prompt and the output of every turn, one after the other in the same row.
    """
    replica = _Replica(rate, prefill, rows)
    for turns in conversations:
        asked = [_Request(0.0, *turn) for turn in turns]
        for turn, after in pairwise(asked):
            turn.then = after
        replica.waiting.extend(asked[:1])
    return _served(replica.run(math.inf), [replica])


def _open(mix: Mix, dice: np.random.Generator, fleet: Sequence[_Replica]) -> list[_Request]:
    """The same requests at the same times, however large the fleet."""
    assert mix.rate is not None, "an open mix has a rate"
    count = int(dice.poisson(mix.rate * mix.seconds))
    times = np.sort(dice.uniform(0, mix.seconds, count)).tolist()
    lengths, picks = _lengths(mix, dice, count), dice.random((count, 2)).tolist()
    done: list[_Request] = []
    for at, (prompt, output), pair in zip(times, lengths, picks, strict=True):
        two = [fleet[int(pick * len(fleet))] for pick in pair]
        for replica in two:
            done += replica.run(at)
        min(two, key=lambda replica: replica.load).waiting.append(_Request(at, prompt, output))
    for replica in fleet:
        done += replica.run(math.inf)
    return done


def _closed(mix: Mix, dice: np.random.Generator, replica: _Replica) -> list[_Request]:
    done: list[_Request] = []
    spare = iter(_lengths(mix, dice, mix.closed or 0))
    coming = mix.closed or 0
    while True:
        for _ in range(coming):
            found = next(spare, None)
            if found is None:
                spare = iter(_lengths(mix, dice, 1000))
                found = next(spare)
            replica.waiting.append(_Request(replica.now, *found))
        ended = replica.run(math.nextafter(replica.now, math.inf))
        done += ended
        coming = len(ended) if replica.now < mix.seconds else 0
        if not (replica.load or coming):
            return done


def _lengths(mix: Mix, dice: np.random.Generator, count: int) -> list[list[float]]:
    """Prompt and output of so many requests: whole, at least 1, log-normal about the means of their kinds."""
    shares = np.asarray([kind.share for kind in mix.kinds])
    which = dice.choice(len(mix.kinds), count, p=shares / shares.sum())
    means = np.asarray([(kind.prompt, kind.output) for kind in mix.kinds])[which]
    width = np.sqrt(np.log1p(np.asarray([kind.spread for kind in mix.kinds])[which] ** 2))[:, None]
    drawn = means * np.exp(width * dice.standard_normal((count, 2)) - width**2 / 2)
    return [[float(x) for x in row] for row in np.maximum(1, np.round(drawn)).tolist()]


def _served(done: Sequence[_Request], fleet: Sequence[_Replica]) -> Served:
    end = max([replica.now for replica in fleet if not math.isinf(replica.now)], default=0.0)
    whole = sum(request.output for request in done)
    decoding, passes = sum(each.decoding for each in fleet), sum(each.passes for each in fleet)
    return Served(
        finished=len(done),
        ttft_p95=percentile([request.first - request.at for request in done], 95),
        tpot_p95=percentile([(r.last - r.first) / (r.output - 1) for r in done if r.output > 1], 95),
        output_tps=whole / end if end else 0.0,
        decode_tps=sum(each.tokens for each in fleet) / decoding if decoding else None,
        busy=sum(each.worked for each in fleet) / (len(fleet) * end) if end else 0.0,
        batch=sum(each.rows for each in fleet) / passes if passes else 0.0,
    )
