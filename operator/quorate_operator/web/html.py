"""HTML from calls: `element("p", "text", class_="note")`. What is not Html already is escaped. Pure."""

from collections.abc import Iterable
from html import escape
from typing import Final

VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})


class Html(str):
    """Text that is HTML already. Only this module and constants make it."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
"""Html, text, a number, nothing, or several of them."""


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element; `class_` is class, `aria_label` is aria-label. An attribute that is False or None is left out."""
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in VOID:
        return Html(f"<{tag}{opening}>")
    return Html(f"<{tag}{opening}>{fragment(*children)}</{tag}>")


def fragment(*children: Child) -> Html:
    """The children one behind the other."""
    return Html("".join(_render(child) for child in children))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return "".join(_render(one) for one in child)


def _attribute(name: str, value: str | float | bool | None) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
