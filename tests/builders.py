"""Steps, records and cells by hand, so that a test shows only the numbers it is about."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from speedbench.types import Cell, Finish, Measured, Measurement, Metric, Mismatch, Pass, Record, Result, Step


def step(accepted: int | None, proposed: int | None = 3, *, cut: int = 0, at: float | None = None) -> Step:
    """Commits accepted + 1, less `cut`; where the engine does not say, 1."""
    return Step(at=at, proposed=proposed, accepted=accepted, committed=(accepted or 0) + 1 - cut)


def steps(*accepted: int, d: int = 3) -> tuple[Step, ...]:
    """Steps that propose D each and accept these."""
    return tuple(step(a, d) for a in accepted)


def record(
    made: Sequence[Step] = (),
    *,
    request: str = "r0",
    category: str = "chat",
    turn: int = 0,
    sent: float = 0.0,
    first: float | None = 1.0,
    last: float | None = 2.0,
    first_tokens: int = 1,
    finish: Finish = "length",
    prompt_sha: str | None = None,
    process: int = 0,
) -> Record:
    """A turn whose output is as long as its first event and its steps say."""
    tokens = first_tokens + sum(each.committed for each in made)
    return Record(
        request=request,
        category=category,
        turn=turn,
        prompt_tokens=5,
        prompt_sha=prompt_sha or f"{request}/{turn}",
        output=tuple(range(tokens)),
        steps=tuple(made),
        sent=sent,
        first=first,
        last=last,
        first_tokens=first_tokens,
        prefill=None,
        finish=finish,
        error="HTTP 503" if finish == "error" else None,
        process=process,
    )


def timed(
    tokens: int, seconds: float, *, d: int = 0, request: str = "r0", category: str = "chat", **more: object
) -> Record:
    """First token at 1 s, then so many tokens in so many seconds, one step each."""
    made = tuple(step(0, d) for _ in range(tokens))
    return record(made, request=request, category=category, first=1.0, last=1.0 + seconds, **more)  # type: ignore[arg-type]


def passed(
    *, verify: float, draft: float = 0.0, other: float = 0.0, batch: int = 1, at: float = 0.0, d: int = 0
) -> Pass:
    return Pass(at=at, batch=batch, width=1 + d, proposed=d * batch, draft=draft, verify=verify, other=other)


def measured(
    *records: Record,
    d: int = 3,
    b: int = 1,
    drafter: str = "ngram",
    repeat: int | None = 0,
    passes: Sequence[Pass] = (),
    mismatches: Sequence[Mismatch] | None = None,
) -> Measured:
    """A cell; D = 0 makes it the baseline."""
    return Measured(
        cell=cell(drafter, d, b, repeat),
        records=records,
        passes=tuple(passes),
        mismatches=None if mismatches is None else tuple(mismatches),
    )


def cell(drafter: str = "ngram", d: int = 3, b: int = 1, repeat: int | None = 0) -> Cell:
    return Cell(task="t", runner="u", drafter=drafter if d else "none", draft_length=d, concurrency=b, repeat=repeat)


def mismatch(request: str, kind: str, *, turn: int = 0, index: int = 7, gap: float | None = None) -> Mismatch:
    return Mismatch(request=request, turn=turn, index=index, expected=1, got=2, gap=gap, kind=kind)  # type: ignore[arg-type]


def result(drafter: str = "ngram", d: int = 3, b: int = 1, repeat: int | None = None, **values: object) -> Result:
    """A result with these metrics: a number, or a whole `Measurement`."""
    metrics = {
        name: value if isinstance(value, Measurement) else Measurement(value=float(value), n=24, origin="derived")  # type: ignore[arg-type]
        for name, value in values.items()
    }
    return Result(cell=cell(drafter, d, b, repeat), metrics=metrics, by_category={})


def values(metrics: Sequence[Metric], here: Measured, baseline: Measured | None = None) -> dict[str, float | None]:
    """Every number of a family, by name."""
    return {name: found.value for metric in metrics for name, found in metric.of(here, baseline).items()}
