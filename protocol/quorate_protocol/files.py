"""Files that a user names: they are read at once, and only up to a size."""

from pathlib import Path
from typing import Final

PROPERTIES_SIZE_BYTES_MAX: Final = 1024 * 1024
"""The largest file with a client's properties."""


def read_bounded(path: Path, size_bytes_max: int) -> bytes:
    """The content of a file, pipe or device.

    Raises:
        OSError: it can't be read.
        ValueError: it has more than `size_bytes_max` bytes.
    """
    with path.open("rb") as file:
        content = file.read(size_bytes_max + 1)
    if len(content) > size_bytes_max:
        raise ValueError(f"it has more than {size_bytes_max} bytes")
    return content
