"""Profiles: what is timed is what was asked for, within the time, and what cannot be is noted or refused."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from scripts import Bench

from speedbench import profiles
from speedbench.native.decode import Decoder
from speedbench.native.ngram import NGram
from speedbench.native.profile import course, passes, studies
from speedbench.native.profile.forced import ACCEPTED, Forced, Given, text
from speedbench.types import Peaks

CPU = torch.device("cpu")


def grid(**given: Any) -> passes.Grid:
    fixed: dict[str, Any] = {"batches": (1, 2), "lengths": (0, 2), "contexts": (16,), "static": False, **given}
    return passes.Grid(**fixed)


def ngram(target: Any) -> passes.Build:
    def build(d: int, rows: int, length: int) -> Decoder:
        plan = tiny.plan(d, rows=rows, length=length)
        return Decoder(target, NGram(device=CPU), plan, target.slots(rows, length))

    return build


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny.lean(tiny.model(dtype=torch.float32))


# ---- forced acceptance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["given", "ngram", "external"])
def test_every_pass_proposes_all_it_may_and_accepts_what_it_is_told(target: Any, drafter: str) -> None:
    plan = tiny.plan(3, rows=2, length=128)
    proposers = {"given": Given(device=CPU), "ngram": NGram(device=CPU), "external": tiny.external(target, plan)}
    decoder = Forced(target, proposers[drafter], plan, target.slots(2, 128), 40)
    decoder.fill()
    for _ in range(4):
        passed, stepped = decoder.step()
        assert (passed.batch, passed.width, passed.proposed) == (2, 4, 6)
        assert [(s.step.accepted, s.step.committed, s.finish) for s in stepped] == [(ACCEPTED, 1 + ACCEPTED, None)] * 2
    assert len(decoder.rows[0].ids) == 40 + 1 + 4 * (1 + ACCEPTED)  # type: ignore[union-attr]


def test_the_baseline_commits_one_token_a_pass_and_rewinds_to_its_context(target: Any) -> None:
    decoder = Forced(target, None, tiny.plan(0, rows=1), target.slots(1, 320), 40)
    decoder.fill()
    assert [decoder.step()[1][0].step.committed for _ in range(3)] == [1, 1, 1]
    decoder.rewind()
    row = decoder.rows[0]
    assert row is not None
    assert row.ids == text(41, 64)


# ---- passes --------------------------------------------------------------------------------------------------------


def test_a_group_times_the_baseline_twice_and_every_length_once(target: Any) -> None:
    found = passes.measure(passes.plain_arms(target, grid(), 2, 16), 2, 16, time.perf_counter() + 60)
    assert [(each.draft_length, each.batch, each.context, each.rounds) for each in found] == [
        (0, 2, 16, passes.ROUNDS),
        (2, 2, 16, passes.ROUNDS),
    ]
    assert found[0].again is not None
    assert found[1].again is None
    assert all(each.verify > 0 and each.draft is None and each.spread >= 0 for each in found)


def test_what_slows_a_round_slows_all_of_it_and_so_no_ratio(target: Any) -> None:
    """The second round ran at half speed: 10 and 20 ms against 15 and 30; the ratio is 1.5 in both, the spread 0."""
    base, twin, wide = passes.plain_arms(target, grid(), 1, 16)
    base.verify, wide.verify, twin.verify = [0.010, 0.020, 0.010], [0.015, 0.030, 0.015], [0.011, 0.018, 0.010]
    for arm in (base, wide, twin):
        arm.other = [0.0] * 3
    found = wide.timed(1, 16, base, None, 0.010)
    assert found.verify == pytest.approx(0.015)
    assert found.spread == pytest.approx(0)
    both = base.timed(1, 16, base, twin, 0.010)
    assert (both.verify, both.again) == (0.010, pytest.approx(0.010))  # ratios 1.1, 0.9, 1.0
    assert both.spread == pytest.approx(0.2)


def test_out_of_time_a_group_still_makes_its_fewest_rounds(target: Any) -> None:
    found = passes.measure(passes.plain_arms(target, grid(), 1, 16), 1, 16, 0.0)
    assert {each.rounds for each in found} == {passes.FEWEST}


def test_a_drafter_is_timed_at_every_length_but_none(target: Any) -> None:
    asked = grid(drafters=(("ngram", ngram(target)),), lengths=(0, 1, 2))
    found = passes.measure(passes.drafted_arms(target, asked, 1, 16), 1, 16, time.perf_counter() + 60, level=7.0)
    assert [(each.drafter, each.draft_length) for each in found] == [("ngram", 1), ("ngram", 2)]
    assert all(each.verify > 1 for each in found)  # told against a baseline of 7 s
    assert all(each.draft is not None and each.draft > 0 for each in found)


# ---- the course ----------------------------------------------------------------------------------------------------


def asked(target: Any, seconds: float = 60.0, **given: Any) -> course.Course:
    return course.Course(
        grid=grid(**given), seconds=seconds, gemm=0, attention_context=16,
        shape=studies.Shape(kv_heads=2, head_dim=8, group=2),
    )  # fmt: skip


def test_a_course_measures_every_point_and_says_where_it_is(target: Any) -> None:
    said: list[str] = []
    found = course.run(target, asked(target, drafters=(("ngram", ngram(target)),)), said.append)
    points = {(each.drafter, each.batch, each.draft_length) for each in found.timed}
    assert points == {(None, b, d) for b in (1, 2) for d in (0, 2)} | {("ngram", b, 2) for b in (1, 2)}
    assert [line.split(",")[0] for line in said] == [
        "1/4 target: B=1", "2/4 target: B=2", "3/4 drafters: B=1", "4/4 drafters: B=2"
    ]  # fmt: skip
    assert found.noise is not None
    assert [(each.tokens, each.drafter) for each in found.prefills] == [(16, None), (16, "ngram")]
    assert all(each.seconds > 0 for each in found.prefills)
    assert not found.notes


def test_what_the_time_does_not_reach_is_noted(target: Any) -> None:
    found = course.run(target, asked(target, seconds=1e-9), lambda line: None)
    assert not found.timed
    assert found.notes == ("no time for target at B=1, context 16", "no time for target at B=2, context 16")


def test_what_does_not_fit_into_memory_is_noted(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "free_memory", lambda device: 1e5)
    found = course.run(target, asked(target), lambda line: None)
    assert "target at B=2, context 16 would not fit into memory" in found.notes


def test_the_estimate_grows_with_the_points(target: Any) -> None:
    few, many = (course.estimate(target, asked(target, batches=b)) for b in ((1,), (1, 2, 4, 8, 16, 32)))
    assert 0 < few < many


# ---- kernels -------------------------------------------------------------------------------------------------------


def test_kernels_carry_their_own_arithmetic_and_share_of_the_roofline() -> None:
    reached = Peaks(flops=1e9, bandwidth=1e9, dtype="float32", product=64)
    later = time.perf_counter() + 60
    found = studies.products(CPU, torch.float32, 64, (1, 4), (0, 3), reached, later)
    assert [(each.batch, each.draft_length, each.rows) for each in found] == [
        (1, 0, 1), (1, 3, 4), (4, 0, 4), (4, 3, 16)
    ]  # fmt: skip
    one = found[3]
    assert one.flops == 2 * 16 * 64 * 64
    assert one.bytes == 4 * (64 * 64 + 2 * 16 * 64)
    assert one.bound == "compute"  # 131072 operations against 24576 bytes at equal rates
    assert one.share == pytest.approx(one.flops / 1e9 / one.seconds)
    assert found[1].seconds == found[2].seconds  # the same rows are timed once
    shape = studies.Shape(kv_heads=2, head_dim=8, group=4)
    many = studies.attention(CPU, torch.float32, shape, 2, 32, (0, 3), reached, later)
    assert [each.rows for each in many] == [4, 16]
    assert many[0].flops == 4 * 2 * 2 * 4 * 32 * 8
    assert many[0].bytes == 4 * (2 * 2 * 2 * 32 * 8 + 2 * 2 * 2 * 4 * 8)
    assert studies.products(CPU, torch.float32, 64, (1,), (0,), reached, 0.0) == []


# ---- the verb ------------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    home = tiny.folder(tmp_path / "model", tiny.model(dtype=torch.float32, max_position_embeddings=512))
    path = tmp_path / "tiny.yaml"
    path.write_text(f"title: tiny\nbackend: native\nmodel: {home}\nengine:\n  device: cpu\n", "utf-8")
    return path


def test_profile_writes_a_file_from_which_advise_recommends(runner: Path, tmp_path: Path, bench: Bench) -> None:
    out = tmp_path / "p.json"
    words = ["--runner", str(runner), "--drafter", "ngram", "-D", "1,2,4", "-B", "1,2,4", "--context", "16,64"]
    done = bench("profile", *words, "--minutes", "0.5", "--gemm", "32", "--out", str(out))
    assert done.code == 0, done.err
    assert "s at most" in done.err.splitlines()[0]
    found = profiles.read(out)
    assert found.target["dtype"] == "float32"
    assert found.peaks is not None
    assert {each.study for each in found.kernels} == {"gemm", "attention"}
    assert "linear layer, 32²" in done.out
    assert found.config["num_key_value_heads"] == 2

    advised = bench("advise", "--profile", str(out), "--al", "ngram=1:1.5,2:1.9,4:2.4", "-B", "1,2", "--json")
    assert advised.code == 0, advised.err
    said = json.loads(advised.out)
    assert [each["batch"] for each in said["batches"]] == [1, 2]
    assert all(each["best"]["drafter"] == "ngram" for each in said["batches"])
    assert said["model"]["G"] == 2
    assert any("the same measured twice" in each for each in said["warnings"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drafter", "oracle"], "needs the answer beforehand"),
        (["--drafter", "ngrm"], "Did you mean 'ngram'"),
        (["--context", "500"], "exceeds the target's 512"),
        (["--context", "8"], "out of range"),
        (["--out", "nowhere/p.json"], "should be a file in a folder that is there"),
    ],
)
def test_what_cannot_be_profiled_is_said_in_a_line(runner: Path, bench: Bench, words: list[str], said: str) -> None:
    done = bench("profile", "--runner", str(runner), *words)
    assert done.code == 2
    assert said in done.err.splitlines()[-1]


def test_a_profile_is_not_written_over_another(runner: Path, bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("measured for minutes")
    done = bench("profile", "--runner", str(runner), "--out", str(tmp_path / "p.json"))
    assert done.code == 2
    assert "is there already" in done.err
    assert (tmp_path / "p.json").read_text() == "measured for minutes"


def test_only_a_native_runner_can_be_profiled(bench: Bench) -> None:
    done = bench("profile", "--runner", "vllm-h200")
    assert done.code == 2
    assert "only the native backend" in done.err
