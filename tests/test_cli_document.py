"""What is said of a cell whose numbers call for a word."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.cli import document
from tests.builders import result


def test_the_formulas_misses_are_one_line_a_concurrency_which_says_what_full_passes_leave_out() -> None:
    # a pass of 10 ms and 20 by the clock, against 30 and 42: 20 / 10 = 2x, 42 / 30 = 1.4x, and 2 / 1.4 is 43 % off
    found = [
        result("none", 0, 4, t_pass=0.010, t_step=0.020),
        result("ngram", 1, 4, residual=-0.13),
        result("mtp", 7, 4, residual=0.43, t_pass=0.030, t_step=0.042),
        result("mtp", 7, 1, residual=0.04),
    ]
    assert list(document._missed(found)) == [
        "B=4: the formula misses the speedup of 2 cells, most mtp-d7-b4-rall's, by +43.0 %: it prices full passes, and "
        "a step by the clock, with others' prefills and batches not full, takes 2.00x such a pass in the baseline, "
        "1.40x there"
    ]


def test_a_miss_is_named_alone_where_nothing_tells_what_a_pass_cost() -> None:
    found = [result("none", 0, 1), result("ngram", 3, 1, residual=0.19)]
    assert list(document._missed(found)) == ["B=1: the formula misses the speedup of ngram-d3-b1-rall by +19.0 %"]


def test_waits_that_explain_less_than_half_of_a_miss_are_not_brought_up() -> None:
    # 2.0x in the baseline and 1.9x there is 5 %, of 43 %
    plain, cell = result("none", 0, 1, t_pass=0.01, t_step=0.020), result(residual=0.43, t_pass=0.01, t_step=0.019)
    assert list(document._missed([plain, cell])) == [
        "B=1: the formula misses the speedup of ngram-d3-b1-rall by +43.0 %"
    ]


def test_of_repeats_the_pooled_cells_speak() -> None:
    found = [result("ngram", 3, 1, repeat, residual=0.2) for repeat in (0, 1, None)]
    assert [line.partition(" by ")[0] for line in document._missed(found)] == [
        "B=1: the formula misses the speedup of ngram-d3-b1-rall"
    ]


def test_a_residual_within_the_limit_is_nothing_to_speak_of() -> None:
    assert list(document._missed([result(residual=0.04)])) == []
