"""A run as the parts of a page, in the order in which a reader asks: what to do, on what grounds, how it was made."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speedbench import plugins
from speedbench.columns import shown
from speedbench.files import dumps
from speedbench.report import profile_sections, tables, words
from speedbench.report.charts import charts
from speedbench.report.drawing import Chart, Figure
from speedbench.report.html import Html, element, table
from speedbench.report.page import Section, drawn
from speedbench.report.profiled import Profiled
from speedbench.report.subject import Subject
from speedbench.stats import DRAWS

_LONGEST_TEXT = 4000
"""Letters of a prompt or an answer that are shown."""

MOST_PROMPTS = 300


def sections(subjects: Sequence[Subject], profiles: Sequence[Profiled] = ()) -> list[Section]:
    """Profiles, then runs, one after the other. Raises nothing: what is not there is said in its place."""
    alone = len(subjects) + len(profiles) == 1
    found = [] if alone else [Section(body=_contents(subjects, profiles))]
    for number, profiled in enumerate(profiles, start=1):
        found += profile_sections.of_profile(profiled, f"profile{number}", alone=alone)
    for number, subject in enumerate(subjects, start=1):
        found += _run(subject, f"run{number}", alone=alone)
    return [*found, Section(body=_methods(subjects, profiles))]


def _contents(subjects: Sequence[Subject], profiles: Sequence[Profiled]) -> Html:
    told = [(each.name, profile_sections.sentence(each), f"#profile{n}") for n, each in enumerate(profiles, start=1)]
    told += [(each.run.name, words.verdict(each), f"#run{n}") for n, each in enumerate(subjects, start=1)]
    links = [element("li", element("a", name, href=place), ": ", said) for name, said, place in told]
    note = "Each run is drawn by itself; whether two may be compared, and how they differ, is what compare is for."
    return element("nav", element("ul", *links), element("p", note, class_="soft"), aria_label="Runs")


def _run(subject: Subject, id_: str, *, alone: bool) -> Iterator[Section]:
    yield Section(body=_head(subject, id_, alone=alone))
    for name, chart in charts():
        yield _chart(subject, chart, f"{id_}-{name.replace('_', '-')}")
    yield _part("Drafters and their cost", tables.drafters(subject), f"{id_}-drafters")
    yield _part("Failures", tables.failures(subject), f"{id_}-failures")
    if subject.prompts:
        yield _part("Prompts", _prompts(subject), f"{id_}-prompts")


def _part(title: str, body: Html, id_: str) -> Section:
    return Section(body=element("section", element("h3", title), body, id=id_))


def _head(subject: Subject, id_: str, *, alone: bool) -> Html:
    """The verdict, what it rests on, and all cells."""
    warned = [element("li", each) for each in subject.summary["warnings"]]
    strip = element("div", element("strong", "Beware"), element("ul", *warned), class_="warnings") if warned else ""
    failed, turns = subject.failed
    lost = [element("li", f"{failed} of {turns} turns failed; they enter no other number.")] if failed else []
    return element(
        "section",
        *([] if alone else [element("h2", subject.run.name)]),
        element("p", words.verdict(subject), class_="verdict"),
        element("ul", *lost, *(element("li", each) for each in subject.sentences)),
        strip,
        tables.folded("Provenance: what was measured, with what and where", *_provenance(subject)),
        element("h3", "Summary"),
        tables.cells(subject),
        id=id_,
    )


def _chart(subject: Subject, chart: Chart[Subject], id_: str) -> Section:
    figure = chart.draw(subject)
    if not isinstance(figure, Figure):
        return _part(chart.title, element("p", f"Not drawn: {figure}.", class_="soft"), id_)
    return drawn(chart.title, chart.how, figure, id_)


# ---- provenance ------------------------------------------------------------------------------------------------------

_LEFT_OUT = ("cells", "request_ids", "columns")
MAY_QUOTE = ("where", "system")
"""Keys of a task that may hold the text of prompts."""


def _provenance(subject: Subject) -> list[Html]:
    config, processes = subject.run.document["config"], subject.run.document["processes"]
    shown_config = {key: said for key, said in config.items() if key not in _LEFT_OUT}
    shown_config["task"] = {key: said for key, said in config["task"].items() if key not in MAY_QUOTE}
    parts = [tables.facts("What was measured", _asked(config)), tables.facts("Where", _place(subject))]
    for title, told in (("The whole configuration", shown_config), ("The environment, once a process", processes)):
        parts.append(tables.folded(title, element("pre", dumps(told, indent=2))))
    return parts


def _asked(config: Mapping[str, Any]) -> dict[str, object]:
    task, runner, target = config["task"], config["runner"], config.get("target", {})
    sampling = config.get("sampling", {})
    greedy = not sampling.get("temperature")
    heads = {f"drafter {each['label']}": _drafting(each, config) for each in config["draftings"]}
    return {
        "task": f"{task['name']}, version {task.get('version', '-')}: {task.get('title', '-')}",
        "conversations": task.get("requests"),
        "prompts' hash": task.get("content_hash"),
        "licence of the prompts": task.get("licence"),
        "runner": f"{runner['name']}: {runner.get('title', '-')}",
        "engine": runner.get("backend"),
        "target": runner.get("model"),
        "precision": target.get("dtype"),
        **heads,
        "sampling": "greedy" if greedy else f"temperature {sampling['temperature']}, seed {sampling.get('seed')}",
        "most tokens an answer": sampling.get("max_tokens"),
        "repeats": config.get("repeats"),
    }


def _drafting(drafting: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    facts = config.get("drafters", {}).get(drafting["label"], {})
    settings = facts.get("settings") or drafting.get("settings") or {}
    told = [f"{key} {said}" for key, said in settings.items()]
    size = [f"{facts['parameters']:,} parameters"] if facts.get("parameters") else []
    return ", ".join([drafting["drafter"], *size, *told])


def _place(subject: Subject) -> dict[str, object]:
    environment = subject.environment
    packages = environment.get("packages") or {}
    commit, system = environment.get("commit") or {}, environment.get("system") or {}
    memory = (environment.get("memory") or {}).get("total")
    load = environment.get("load_average")
    return {
        "machine": words.machine(environment),
        "memory": None if memory is None else f"{memory / 2**30:.1f} GiB",
        "system": " ".join(str(system[key]) for key in ("name", "release") if system.get(key)),
        "begun": environment.get("time"),
        "processes": len(subject.run.document["processes"]),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
        "speedbench's commit": (f"{commit['sha']}{', with changes' * bool(commit.get('dirty'))}") if commit else None,
        "load before": None if load is None else ", ".join(f"{each:.2f}" for each in load),
    }


# ---- prompts and methods ---------------------------------------------------------------------------------------------


def _prompts(subject: Subject) -> Html:
    told = subject.prompts[:MOST_PROMPTS]
    more = len(subject.prompts) - len(told)
    parts = [_prompt(subject, each) for each in told]
    return element("div", *parts, *([element("p", f"{more} more are not shown.", class_="soft")] if more else []))


def _prompt(subject: Subject, request: Any) -> Html:
    """The turns, and the answer of the first cell whose engine told it as text."""
    answers: dict[int, str] = {}
    for measured in subject.run.measured:
        for record in measured.records:
            if record.request == request.id and record.text is not None:
                answers.setdefault(record.turn, record.text)
    turns = []
    for number, turn in enumerate(request.turns):
        turns.append(element("pre", _cut(turn)))
        if number in answers:
            turns += [element("p", "Answer:", class_="soft"), element("pre", _cut(answers[number]))]
    sized = "This prompt is cut to its size out of long text, and not shown."
    return tables.folded(f"{request.id} ({request.category})", *(turns or [element("p", sized)]))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} letters)"


def _methods(subjects: Sequence[Subject], profiles: Sequence[Profiled]) -> Html:
    """What the words mean and how the numbers came about."""
    said = [element("p", each) for each in (METHODS if subjects else METHODS[:1])]
    said += [element("p", profile_sections.METHODS)] if profiles else []
    return element("section", element("h2", "Methods"), *said, *(_columns(subjects) if subjects else ()), id="methods")


def _columns(subjects: Sequence[Subject]) -> list[Html]:
    columns = shown([result for subject in subjects for result in subject.results])
    metrics = [metric for name in plugins.names("metrics") for metric in plugins.load("metrics", name)]
    own = [[column.title, column.explain] for column in columns]
    every = [[metric.name, metric.title, metric.unit] for metric in metrics]
    return [
        element("div", table("Columns", ["column", "meaning"], own), class_="prose"),
        tables.folded("Every metric", table("Metrics", ["name", "meaning", "unit"], every)),
    ]


METHODS = (
    "speedup = T_verif(B) · AL / (T_verif(B·(1+D)) + T_draft(B, D)). B: sequences in the batch. D: draft tokens per "
    "target pass. AL: tokens committed per step, the target's own included. Every term is measured, as is the speedup.",
    "A step commits what was accepted and one token more, less what a stop token or the cap cuts off; the token that "
    "prefill yields belongs to no step. The speedup is a ratio of sums of tokens and decoding seconds over the "
    "conversations that both arms answered. The baseline is a cell of its own (D = 0), measured in turns with the "
    "others.",
    f"Intervals are 95% percentile bootstraps with {DRAWS} draws and a fixed seed: conversations are resampled within "
    "their categories, passes in runs of neighbours. They do not say what another machine would give.",
    "Origin: exact is counted; derived is computed from counts and times; estimated is approximated. What is not known "
    "is -, never 0 or 1.",
)
