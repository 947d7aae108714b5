"""What is said of a cell whose numbers call for a word."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from speedbench.cli import document
from tests.builders import result


def test_a_residual_says_what_passes_cost_and_what_steps_cost_by_the_clock() -> None:
    # AL 1.42: by the passes 1.42 / 3.21 = 0.44x, by the clock 1.42 / 2.70 = 0.53x, 19 % more
    found = result(residual=0.19, break_even_al=3.21, step_cost=2.70, t_verify=0.034)
    assert document._cell_warnings(found, passes=True) == [
        "ngram-d3-b1-rall: the formula misses the measured speedup by +19.0 %: full passes cost 3.21x the baseline's, "
        "steps by the clock 2.70x"
    ]


def test_a_residual_within_the_limit_is_nothing_to_speak_of() -> None:
    assert document._cell_warnings(result(residual=0.04, break_even_al=3.21, step_cost=3.3), passes=False) == []
