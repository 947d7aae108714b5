"""One prepared check of the native engine on a CUDA machine that has only torch and transformers: under 8 minutes.

    python benchmarks/gpu_check.py --out gpu.json          # on the GPU, from a checkout
    python benchmarks/gpu_check.py --tiny --out cpu.json   # its logic on a CPU, in seconds; the times mean nothing

Each section writes what it found into --out before the next begins, so that a time-out loses one section only. What
does not fit into memory or time is noted, never guessed.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import blocks  # noqa: E402 - the tests' random heads, and the plain decoder that they are held against
import scripted_target as st  # noqa: E402
import serial_heads  # noqa: E402
import tiny  # noqa: E402
import torch  # noqa: E402

from speedbench.native import dspark  # noqa: E402
from speedbench.native.dflash import DFlash  # noqa: E402
from speedbench.native.graphs import Graphed  # noqa: E402
from speedbench.native.lean import LeanTarget  # noqa: E402
from speedbench.native.ngram import NGram  # noqa: E402
from speedbench.native.oracle import Oracle  # noqa: E402
from speedbench.native.profile import course, passes, studies  # noqa: E402
from speedbench.native.profile.forced import ACCEPTED  # noqa: E402
from speedbench.native.proposer import Plan, Proposer  # noqa: E402
from speedbench.native.replay.forced import Stage  # noqa: E402
from speedbench.native.replay.routes import labeller  # noqa: E402
from speedbench.native.suffix import Suffix  # noqa: E402
from speedbench.types import Peaks, Sampling, Timed  # noqa: E402
from speedbench.walk import record  # noqa: E402

LLAMA_8B = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 40960,
}  # fmt: skip
SMALL = {**LLAMA_8B, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16}
"""Shapes of a small model that drafts for it."""
LENGTHS = (0, 1, 3, 7, 15)


@dataclass(frozen=True)
class Check:
    """What every section is given."""

    device: torch.device
    tiny: bool
    until: float

    @property
    def grid(self) -> passes.Grid:
        if self.tiny:
            return passes.Grid(batches=(1, 2), lengths=(0, 1, 3), contexts=(16, 48), static=False)
        return passes.Grid(batches=(1, 8, 32, 128), lengths=LENGTHS, contexts=(1024, 8192, 32768), static=False)


# ---- correctness ---------------------------------------------------------------------------------------------------

PROMPTS = [tiny.prompt(n) for n in tiny.LENGTHS]
CAP, DRAFTS = 20, 4


def correctness(check: Check) -> dict[str, Any]:
    """Every drafter's greedy output against plain decoding on this device, for tiny random models.

    In float32 they must be equal. In bfloat16 a token's bits may depend on the width of a pass, so the shares are told.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        name: _equal(check, dtype) for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    }  # fmt: skip


def _equal(check: Check, dtype: torch.dtype) -> dict[str, Any]:
    made = tiny.model(num_hidden_layers=4, dtype=dtype)
    target = _lean(made, dtype, check.device)
    static = dtype == torch.bfloat16
    shape = tiny.plan(DRAFTS, rows=len(PROMPTS), device=check.device, static=static)
    width = 1 + DRAFTS if static else None
    base = [a.tokens for a in tiny.decoded(target, None, replace(shape, draft_length=0), PROMPTS, CAP, width=width)]
    found: dict[str, Any] = {"transformers": _shares(base, [tiny.plain(made, ids, CAP)[0] for ids in PROMPTS])}
    for name, proposer in _drafters(target, shape, dtype).items():
        answers = tiny.decoded(target, proposer, shape, PROMPTS, CAP, expected=base, width=width)
        al = sum(map(sum, (a.commits for a in answers))) / sum(len(a.steps) for a in answers)
        found[name] = {**_shares([a.tokens for a in answers], base), "al": round(al, 3)}
    return found


def _lean(made: Any, dtype: torch.dtype, device: torch.device) -> LeanTarget:
    return LeanTarget(made.config, made.state_dict(), dtype=dtype, device=device)


def _shares(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> dict[str, Any]:
    return {"equal": sum(list(a) == list(b) for a, b in zip(ours, theirs, strict=True)), "of": len(theirs)}


def _drafters(target: LeanTarget, shape: Plan, dtype: torch.dtype) -> dict[str, Proposer]:
    small = _lean(tiny.noisy(tiny.model(num_hidden_layers=4, dtype=torch.float32), 0.05), dtype, target.device)
    kinds = {"mechanism": "dspark", "markov": "vanilla", "markov_rank": 8}
    return {
        "ngram": NGram(device=shape.device),
        "suffix": Suffix(device=shape.device),
        "oracle": Oracle(device=shape.device),
        "external": tiny.external(small, shape),
        "eagle3": serial_heads.serial(serial_heads.random(serial_heads.spec("eagle3")), target, shape),
        "mtp": serial_heads.serial(serial_heads.random(serial_heads.spec("mtp", taps=(4,))), target, shape),
        "dflash": DFlash(blocks.head_of(), shape, target),
        "dspark": dspark.of(blocks.head_of(**kinds), shape, target),
    }


# ---- replay against a sweep ----------------------------------------------------------------------------------------


def replay(check: Check) -> dict[str, Any]:
    """Of tiny random models in float32, in how many answers the replayed steps are not those that ran, D by D: all
    answers labelled in one pass, and each alone. Only a drafter's own near tie can make one differ."""
    torch.backends.cuda.matmul.allow_tf32 = False
    target = _lean(tiny.model(num_hidden_layers=4, dtype=torch.float32), torch.float32, check.device)
    shape, lengths = tiny.plan(DRAFTS, rows=len(PROMPTS), device=check.device), range(1, DRAFTS + 1)
    base = tiny.decoded(target, None, replace(shape, draft_length=0), PROMPTS, CAP)
    asked = [st.answer([*ids, *a.tokens], len(ids), CAP) for ids, a in zip(PROMPTS, base, strict=True)]
    found: dict[str, Any] = {"of": len(asked) * len(lengths)}
    for name in ("ngram", "suffix", "external", "eagle3", "mtp", "dflash", "dspark"):
        one = {d: replace(shape, draft_length=d) for d in lengths}
        ran = {d: tiny.decoded(target, _drafters(target, one[d], torch.float32)[name], one[d], PROMPTS, CAP)
               for d in lengths}  # fmt: skip
        found[name] = {}
        for rows in (len(PROMPTS), 1):
            stage = Stage(target, max(tiny.LENGTHS) + CAP, DRAFTS, shape.sampling, rows)
            made = labeller(name, _drafters(target, replace(shape, rows=rows), torch.float32)[name], stage, lengths)
            tables = [each for low in range(0, len(asked), rows) for each in made.tables(asked[low : low + rows])]
            found[name][f"differ, {rows} at once"] = sum(
                st.shown(record(asked[b], t.get(d) or t[None], d).steps) != st.shown(ran[d][b].steps)
                for b, t in enumerate(tables) for d in lengths
            )  # fmt: skip
    return found


# ---- compile and CUDA graphs ---------------------------------------------------------------------------------------


def accelerated(check: Check) -> dict[str, Any]:
    """torch.compile and CUDA graphs: the same greedy tokens as without, and a pass's seconds with each."""
    sizes = {**SMALL, "max_position_embeddings": 2048} if not check.tiny else {"num_hidden_layers": 2}
    found: dict[str, Any] = {}
    for name in ("eager", "cuda_graphs", "compile"):
        if name == "cuda_graphs" and check.device.type != "cuda":
            found[name] = "needs CUDA"
            continue
        target = _random(sizes, check, dtype=torch.float32)
        if name == "cuda_graphs":
            target.run = Graphed(target.run)
        elif name == "compile":
            target.run = torch.compile(target.run, dynamic=False)
        shape = tiny.plan(0, rows=2, length=64, static=True, device=check.device)
        answers = tiny.decoded(target, None, shape, [tiny.prompt(9), tiny.prompt(17)], 12, width=1)
        grid = passes.Grid(batches=(2,), lengths=(0, 3), contexts=(32,), static=True)
        timed = passes.measure(passes.plain_arms(target, grid, 2, 32), 2, 32, check.until)
        found[name] = {"tokens": [a.tokens for a in answers], "verify": {t.draft_length: t.verify for t in timed}}
    for name in ("cuda_graphs", "compile"):
        if isinstance(found[name], dict):
            found[name]["equal"] = found[name]["tokens"] == found["eager"]["tokens"]
    return found


# ---- curves ---------------------------------------------------------------------------------------------------------


def _random(sizes: dict[str, Any], check: Check, dtype: torch.dtype = torch.bfloat16) -> LeanTarget:
    """A Llama of these shapes with random weights, made on the device; in small, tiny's own shapes."""
    torch.manual_seed(0)
    config = tiny.config(**({k: v for k, v in sizes.items() if k == "num_hidden_layers"} if check.tiny else sizes))
    if check.tiny:
        config.num_hidden_layers = min(2, config.num_hidden_layers)
    return LeanTarget(config, _Tensors(config, dtype, check.device), dtype=dtype, device=check.device)


class _Tensors(dict[str, torch.Tensor]):
    """The weights of a Llama by name, each made when it is asked for, so that none lies there twice."""

    def __init__(self, config: Any, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        h, m, v = config.hidden_size, config.intermediate_size, config.vocab_size
        q = config.num_attention_heads * (h // config.num_attention_heads)
        kv = config.num_key_value_heads * (h // config.num_attention_heads)
        self._dtype, self._device = dtype, device
        self._shapes = {
            "embed_tokens": (v, h), "lm_head": (v, h), "q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h),
            "o_proj": (h, q), "gate_proj": (m, h), "up_proj": (m, h), "down_proj": (h, m), "norm": (h,),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip

    def __contains__(self, name: object) -> bool:
        return str(name).split(".")[-1] == "weight" and str(name).split(".")[-2] in self._shapes

    def __missing__(self, name: str) -> torch.Tensor:
        if name not in self:
            raise KeyError(name)
        shape = self._shapes[name.split(".")[-2]]
        if len(shape) == 1:
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        return torch.randn(shape, dtype=self._dtype, device=self._device) / shape[1] ** 0.5


def curves(check: Check) -> dict[str, Any]:
    """T_verif over B × (1+D) × context, eager and with CUDA graphs, and T_draft, on an 8B Llama's shapes.

    The last part is the formula under forced acceptance: speed by wall clock against AL·T_verif(B) over the pass.
    """
    target = _random(LLAMA_8B, check)
    found: dict[str, Any] = {"parameters": target.parameters, "bytes": target.bytes}
    grid = replace(check.grid, drafters=_timed_drafters(target, check))
    asked = course.Course(grid=grid, seconds=max(1.0, check.until - time.perf_counter()), gemm=0,
                          attention_context=64, shape=studies.Shape(kv_heads=2, head_dim=8, group=2))  # fmt: skip
    measured = course.run(target, asked, lambda line: print("  " + line, file=sys.stderr))
    found |= {"timed": [asdict(each) for each in measured.timed], "noise": measured.noise, "notes": measured.notes,
              "prefills": list(map(asdict, measured.prefills))}  # fmt: skip
    found["formula"] = [_formula(target, check, measured.timed, batch) for batch in grid.batches[:2]]
    if check.device.type == "cuda":
        target.run = Graphed(target.run)
        small = replace(check.grid, static=True, contexts=check.grid.contexts[:1], drafters=())
        arms = [(b, passes.plain_arms(target, small, b, small.contexts[0])) for b in small.batches[:2]]
        timed = [t for b, a in arms for t in passes.measure(a, b, small.contexts[0], check.until)]
        found["timed_with_graphs"] = [asdict(each) for each in timed]
    return found


def _timed_drafters(target: LeanTarget, check: Check) -> tuple[tuple[str, passes.Build], ...]:
    """n-gram, a small model and an EAGLE-3 head, with random weights of the target's shapes."""
    small = _random(SMALL, check)

    def decoder(proposer: Proposer, plan: Plan) -> Any:
        from speedbench.native.decode import Decoder

        if caches.keys() != {(plan.rows, plan.length)}:  # one at a time, for all drafters of a batch
            caches.clear()
            caches[plan.rows, plan.length] = target.slots(plan.rows, plan.length)
        return Decoder(target, proposer, plan, caches[plan.rows, plan.length])

    def plan(d: int, rows: int, length: int) -> Plan:
        return Plan(draft_length=d, rows=rows, length=length, static=False, sampling=Sampling(), stops=frozenset(),
                    device=check.device)  # fmt: skip

    def ngram(d: int, rows: int, length: int) -> Any:
        return decoder(NGram(device=check.device), plan(d, rows, length))

    def external(d: int, rows: int, length: int) -> Any:
        shape = plan(d, rows, length)
        return decoder(tiny.external(small, shape), shape)

    def eagle3(d: int, rows: int, length: int) -> Any:
        config, shape = target.config, plan(d, rows, length)
        spec = serial_heads.spec(
            "eagle3", hidden=target.hidden, target_hidden=target.hidden, intermediate=config.intermediate_size,
            heads=config.num_attention_heads, kv_heads=config.num_key_value_heads,
            head_dim=target.hidden // config.num_attention_heads, vocab=min(32000, target.vocab),
            taps=(1, target.layers // 2, target.layers),
        )  # fmt: skip
        return decoder(serial_heads.serial(heads.setdefault("eagle3", serial_heads.random(spec)), target, shape), shape)

    heads: dict[str, Any] = {}
    caches: dict[tuple[int, int], Any] = {}
    return (("ngram", ngram), ("external", external), ("eagle3", eagle3))


def _formula(target: LeanTarget, check: Check, timed: Sequence[Timed], batch: int) -> dict[str, Any]:
    """Tokens by wall clock with a forced AL against the plain ones, beside what the curves predict."""
    context, d = check.grid.contexts[0], 3
    arms = {arm.draft_length: arm for arm in passes.plain_arms(
        target, replace(check.grid, lengths=(0, d)), batch, context)}  # fmt: skip
    rates = {}
    for length, arm in arms.items():
        arm.decoder.fill()
        arm.burst()
        torch.cuda.synchronize() if check.device.type == "cuda" else None
        began = time.perf_counter()
        for _ in range(10):
            arm.burst()
        rates[length] = 10 * passes.BURST * (1 + min(length, ACCEPTED)) / (time.perf_counter() - began)
    known = {t.draft_length: t for t in timed if (t.batch, t.context, t.drafter) == (batch, context, None)}
    if not {0, d} <= known.keys():
        return {"batch": batch, "speedup": rates[d] / rates[0], "formula": None, "residual": None}
    formula = (1 + ACCEPTED) * known[0].verify / known[d].verify
    return {"batch": batch, "draft_length": d, "al": 1 + ACCEPTED, "speedup": rates[d] / rates[0], "formula": formula,
            "residual": rates[d] / rates[0] / formula - 1}  # fmt: skip


# ---- kernels --------------------------------------------------------------------------------------------------------


def kernels(check: Check) -> dict[str, Any]:
    """The article's two studies with the roofline share of each: a square layer, and decode attention's staircase."""
    dtype = torch.bfloat16
    size, big = (64, 256) if check.tiny else (6144, 8192)
    copied = 1 << 20 if check.tiny else 1 << 30
    reached: Peaks = studies.peaks(check.device, dtype, product=big, copied=copied)
    batches = (1, 2, 4) if check.tiny else tuple(2**k for k in range(10))
    half = (time.perf_counter() + check.until) / 2
    found = studies.products(check.device, dtype, size, batches, (0, 1, 3, 7), reached, half)
    shape = studies.Shape(kv_heads=2, head_dim=16 if check.tiny else 128, group=16)
    context = 64 if check.tiny else 32768
    found += studies.attention(check.device, dtype, shape, 2 if check.tiny else 16, context, range(0, 25), reached,
                               check.until)  # fmt: skip
    return {"peaks": asdict(reached), "kernel": studies.attention_kernel(check.device),
            "kernels": [asdict(each) for each in found]}  # fmt: skip


# ---- all of it ------------------------------------------------------------------------------------------------------

SECTIONS: dict[str, tuple[float, Callable[[Check], dict[str, Any]]]] = {
    "correctness": (0.12, correctness), "replay": (0.03, replay), "accelerated": (0.20, accelerated),
    "kernels": (0.15, kernels), "curves": (0.50, curves),
}  # fmt: skip
"""Each with its share of the time; what one leaves goes to the next."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="gpu_check.json")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on whatever device there is")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--only", choices=SECTIONS, help="one section alone")
    options = parser.parse_args(words)
    if not (options.tiny or torch.cuda.is_available()):
        print("torch sees no CUDA device; --tiny runs the logic on the CPU", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, Any] = {"device": _device(device), "torch": torch.__version__, "tiny": options.tiny}
    left = {name: each for name, each in SECTIONS.items() if options.only in (None, name)}
    ends, failed = time.perf_counter() + 60 * options.minutes, False
    while left:
        name = next(iter(left))
        share = left[name][0] / sum(share for share, _ in left.values())
        now = time.perf_counter()
        print(f"{name}, at most {share * (ends - now):.0f} s", file=sys.stderr)
        check = Check(device, options.tiny, now + share * (ends - now))
        try:
            found[name] = left.pop(name)[1](check) | {"seconds": round(time.perf_counter() - now, 1)}
        except Exception:  # the next section is worth having whatever became of this one
            failed = True
            found[name] = {"error": traceback.format_exc()}
            print(found[name]["error"], file=sys.stderr)
        Path(options.out).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps(_summary(found), indent=1))
    return 1 if failed or not _summary(found)["equal_in_float32"] else 0


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    """What a reader looks at first; a section that failed or was not run is None."""
    exact = found.get("correctness", {}).get("float32")
    quick = found.get("accelerated", {})
    return {
        "equal_in_float32": exact is None or all(each["equal"] == each["of"] for each in exact.values()),
        "replay_differs": {name: each for name, each in found.get("replay", {}).items() if isinstance(each, dict)},
        "compile_equal": (quick.get("compile") or {}).get("equal"),
        "graphs_equal": quick["cuda_graphs"].get("equal") if isinstance(quick.get("cuda_graphs"), dict) else None,
        "peaks": found.get("kernels", {}).get("peaks"),
        "noise": found.get("curves", {}).get("noise"),
        "formula": found.get("curves", {}).get("formula"),
        "seconds": {name: found.get(name, {}).get("seconds") for name in SECTIONS},
    }


if __name__ == "__main__":
    sys.exit(main())
