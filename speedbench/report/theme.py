"""How charts look on light and on dark ground: colours that colour-blind people tell apart, and shapes beside them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

INK = 0.7
HEAT = ("#eaf1f8", "#9cc3e2", "#3f86bd", "#0b3d66")
"""From 0 to 1. The text upon it is dark up to INK and white above, on either ground."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    ground: str
    text: str
    faint: str
    """Axes and grid."""
    series: tuple[str, ...]
    """After Okabe and Ito, darker or lighter so that each has a contrast of 3 to the ground; the baseline's first."""
    parts: tuple[str, str, str]
    """Of a pass: verify, draft, other; they differ in lightness too."""

    def config(self) -> dict[str, Any]:
        """Vega-Lite's `config`; charts name styles and ranges alone, never a colour."""
        axis = {"labelColor": self.text, "titleColor": self.text, "gridColor": self.faint, "domainColor": self.text}
        plain = {"stroke": self.text, "color": self.text}
        return {
            "background": "transparent",
            "font": "system-ui, 'Liberation Sans', Arial, sans-serif",
            "view": {"stroke": None},
            "axis": axis
            | {"tickColor": self.text, "labelFontSize": 12, "titleFontSize": 12}
            | {"titleFontWeight": 600, "labelOverlap": True, "labelSeparation": 6},
            "legend": {"labelColor": self.text, "titleColor": self.text, "labelFontSize": 12, "orient": "top"}
            | {"layout": {"top": {"anchor": "start", "bounds": "full"}}},
            "title": {"color": self.text, "fontSize": 13, "anchor": "start"},
            "range": {"category": list(self.series), "ordinal": list(self.parts), "heatmap": list(HEAT)},
            "point": {"size": 70},
            "mark": {"color": self.series[1]},
            "text": {"color": self.text},
            "style": {
                "limit": {**plain, "strokeWidth": 1.2, "strokeDash": [2, 3], "opacity": 0.8},
                "words": {"color": self.text, "fontSize": 11, "dy": -12},
                "bar": {"stroke": self.ground, "strokeWidth": 1},
            },
        }


LIGHT = Theme(
    ground="#ffffff",
    text="#1c2024",
    faint="#dde1e6",
    series=("#5f6770", "#0072b2", "#c4500a", "#00805f", "#a8437f", "#8a6508", "#4a4fc4", "#1c2024"),
    parts=("#0b5c94", "#e08214", "#8a929b"),
)
DARK = Theme(
    ground="#14181d",
    text="#e6e9ec",
    faint="#343b44",
    series=("#a7afb8", "#56b4e9", "#f08a3c", "#2fc99b", "#dd8fbe", "#f0d04a", "#9aa0ff", "#ffffff"),
    parts=("#3a8bc4", "#f7bc6e", "#8a929b"),
)
THEMES: Mapping[str, Theme] = {"light": LIGHT, "dark": DARK}
