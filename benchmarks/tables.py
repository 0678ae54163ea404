"""Tables of figures, and how a figure is written in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MEBIBYTE: Final = 1024 * 1024


def seconds(value: float) -> str:
    """A time that people wait for."""
    return f"{value:.2f} s"


def milliseconds(value: float) -> str:
    """A latency, given in seconds."""
    return f"{value * 1000:.2f} ms"


def microseconds(value: float) -> str:
    """A processor time of one request, given in seconds."""
    return f"{value * 1e6:.0f} us"


def mebibytes(value: float) -> str:
    """A size, given in bytes."""
    return f"{value / MEBIBYTE:.0f} MiB"


def percent(value: float) -> str:
    """A share, given as a number from 0 to 1."""
    return f"{value * 100:.1f} %"


def count(value: float) -> str:
    """A number of things."""
    return f"{value:.0f}"


def table(title: str, *headings: str) -> Table:
    """A table with a column of labels and one of numbers for each heading."""
    made = Table(title=title)
    made.add_column("")
    for heading in headings:
        made.add_column(heading, justify="right")
    return made


def markdown(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same as a table of Markdown, with the title above it."""
    lines = [("", *headings), ("---",) * (len(headings) + 1), *rows]
    return "\n".join(
        (f"{title}:", "", *(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines), "")
    )
