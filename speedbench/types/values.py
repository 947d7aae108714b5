"""The words everybody uses, frozen, as the data flows: Cell → Pass, Step → Record → Result; before them tasks.py."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
class Runner:
    """A recipe: backend, target model and engine settings; `drafters` maps a label to its settings."""

    name: str
    title: str
    backend: str
    model: str
    engine: Settings = field(default_factory=dict)
    drafters: Mapping[str, Settings] = field(default_factory=dict)
    tokenizer: str = ""
    """Where the target's tokenizer is, for engines that deal in text: a folder, a hub id, or as `model` names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A draft mechanism as asked for: `label` is what the tables say, `drafter` the mechanism, then its settings."""

    label: str
    drafter: str
    settings: Settings = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """What drafts: under forced acceptance, the drafter that it is based on."""
        return str(self.settings.get("base") or self.drafter)


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
    width: int | None
    """Tokens verified per sequence, 1 + the longest proposal (or the static width); None: not told."""
    proposed: int | None
    """Of all sequences; None: not told."""
    draft: float | None
    verify: float | None
    other: float | None
    """None in these three: the engine does not split its passes."""
    whole: float | None = None
    """All of it, where the split is not told."""

    @property
    def seconds(self) -> float | None:
        """From the beginning of its drafting to its end."""
        if self.draft is None or self.verify is None or self.other is None:
            return self.whole
        return self.draft + self.verify + self.other

    @property
    def priced(self) -> float | None:
        """Drafting and verifying, as the formula has them; where they are not told, all of the pass."""
        return self.whole if self.draft is None or self.verify is None else self.draft + self.verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Acceptance of one answer in sums, its first event apart: Σ committed over `steps` target passes.

    Whole numbers where they were counted; expected ones of a replayed sampler are not.
    """

    steps: int | float
    committed: int
    accepted: int | float | None
    proposed: int | float | None
    drafted: int | float | None
    """Steps in which something was proposed."""
    origin: Origin = "derived"
    outcomes: tuple[tuple[int, int, bool, float], ...] | None = None
    """(proposed, accepted, whether nothing cut it short, steps that came out so); None: not told."""
    begun: tuple[tuple[float, float], ...] | None = None
    """[k]: steps that begin behind k + 1 tokens of the answer, and the tokens that they commit; None: not told."""


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
    tokens: int | None = None
    """The engine's count of output tokens, where it tells that and no ids; `output` is empty then."""
    text: str | None = None
    """The answer as text, where the engine deals in text; what a later turn of the conversation quotes."""
    counts: Counts | None = None
    """Acceptance of the whole answer, where the engine tells no single step; `steps` is empty then."""
    told: Origin = "exact"
    """What `steps` rest on: the engine's own steps, its histogram (derived), its chunks (estimated), or nothing."""
    off_target: int | None = None
    """Of a replay: tokens of the output that the target, given those before them, would not say; None: not looked."""

    @property
    def size(self) -> int:
        """Output tokens."""
        return len(self.output) if self.tokens is None else self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a server's own counters moved by while a block of conversations was held; None is what it does not say.

    All its traffic is in them, so nobody else may have used it meanwhile.
    """

    drafted: int | None
    """Steps in which something was proposed, of all sequences."""
    proposed: int | None
    accepted: int | None
    accepted_at: tuple[int, ...] | None
    """[i - 1]: steps that accepted at least i drafts."""
    generated: int | None
    """Output tokens."""
    steps: int | None
    """Steps of all sequences, drafted or not."""
    running: float | None
    """Mean sequences in the batch, as sampled while they were held."""
    cached: int | None
    """Prompt tokens that came out of a prefix cache, of `prompted`."""
    prompted: int | None
    preempted: int | None
    faults: tuple[str, ...] = ()
    """What forbids using them: a reset meanwhile, a series that vanished."""
    process: int = 0
    raw: Any = None
    """The series before and after, so that they can be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Where one greedy output left its baseline's: `gap` is the target's top-2 logit gap at that index.

    The index is a token's, and a character's where the engine told no ids.
    """

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
class PassCost:
    """Seconds of one pass over a full batch, where an engine does not split its passes; None is what is not told."""

    t_verify_plain: float | None = None
    """Of a pass without drafts: T_verif(B)."""
    t_verify: float | None = None
    """Of the target over 1 + D tokens a sequence: T_verif(B(1+D)); of a baseline, the same as above."""
    t_draft: float | None = None
    """To draft D tokens for each sequence: T_draft(B, D)."""
    t_step: float | None = None
    """Of all of it, drafting and bookkeeping included."""
    origin: Origin
    source: str
    """Who told it, and what it leaves out."""
    n: int = 0
    """How many passes, requests or readings it rests on."""
    own_clock: bool = False
    """Whether `t_step` is the cell's own time at the client, of which the formula would make its speedup again."""

    @property
    def priced(self) -> float | None:
        """Drafting and verifying, as the formula has them; where they are not told, all of the pass."""
        return self.t_step if self.t_verify is None or self.t_draft is None else self.t_verify + self.t_draft


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A cell as it came back: what every metric is a pure function of. Equal to itself alone, so that what several
    metrics share can be kept by it."""

    cell: Cell
    records: tuple[Record, ...]
    passes: tuple[Pass, ...]
    mismatches: tuple[Mismatch, ...] | None
    """None: not compared (sampling, or no baseline); empty: compared and equal."""
    counted: tuple[Counted, ...] = ()
    """By block, where the engine has counters of its own."""
    drafting: Drafting | None = None
    """What the cell's label stands for; None of the baseline, and where it is not known."""
    cost: PassCost | None = None
    """What other cells of the run tell of its passes (`pairing.costed`)."""


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
    generation: str = ""
    """How a proposal comes about. Here and below, empty is not said."""
    cost: str = ""
    """What drafting takes, and how it grows with D."""
    lengths: str = ""
    """Which D it may be asked for."""
    training: str = ""
    memory: str = ""
    """What serving it takes beside the target."""
    state: str = ""
    """What it keeps between passes, and whether a proposal depends on other requests."""
    lossless: bool = True
    """Whether verification makes its output the target's own, under an engine's lossless rule."""
    servable: bool = True
    """False for one that needs the answer beforehand: it measures, but nobody can serve with it."""
