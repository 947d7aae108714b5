"""The words everybody uses, frozen, as the data flows: Task → Request → Cell → Pass, Step → Record → Result."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Origin = Literal["exact", "derived", "estimated", "unavailable"]
"""Where a number came from: counted; computed from counts; approximated; not to be had."""

Finish = Literal["stop", "length", "error"]

Settings = Mapping[str, Any]
"""Settings that belong to an engine or a drafter: passed through verbatim and recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target picks tokens. `temperature` 0 is greedy; None for top_k or top_p means not applied."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    max_tokens: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload: where prompts come from (`source`, with its settings in `where`) and what they are."""

    name: str
    title: str
    version: int
    licence: str
    source: str
    where: Settings
    max_tokens: int = 64
    system: str | None = None
    folder: str = ""
    """The folder of the YAML, against which a source resolves relative files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One conversation to hold: user turns, replayed one call at a time with the model's own answers between."""

    id: str
    category: str
    turns: tuple[str, ...]
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A recipe: backend, target model and engine settings; `drafters` maps a label to its settings."""

    name: str
    title: str
    backend: str
    model: str
    engine: Settings = field(default_factory=dict)
    drafters: Mapping[str, Settings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A draft mechanism as asked for: `label` is what the tables say, `drafter` the mechanism, then its settings."""

    label: str
    drafter: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One square of the sweep. Equal cells are comparable."""

    task: str
    runner: str
    drafter: str
    """The drafting's label; `none` for the baseline."""
    draft_length: int
    concurrency: int
    repeat: int | None
    """None: all repeats pooled."""

    @property
    def key(self) -> str:
        """Short and unique within a run, which has one task and one runner: `ngram-d4-b1-r0`."""
        return (
            f"{self.drafter}-d{self.draft_length}-b{self.concurrency}-r{'all' if self.repeat is None else self.repeat}"
        )

    @property
    def is_baseline(self) -> bool:
        return self.draft_length == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One sequence's share of a pass. The token that prefill yields belongs to no step.

    `committed` is accepted + 1, less what a stop token or the length cap cut off in the last step.
    `proposed` and `accepted` are None where the engine does not say; proposed 0 is a plain step.
    """

    at: float | None
    """Seconds on the cell's clock when the tokens were there; None where the engine does not say."""
    proposed: int | None
    accepted: int | None
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One target forward over the whole batch, with the drafting before it. Prefills are never in here. Seconds."""

    at: float
    batch: int
    """Live sequences; the pass is at full batch when this equals the cell's concurrency."""
    width: int
    """Tokens verified per sequence, 1 + the longest proposal (or the static width)."""
    proposed: int
    draft: float
    verify: float
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One answered turn as measured. Times are seconds on the cell's clock, one `process` per resume."""

    request: str
    category: str
    turn: int
    prompt_tokens: int
    prompt_sha: str
    """sha256 of the prompt ids as comma-separated decimal text, 16 hex digits: equal prompts, equal sha."""
    output: tuple[int, ...]
    """Every committed token id, the prefill's first; a stop token is included."""
    steps: tuple[Step, ...]
    sent: float
    first: float | None
    """When the first token was there."""
    last: float | None
    first_tokens: int
    """Tokens of the first event: 1 natively, where prefill yields one token."""
    prefill: float | None
    """Seconds of prefill, target and drafter."""
    finish: Finish
    error: str | None = None
    process: int = 0
    raw: Any = None
    """The vendor's own payload, kept so that it can be parsed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Where one greedy output left its baseline's: `gap` is the target's top-2 logit gap at that index."""

    request: str
    turn: int
    index: int
    expected: int | None
    got: int | None
    gap: float | None
    """None where the engine cannot say."""
    kind: Literal["near_tie", "real", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A number with its 95 % interval; `value` None is unknown, and then `origin` says `unavailable`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Conversations the estimate rests on."""
    origin: Origin = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A cell as it came back: what every metric is a pure function of."""

    cell: Cell
    records: tuple[Record, ...]
    passes: tuple[Pass, ...]
    mismatches: tuple[Mismatch, ...] | None
    """None: not compared (sampling, or no baseline); empty: compared and equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number with a definition. `of(measured, baseline)` is pure; a metric of one value returns {name: value}.

    A metric with one value per position returns `name[1]`, `name[2]`, …. `baseline` is None where there is none.
    """

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"] | None
    of: Callable[[Measured, Measured | None], Mapping[str, Measurement]]
    by_category: bool = False
    """Whether it means something for the records of one category alone (passes belong to no category)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A cell measured: its metrics, over all and by category."""

    cell: Cell
    metrics: Mapping[str, Measurement]
    by_category: Mapping[str, Mapping[str, Measurement]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Module-level `DRAFTER` of a file in drafters/: a mechanism, and what each backend calls it.

    `backends[name](draft_length, settings)` gives that backend's own settings; an absent name is `Unsupported`.
    """

    name: str
    title: str
    inputs: str
    """What it reads: tokens, hidden states, nothing."""
    backends: Mapping[str, Callable[[int, Settings], Settings]]
    servable: bool = True
    """False for one that needs the answer beforehand: it measures, but nobody can serve with it."""


# ---- what an engine is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request as handed to an engine."""

    request: Request
    done: tuple[tuple[int, ...], ...] = ()
    """Per turn answered before a resume, its token ids."""
    expected: tuple[tuple[int, ...], ...] | None = None
    """Per turn, the baseline's token ids; for `oracle` and `synthetic`, which replay them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How one request fits: tokens of the first prompt, and an upper bound of all turns with their answers."""

    request: str
    prompt_tokens: int
    most_tokens: int
    prompt_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every cell of a sweep shares, so that all are made alike."""

    sampling: Sampling
    longest: int
    """Most tokens any conversation can reach, prompts and answers together."""
    widest: int
    """The sweep's largest D."""


class Engine(Protocol):
    """One (drafter, D) at one concurrency, up and ready."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the drafter is: parameters, bytes, acceptance rule, resolved settings."""

    def warm_up(self) -> None:
        """Run every shape once, unmeasured."""

    def serve(self, work: Sequence[Conversation]) -> Iterator[Record | Pass]:
        """Hold all conversations, `concurrency` at a time; yield passes as they happen and records as turns end."""


class Session(Protocol):
    """A backend with its target loaded, from which the engines of a sweep are made."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The target as loaded: model, dtype, parameters, context, stop ids, template hash, warnings."""

    @property
    def context(self) -> int | None:
        """Tokens the target can hold; None where the engine does not say."""

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        """Prompt sizes in the target's own tokens, before anything runs."""

    def pace(self, concurrency: int) -> tuple[float, float] | None:
        """(seconds per prefilled token, seconds per plain pass), tried out; None where it cannot be."""

    def engine(self, drafting: Drafting, draft_length: int, concurrency: int, load: Load) -> Engine:
        """Bring up one pair. Raises `Unsupported` or `UserError`."""

    def gap(self, request: Request, outputs: Sequence[Sequence[int]]) -> float | None:
        """The target's top-2 logit gap for the token after the last given output, teacher-forced; None: cannot say."""

    def near_tie(self) -> float:
        """The largest gap that rounding can turn, for the session's dtype."""

    def probe(self) -> float:
        """Seconds of a fixed small piece of work: the noise probe."""


class Backend(Protocol):
    """Module-level `BACKEND` of a file in backends/."""

    name: str
    title: str

    def open(self, runner: Runner) -> AbstractContextManager[Session]:
        """Load the target. Raises `UserError` for a missing model."""
