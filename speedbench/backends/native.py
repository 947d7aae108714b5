"""The native torch engine: a transformers model on CPU or CUDA, speculated on by our own loop."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from speedbench import plugins
from speedbench.errors import Missing, UserError
from speedbench.settings import at_least, resolve
from speedbench.types import Drafting, Fit, Labelling, Load, Request, Runner

try:
    import torch

    from speedbench.native import checkpoint, rope, weights
    from speedbench.native.chat import Chat
    from speedbench.native.counting import Counter
    from speedbench.native.decode import Decoder, Relaxed, facts_of
    from speedbench.native.fingerprint import fingerprint
    from speedbench.native.graphs import Graphed
    from speedbench.native.head import Head, Mechanism
    from speedbench.native.lean import LeanTarget
    from speedbench.native.proposer import Near, Plan, Proposer
    from speedbench.native.replay.forced import Stage
    from speedbench.native.replay.routes import labeller
    from speedbench.native.replay.tensors import batch_rows
    from speedbench.native.serve import NativeEngine
    from speedbench.native.slots import Slots
    from speedbench.native.target import Target, prefill
except ModuleNotFoundError as error:
    raise Missing(f'the native backend needs {error.name}; run: pip install "speedbench[native]"') from None

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
_NEAR_TIE = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""Top-2 logit gaps that different GEMM shapes were seen to turn (bfloat16 steps by 0.125 at logits of 16 to 32)."""

_DEFAULTS: dict[str, Any] = {
    "dtype": "float32",
    "device": "auto",
    "form": "auto",
    "static": False,
    "exact": False,
    "compile": False,
    "cuda_graphs": False,
    "threads": None,
    "acceptance": "lossless",
    "relaxed_top_k": 10,
    "relaxed_delta": 0.6,
    "rope_scaling": None,
    "trust_remote_code": False,
}
_CHOICES = {
    "dtype": tuple(_DTYPES),
    "form": ("auto", "lean", "transformers"),
    "acceptance": ("lossless", "relaxed"),
}
_SLOT_STEP = 64


@dataclass(frozen=True)
class _Native:
    name: str = "native"
    title: str = "our torch engine: any transformers causal LM, CPU or CUDA"

    @contextmanager
    def open(self, runner: Runner) -> Iterator[NativeSession]:
        engine = resolve("engine", runner.engine, _DEFAULTS, _CHOICES)
        at_least("engine", engine, threads=1, relaxed_top_k=1, relaxed_delta=0)
        if engine["threads"] is not None and not isinstance(engine["threads"], int):
            raise UserError(f"engine.threads: should be an integer (got {engine['threads']})")
        if engine["threads"]:
            torch.set_num_threads(engine["threads"])
        yield NativeSession(runner, engine)


BACKEND = _Native()


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"engine.device: auto, cpu, cuda or cuda:N (got '{name}')") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"engine.device is '{name}' but torch sees no CUDA device; use cpu, or install a CUDA torch")
    return device


class NativeSession:
    """A target in memory, with the models and slots that its cells share."""

    def __init__(self, runner: Runner, engine: Mapping[str, Any]) -> None:
        self._runner, self._engine = runner, engine
        self._device, self._dtype = _device(engine["device"]), engine["dtype"]
        self._models: dict[tuple[str, str, str], tuple[Target, Chat]] = {}
        self._slots: dict[tuple[int, bool, int, bool], Slots] = {}
        self._heads: dict[tuple[str, Mechanism, bool], Head] = {}
        self.target, self.chat = self._load(runner.model, None, engine["form"])
        self._speed_up()
        self._probed: Slots | None = None

    def _load(self, model: str, dtype: str | None, form: str) -> tuple[Target, Chat]:
        wanted = dtype or self._dtype
        if wanted not in tuple(_DTYPES):
            raise UserError(f"dtype: one of {', '.join(_DTYPES)} (got '{wanted}')")
        key = (model, wanted, form)
        if key not in self._models:
            trust = bool(self._engine["trust_remote_code"])
            home = weights.folder(model)
            target = weights.target(
                home, dtype=_DTYPES[wanted], device=self._device, form=form, trust_remote_code=trust,
                pack=not self._engine["compile"],
                rope_scaling=self._engine["rope_scaling"] if model == self._runner.model else None,
            )  # fmt: skip
            self._models[key] = target, Chat(home, target.vocab, trust_remote_code=trust)
        return self._models[key]

    def _head(self, where: str, mechanism: Mechanism, allow_bin: bool) -> Head:
        """A drafter's head, held against the target that it is to draft for."""
        key = (where, mechanism, allow_bin)
        if key not in self._heads:
            getattr(self.target, "anatomy", None)  # refused now, not in the first pass, where it cannot be read
            found = checkpoint.load(where, self.target, mechanism=mechanism, allow_bin=allow_bin)
            self._heads[key] = replace(found, warnings=(*found.warnings, *self._other_version(found)))
        return self._heads[key]

    def _other_version(self, head: Head) -> list[str]:
        """What to say of a head that was trained for other weights than the target's."""
        if head.made_for is None or head.made_for == self._fingerprint:
            return []
        return [
            f"it was trained for another version of the target (weights {head.made_for}, here {self._fingerprint}), so "
            "one of the two was fine-tuned, merged or quantised otherwise; expect a lower acceptance length"
        ]

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(weights.folder(self._runner.model))

    def _speed_up(self) -> None:
        """torch.compile and CUDA graphs, where the runner asks for them."""
        wants = [key for key in ("compile", "cuda_graphs") if self._engine[key]]
        if wants and not isinstance(self.target, LeanTarget):
            raise UserError(f"engine.{wants[0]} needs the lean form; this model runs in the {self.target.form} form")
        if self._engine["cuda_graphs"] and self._device.type != "cuda":
            raise UserError("engine.cuda_graphs needs a CUDA device; the target is on the CPU")
        if isinstance(self.target, LeanTarget):
            if self._engine["compile"]:
                self.target.run = torch.compile(self.target.run, dynamic=False)
            if self._engine["cuda_graphs"]:
                self.target.run = Graphed(self.target.run)

    @property
    def static(self) -> bool:
        """Whether every pass of a cell has the same shapes."""
        return any(self._engine[key] for key in ("static", "exact", "compile", "cuda_graphs"))

    def _shared_slots(self, model: Target, plan: Plan, *, drafting: bool = True) -> Slots:
        """A target that drafts for itself has a cache in each role: a drafter's writes are not the target's."""
        key = (id(model), drafting, plan.rows, plan.static)
        have = self._slots.get(key)
        if have is None or have.length < plan.length:
            have = self._slots[key] = model.slots(plan.rows, plan.length, static=plan.static)
        return have

    @property
    def facts(self) -> Mapping[str, Any]:
        target = self.target
        return {
            "model": self._runner.model,
            "form": target.form,
            "dtype": self._dtype,
            "device": str(self._device),
            "parameters": target.parameters,
            "weights": self._fingerprint,
            "bytes": target.bytes,
            "context": target.context,
            "vocab": target.vocab,
            "stops": sorted(self.chat.stops),
            "template_sha": self.chat.template_sha,
            "threads": torch.get_num_threads(),
            "kernels": isinstance(target, LeanTarget) and target.uses_kernels,
            "engine": dict(self._engine),
            "warnings": [*self.chat.warnings, *self._stretched(), *self._slower()],
        }

    def _stretched(self) -> list[str]:
        asked = self._engine["rope_scaling"]
        return [] if asked is None else [rope.warning(asked, self.target.context)]

    def _slower(self) -> list[str]:
        if isinstance(self.target, LeanTarget) and self.target.lacks_kernels:
            return ["kernels.c was not compiled (no C compiler, or SPEEDBENCH_KERNELS=0): torch does its work, slower"]
        return []

    @property
    def context(self) -> int | None:
        return self.target.context

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        return Counter(self.chat).fits(requests, max_tokens)

    def token_ends(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        """For each text, the character at which each of its tokens ends."""
        return Counter(self.chat).token_ends(texts)

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        slots = self.target.slots(concurrency, 320)
        prompt = torch.zeros(1, 256, dtype=torch.int64, device=self._device)
        token = torch.zeros(concurrency, 1, dtype=torch.int64, device=self._device)

        def seconds(run: Any) -> float:
            began = time.perf_counter()
            run().logits.sum().item()
            return time.perf_counter() - began

        prefills = [
            seconds(lambda: self.target.forward(slots.rows(0, 1), prompt, [0], last_only=True)) for _ in range(2)
        ]
        passes = [seconds(lambda: self.target.forward(slots, token, [256] * concurrency)) for _ in range(4)]
        return min(prefills) / 256, min(passes)

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> NativeEngine:
        decoder = self.decoder(drafting, draft_length, concurrency, _length(load), load)
        settings = plugins.translated("native", drafting, draft_length)
        settings.pop("module", None)
        lossy = self._lossy(draft_length, load)
        facts = {**facts_of(decoder.proposer), "acceptance": _rule(load, lossy), "settings": settings}
        return NativeEngine(decoder, self.chat, facts)

    def decoder(self, drafting: Drafting, draft_length: int, rows: int, length: int, load: Load) -> Decoder:
        """The loop of one pair over `rows` rows of `length` slots or more."""
        plan = self._plan(draft_length, rows, length, load, static=self.static)
        proposer = self._proposer(plan, drafting)
        width = 1 + load.widest if self._engine["exact"] else 1 + draft_length if self.static else None
        slots = self._shared_slots(self.target, plan, drafting=False)
        lossy = self._lossy(draft_length, load)
        return Decoder(self.target, proposer, replace(plan, length=slots.length), slots, width=width, lossy=lossy)

    def _lossy(self, draft_length: int, load: Load) -> Relaxed | None:
        if self._engine["acceptance"] != "relaxed" or not draft_length:
            return None
        if load.sampling.temperature > 0:
            raise UserError("engine.acceptance 'relaxed' is a greedy rule; it needs --temperature 0")
        return self._engine["relaxed_top_k"], self._engine["relaxed_delta"]

    def labelling(
        self, draftings: Sequence[Drafting], lengths: Sequence[int], load: Load, positions: int | None = None
    ) -> Labelling:
        """Every drafter as it is replayed over the target's answers. Raises for one that cannot be.

        `positions`: tokens that the answers taken at once may have together, prompts and padding included, but for one
        that alone has more; None: what suits the device.
        """
        assert load.longest is not None, "the answers are there"
        rows = batch_rows(self._device, load.longest, positions)
        stage, found = Stage(self.target, load.longest, load.widest, load.sampling, rows), {}
        for drafting in draftings:
            plan = self._plan(load.widest, rows, _length(load), load, static=False)
            proposer = self._proposer(plan, drafting)
            if proposer is None:
                raise UserError(f"drafter '{drafting.label}' proposes nothing, so there is nothing to replay")
            found[drafting.label] = labeller(drafting.label, proposer, stage, lengths)
        return Labelling(drafters=found, rows=rows, differing=stage.differing)

    def _plan(self, draft_length: int, rows: int, length: int, load: Load, *, static: bool) -> Plan:
        return Plan(
            draft_length=draft_length, rows=rows, length=length, static=static,
            sampling=load.sampling, stops=self.chat.stops, device=self._device,
        )  # fmt: skip

    def _proposer(self, plan: Plan, drafting: Drafting) -> Proposer | None:
        settings = plugins.translated("native", drafting, plan.draft_length)
        module = settings.pop("module", None)
        if module is None or not plan.draft_length:
            return None
        near = Near(self.target, self.chat, self._load, self._shared_slots, self._head)
        proposer: Proposer = importlib.import_module(module).build(plan, near, **settings)
        if proposer.limit is not None and plan.draft_length > proposer.limit:
            raise UserError(
                f"-D {plan.draft_length}: drafter '{drafting.label}' was made for at most {proposer.limit} draft "
                f"tokens; give it its own, as -D …,{drafting.label}:1-{proposer.limit}"
            )
        return proposer

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        ids = [*self.chat.prompt(request, outputs[:-1]), *outputs[-1]]
        logits, _ = prefill(self.target, self.target.slots(1, len(ids)), ids)
        best = logits[0, -1].double().topk(2).values
        return float(best[0] - best[1])

    blocks = None

    def keep_in(self, folder: Path) -> None:
        """Nothing is kept."""

    def plan(self, drafting: Drafting, draft_length: int, concurrency: int) -> None:
        """Nothing is told to anybody."""

    def near_tie(self) -> float:
        return _NEAR_TIE[self._dtype]

    def probe(self) -> float:
        """One plain pass over one made-up token: what every measured pass is made of."""
        if self._probed is None:
            self._probed = self.target.slots(1, _SLOT_STEP)
        token = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
        began = time.perf_counter()
        self.target.forward(self._probed, token, [_SLOT_STEP // 2]).logits.max().item()
        return time.perf_counter() - began


def _length(load: Load) -> int:
    """Slots of a row."""
    assert load.longest is not None, "this session counts every prompt"
    return -(-(load.longest + load.widest + 1) // _SLOT_STEP) * _SLOT_STEP


def _rule(load: Load, lossy: Relaxed | None) -> str:
    if lossy:
        return f"relaxed (lossy): top {lossy[0]}, delta {lossy[1]}"
    return "greedy" if load.sampling.temperature == 0 else "rejection"
