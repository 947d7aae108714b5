"""HTML by hand, safe by type: text is escaped unless it is `Html` already, and `element` and `joined` make that."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"meta", "br"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *inside: str, **attributes: str | bool | None) -> Html:
    """`element("td", "a < b", class_="x")`; an attribute that is None or False is left out, `aria_label` is
    `aria-label`."""
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    return Html(f"<{tag}{told}>") if tag in _VOID else Html(f"<{tag}{told}>{joined(inside)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    return Html(between.join(part if isinstance(part, Html) else escape(_printable(part)) for part in parts))


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, titles: Sequence[str] | None = None
) -> Html:
    """The first column names the row; `titles` say what each column means."""
    said = titles or [""] * len(heads)
    head = [element("th", text, scope="col", title=title or None) for text, title in zip(heads, said, strict=True)]
    body = (
        element("tr", *(element("td", text) if i else element("th", text, scope="row") for i, text in enumerate(row)))
        for row in rows
    )
    inside = (element("caption", caption), element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", element("table", *inside), class_="wide", tabindex="0", role="region", aria_label=caption)


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_printable(value))}"'


def _printable(text: str) -> str:
    """Half a surrogate pair cannot be written as UTF-8, and a control character is no HTML."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
