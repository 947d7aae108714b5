"""From names and files to a question: model, hardware, times and acceptance lengths, each refused by name if wrong."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from speedbench import catalog, modelfacts
from speedbench.advise import aiconfigurator
from speedbench.advise.advice import Question
from speedbench.advise.curves import Curve, Seen
from speedbench.advise.memory import Weight, weight
from speedbench.advise.offers import Costs
from speedbench.advise.roofline import Deployment, Roofline, assumptions
from speedbench.advise.rules import Ground
from speedbench.costs.linear import Place, Refused
from speedbench.costs.passes import Passes
from speedbench.errors import UnknownName, UserError
from speedbench.types import Hardware, ModelFacts, Prefill, Profile

ANSWER = 512
"""Tokens that memory is reserved for beyond the context, where nothing is asked."""

TIMES = ("constants", "aiconfigurator")

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says; None is left to the profile, or to what is usual."""

    curves: tuple[Curve, ...]
    seen: tuple[Seen, ...]
    targets: tuple[str, ...]
    """What the runs among the curves were measured on, as `named` says it."""
    profile: Profile | None
    profile_name: str
    model: str | None
    hardware: str | None
    times: str
    """Without a profile: constants, or aiconfigurator with an engine behind a colon."""
    gpus: int
    weights: str | None
    kv: str | None
    batches: tuple[int, ...] | None
    context: int | None
    answer: int | None
    user_tps: float | None
    rho: float | None
    externals: Mapping[str, str]
    """By label, the config of a small model that drafts."""


def question(asked: Asked) -> Question:
    """Raises `UserError` for what is missing or cannot be."""
    on = _deployment(asked)
    externals = {label: modelfacts.load(name) for label, name in asked.externals.items()}
    mechanisms = {curve.label: curve.mechanism for curve in asked.curves}
    _refuse_unknown_externals(asked, mechanisms)
    costs: Costs
    if asked.profile is not None:
        if asked.times != TIMES[0]:
            raise UserError(f"--times {asked.times}: with --profile times are measured; give one of the two")
        passes = Passes(asked.profile.timed, on.facts)
        costs, by, share = passes, f"the times of {asked.profile_name}", _measured_share(passes)
        notes = [
            *_other_targets(asked, asked.profile),
            *asked.profile.notes,
            *_fit_note(passes),
            *_noise_note(asked.profile),
        ]
    else:
        costs = roofline = _priced(asked, Roofline(on, mechanisms, externals, asked.rho))
        by, share = f"the {roofline.name}", _counted_share(roofline)
        notes = [roofline.trust, *assumptions(mechanisms, asked.rho)]
    return Question(
        ground=Ground(
            on=on, costs=costs, curves=asked.curves, seen=asked.seen, context=_context(asked), by=by, share=share,
            contexts=_contexts(asked.profile),
            layers={} if asked.profile else _layers(mechanisms, on.facts, externals),
        ),
        batches=asked.batches or _batches(asked.profile), answer=ANSWER if asked.answer is None else asked.answer,
        weights={label: _weight(asked, on, label, mechanism, externals) for label, mechanism in mechanisms.items()},
        user_tps=asked.user_tps, notes=tuple(notes), prefills=_prefills(asked, on, costs),
    )  # fmt: skip


def _priced(asked: Asked, roofline: Roofline) -> Roofline:
    """Times without a profile."""
    source, _, engine = asked.times.partition(":")
    if source not in TIMES or (engine and source == TIMES[0]):
        raise UnknownName("source of times", asked.times, TIMES)
    if source == TIMES[0]:
        return roofline
    config = modelfacts.config(str(asked.model))
    handle, name = aiconfigurator.compiled(roofline.on, config, engine or "trtllm", asked.weights, asked.kv)
    return aiconfigurator.Tabled(
        roofline.on, roofline.mechanisms, roofline.externals, roofline.rho, handle=handle, tables=name
    )


def _prefills(asked: Asked, on: Deployment, by: Costs) -> tuple[Prefill, ...]:
    """As measured here or by others, else two operations a parameter and token at what kernels are taken to reach."""
    if asked.profile is not None:
        return asked.profile.prefills
    if isinstance(by, aiconfigurator.Tabled):
        return by.prefills()
    return (Prefill(tokens=1, seconds=2 * on.facts.active_parameters / (on.gpus * on.compute_rate)),)


def _deployment(asked: Asked) -> Deployment:
    facts = _facts(asked)
    if facts.heads % asked.gpus:
        raise UserError(f"--gpus {asked.gpus}: {facts.name} has {facts.heads} query heads, which do not divide by it")
    loaded = str(asked.profile.target.get("dtype", "")) if asked.profile and asked.hardware is None else ""
    format = asked.weights or (loaded if loaded in modelfacts.DTYPES else None)
    wide = facts.weight_bytes if format is None else modelfacts.weight_bytes(format)
    entry = (2.0 if wide < 4 else 4.0) if asked.kv is None else modelfacts.weight_bytes(asked.kv)
    return Deployment(
        facts=facts, hardware=_hardware(asked), gpus=asked.gpus, weight_bytes=wide, kv_bytes=entry
    )  # fmt: skip


def _facts(asked: Asked) -> ModelFacts:
    if asked.model is not None:
        return modelfacts.load(asked.model)
    if asked.profile is not None and asked.profile.config:
        return modelfacts.of(asked.profile.config, str(asked.profile.target.get("model", "")))
    raise UserError(f"--model: which target? {', '.join(modelfacts.shipped())}, a config.json, a folder, or a hub id")


def _hardware(asked: Asked) -> Hardware:
    """By name, else what the profile reached; without either, a machine of which only the times are known."""
    if asked.hardware is not None:
        return catalog.hardware(asked.hardware)
    if asked.profile is None:
        raise UserError(f"--hardware or --profile: what times? Have: {', '.join(catalog.names('hardware'))}")
    peaks = asked.profile.peaks
    return Hardware(
        name="this machine", title="the profiled machine", memory=_memory(asked.profile), link=None,
        source=asked.profile_name,        bandwidth=None if peaks is None else peaks.bandwidth, measured=True,
        flops={} if peaks is None or peaks.flops is None else {peaks.dtype: peaks.flops},
    )  # fmt: skip


def _memory(profile: Profile) -> float | None:
    """Bytes of the device that was profiled."""
    if str(profile.target.get("device", "")).startswith("cuda"):
        found = (profile.environment.get("gpus") or [{}])[0].get("memory")
    else:
        found = (profile.environment.get("memory") or {}).get("total")
    return None if found is None else float(found)


def _context(asked: Asked) -> int:
    """As asked, else the profile's middle one, else 4096."""
    if asked.context is not None:
        return asked.context
    if asked.profile is None:
        return 4096
    there = _contexts(asked.profile)
    return there[len(there) // 2]


def _contexts(profile: Profile | None) -> tuple[int, ...]:
    """Those at which the target's passes were timed."""
    return () if profile is None else tuple(sorted({each.context for each in profile.timed if each.drafter is None}))


def _batches(profile: Profile | None) -> tuple[int, ...]:
    return BATCHES if profile is None else tuple(sorted({each.batch for each in profile.timed}))


def _measured_share(passes: Passes) -> Callable[[Place], float | None]:
    """What the fit's context terms take of a pass; None where the fit cannot be had or is too far off."""

    def share(place: Place) -> float | None:
        try:
            passes.verify(place)
            shares = passes.verifying.shares(place)
        except Refused:
            return None
        return shares["context"] + shares["attention tiles"]

    return share


def _counted_share(roofline: Roofline) -> Callable[[Place], float | None]:
    def share(place: Place) -> float | None:
        parts = roofline.parts(place)
        return parts["attention"] / sum(parts.values())

    return share


def _layers(mechanisms: Mapping[str, str], facts: ModelFacts, externals: Mapping[str, ModelFacts]) -> dict[str, int]:
    """Of serial drafters, as far as shapes tell."""
    own = {"mtp": max(1, facts.drafting), "eagle3": 1}
    return {label: own[mechanism] for label, mechanism in mechanisms.items() if mechanism in own} | {
        label: small.layers for label, small in externals.items()
    }


def _weight(
    asked: Asked, on: Deployment, label: str, mechanism: str, externals: Mapping[str, ModelFacts]
) -> Weight | None:
    """As loaded for the profile, else by its shapes."""
    facts = asked.profile.drafters.get(label, {}) if asked.profile else {}
    if facts.get("bytes") is not None:
        return Weight(
            weights=float(facts["bytes"]), per_token=float(facts.get("bytes_per_token") or 0), origin="measured"
        )
    return weight(on, mechanism, externals.get(label))


def _refuse_unknown_externals(asked: Asked, mechanisms: Mapping[str, str]) -> None:
    for label in asked.externals:
        if label not in mechanisms:
            raise UserError(f"--external {label}=…: no --al names '{label}'; have {', '.join(mechanisms)}")


def _other_targets(asked: Asked, profile: Profile) -> Sequence[str]:
    """Where acceptance and times are not of the same model: neither explains the other."""
    ours = named(profile.target)
    return [f"the acceptance lengths are of {each}, the times of {ours}" for each in asked.targets if each != ours]


def named(target: Mapping[str, object]) -> str:
    """A target in words, as a session's facts tell it."""
    return f"{target.get('model', 'an unknown model')} in {target.get('dtype', 'an unknown format')}"


def _fit_note(passes: Passes) -> Sequence[str]:
    try:
        found = passes.verifying
    except Refused as error:
        return [f"T_verif is known at the measured points only: {error}"]
    mean, worst = 100 * found.mean_error, 100 * found.worst_error
    points = f"over {len(found.errors)} points, each predicted without itself"
    return [f"T_verif between measured points is off by {mean:.1f} % on the mean, {worst:.0f} % at worst, {points}"]


def _noise_note(profile: Profile) -> Sequence[str]:
    if profile.noise is None:
        return []
    return [f"the same measured twice differed by up to {100 * profile.noise:.1f} %: no smaller gain is to be believed"]
