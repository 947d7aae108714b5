"""SPEED-Bench is prepared from all its kinds of source: what each row becomes, what is missing, and what goes on."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from miniature import ASKED_OF_HLE, HLE, QUALITATIVE, Words, fill, parquet, qualitative, throughput
from preparation import Kitchen, kitchen, short, speed_task
from stub_hub import StubHub

from speedbench import prepared, task
from speedbench.errors import UserError
from speedbench.prepare import bucketed, lengths, preparing, speed_bench
from speedbench.prepare.resolvers import filled
from speedbench.prepared import MARKER


@pytest.fixture
def cook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    with fill(StubHub()) as stub:
        yield kitchen(stub, tmp_path, monkeypatch)


# ---- what rows become -----------------------------------------------------------------------------------------------


def test_every_kind_of_source_gives_its_text(cook: Kitchen) -> None:
    said = cook("speed-bench", "qualitative")
    assert short(cook.rows()) == QUALITATIVE
    assert said["rows"] == {"total": 13, "resolved": 13, "missing": 0}
    assert said["partial"] is False


def test_the_rows_stand_in_the_order_of_the_published_file_with_their_columns(cook: Kitchen) -> None:
    cook("speed-bench", "qualitative")
    rows = cook.rows()
    assert [row["id"] for row in rows] == [row["question_id"] for row in qualitative()]
    told = {
        row["id"].rstrip("-"): (row["category"], row["sub_category"], row["difficulty"], row["tier"]) for row in rows
    }
    assert told["hle1"] == ("math", "Algebra", "hard", None)
    assert told["cnn"] == ("summarization", None, None, None)
    assert all(row["sha256"] == prepared.row_hash(row) for row in rows)


def test_no_file_is_fetched_beyond_those_that_have_the_rows(cook: Kitchen) -> None:
    cook("speed-bench", "qualitative")
    assert cook.stub.fetched("test2.jsonl") == 1
    assert cook.stub.fetched("test3.jsonl") == 0
    assert cook.stub.fetched("1.0.0/") == cook.stub.fetched("train-") == cook.stub.fetched("doc2dial") == 0


def test_a_bucket_holds_prompts_of_its_size_and_keeps_the_tier(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    rows = {row["id"].rstrip("-"): row for row in cook.rows()}
    assert [row["tier"] for row in rows.values()] == [row["category"] for row in throughput()]
    sizes = {name: len(Words().encode(row["turns"][0])) for name, row in rows.items()}
    assert sizes.pop("shipped") == 6
    assert set(sizes.values()) == {1000}


def test_sorting_is_asked_for_in_other_words_and_padded_or_cut(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    rows = short(cook.rows())
    assert rows["sort0"][0].startswith("\nWrite the parts in order. \nBefore: ")
    assert rows["sort0"][0].count(lengths.PADDING) > 20
    assert "Answer now" not in rows["sort1"][0]


def test_the_instruction_behind_the_answers_is_never_cut_and_the_best_answer_is_among_them(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    (prompt,) = short(cook.rows())["select0"]
    assert "Now pick. \nSay why.\n" in prompt
    assert "n0a2x33\n" in prompt
    assert prompt.count(":\n\nn0a") == 3


def test_the_questions_of_an_exam_come_after_whole_examples_and_are_not_cut(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    for number in ASKED_OF_HLE[:3]:
        (prompt,) = short(cook.rows())[f"hle{number}"]
        text, _, padding = prompt.partition(HLE[number]["question"])
        assert text.startswith(f"Some examples of {HLE[number]['category']}:\n\nQuestion: ")
        assert text.endswith("\n\n")
        assert set(padding.replace(lengths.PADDING, "")) <= set(lengths.PADDING)
        assert "q5w0" not in text  # its question has an image


def test_an_exam_prompt_does_not_depend_on_the_rows_before_it(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    before = short(cook.rows())
    hle = [row for row in throughput() if "hle" in row["source"]]
    cook.stub.hub[speed_bench.REPO]["throughput_1k/test-00000-of-00001.parquet"] = parquet(hle[2:])
    cook.forget()
    cook("speed-bench", "throughput_1k", again=True)
    (left,) = short(cook.rows()).items()
    assert before[left[0]] == left[1]


def test_compat_repeats_the_faults_of_the_official_resolver(cook: Kitchen) -> None:
    cook("speed-bench", "throughput_1k")
    ours = short(cook.rows())
    said = cook("speed-bench", "throughput_1k", compat=True)
    theirs = short(cook.rows())
    assert said["compat"] is True
    assert {name for name in ours if ours[name] != theirs[name]} == {"select0", "select1", "hle16", "hle15", "hle18"}
    assert len(Words().encode(theirs["hle16"][0])) == 1001
    assert "Say why.\n" not in theirs["select0"][0]


def test_an_answer_that_fits_alone_is_taken_by_the_official_resolver_even_when_the_sum_does_not_fit() -> None:
    words, answers = Words(), [f"{name} " * 30 for name in "abcde"]
    assert len(bucketed._choice(words, answers, 2, 150)) == 2
    assert len(bucketed._official_choice(words, answers, 2, 150)) == 5
    assert answers[2] in bucketed._choice(words, answers, 2, 10)


@pytest.mark.parametrize(("text", "size"), [("a b c", 5), ("a b c", 3), ("a b c d", 50), ("", 7)])
def test_a_text_is_brought_to_its_size(text: str, size: int) -> None:
    words = Words()
    assert len(words.encode(lengths.fitted(words, text, size))) == size


@pytest.mark.parametrize("template", ["{article.__class__}", "{other}", "{article!r}", "{article:>9}", "{0}"])
def test_a_template_gets_nothing_but_what_it_may_have(template: str) -> None:
    with pytest.raises(Exception, match="asks for"):
        filled(template, article="x")


# ---- what is missing ------------------------------------------------------------------------------------------------


def test_a_gated_source_costs_its_own_rows_and_the_rest_is_marked_partial(cook: Kitchen) -> None:
    cook.stub.faults["cais/hle"] = 403
    said = cook("speed-bench", "qualitative")
    assert said["partial"] is True
    lines = preparing.described(said)
    assert lines[0].startswith("speed-bench qualitative: 11 of 13 rows resolved, partial")
    assert "missing 2 of cais/hle: access is gated (403); open " in lines[1]
    assert "/datasets/cais/hle" in lines[1]
    assert "hle1" not in short(cook.rows())
    assert [(one["id"].rstrip("-"), one["source"]) for one in said["missing"]] == [
        ("hle1", "cais/hle"),
        ("hle2", "cais/hle"),
    ]


def test_a_task_refuses_a_partial_preparation_until_it_is_accepted(cook: Kitchen) -> None:
    cook.stub.faults["cais/hle"] = 403
    cook("speed-bench", "qualitative")
    with pytest.raises(UserError, match=r"11 of 13 rows resolved.*prepare speed-bench --config qualitative --partial"):
        task.requests(speed_task("qualitative"))
    cook("speed-bench", "qualitative", partial=True)
    told = task.preparations(speed_task("qualitative"))["t"]
    assert (told["partial"], told["rows"]["resolved"], told["rows"]["total"]) == (True, 11, 13)
    with pytest.warns(UserWarning, match="11 of 13 rows resolved; numbers on it are not those of the whole set"):
        assert len(task.requests(speed_task("qualitative"))) == 11


def test_what_was_gated_is_fetched_once_access_is_given_and_nothing_else_again(cook: Kitchen) -> None:
    cook.stub.faults["cais/hle"] = 403
    cook("speed-bench", "qualitative")
    cook.stub.faults.clear()
    cook.stub.asked.clear()
    said = cook("speed-bench", "qualitative")
    assert said["partial"] is False
    assert short(cook.rows()) == QUALITATIVE
    assert {line for line in cook.stub.asked if "cais/hle" not in line and "SPEED-Bench" not in line} == set()


def test_the_placeholder_never_gets_into_a_row(cook: Kitchen) -> None:
    rows = qualitative()
    rows[0]["turns"] = ["A real turn.", MARKER]
    rows[2]["source"] = "https://huggingface.co/datasets/somebody/unknown"
    cook.stub.hub[speed_bench.REPO]["qualitative/test-00000-of-00001.parquet"] = parquet(rows)
    cook.stub.hub["deepmind/code_contests"]["data/test-00000-of-00001.parquet"] = parquet(
        [{"name": "7_B", "description": f"{MARKER} again"}]
    )
    said = cook("speed-bench", "qualitative")
    assert said["rows"]["missing"] == 3
    assert not any(MARKER in turn for row in cook.rows() for turn in row["turns"])
    why = {each["source"]: list(each["why"]) for each in said["sources"] if each["missing"]}
    assert why["deepmind/code_contests"] == ["its source gives an empty turn, or the placeholder again"]
    assert "no resolver knows its source" in why["https://huggingface.co/datasets/somebody/unknown"][0]


def test_an_id_that_a_source_does_not_have_is_one_missing_row(cook: Kitchen) -> None:
    rows = qualitative()
    rows[6]["src_id"] = "opus100_de-en_77"
    cook.stub.hub[speed_bench.REPO]["qualitative/test-00000-of-00001.parquet"] = parquet(rows)
    said = cook("speed-bench", "qualitative")
    (opus,) = [each for each in said["sources"] if each["missing"]]
    assert (opus["source"], opus["rows"], opus["why"]) == (
        "Helsinki-NLP/opus-100",
        2,
        {"its source has no row '77'": 1},
    )


def test_a_source_of_another_shape_costs_its_rows_and_says_which_column_is_not_there(cook: Kitchen) -> None:
    cook.stub.hub["abisee/cnn_dailymail"]["3.0.0/test-00000-of-00001.parquet"] = parquet([{"id": "n2", "text": "x"}])
    said = cook("speed-bench", "qualitative")
    (cnn,) = [each for each in said["sources"] if each["missing"]]
    assert "its source has not the shape that is known (KeyError: 'article')" in cnn["why"]


def test_rows_that_name_another_server_are_not_fetched(cook: Kitchen) -> None:
    rows = throughput()
    rows[1]["source"] = "http://127.0.0.1:9/AdaLEval/textsort"
    cook.stub.hub[speed_bench.REPO]["throughput_1k/test-00000-of-00001.parquet"] = parquet(rows)
    said = cook("speed-bench", "throughput_1k")
    (sort,) = [each for each in said["sources"] if each["missing"]]
    assert "nothing is fetched from there" in next(iter(sort["why"]))


def test_words_that_are_not_the_pinned_ones_are_refused(cook: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speedbench.prepare.wording.SHA256", "0" * 64)
    said = cook("speed-bench", "qualitative")
    missing = {each["source"]: list(each["why"]) for each in said["sources"] if each["missing"]}
    assert set(missing) == {"nvidia/ChatRAG-Bench", "TIGER-Lab/MMLU-Pro", "Neph0s/CoSER"}
    assert all(why.endswith("is not what its server says that it is") for (why,) in missing.values())


def test_the_packaged_tasks_read_what_was_prepared_with_its_columns(cook: Kitchen) -> None:
    cook("speed-bench", "qualitative")
    found = task.requests(task.load("speed-qualitative"))
    assert len(found) == 13
    cook("speed-bench", "throughput_1k")
    tiers = [one.columns["tier"] for one in task.requests(task.load("speed-throughput-1k"))]
    assert tiers == [row["category"] for row in throughput()]
