"""A profile as parts of a page: what it says in a sentence, its charts, what it left out, and how it was made."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator

from speedbench.columns import UNKNOWN
from speedbench.files import dumps
from speedbench.report import tables, words
from speedbench.report.drawing import Figure
from speedbench.report.html import Html, element
from speedbench.report.page import Section, drawn
from speedbench.report.profiled import Profiled
from speedbench.report.profiles import charts


def of_profile(of: Profiled, id_: str, *, alone: bool) -> Iterator[Section]:
    """Raises nothing: what is not there is said in its place."""
    yield Section(body=_head(of, id_, alone=alone))
    for name, chart in charts():
        figure = chart.draw(of)
        if isinstance(figure, Figure):
            yield drawn(chart.title, chart.how, figure, f"{id_}-{name}")
        else:
            why = element("p", f"Not drawn: {figure}.", class_="soft")
            yield Section(body=element("section", element("h3", chart.title), why, id=f"{id_}-{name}"))


def sentence(of: Profiled) -> str:
    """What was profiled, where, and how far it is to be trusted."""
    profile, noise = of.profile, of.profile.noise
    target = profile.target
    drafters = sorted({each.drafter for each in profile.timed if each.drafter})
    told = f"{target.get('model', 'An unknown model')} in {target.get('dtype', 'an unknown format')} on "
    told += f"{words.machine(profile.environment)}: {len(profile.timed)} kinds of pass"
    told += f", with {words.listed(drafters)}" if drafters else ", without a drafter"
    wavered = UNKNOWN if noise is None else f"{100 * noise:.1f}%"
    return f"{told}. The same pass measured twice differed by up to {wavered}: no smaller gain is to be believed."


def _head(of: Profiled, id_: str, *, alone: bool) -> Html:
    profile = of.profile
    warned = element("ul", *(element("li", note) for note in profile.notes))
    facts = {
        "points": len(profile.timed),
        **{
            f"prefill of {each.tokens} tokens{f' with {each.drafter}' if each.drafter else ''}": f"{each.seconds:.3g} s"
            for each in profile.prefills
        },
        **{f"asked for {key}": dumps(said) for key, said in profile.settings.items()},
    }
    parts = [
        tables.facts("What was timed", facts),
        *(
            tables.folded(title, element("pre", dumps(told, indent=2)))
            for title, told in (("The target and its drafters", {"target": profile.target, **profile.drafters}),
                                ("The environment", profile.environment))
        ),
    ]  # fmt: skip
    return element(
        "section",
        *([] if alone else [element("h2", of.name)]),
        element("p", sentence(of), class_="verdict"),
        element("div", element("strong", "Beware"), warned, class_="warnings") if profile.notes else "",
        tables.folded("Provenance: what was timed, with what and where", *parts),
        id=id_,
    )


METHODS = (
    "Passes of a profile are timed in turns, there and back, on made-up text with one draft accepted in each. A point "
    "is the median over rounds of its ratio to the same round's plain pass, times that pass's median. T_verif is "
    "fitted by non-negative terms (once, a token, an expert woken, a token of context, a tile of attention) on "
    "relative residuals; its errors are of points left out of the fit."
)
