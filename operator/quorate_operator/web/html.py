"""HTML from calls: `element("p", "text", class_="note")`. Everything but Html is escaped. Pure."""

from collections.abc import Iterable
from html import escape
from typing import Final

VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})
ROWS_SHOWN_MAX: Final = 200
"""How many rows of a table are shown."""


class Html(str):
    """Text that is HTML. Only this module and constants create it."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
"""Html, text, a number, nothing, or several of them."""


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element; `class_` is class, `aria_label` is aria-label.

    An attribute that is False or None is omitted.
    """
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in VOID:
        return Html(f"<{tag}{opening}>")
    return Html(f"<{tag}{opening}>{fragment(*children)}</{tag}>")


def fragment(*children: Child) -> Html:
    """Join the children."""
    return Html("".join(_render(child) for child in children))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return "".join(_render(part) for part in child)


def _attribute(name: str, value: str | float | bool | None) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def heading(section: str, title: str) -> Html:
    """Return the title of a section, by which the section is labelled."""
    return element("h2", title, id=f"{section}-title")


def table(caption: str, columns: Iterable[str], rows: Iterable[Html]) -> Html:
    """Return a table that scrolls on narrow screens, also with the keyboard."""
    head = element("tr", [element("th", column, scope="col") for column in columns])
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="unseen"),
            element("thead", head),
            element("tbody", rows),
        ),
        class_="scroll",
        role="region",
        aria_label=f"{caption}, table",
        tabindex=0,
    )


def row(head: Child, cells: Iterable[Child]) -> Html:
    """Return a row of a table; its first cell is the heading."""
    return element("tr", element("th", head, scope="row"), [element("td", cell) for cell in cells])


def more(count: int) -> Html | None:
    """Return the note about rows that a table omits, if any."""
    if count <= ROWS_SHOWN_MAX:
        return None
    return element("p", f"and {count - ROWS_SHOWN_MAX} more, which are not shown", class_="quiet")
