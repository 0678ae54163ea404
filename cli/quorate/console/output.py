"""Writing results: Kafka's text for people, JSON for programs."""

import sys
from collections.abc import Callable, Sequence

import typer

from quorate.console.options import tool_options


def show(context: typer.Context, text: Callable[[], str], content: Callable[[], object]) -> None:
    """Write the result in the form that --output asks for; the other one is not made."""
    if tool_options(context).is_json:
        print_json(content())
    else:
        write(text())


def write(text: str) -> None:
    """Write text to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(content: object) -> None:
    """Write JSON to stdout."""
    import json  # most runs print text

    write(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n")


def table_text(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Kafka's tools print it: each value padded to its column's width and followed by a tab."""
    lines = [tuple(headers), *(tuple(str(value) for value in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "".join(
        "".join(f"{value:<{width}}\t" for value, width in zip(line, widths, strict=True)) + "\n"
        for line in lines
    )
