"""Both arms of a comparison are told the same but for speculation; no key is ever shown; traps are said aloud."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from translated import VERSIONS, flags, plan

from speedbench import catalog, plugins, runner
from speedbench.errors import UnknownName, UserError
from speedbench.serving import embedded, trtllm_worker
from speedbench.serving.plan import HIDDEN, LaunchPlan, captured, pointed
from speedbench.types import Drafting, Runner

ENGINES = ("vllm", "sglang", "llamacpp", "trtllm")


def told(made: LaunchPlan) -> dict[str, Any]:
    """All that the server is told but what makes it speculate."""
    if made.engine == "trtllm":
        file = json.loads(made.files["trtllm.yaml"])
        return {key: value for key, value in file.items() if key != "speculative_config"}
    mine = ("spec", "per-request-spec")
    return {key: value for key, value in flags(made).items() if not key.startswith(mine)}


# ---- equal arms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("concurrency", [1, 8, 40])
def test_the_baseline_differs_from_a_cell_in_speculation_alone(engine: str, concurrency: int) -> None:
    cell, base = plan(engine, "mtp", 4, concurrency=concurrency), plan(engine, "none", 0, concurrency=concurrency)
    assert told(cell) == told(base)
    assert (cell.env, cell.ready, cell.resets) == (base.env, base.ready, base.resets)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_baseline_says_nothing_of_speculation(engine: str) -> None:
    made = plan(engine, "none", 0)
    said = " ".join([*made.argv, *made.files.values(), *made.env, *made.request])
    rest = said.replace("--spec-type none", "").replace("DECODE", "")
    assert "spec" not in rest.lower()


def test_a_draft_length_without_a_drafter_is_refused() -> None:
    with pytest.raises(UserError, match=r"-D 4: the baseline drafts nothing; name a drafter"):
        plan("vllm", "none", 4)


@pytest.mark.parametrize("engine", ENGINES)
def test_models_are_put_where_the_engine_can_load_them(engine: str) -> None:
    drafting = plugins.load("drafters", "external").backends[engine](4, {"model": "org/draft"})
    loaded = Runner(name="r", title="R", backend=engine, model="package:x/target.gguf")
    translate = import_module(f"speedbench.backends.{engine}").translate
    made = translate(drafting, 4, loaded, concurrency=1, port=1, place=lambda name: f"/here/{name[-5:]}")
    said = json.dumps(made.shown())
    assert "/here/.gguf" in said
    assert "/here/draft" in said
    assert "package:" not in said


@pytest.mark.parametrize("engine", ENGINES)
def test_the_batch_is_the_concurrency_or_the_runners_word(engine: str) -> None:
    keys = {
        "vllm": "max-num-seqs",
        "sglang": "max-running-requests",
        "llamacpp": "parallel",
        "trtllm": "max_batch_size",
    }
    binary = {"binary": "llama-server"} if engine == "llamacpp" else {}
    for settings, size in (({}, 8), ({"max_batch": 32}, 32)):
        for drafter, d in (("none", 0), ("mtp", 4)):
            made = plan(engine, drafter, d, told={**binary, **settings}, concurrency=8)
            assert int(told(made)[keys[engine]]) == size
    with pytest.raises(UserError, match=r"engine.max_batch: at least the concurrency, 8"):
        plan(engine, "none", 0, told={"max_batch": 4}, concurrency=8)


@pytest.mark.parametrize("engine", ENGINES)
def test_servers_are_bound_to_this_machine_and_share_no_prefixes(engine: str) -> None:
    made = plan(engine, "none", 0)
    assert made.url == "http://127.0.0.1:8000"
    assert "127.0.0.1" in made.argv
    said = {
        "vllm": lambda: "no-enable-prefix-caching" in flags(made),
        "sglang": lambda: "disable-radix-cache" in flags(made),
        "llamacpp": lambda: made.request["cache_prompt"] is False,
        "trtllm": lambda: told(made)["kv_cache_config"]["enable_block_reuse"] is False,
    }
    assert said[engine]()


def test_acceptance_is_asked_for_per_request_where_the_engine_tells_it() -> None:
    assert flags(plan("vllm", "mtp", 4))["per-request-spec-decode-metrics"] == "detailed"
    assert plan("sglang", "mtp", 4).request == {"return_spec_tokens_details": True}
    assert plan("sglang", "none", 0).request == {}
    assert told(plan("trtllm", "mtp", 4))["enable_iter_perf_stats"] is True


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_matched_run_puts_every_cell_under_the_same_scheduler(engine: str) -> None:
    cells = [plan(engine, drafter, d, told={"matched": True}) for drafter, d in (("none", 0), ("ngram", 4), ("mtp", 2))]
    assert told(cells[0]) == told(cells[1]) == told(cells[2])
    assert not [note for note in cells[1].notes if "matched" in note]
    if engine == "vllm":
        assert "no-async-scheduling" in flags(cells[0])
        assert cells[0].env["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    if engine != "sglang":
        assert "engine.matched=true runs both alike" in " ".join(plan(engine, "ngram", 4).notes)


def test_graphs_reach_the_full_batch_of_one_plus_d_tokens() -> None:
    assert "cudagraph-capture-sizes" not in flags(plan("vllm", "mtp", 7, concurrency=64))  # 512 tokens: vLLM's own do
    sizes = [int(size) for size in flags(plan("vllm", "mtp", 8, concurrency=64))["cudagraph-capture-sizes"].split()]
    assert max(sizes) == 64 * 9
    assert all(size % 9 == 0 for size in sizes)
    assert told(plan("trtllm", "mtp", 8, concurrency=64))["cuda_graph_config"]["batch_sizes"][-1] == 64
    assert flags(plan("sglang", "mtp", 8, concurrency=64))["cuda-graph-max-bs-decode"] == "64"
    assert captured(41) == [*range(1, 33), 40, 41]


# ---- traps ----------------------------------------------------------------------------------------------------------


def test_vllm_033_is_asked_for_the_passes_that_its_server_does_not_time() -> None:
    both = plan("vllm", "mtp", 4, concurrency=8, version="0.33.0").timing
    target, whole = both
    # 8 sequences of 1 and of 1 + 4 tokens over equal prefixes; the length holds the query
    assert [target[i + 1] for i, word in enumerate(target) if word == "--case"] == [
        "plain=8*1@1024", "verify=8*5@1028:4",
    ]  # fmt: skip
    assert target[:3] == ("vllm", "bench", "forward")
    assert target[-3:] == ("--exclude-drafter", "--output-json", "forward-mtp-d4-b8-target.json")
    assert whole[-2:] == ("--output-json", "forward-mtp-d4-b8.json")
    assert "--speculative-config" in whole
    assert "--port" not in whole
    assert len(plan("vllm", "ngram", 4, version="0.33.0").timing) == 1  # it would not time this drafter
    assert plan("vllm", "none", 0, version="0.33.0").timing == plan("vllm", "mtp", 4, version="0.32.0").timing == ()
    short = plan("vllm", "mtp", 4, version="0.33.0", told={"max_model_len": 100}).timing
    assert any(word.endswith("*1@50") for word in short[0])


def test_vllm_would_take_a_draft_by_its_name_whatever_the_method_says() -> None:
    with pytest.raises(UserError, match=r"would take the draft '/heads/eagle3/tiny' for eagle3 because of its name"):
        plan("vllm", "external", 4, {"model": "/heads/eagle3/tiny"})
    with pytest.raises(UserError, match=r"for dflash because of its name, not for mtp"):
        plan("vllm", "mtp", 4, model="org/target-DFlash")
    assert plan("vllm", "eagle3", 4, {"checkpoint": "/heads/dflash/odd"}).argv


def test_dspark_needs_the_runner_that_a_matched_run_turns_off() -> None:
    with pytest.raises(UserError, match=r"vLLM runs dspark on V2 only"):
        plan("vllm", "dspark", 4, told={"matched": True})


def test_options_of_the_engines_own_pass_through_but_may_not_contradict() -> None:
    made = plan("vllm", "mtp", 4, {"engine_options": {"draft_sample_method": "probabilistic"}},
                told={"options": {"max_num_batched_tokens": 4096, "enable-chunked-prefill": False}})  # fmt: skip
    assert json.loads(flags(made)["speculative-config"])["draft_sample_method"] == "probabilistic"
    assert flags(made)["max-num-batched-tokens"] == "4096"
    assert "no-enable-chunked-prefill" in flags(made)
    with pytest.raises(UserError, match=r"engine_options.num_speculative_tokens: speedbench sets this itself"):
        plan("vllm", "mtp", 4, {"engine_options": {"num_speculative_tokens": 9}})
    with pytest.raises(UserError, match=r"engine.options.max-num-seqs: speedbench sets this itself \(4\)"):
        plan("vllm", "mtp", 4, told={"options": {"max_num_seqs": 9}})
    with pytest.raises(UserError, match=r"engine.env.VLLM_SERVER_DEV_MODE"):
        plan("vllm", "mtp", 4, told={"env": {"VLLM_SERVER_DEV_MODE": "0"}})


def test_an_unknown_engine_setting_is_refused_by_name() -> None:
    for engine in ENGINES:
        with pytest.raises(UnknownName, match=r"no setting of engine named 'max_batc'. Did you mean 'max_batch'"):
            plan(engine, "none", 0, told={"max_batc": 4})
    with pytest.raises(UnknownName, match=r"no setting of engine named 'dtype'"):
        plan("llamacpp", "none", 0, told={"dtype": "bfloat16"})


def test_tensorrt_llm_prefills_in_chunks_where_prompts_outgrow_its_tokens() -> None:
    assert told(plan("trtllm", "none", 0, told={"max_model_len": 65536}))["enable_chunked_prefill"] is True
    assert told(plan("trtllm", "none", 0, told={"max_model_len": 4096}))["enable_chunked_prefill"] is False


# ---- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_a_key_reaches_the_server_by_its_environment_and_no_plan(engine: str) -> None:
    binary = {"binary": "llama-server"} if engine == "llamacpp" else {}
    made = plan(engine, "none", 0, told={"api_key_env": "MY_KEY", **binary})
    assert list(made.env_from.values()) == ["MY_KEY"]
    assert made.api_key_env == "MY_KEY"
    assert not [word for word in made.argv if "key" in word.lower()]


def test_a_key_in_place_of_its_variables_name_is_refused_without_being_repeated() -> None:
    with pytest.raises(UserError) as caught:
        plan("vllm", "none", 0, told={"api_key_env": "sk-12345"})
    assert "12345" not in str(caught.value)


def test_engines_that_would_show_the_key_to_all_take_none() -> None:
    with pytest.raises(UserError, match=r"on its command line only, where others can read it"):
        plan("sglang", "none", 0, told={"api_key_env": "MY_KEY"})
    with pytest.raises(UserError, match=r"trtllm-serve takes no key"):
        plan("trtllm", "none", 0, told={"api_key_env": "MY_KEY"})


def test_what_looks_like_a_secret_is_blotted_out_of_what_is_shown() -> None:
    made = plan("vllm", "none", 0, told={
        "options": {"hf-token": "hf_abc", "served-model-name": "key"}, "env": {"HF_TOKEN": "hf_abc"},
        "request": {"metadata": {"api_key": "sk-abc"}},
    })  # fmt: skip
    shown = json.dumps(replace(made, url="http://me:sk-abc@host:1").shown())
    assert "hf_abc" not in shown
    assert "sk-abc" not in shown
    assert shown.count(HIDDEN) == 4
    assert "max-num-seqs" in shown


# ---- attaching, embedding, recipes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_that_runs_is_told_nothing_and_a_note_says_what_it_should_have_been(engine: str) -> None:
    made = plan(engine, "mtp", 4, told={"url": "http://10.0.0.1:9000/"})
    assert (made.mode, made.url, made.argv, made.env) == ("attach", "http://10.0.0.1:9000", (), {})
    assert "which should have been started as: " in made.notes[-1]
    assert "4" in made.notes[-1]


def test_the_baseline_and_each_drafter_have_a_server_of_their_own() -> None:
    def at(engine: dict[str, Any], label: str, d: int) -> Any:
        runner = Runner(name="r", title="T", backend="vllm", model="m", engine=engine)
        return pointed(runner, Drafting(label=label, drafter="ngram"), d).engine.get("url")

    both = {"url": "http://a:1", "urls": {"ngram": "http://a:2"}}
    assert (at(both, "none", 0), at(both, "ngram", 3), at({}, "ngram", 3)) == ("http://a:1", "http://a:2", None)
    with pytest.raises(UserError, match=r"engine.urls.ngram: engine.url is the baseline's server; name the one that"):
        at({"url": "http://a:1"}, "ngram", 3)
    with pytest.raises(UserError, match=r"engine.url: name the baseline's server as well"):
        at({"urls": {"ngram": "http://a:2"}}, "ngram", 3)


def test_tensorrt_llm_in_process_is_told_keywords_and_takes_no_url() -> None:
    made = plan("trtllm", "mtp", 4, told={"api": True, "python": "/env/bin/python"})
    assert (made.mode, made.argv) == ("api", ("/env/bin/python", trtllm_worker.__file__))
    assert made.kwargs["model"] == made.model
    assert made.files == {}
    with pytest.raises(UserError, match=r"engine.api: runs the engine in a process of ours; leave it out"):
        plan("trtllm", "mtp", 4, told={"api": True, "url": "http://a:1"})


def test_any_openai_server_needs_a_url_of_its_own_for_each_arm() -> None:
    base = plan("openai", "none", 0, told={"url": "http://a:1/v1"}, version=None)
    cell = plan("openai", "eagle3", 4, {"url": "http://b:2"}, told={"url": "http://a:1"}, version=None)
    assert (base.url, cell.url) == ("http://a:1", "http://b:2")
    with pytest.raises(UserError, match=r"drafter.url: name the server, as http://HOST:PORT"):
        plan("openai", "eagle3", 4, {}, told={"url": "http://a:1"}, version=None)
    with pytest.raises(UserError, match=r"engine.url: name the server"):
        plan("openai", "none", 0, version=None)


def test_the_embedded_llama_server_is_configured_attribute_by_attribute() -> None:
    made = plan("llamacpp", "ngram", 6, told={"max_model_len": 512, "python": "/env/bin/python"}, concurrency=2)
    assert made.command("/run")[0::2] == ("/env/bin/python", "/run/llamacpp.json")
    file = json.loads(made.files["llamacpp.json"])
    assert file["n_ctx"] == 1024
    assert file["speculative.ngram_simple.size_m"] == 6
    engine = _xllamacpp()
    params = embedded.configured(file, engine)
    assert params.speculative.ngram_simple.size_m == 6
    assert params.speculative.types == [
        engine.common_speculative_type.__members__["COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE"]
    ]
    assert params.hostnames == ["127.0.0.1"]
    with pytest.raises(AttributeError, match=r"this xllamacpp has no speculative\.draft\.gone"):
        embedded.configured({"speculative.draft.gone": 1}, engine)
    with pytest.raises(UserError, match=r"engine.options.lora: not known of the embedded server; name engine\.binary"):
        plan("llamacpp", "none", 0, told={"options": {"lora": "x"}})


def _xllamacpp() -> Any:
    """The part of the package that is touched."""
    ngram, draft = SimpleNamespace(size_n=12, size_m=48), SimpleNamespace(n_max=3)
    params = SimpleNamespace(
        model=SimpleNamespace(path=""), hostnames=[], port=0, n_parallel=1, n_ctx=0, kv_unified=True,
        endpoint_metrics=False, verbosity=3, sampling=SimpleNamespace(seed=1),
        speculative=SimpleNamespace(types=[], ngram_simple=ngram, draft=draft),
    )  # fmt: skip
    kinds = SimpleNamespace(__members__={"COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE": object()})
    return SimpleNamespace(CommonParams=lambda: params, common_speculative_type=kinds)


SERVED = [name for name in catalog.names("runners") if catalog.runner(name).backend in (*ENGINES, "openai")]


@pytest.mark.parametrize("name", SERVED)
def test_every_shipped_recipe_translates_for_its_baseline_and_all_its_drafters(name: str) -> None:
    loaded: Runner = runner.overridden(runner.load(name), {"engine": {"url": "http://a:1"}} if name == "openai" else {})
    translate = import_module(f"speedbench.backends.{loaded.backend}").translate
    for drafting in runner.draftings(loaded, ["none", *loaded.drafters]):
        d = 0 if drafting.drafter == "none" else 4
        table = plugins.load("drafters", drafting.drafter).backends[loaded.backend]
        made = translate(
            table(d, drafting.settings), d, loaded, concurrency=8, port=8000, version=VERSIONS.get(loaded.backend)
        )
        assert json.dumps(made.shown())
        assert "attached" in str(made.notes) or made.argv or name == "openai"
