"""Whether advice comes true: profile, replay, advise, then a fresh run of what was advised, speedup beside speedup.

    python benchmarks/advise.py                                        # B = 1 and 4, n-gram and EAGLE-3
    python benchmarks/advise.py --drafter ngram -D 2,4 -B 1 --limit 8 --minutes 0.5

The prediction rests on the profile's times and the replay's acceptance lengths alone; the run has its own baseline,
taken in turns. What is advised against is run as well. Every step is a command of the command line, printed before it
runs, and everything is kept under --out.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from speedbench.environment import snapshot
from speedbench.results import load

LIMIT = 0.10
"""What predicted and measured speedup may differ by."""


def speedbench(*words: str) -> Any:
    """The document that a command prints; its progress and complaints go to stderr."""
    print("speedbench", *words, file=sys.stderr, flush=True)
    call = [sys.executable, "-c", "from speedbench.cli import main; main()", *words, "--json"]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 5):
        raise SystemExit(f"that ended with status {done.returncode}")
    return json.loads(done.stdout)


def context(replayed: Path) -> int:
    """Tokens before a pass, on the whole: of the prompts and half the answers."""
    records = load(replayed).measured[0].records
    return round(fmean(each.prompt_tokens + each.size / 2 for each in records))


def shown(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.2f}x" if low is None or high is None else f"{value:.2f}x [{low:.2f}, {high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", default="smollm2-135m-bf16")
    parser.add_argument("--task", default="demo")
    parser.add_argument("--limit", default="16", help="conversations")
    parser.add_argument("--max-tokens", default="64")
    parser.add_argument("--drafter", default="ngram,eagle3")
    parser.add_argument("-D", dest="lengths", default="1,2,4")
    parser.add_argument("-B", dest="batches", default="1,4")
    parser.add_argument("--minutes", default="1.5", help="for the profile")
    parser.add_argument("--out", default="results/advised", help="a folder that is not there yet")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True)
    whose = ["--runner", options.runner, "--drafter", options.drafter, "-D", options.lengths]
    asked = ["--task", options.task, "--limit", options.limit, "--max-tokens", options.max_tokens]
    profile, replayed = str(out / "profile.json"), out / "replay"
    speedbench("replay", *asked, *whose, "--out", str(replayed))
    at = context(replayed)
    around = f"{max(16, at // 2)},{2 * at}"
    times = ["-B", options.batches, "--context", around, "--minutes", options.minutes, "--gemm", "0", "--out", profile]
    speedbench("profile", *whose, *times)
    words = ["--profile", profile, "--al", str(replayed), "-B", options.batches, "--context", str(at)]
    advised = speedbench("advise", *words)
    print(
        f"{snapshot()['cpu']['model']}; {options.runner}, {options.limit} conversations of {options.task}, context {at}"
    )
    print("\n| B | advice | best | predicted | measured | off |\n|---|---|---|---|---|---|")
    for each in advised["batches"]:
        best = each["best"]
        if best is None:
            print(f"| {each['batch']} | {each['verdict']}: {'; '.join(each['refused'][:1])} | - | - | - | - |")
            continue
        pair = ["--runner", options.runner, "--drafter", best["drafter"], "-D", str(best["draft_length"])]
        place = ["--concurrency", str(each["batch"]), "--out", str(out / f"b{each['batch']}")]
        cells = speedbench("run", *asked, *pair, *place)["cells"]
        ran = next(cell for cell in cells if cell["draft_length"])["metrics"]["speedup"]
        off = best["speedup"] / ran["value"] - 1
        print(
            f"| {each['batch']} | {each['verdict']} | {best['drafter']} D={best['draft_length']} "
            f"| {shown(best['speedup'], best['low'], best['high'])} | {shown(ran['value'], ran['low'], ran['high'])} "
            f"| {100 * off:+.1f} %{'' if abs(off) <= LIMIT else ' !'} |",
            flush=True,
        )
    print("", *(f"warning: {each}" for each in advised["warnings"]), sep="\n")


if __name__ == "__main__":
    main()
