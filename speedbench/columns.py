"""The columns of every table, in order: terminal, Markdown and CSV read this one list."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speedbench.files import csv_cell
from speedbench.stats import UNAVAILABLE
from speedbench.types import Measurement, Result

RESIDUAL_LIMIT = 0.05
"""Beyond this the formula does not explain the speedup, and the residual is flagged."""

UNKNOWN = "-"


def _always(_: Result) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`of` is the text of a cell; the column is shown when `when` holds for any result of the table."""

    title: str
    of: Callable[[Result], str]
    explain: str
    when: Callable[[Result], bool] = _always


def shown(results: Sequence[Result]) -> tuple[Column, ...]:
    """The columns that say something about these results."""
    return tuple(column for column in COLUMNS if any(column.when(result) for result in results))


def measurement(result: Result, name: str) -> Measurement:
    return result.metrics.get(name, UNAVAILABLE)


def value(result: Result, name: str) -> float | None:
    return measurement(result, name).value


def csv_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row a cell: the cell, then every metric's value, low, high, n and origin. Every row has every column."""
    names = _names(results)
    return [asdict(result.cell) | _flat(result, names) for result in results]


def csv_text(results: Sequence[Result]) -> str:
    """The rows as CSV, numbers in full."""
    import pandas

    rows = [{name: csv_cell(content) for name, content in row.items()} for row in csv_rows(results)]
    return str(pandas.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def _names(results: Sequence[Result]) -> list[str]:
    """All metrics in the order of their families; the positions of one metric together and in order."""
    first: dict[str, int] = {}
    for result in results:
        for name in result.metrics:
            first.setdefault(name.partition("[")[0], len(first))
    every = {name for result in results for name in result.metrics}
    return sorted(every, key=lambda name: (first[name.partition("[")[0]], _position(name)))


def _position(name: str) -> int:
    return int(name.partition("[")[2].rstrip("]") or 0)


def _flat(result: Result, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in names:
        for field, content in asdict(measurement(result, name)).items():
            row[name if field == "value" else f"{name}_{field}"] = content
    return row


# ---- the texts -----------------------------------------------------------------------------------------------------


def _digits(number: float) -> str:
    """Three digits that say something, and no fewer than those before the point: 9.53, 59.1, 1234."""
    return f"{number:.2f}" if abs(number) < 9.995 else f"{number:.1f}" if abs(number) < 99.95 else f"{number:.0f}"


def _number(name: str, unit: str = "") -> Callable[[Result], str]:
    def of(result: Result) -> str:
        found = value(result, name)
        return UNKNOWN if found is None else f"{_digits(found)}{unit}"

    return of


def _with_interval(name: str, unit: str = "") -> Callable[[Result], str]:
    """`2.50 [2.31, 2.70]`; the interval is left out where there is none, or no width."""

    def of(result: Result) -> str:
        found = measurement(result, name)
        if found.value is None:
            return UNKNOWN
        point = f"{found.value:.2f}{unit}"
        if found.low is None or found.high is None or found.low == found.high:
            return point
        return f"{point} [{found.low:.2f}, {found.high:.2f}]"

    return of


def _percent(name: str) -> Callable[[Result], str]:
    def of(result: Result) -> str:
        found = value(result, name)
        return UNKNOWN if found is None else f"{100 * found:.1f}%"

    return of


def _residual(result: Result) -> str:
    found = value(result, "residual")
    if found is None:
        return UNKNOWN
    flag = " !" if abs(found) > RESIDUAL_LIMIT else ""
    return f"{100 * found:+.1f}%{flag}"


def _lossless(result: Result) -> str:
    """`24/24`, `22/24 (2 near ties)`, `20/24 4 REAL`; a mismatch whose gap the engine cannot say is `unexplained`."""
    share = measurement(result, "lossless")
    if share.value is None or result.cell.is_baseline:  # which was compared with nothing but itself
        return UNKNOWN
    same = round(share.value * share.n)
    real, near = (round(value(result, name) or 0) for name in ("lossless_real", "near_ties"))
    unknown = share.n - same - real - near
    parts = [f"{near} near tie{'s' * (near > 1)}"] * (near > 0) + [f"{unknown} unexplained"] * (unknown > 0)
    return f"{same}/{share.n}" + f" {real} REAL" * (real > 0) + f" ({', '.join(parts)})" * bool(parts)


def _failed(result: Result) -> str:
    found = measurement(result, "failed_requests")
    return UNKNOWN if found.value is None else f"{found.value:.0f}/{found.n}"


def _repeat(result: Result) -> str:
    return "all" if result.cell.repeat is None else str(result.cell.repeat)


COLUMNS: tuple[Column, ...] = (
    Column(title="drafter", of=lambda result: result.cell.drafter, explain="the draft mechanism; none is the baseline"),
    Column(title="D", of=lambda result: str(result.cell.draft_length), explain="draft tokens per target pass"),
    Column(title="B", of=lambda result: str(result.cell.concurrency), explain="sequences in the batch"),
    Column(
        title="repeat",
        of=_repeat,
        explain="which repeat; all: pooled",
        when=lambda result: result.cell.repeat not in (0, None),
    ),
    Column(
        title="AL",
        of=_with_interval("al"),
        explain="acceptance length: tokens per step, with the 95 % interval over conversations",
    ),
    Column(title="accept", of=_percent("acceptance_rate"), explain="drafts accepted of those proposed"),
    Column(title="draft ovh", of=_number("draft_overhead"), explain="seconds to draft / seconds of a plain pass"),
    Column(title="verify ovh", of=_number("verify_overhead"), explain="seconds to verify / seconds of a plain pass"),
    Column(
        title="step cost",
        of=_number("step_cost"),
        explain="seconds of a step / of the baseline's, by the clock, where an engine does not split its passes",
        when=lambda result: (
            not result.cell.is_baseline
            and value(result, "verify_overhead") is None
            and value(result, "step_cost") is not None
        ),
    ),
    Column(title="tok/s", of=_number("decode_tps"), explain="tokens per second of a request once it decodes"),
    Column(
        title="out tok/s",
        of=_number("output_tps"),
        explain="tokens per second of the whole cell while it is full",
        when=lambda result: result.cell.concurrency > 1,
    ),
    Column(
        title="speedup",
        of=_with_interval("speedup", "x"),
        explain="measured tok/s / the baseline's, paired by prompt, with the 95 % interval",
    ),
    Column(
        title="formula",
        of=_number("speedup_formula", "x"),
        explain="the speedup predicted by AL / (verify ovh + draft ovh)",
    ),
    Column(
        title="residual",
        of=_residual,
        explain=f"speedup / formula - 1; ! beyond {100 * RESIDUAL_LIMIT:.0f} %",
    ),
    Column(
        title="lossless",
        of=_lossless,
        explain="greedy outputs identical to the baseline's / compared; REAL: not explained by a near tie",
    ),
    Column(
        title="off target",
        of=lambda result: UNKNOWN if value(result, "off_target") is None else f"{value(result, 'off_target'):.0f}",
        explain="tokens of the replayed outputs that the target, given those before, would not say",
        when=lambda result: value(result, "off_target") is not None,
    ),
    Column(
        title="failed",
        of=_failed,
        explain="turns that ended in an error / asked for",
        when=lambda result: bool(value(result, "failed_requests")),
    ),
)
