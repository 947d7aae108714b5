"""`python benchmarks/client.py`: how far the load client's times are from the server's own, by concurrency.

A scripted server in a process of its own emits events at a fixed pace and puts its own stamps (received, first, last)
into the last one; both processes read the same monotonic clock. The error of a request's TTFT is (the client's − the
server's) / the server's, and so for TPOT. In `apart` each stream keeps its own pace; in `together` all streams emit on
the same ticks, as an engine does whose passes end for the whole batch. The first wave is left out, since it shows how
fast the server takes requests in, not how well the client reads its clock. Wants two free cores.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from scripted_server import Paced, ScriptedServer

from speedbench.serving.client import Client
from speedbench.serving.exchange import Exchange
from speedbench.serving.load import by_chat, hold
from speedbench.types import Conversation, Request, Sampling

GOALS = {64: 0.01, 512: 0.03}
"""Largest median error, as a share, by concurrency."""
BREAKS = 0.03
"""Beyond this median error the client is no longer to be trusted."""


class Figures(NamedTuple):
    """One concurrency: errors as shares and lag in seconds, one per request; events a second; shares of a core."""

    concurrency: int
    ttft: np.ndarray
    tpot: np.ndarray
    lag: np.ndarray
    rate: float
    client: float
    server: float
    failed: int

    @property
    def worst(self) -> float:
        """The larger of the two medians of |error|."""
        return max(float(np.median(np.abs(errors))) for errors in (self.ttft, self.tpot))


def serve(arguments: argparse.Namespace) -> None:
    """The server process: prints its port, then serves until killed."""

    def script(body: Mapping[str, Any], number: int) -> Paced:
        events = random.Random(number).randint(arguments.events // 2, arguments.events * 3 // 2)
        return Paced(events, arguments.interval, first=arguments.first, together=body["together"])

    server = ScriptedServer(script)
    asyncio.run(server.serve(0, lambda port: print(port, flush=True)))


def errors(exchange: Exchange) -> tuple[float, float, float] | None:
    """(TTFT error, TPOT error, seconds by which the first event was seen late) of one request; None if it failed."""
    if exchange.failure is not None or exchange.first is None or exchange.last is None:
        return None
    told = exchange.payload["stamps"]
    waited, decoded = told["first"] - told["received"], told["last"] - told["first"]
    return (
        (exchange.first - exchange.sent) / waited - 1,
        (exchange.last - exchange.first) / decoded - 1,
        exchange.first - told["first"],
    )


def measure(url: str, server: psutil.Process, concurrency: int, waves: int, together: bool) -> Figures:
    """`waves` × concurrency conversations in a closed loop; the first `concurrency` of them are not counted."""
    count = max(concurrency * waves, concurrency + 8)
    work = [Conversation(request=Request(id=str(i), category="c", turns=("word " * 200,))) for i in range(count)]
    with Client(url, "m") as client:
        begun, mine, its = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
        call = by_chat(client, Sampling(), {"together": together})
        held = {
            each.conversation.request.id: each.exchange for each in hold(client, work, call, concurrency=concurrency)
        }
        took = time.perf_counter() - begun
        mine, its = (time.process_time() - mine) / took, (sum(server.cpu_times()[:2]) - its) / took
    found = [errors(held[str(i)]) for i in range(concurrency, count)]
    good = np.array([each for each in found if each is not None]).reshape(-1, 3)
    events = sum(len(exchange.deltas) for exchange in held.values())
    return Figures(concurrency, *good.T, events / took, mine, its, found.count(None))


def line(figures: Figures) -> str:
    """One row: errors in per cent and lag in ms, each as the median and the 90th percentile of its absolute value."""

    def both(values: np.ndarray, scale: float) -> str:
        return f"{np.median(np.abs(values)) * scale:7.2f} {np.quantile(np.abs(values), 0.9) * scale:7.2f}"

    goal = GOALS.get(figures.concurrency)
    verdict = "" if goal is None else f"  {'under' if figures.worst < goal else 'ABOVE'} {goal:.0%}"
    return (
        f"{figures.concurrency:5d} {both(figures.ttft, 100)}  {both(figures.tpot, 100)}  {both(figures.lag, 1000)} "
        f"{figures.rate:9.0f} {figures.client:7.0%} {figures.server:7.0%} {figures.failed:6d}{verdict}"
    )


def table(url: str, server: psutil.Process, arguments: argparse.Namespace, together: bool) -> None:
    print(f"\n{'together' if together else 'apart'}: an event every {arguments.interval * 1000:g} ms per stream")
    print("        TTFT error %     TPOT error %     seen late, ms    events/s    CPU of a core")
    print("   C  median     p90   median     p90   median     p90            client  server failed")
    trusted = 0
    for concurrency in arguments.concurrency:
        figures = measure(url, server, concurrency, arguments.waves, together)
        print(line(figures), flush=True)
        if figures.worst >= BREAKS or figures.failed:
            print(f"breaks at {concurrency}: a median error of {figures.worst:.1%}, {figures.failed} failed")
            return
        trusted = concurrency
    print(f"does not break up to {trusted}: every median error is under {BREAKS:.0%}")


def many_files() -> None:
    """A socket a stream: as many open files as this user may have."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64, 256, 512, 1024])
    parser.add_argument("--interval", type=float, default=0.05, help="seconds between events of a stream")
    parser.add_argument("--first", type=float, default=0.5, help="seconds to the first event")
    parser.add_argument("--events", type=int, default=30, help="mean events per answer")
    parser.add_argument("--waves", type=int, default=3)
    parser.add_argument("--only", choices=["apart", "together"])
    arguments = parser.parse_args()
    many_files()
    if arguments.serve:
        return serve(arguments)
    server = subprocess.Popen([sys.executable, __file__, "--serve", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before")
        for together in (False, True):
            if arguments.only in (None, "together" if together else "apart"):
                table(url, psutil.Process(server.pid), arguments, together)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
