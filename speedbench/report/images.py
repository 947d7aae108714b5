"""Pictures and the page's own JavaScript, both by vl-convert, which needs neither browser nor network."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from typing import Any

from speedbench.content import user_cache
from speedbench.errors import Missing, UserError
from speedbench.files import write_whole
from speedbench.report.drawing import Figure
from speedbench.report.theme import LIGHT

_WIDTH = 380
"""Pixels of one panel in a picture, of which two stand side by side."""


@cache
def bundle() -> str:
    """page.js with Vega-Embed, Vega-Lite and Vega in one script, which takes a second to make and so is kept."""
    snippet = (files("speedbench.report") / "page.js").read_text("utf-8")
    version = _version()
    made_of = "\n".join([_converter().__version__, version, snippet])
    kept = user_cache() / "report" / f"{sha256(made_of.encode()).hexdigest()[:16]}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_bytes().decode()
    text = str(_converter().javascript_bundle(snippet, vl_version=version))
    with suppress(OSError, UserError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, text)
    return text


def svg(figure: Figure) -> str:
    return str(_converter().vegalite_to_svg(_together(figure), vl_version=_version(), config=LIGHT.config()))


def png(figure: Figure) -> bytes:
    """At twice the size, on white."""
    config = LIGHT.config() | {"background": LIGHT.ground}
    return bytes(_converter().vegalite_to_png(_together(figure), vl_version=_version(), config=config, scale=2))


def _together(figure: Figure) -> dict[str, Any]:
    """All panels in one picture."""
    panels = [panel.spec("", _WIDTH) for panel in figure.panels]
    return {"concat": panels, "columns": 2, "description": figure.reading, "resolve": _APART, "spacing": 30}


_APART = {"scale": {"color": "independent", "shape": "independent"}}


def _version() -> str:
    """The Vega-Lite that Altair writes, if this vl-convert reads it. Raises `Missing`."""
    import altair

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    have: Sequence[str] = _converter().get_vegalite_versions()
    if version not in have:
        raise Missing(
            f"altair {altair.__version__} writes Vega-Lite {version}, and this vl-convert reads {', '.join(have)}: "
            'pip install --upgrade "speedbench[report]"'
        )
    return version


def _converter() -> Any:
    return import_module("vl_convert")
