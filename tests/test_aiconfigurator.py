"""AIConfigurator's tables: a chain is asked for as a prefill behind a cache; what they do not have is refused."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts import Bench
from test_advise import asked

from speedbench import catalog, modelfacts
from speedbench.advise import aiconfigurator, asking
from speedbench.advise.aiconfigurator import Tabled, compiled
from speedbench.advise.roofline import Deployment
from speedbench.costs.linear import Place, Refused
from speedbench.errors import Missing, UserError

REAL = find_spec("aiconfigurator_core") is not None


class Strict:
    """A handle of one model: 10 ms to decode and 0.1 a sequence; 12 ms to prefill and 0.5 a token of a sequence."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, int]] = []

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        assert (type(bs), type(isl), osl) == (int, int, 2)
        self.asked.append(("decode", bs, isl, 0))
        return 10 + 0.1 * bs

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        assert {type(bs), type(isl), type(prefix)} == {int}
        assert isl > prefix >= 0, "tokens behind the cache, beside those in it"
        if bs > 100:
            raise RuntimeError("perf database error: no such row\nand more")
        self.asked.append(("prefill", bs, isl, prefix))
        return 12 + 0.5 * bs * (isl - prefix)


def tabled(handle: Any, **given: Any) -> Tabled:
    on = Deployment(facts=modelfacts.load("qwen3-32b"), hardware=catalog.hardware("h200"))
    return Tabled(on, {"mtp": "mtp"}, handle=handle, tables="a fake", **given)


def place(batch: float, draft_length: float, context: int = 1000) -> Place:
    return Place(batch=batch, draft_length=draft_length, context=context)


def test_a_chain_is_asked_for_as_a_prefill_of_one_and_d_tokens_behind_the_cache() -> None:
    """decode 10.2, times (12 + 0.5·2·4) / (12 + 0.5·2·1) = 16/13."""
    handle = Strict()
    found = tabled(handle).verify(place(2, 3))
    assert found.seconds == pytest.approx(10.2e-3 * 16 / 13)
    assert (found.origin, found.doubt) == ("estimated", None)
    assert handle.asked == [("decode", 2, 1000, 0), ("prefill", 2, 1004, 1000), ("prefill", 2, 1001, 1000)]


def test_without_drafts_a_pass_is_a_plain_decode() -> None:
    handle = Strict()
    assert tabled(handle).verify(place(2, 0)).seconds == pytest.approx(10.2e-3)
    assert handle.asked == [("decode", 2, 1000, 0)]


def test_a_mean_of_proposals_lies_between_its_neighbours() -> None:
    costs = tabled(Strict())
    low, high = (costs.verify(place(2, d)).seconds for d in (2, 3))
    assert costs.verify(place(2, 2.25)).seconds == pytest.approx(0.75 * low + 0.25 * high)


def test_drafting_is_a_share_of_the_tables_pass_where_rho_is_told() -> None:
    assert tabled(Strict(), rho=0.05).draft("mtp", place(1, 4)).seconds == pytest.approx(4 * 0.05 * 10.1e-3)


def test_what_the_tables_do_not_have_is_refused_in_a_line() -> None:
    with pytest.raises(Refused, match=r"do not tell it: perf database error: no such row$"):
        tabled(Strict()).verify(place(128, 1))

    class Nothing(Strict):
        def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
            return 0.0

    with pytest.raises(Refused, match="which cannot be"):
        tabled(Nothing()).verify(place(1, 0))


# ---- the package ---------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A package of that name whose `compile` takes what 0.12 takes and keeps what it was given."""
    calls: list[dict[str, Any]] = []

    class EngineHandle:
        @classmethod
        def compile(
            cls, model_path: str, system: str, backend: str, *, tp_size: int = 1, moe_ep_size: int | None = None,
            gemm_quant_mode: str | None = None, moe_quant_mode: str | None = None,
            kvcache_quant_mode: str | None = None,
        ) -> Strict:  # fmt: skip
            config = json.loads((Path(model_path) / "config.json").read_text("utf-8"))
            calls.append({**locals(), "config": config})
            if backend == "sglang":
                raise KeyError("a table")
            return Strict()

    sdk = ModuleType("aiconfigurator_core.sdk")
    sdk.EngineHandle = EngineHandle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", ModuleType("aiconfigurator_core"))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    monkeypatch.setattr(aiconfigurator, "version", lambda name: {"aiconfigurator-core": "0.12.0"}[name])
    return calls


WORDS = ["--model", "qwen3-32b", "--hardware", "h200", "--al", "mtp=1:1.8,2:2.4", "--times", "aiconfigurator"]


def test_advice_by_the_tables_says_so_and_by_which(bench: Bench, installed: list[dict[str, Any]]) -> None:
    done = bench("advise", *WORDS, "-B", "1,128", "--context", "1000", "--weights", "fp8", "--json")
    assert done.code == 0, done.err
    said = done.document
    assert said["times"] == "the tables of aiconfigurator-core 0.12.0, trtllm on h200_sxm"
    assert "kernels that others measured" in said["warnings"][0]
    one, many = said["batches"]
    # 10.1 · (12 + 0.5·3) / (12 + 0.5) = 10.9 ms against 10.1
    offer = next(each for each in one["offers"] if each["draft_length"] == 2)
    assert offer["verify_overhead"] == pytest.approx(13.5 / 12.5)
    assert many["offers"] == []
    assert "no such row" in many["refused"][0]
    (call,) = installed
    assert (call["system"], call["backend"], call["tp_size"], call["gemm_quant_mode"]) == (
        "h200_sxm",
        "trtllm",
        1,
        "fp8",
    )
    assert (call["moe_ep_size"], call["moe_quant_mode"]) == (None, None)
    assert call["config"]["architectures"] == ["Qwen3ForCausalLM"]


def test_experts_are_shared_out_among_the_devices(installed: list[dict[str, Any]]) -> None:
    facts = modelfacts.load("qwen3.5-397b-a17b")
    on = Deployment(facts=facts, hardware=catalog.hardware("b200"), gpus=8)
    compiled(on, modelfacts.config("qwen3.5-397b-a17b"), "vllm", "fp4", "fp8")
    (call,) = installed
    assert (call["tp_size"], call["moe_ep_size"], call["moe_quant_mode"]) == (8, 8, "nvfp4")
    assert call["kvcache_quant_mode"] == "fp8"
    kinds = call["config"]["layer_types"]
    assert (len(kinds), kinds.count("full_attention")) == (facts.layers, facts.full)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hardware", "rtx-4090"], "it has no tables of"),
        (["--times", "aiconfigurator:vlm"], "Did you mean 'vllm'"),
        (["--times", "aiconfigurater"], "Did you mean 'aiconfigurator'"),
        (["--times", "aiconfigurator:sglang"], "cannot price qwen3-32b: KeyError: 'a table'"),
        (["--weights", "int8"], "tables know bfloat16"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_line(
    bench: Bench, installed: list[dict[str, Any]], words: list[str], said: str
) -> None:
    done = bench("advise", *WORDS, *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert said in done.err


@pytest.mark.skipif(REAL, reason="it is installed")
def test_without_the_package_it_says_what_to_install() -> None:
    on = Deployment(facts=modelfacts.load("qwen3-32b"), hardware=catalog.hardware("h200"))
    with pytest.raises(Missing, match=r"pip install \"speedbench\[aiconfigurator\]\""):
        compiled(on, {}, "trtllm", None, None)


def test_measured_times_are_not_mixed_with_tables() -> None:
    with pytest.raises(UserError, match="give one of the two"):
        asking.question(asked(times="aiconfigurator"))


@pytest.mark.skipif(not REAL, reason="aiconfigurator-core is not installed")
def test_the_real_tables_make_wider_passes_dearer_and_verify_a_chain_cheaper_than_as_many_sequences() -> None:
    on = Deployment(facts=modelfacts.load("qwen3-32b"), hardware=catalog.hardware("h200"))
    handle, name = compiled(on, modelfacts.config("qwen3-32b"), "trtllm", None, None)
    assert "h200_sxm" in name
    costs = Tabled(on, {}, handle=handle, tables=name)
    times = [costs.verify(place(16, d, 8192)).seconds for d in (0, 1, 3, 7)]
    assert times == sorted(times)
    assert 0.01 < times[0] < 0.1
    assert times[3] < 2 * times[0]
    assert costs.verify(place(128, 0, 8192)).seconds > times[3], "eight times the caches to read"
