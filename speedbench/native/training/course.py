"""A whole training: the corpus of a target, a learner for each drafter asked for, and what comes out, published."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from speedbench.errors import UserError
from speedbench.native import shipped, weights
from speedbench.native.chat import Chat
from speedbench.native.publish import stamp
from speedbench.native.training.block import dflash
from speedbench.native.training.corpus import Making, make, three_taps
from speedbench.native.training.eagle3 import eagle3
from speedbench.native.training.external import external
from speedbench.native.training.fit import Fit, Learner, Recipe
from speedbench.native.training.mtp import mtp
from speedbench.native.training.parts import Frozen, frozen
from speedbench.native.training.readme import readme
from speedbench.native.training.shards import Corpus

DRAFTERS = ("eagle3", "mtp", "external", "dflash", "dspark")
DRAFT_VOCABULARY = 8192
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What to train, on what, for how long, and where it goes."""

    model: str
    """As a runner names it."""
    dtype: str
    """Of the target while it makes the corpus."""
    drafters: tuple[str, ...]
    tokens: int
    minutes: float
    """Of each drafter's training; making the corpus is not in it."""
    out: Path
    work: Path
    """Where the corpus and the checkpoints are kept."""
    seed: int = 0
    resume: bool = False
    bfloat16: bool = False
    self_written: float = 0.5
    licence: str | None = None
    """The target's; None: what its package says."""
    threads: int | None = None
    pack: bool = False
    """Whether what comes out is packed, as the repository ships it; the plain folders stay in `work`."""


def train(course: Course, forbidden: Sequence[str], say: Say) -> dict[str, Any]:
    """Train and publish. Returns what is known of each drafter, by name. `forbidden`: the turns of shipped tasks."""
    if course.dtype not in _DTYPES:
        raise UserError(f"training runs the target in float32 or bfloat16 (the runner has '{course.dtype}')")
    if course.threads:
        torch.set_num_threads(course.threads)
    home = weights.folder(course.model)
    target, corpus_folder = frozen(home), course.work / "corpus"
    chat = Chat(home, target.vocab)
    taps = three_taps(target.layers)
    _make(course, home, chat, taps, corpus_folder, forbidden, say)
    corpus = Corpus(corpus_folder)
    found: dict[str, Any] = {}
    for name in course.drafters:
        common = _commonest(course.work / name / "commonest.json", corpus, target.vocab, resume=course.resume)
        learner = built(name, target, corpus, common, home, chat, taps, course.seed)
        found[name] = _fitted(course, name, learner, corpus, say)
        made = json.loads((corpus_folder / "corpus.json").read_text("utf-8"))
        readme(course.out, course.model, course.licence or _licence(course.model), made)
    return found


def _make(
    course: Course, home: Path, chat: Chat, taps: tuple[int, ...], folder: Path, forbidden: Sequence[str], say: Say
) -> None:
    device = torch.device("cpu")
    target = weights.target(home, dtype=_DTYPES[course.dtype], device=device)
    making = Making(
        tokens=course.tokens, taps=(*taps, target.layers), seed=course.seed, self_written=course.self_written
    )
    say(f"corpus of {course.tokens:,} answer tokens in {folder}")
    make(
        target, chat, folder, making, forbidden,
        lambda tokens, rate: say(f"corpus: {tokens:,} of {course.tokens:,} tokens, {rate:.0f} a second"),
    )  # fmt: skip


def _commonest(path: Path, corpus: Corpus, vocab: int, *, resume: bool) -> torch.Tensor:
    """The ids that a draft vocabulary is made of; a resumed training keeps its own, however its corpus has grown."""
    if resume and path.is_file():
        return torch.tensor(json.loads(path.read_text("utf-8")))
    found = corpus.commonest(DRAFT_VOCABULARY, vocab)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.tolist()), encoding="utf-8")
    return found


def built(
    name: str, target: Frozen, corpus: Corpus, common: torch.Tensor, home: Path, chat: Chat, taps: tuple[int, ...],
    seed: int,
) -> Learner:  # fmt: skip
    """A learner as it begins; `common` is [draft vocabulary] int64, ascending."""
    if name == "eagle3":
        return eagle3(target, taps, common, seed=seed)
    if name == "mtp":
        return mtp(target, common, seed=seed, size=corpus.size(taps[-1]))
    if name == "external":
        return external(target, common, home)
    assert name in ("dflash", "dspark"), name
    return dflash(target, taps, common, spare_token(chat, target.vocab), mechanism=name, seed=seed)


def spare_token(chat: Chat, vocab: int) -> int:
    """An id that no conversation holds, to mask with: the last special one that is no stop, BOS, UNK or PAD."""
    words = chat.tokenizer
    used = {*chat.stops, words.bos_token_id, words.unk_token_id, words.pad_token_id}
    spare = [i for i in words.added_tokens_decoder if i not in used and i < vocab]
    return max(spare) if spare else vocab - 1


def _fitted(course: Course, name: str, learner: Learner, corpus: Corpus, say: Say) -> dict[str, Any]:
    """Train one, publish it, and write `training.json` and the log beside it."""
    recipe = Recipe(seconds=60 * course.minutes, seed=course.seed, bfloat16=course.bfloat16)

    def told(line: Mapping[str, Any]) -> None:
        al = "-" if line["val_al"] is None else f"{line['val_al']:.2f}"
        loss = "-" if line["loss"] is None else f"{line['loss']:.3f}"
        say(f"{name}: step {line['step']} of {line['steps']}, {line['seconds']:.0f} s, loss {loss}, AL {al} at D=4")

    work, out = course.work / name, course.out / name
    fit = Fit(learner, corpus, recipe, work, told)
    judged = fit.run(resume=course.resume)
    _published(course, learner, out, work / "plain")
    if name != "external":
        stamp(out, weights.folder(course.model))
    facts = {
        "drafter": name, "seed": course.seed, "steps": fit.step, "tokens_seen": fit.tokens,
        "seconds": round(fit.seconds, 1), "corpus_tokens": corpus.tokens, "sequences": len(corpus.train),
        "held_out": len(corpus.held), "val_al_d4": judged.acceptance_length,
        "val_accepted_at": list(judged.accepted_at),
        "trained_parameters": sum(p.numel() for p in learner.weights.values()), "recipe": asdict(recipe),
    }  # fmt: skip
    (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (out / "training_log.jsonl").write_text((work / "log.jsonl").read_text("utf-8"), encoding="utf-8")
    return facts


def _published(course: Course, learner: Learner, out: Path, plain: Path) -> None:
    if course.pack:
        learner.save(plain, course.model)
        shipped.pack(plain, out, course.model)
    else:
        shipped.clear(out)
        learner.save(out, course.model)


def _licence(model: str) -> str:
    """What the package that ships the target says of it."""
    if not model.startswith("package:"):
        return "not stated; see the target's own"
    package = model.removeprefix("package:").partition("/")[0]
    try:
        said = importlib.metadata.metadata(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "not stated; see the target's own"
    stated = [said[key] for key in ("License-Expression", "License") if key in said]
    return stated[0] if stated else "not stated; see the target's own"
