"""Names side by side, as `ls` shows them. Pure."""

from collections.abc import Iterator, Sequence

_GAP = 2
_COLUMN_WIDTH_MIN = 4


def columns(names: Sequence[str], screen_width: int | None) -> Iterator[str]:
    """Lines with the names, read downwards, in as many columns as fit; without a screen one a line."""
    if not names:
        return
    widths = _widths(names, screen_width or 0)
    height = -(-len(names) // len(widths))
    for line in range(height):
        cells = names[line::height]
        padded = (cell.ljust(width) for cell, width in zip(cells, widths[:-1], strict=False))
        yield "".join(padded) + (cells[-1] if len(cells) == len(widths) else "")


def _widths(names: Sequence[str], screen_width: int) -> list[int]:
    """The width of each column, for the most columns that fit."""
    lengths = [len(name) for name in names]
    for count in range(min(screen_width // _COLUMN_WIDTH_MIN, len(names)), 1, -1):
        height = -(-len(names) // count)
        tops = range(0, len(names), height)
        if len(tops) == count:  # otherwise the last ones would be empty
            widths = [max(lengths[top : top + height]) + _GAP for top in tops]
            if sum(widths) <= screen_width:
                return widths
    return [0]
