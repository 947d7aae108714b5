"""One HTML file that stands alone: charts as data, the script that draws them, and a policy that forbids all else."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

from speedbench.files import dumps
from speedbench.report.drawing import Figure
from speedbench.report.html import Html, element, joined
from speedbench.report.images import bundle
from speedbench.report.tables import behind
from speedbench.report.theme import THEMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page; `charts` has Vega-Lite by the id of the element that it is drawn into."""

    body: Html
    charts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole file; the same sections give the same bytes. The script is left out where there is no chart."""
    charts = {id_: spec for section in sections for id_, spec in section.charts.items()}
    style, script = _read("page.css"), _inline(bundle()) if charts else ""
    told = dumps(
        {"themes": {name: theme.config() for name, theme in THEMES.items()}, "charts": charts} if charts else {}
    )
    body = joined([element("h1", title), *(section.body for section in sections)], "\n")
    return Template(_read("page.html")).substitute(
        title=joined([title]), policy=joined([_policy(style, script)]), style=style, body=body,
        told=_inert(told), script=script,
    )  # fmt: skip


def drawn(title: str, how: str, figure: Figure, id_: str) -> Section:
    """A chart with its sentence above and its numbers below."""
    ids = [f"{id_}-{number}" for number in range(1, len(figure.panels) + 1)]
    specs = {one: panel.spec(figure.reading, "container") for one, panel in zip(ids, figure.panels, strict=True)}
    told = (element("p", figure.reading), element("p", how, class_="soft"))
    body = element(
        "section",
        element("h3", title, id=f"{id_}-title"),
        element(
            "figure",
            element("figcaption", *told),
            element("div", *(element("div", id=one) for one in ids), class_="panels"),
            aria_labelledby=f"{id_}-title",
        ),
        behind(title, figure),
        id=id_,
    )
    return Section(body=body, charts=specs)


def _policy(style: str, script: str) -> str:
    """Vega sets `style` attributes on what it draws; scripts are held to the one that is here."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _inert(told: str) -> str:
    """JSON in which no name can end the script that it stands in."""
    return told.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline(script: str) -> str:
    """A script may hold these only in its strings, where the escape is the same text."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _read(name: str) -> str:
    return (files("speedbench.report") / name).read_text("utf-8")
