"""Files that a user names, read up to a size, and the folder of cached files."""

from collections.abc import Mapping
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


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where files are kept that can be made again: `$XDG_CACHE_HOME/quorate`, else `~/.cache/quorate`."""
    base = environment.get("XDG_CACHE_HOME", "")
    # The specification of these directories says to ignore a relative path.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "quorate"
