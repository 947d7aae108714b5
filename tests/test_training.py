"""Learners compute what the runtime computes, see nothing they will not have, learn, resume, and load in the engine."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file
from torch import Tensor

from speedbench import cli
from speedbench.errors import UserError
from speedbench.native import checkpoint, dspark, weights
from speedbench.native.chat import Chat
from speedbench.native.decode import Decoder
from speedbench.native.dflash import DFlash
from speedbench.native.eagle3 import Eagle3
from speedbench.native.mtp import Mtp
from speedbench.native.proposer import Row
from speedbench.native.serial import Serial
from speedbench.native.training import block, external, fit, parts
from speedbench.native.training.corpus import Making, make, shard_file, three_taps
from speedbench.native.training.eagle3 import eagle3
from speedbench.native.training.mtp import mtp
from speedbench.native.training.prompts import Sieve, runs
from speedbench.native.training.shards import Batch, Corpus

LAYERS = 7
TAPS = three_taps(LAYERS)
EVERY = (*TAPS, LAYERS)
HEADS = ("eagle3", "mtp", "dflash", "dspark")
ALL = (*HEADS, "external")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.model(num_hidden_layers=LAYERS, dtype=torch.float32)
    return tiny.folder(tmp_path_factory.mktemp("target"), made)


@pytest.fixture(scope="module")
def target(home: Path) -> Any:
    return weights.target(home, dtype=torch.float32, device=tiny.CPU)


@pytest.fixture(scope="module")
def chat(home: Path) -> Chat:
    return Chat(home, 64)


def making(**given: Any) -> Making:
    return Making(**{"tokens": 700, "taps": EVERY, "longest": 24, "rows": 4, "shard": 4, "self_written": 0.0, **given})


@pytest.fixture(scope="module")
def corpus_folder(target: Any, chat: Chat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    make(target, chat, folder, making(), [])
    return folder


@pytest.fixture(scope="module")
def corpus(corpus_folder: Path) -> Corpus:
    return Corpus(corpus_folder, held_out_every=4)


def learner(name: str, home: Path, *, shaken: bool = False, **given: Any) -> Any:
    """A learner as it begins; `shaken` moves every weight, to values that bfloat16 has."""
    frozen, common = parts.frozen(home), torch.arange(1, 64, 2) if name == "eagle3" else torch.arange(0, 64, 3)
    made: Any
    if name == "eagle3":
        made = eagle3(frozen, TAPS, given.pop("common", common), **given)
    elif name == "mtp":
        made = mtp(frozen, common, **given)
    elif name == "external":
        made = external.external(frozen, common, home, **given)
    else:
        made = block.dflash(frozen, TAPS, common, 7, mechanism=name, **{"anchors": 8, "markov_rank": 8, **given})
    if shaken:
        dice = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for weight in made.weights.values():
                weight.add_(0.3 * torch.randn(weight.shape, generator=dice))
                weight.copy_(weight.bfloat16())
    return made


def read(target: Any, ids: list[int], answer: int) -> Batch:
    """A batch of one row with the target's exact states."""
    tokens = torch.tensor([ids])
    seen = target.forward(target.slots(1, len(ids)), tokens, [0], taps=EVERY)
    best = seen.logits.max(-1).indices
    return Batch(
        tokens, best, torch.tensor([len(ids)]), torch.tensor([answer]), {t: x.clone() for t, x in seen.features.items()}
    )


def proposer(head: Any, target: Any, shape: Any) -> Any:
    if head.spec.mechanism in ("eagle3", "mtp"):
        fusion = {"eagle3": Eagle3, "mtp": Mtp}[head.spec.mechanism](head, target.dtype, target.device)
        return Serial(head, fusion, target, shape)
    return DFlash(head, shape, target) if head.spec.mechanism == "dflash" else dspark.of(head, shape, target)


# ---- the same as the runtime ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fc_norm", [False, True])
@pytest.mark.parametrize("name", ["eagle3", "mtp"])
def test_a_serial_learner_has_the_runtimes_logits_at_every_step(
    name: str, fc_norm: bool, home: Path, target: Any
) -> None:
    made = learner(name, home, shaken=True, **({"fc_norm": fc_norm} if name == "eagle3" else {}))
    ids = tiny.prompt(14)
    batch, tokens = read(target, ids, 5), torch.tensor([[*ids[1:], 0, 0, 0]])
    outputs = list(made.unroll(batch, lambda k: tokens[:, k : k + 14], 3))
    every = torch.arange(64) if made.ids is None else made.ids
    body = proposer(made.head(torch.float32), target, tiny.plan(4)).body
    for anchor in (3, 7, 10):
        slots = body.slots(1, 40, static=False)
        g = body.read({tap: made_of[:, :anchor] for tap, made_of in batch.states.items()})
        output = body.run(slots, torch.tensor([ids[1 : anchor + 1]]), g, [0])[:, -1]
        for step in range(3):
            ours = outputs[step][0, anchor - 1] @ made.rows(every).T
            assert torch.allclose(ours, body.logits(output)[0], atol=1e-4)
            there = torch.tensor([[ids[anchor + 1 + step]]])
            output = body.run(slots, there, body.recycled(output)[:, None], [anchor + step])[:, 0]


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_a_block_learner_has_the_runtimes_states(name: str, home: Path, target: Any) -> None:
    made, ids = learner(name, home, shaken=True), tiny.prompt(16)
    batch = read(target, ids, 5)
    states = made.fill(batch, torch.tensor([[4, 9, 9, 12]]))
    for index, anchor in enumerate((4, 9, 9, 12)):
        back = proposer(made.head(torch.float32), target, tiny.plan(4)).back
        back.remember(back.slots, {tap: x[:, :anchor] for tap, x in batch.states.items()}, [0])
        filled = back.fill(back.slots, torch.tensor([ids[anchor]]), [anchor])
        first = 0 if name == "dspark" else 1
        assert torch.allclose(states[0, index], filled[0, first:], atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_what_is_published_loads_and_drafts_the_same_in_the_engine(
    name: str, home: Path, target: Any, tmp_path: Path
) -> None:
    made = learner(name, home, shaken=True)
    made.save(tmp_path, "tiny")
    if name == "external":
        model = weights.target(tmp_path, dtype=torch.float32, device=tiny.CPU)
        own: Any = tiny.external(model, tiny.plan(4, rows=3))
        made.target.embedding = made.target.embedding.bfloat16().float()
        made.target.head = made.target.head.bfloat16().float()
    else:
        own = proposer(checkpoint.load(str(tmp_path), target, mechanism=name), target, tiny.plan(4, rows=3))  # type: ignore[arg-type]
        if name == "eagle3":
            made.frozen["lm_head.weight"] = made.frozen["lm_head.weight"].bfloat16().float()
    decoder = Decoder(target, own, tiny.plan(4, rows=3), target.slots(3, 320))
    for row, length in enumerate((6, 9, 17)):
        ids = tiny.prompt(length)
        decoder.admit(Row(row, ids, length, 40, np.random.default_rng(0)))
    for _ in range(4):
        rows = [list(row.ids) for row in decoder.rows if row]
        drafts = own.propose(decoder.rows, [4, 4, 4]).tokens
        for row, ids in enumerate(rows):
            expected = made.drafts(read(target, [*ids, 0], 1), 4)[0, len(ids) - 1]
            assert drafts[row].tolist() == expected.tolist()
        decoder.step()


# ---- nothing leaks -------------------------------------------------------------------------------------------------


def changed(batch: Batch, at: int, *, tokens_from: int) -> Batch:
    """The same up to `at`, other states from there on, and other tokens from `tokens_from` on."""
    torch.manual_seed(3)
    ids = batch.ids.clone()
    ids[:, tokens_from:] = (ids[:, tokens_from:] + 11) % 64
    states = {tap: torch.cat([x[:, :at], torch.randn_like(x[:, at:])], 1) for tap, x in batch.states.items()}
    return Batch(ids, batch.best, batch.lengths, batch.answers, states)


@pytest.mark.parametrize("name", ALL)
def test_drafts_depend_on_nothing_from_the_anchors_state_on(name: str, home: Path, target: Any) -> None:
    made = learner(name, home, shaken=True)
    batch = read(target, tiny.prompt(16), 4)
    for anchor in (3, 8, 12):
        other = changed(batch, anchor, tokens_from=anchor + 1)
        assert torch.equal(made.drafts(batch, 4)[:, : anchor + 1], made.drafts(other, 4)[:, : anchor + 1])
        before = changed(batch, anchor - 1, tokens_from=anchor)
        assert not torch.equal(made.drafts(batch, 4)[:, anchor:], made.drafts(before, 4)[:, anchor:])


@pytest.mark.parametrize("name", ["eagle3", "mtp"])
def test_a_step_reads_true_tokens_only_up_to_its_own(name: str, home: Path, target: Any) -> None:
    """Output i of step k may read tokens up to i + 1 + k and states up to i: brute force over every later token."""
    made, batch = learner(name, home, shaken=True), read(target, tiny.prompt(12), 4)

    def outputs(one: Batch) -> list[Tensor]:
        tokens = torch.nn.functional.pad(one.ids, (0, 4))
        return list(made.unroll(one, lambda k: tokens[:, 1 + k : 13 + k], 3))

    was = outputs(batch)
    for at in range(4, 12):
        now = outputs(changed(batch, at - 1, tokens_from=at))
        for step in range(3):
            free = max(0, at - 1 - step)
            assert torch.allclose(was[step][:, :free], now[step][:, :free], atol=1e-6)
            assert not torch.allclose(was[step][:, free], now[step][:, free], atol=1e-3)


def test_a_blocks_mask_is_the_context_before_its_anchor_and_itself() -> None:
    anchors, width, size = torch.tensor([[2, 0], [5, 3]]), 3, 7
    mask = block.seen(anchors, width, size)
    for b in range(2):
        for query in range(2 * width):
            for key in range(size + 2 * width):
                own = query // width
                sees = key < int(anchors[b, own]) if key < size else (key - size) // width == own
                assert bool(mask[b, 0, query, key]) == sees


# ---- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_learner_learns_its_corpus_by_heart(name: str, home: Path, corpus: Corpus, tmp_path: Path) -> None:
    made = learner(
        name, home, soft=name in ("dflash", "dspark"), **({"common": torch.arange(64)} if name == "eagle3" else {})
    )
    greedy = [n for n in corpus.train if corpus.places[n].greedy][:6]
    recipe = fit.Recipe(steps=120, batch=8, every=1000, judge=1000, rate=5e-3)
    before = fit.judged(made, corpus, greedy)
    running = fit.Fit(made, corpus, recipe, tmp_path)
    first = running._loss(0)[0].item()
    running.run(resume=False)
    after = fit.judged(made, corpus, greedy)
    assert running._loss(0)[0].item() < first - 0.2
    assert before.acceptance_length is not None
    assert after.acceptance_length is not None
    assert after.acceptance_length > max(1.8, before.acceptance_length + 0.3)
    assert list(after.accepted_at) == sorted(after.accepted_at, reverse=True)


@pytest.mark.parametrize("name", ALL)
def test_a_resumed_training_has_the_weights_of_one_that_ran_through(
    name: str, home: Path, corpus: Corpus, tmp_path: Path
) -> None:
    recipe = fit.Recipe(steps=8, batch=3, every=3, judge=2, judged=1)
    whole, halves = learner(name, home), learner(name, home)
    fit.Fit(whole, corpus, recipe, tmp_path / "whole").run(resume=False)
    fit.Fit(halves, corpus, recipe, tmp_path / "halves").run(resume=False, until=5)
    again = learner(name, home)
    fit.Fit(again, corpus, recipe, tmp_path / "halves").run(resume=True)
    for weight in whole.weights:
        assert torch.equal(whole.weights[weight], again.weights[weight]), weight
    lines = [
        [json.loads(x) for x in (tmp_path / f / "log.jsonl").read_text().splitlines()] for f in ("whole", "halves")
    ]
    assert [line["step"] for line in lines[0]] == [2, 4, 6, 8]
    assert [line["tokens"] for line in lines[1] if line["step"] % 2 == 0] == [line["tokens"] for line in lines[0]]


def test_a_checkpoint_of_another_corpus_is_refused(home: Path, corpus_folder: Path, tmp_path: Path) -> None:
    recipe = fit.Recipe(steps=2, batch=2)
    fit.Fit(learner("mtp", home), Corpus(corpus_folder, 4), recipe, tmp_path).run(resume=False)
    with pytest.raises(UserError, match="train anew without --resume"):
        fit.Fit(learner("mtp", home), Corpus(corpus_folder, 3), recipe, tmp_path).run(resume=True)


def test_a_corpus_that_has_grown_begins_another_round_with_the_weights_that_there_are(
    home: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    small, whole = Corpus(corpus_folder, 3), Corpus(corpus_folder, 4)  # the second trains on more of the same
    first = learner("mtp", home)
    fit.Fit(first, small, fit.Recipe(steps=4, batch=2, every=2), tmp_path).run(resume=False)
    second = learner("mtp", home)
    running = fit.Fit(second, whole, fit.Recipe(steps=3, batch=2, rate=0.0), tmp_path)
    running.run(resume=True)
    for weight in first.weights:  # a rate of 0 changes nothing, so these are what it began with
        assert torch.equal(first.weights[weight], second.weights[weight]), weight
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["steps"]) for line in lines] == [(4, 4), (3, 3)]
    assert lines[1]["tokens"] > lines[0]["tokens"]


# ---- the corpus ----------------------------------------------------------------------------------------------------


def test_a_corpus_holds_the_targets_own_answers_and_states(corpus: Corpus, corpus_folder: Path, target: Any) -> None:
    assert corpus.tokens >= 700
    assert {place.greedy for place in corpus.places} == {True, False}
    for number in (0, len(corpus.places) - 1):
        place, batch = corpus.places[number], corpus.batch([number], EVERY)
        exact = read(target, batch.ids[0].tolist(), place.answer)
        assert torch.equal(batch.best, exact.best)
        for tap in EVERY:
            assert torch.equal(batch.states[tap], exact.states[tap].bfloat16().float())
        if place.greedy:
            assert batch.ids[0, place.answer :].tolist() == batch.best[0, place.answer - 1 : -1].tolist()


def test_a_corpus_cut_short_goes_on_and_is_the_same(
    target: Any, chat: Chat, corpus_folder: Path, tmp_path: Path
) -> None:
    make(target, chat, tmp_path, making(tokens=150), [])
    shard_file(tmp_path, 0).unlink()
    told: list[int] = []
    make(target, chat, tmp_path, making(), [], lambda tokens, rate: told.append(tokens))
    assert told == sorted(told)
    assert (tmp_path / "prompts.jsonl").read_text() == (corpus_folder / "prompts.jsonl").read_text()
    for path in sorted(tmp_path.glob("shard-*")):
        ours, theirs = load_file(path), load_file(corpus_folder / path.name)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_corpus_made_otherwise_is_refused(target: Any, chat: Chat, corpus_folder: Path) -> None:
    with pytest.raises(UserError, match="was made with another seed"):
        make(target, chat, corpus_folder, making(seed=1), [])


def test_the_target_writes_user_turns_itself(target: Any, chat: Chat, tmp_path: Path) -> None:
    make(target, chat, tmp_path, making(tokens=20, self_written=0.5, shard=2), [])
    prompts = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    said = json.loads((tmp_path / "corpus.json").read_text())
    own = [prompt["text"] for prompt in prompts if prompt["by"] == "target"]
    assert own
    assert len(set(own)) == len(own)
    assert said["by"] == {"target": len(own), "template": len(prompts) - len(own)}
    assert said["prompts"]["kept"] == len(prompts)


def test_a_prompt_that_shares_eight_tokens_with_a_task_is_dropped_and_counted() -> None:
    sieve = Sieve(lambda text: [ord(c) for c in text], ["the quick brown fox", "short"])
    assert not sieve.keeps("a quick bridge")  # " quick b" is eight
    assert sieve.keeps("a quick fox")
    assert not sieve.keeps("a quick fox")
    assert not sieve.keeps("short")
    assert not sieve.keeps("abc", longest=80)
    assert dict(sieve.counts) == {"overlap": 2, "kept": 1, "duplicate": 1, "length": 1}


def test_no_template_shares_a_run_with_a_shipped_task() -> None:
    """Words stand for tokens here; what the fillers add is looked at when a corpus is made."""
    from speedbench import catalog, task
    from speedbench.native.training.templates import TEMPLATES

    here = [one for one in map(task.load, catalog.names("tasks")) if one.source != "prepared"]
    shipped = [turn for one in here for request in task.requests(one) for turn in request.turns]
    found = {run for text in shipped for run in runs(text.split())}  # type: ignore[arg-type]
    ours = {run for kind in TEMPLATES.values() for text in kind for run in runs(text.split())}  # type: ignore[arg-type]
    assert not {run for run in ours & found if len(run) == 8}
    assert sum(map(len, TEMPLATES.values())) >= 40


# ---- the verb ------------------------------------------------------------------------------------------------------


def trained(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli._exit_code(["train", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_verb_trains_publishes_and_says_how(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedbench.cli.train._shipped_turns", list)  # with a token a letter, all texts overlap
    runner = tmp_path / "tiny.yaml"
    runner.write_text(f"title: t\nbackend: native\nmodel: {home}\nengine:\n  threads: 1\n")
    out, work = tmp_path / "out", tmp_path / "work"
    words = ["-r", str(runner), "-d", "mtp,external", "--tokens", "3000", "--minutes", "0.02", "--self-written", "0"]
    words += ["-o", str(out), "--work", str(work), "--licence", "MIT"]
    code, _, progress = trained(words, capsys)
    assert code == 0, progress
    assert "mtp: step" in progress
    assert "tokens, " in progress
    code, document, progress = trained([*words, "--resume", "--json"], capsys)
    assert code == 0, progress
    facts = json.loads(document)["mtp"]
    assert facts == json.loads((out / "mtp" / "training.json").read_text())
    assert facts["val_al_d4"] >= 1
    page = (out / "README.md").read_text()
    assert "The target's licence: MIT" in page
    assert "`mtp`" in page
    assert "`external`" in page
    assert (out / "external" / "tokenizer.json").is_file()
    assert (out / "mtp" / "training_log.jsonl").read_text().count("\n") >= 1


def test_a_wrong_word_to_the_verb_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = trained(["-d", "eagle4", "-o", str(tmp_path)], capsys)
    assert code == 2
    assert "Did you mean 'eagle3'?" in said
    code, _, said = trained(["--minutes", "0", "-o", str(tmp_path)], capsys)
    assert code == 2
    assert said.count("\n") == 1
