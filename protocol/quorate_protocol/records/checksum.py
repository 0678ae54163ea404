"""CRC-32C, by the package crc32c.

Its `__init__` reads the version from the installed metadata, for which it imports the e-mail parser and argparse: 15
to 20 ms of processor time in each start of a controller or tool. So the extension module is loaded without it.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Crc = Callable[..., int]


def _load() -> Crc:
    package = PathFinder.find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if not extension or not extension.loader:
        from crc32c import crc32c  # noqa: PLC0415 - says what is missing, or knows where the function is

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    loaded: Crc = module.crc32c
    return loaded


crc32c: Final = _load()
"""(bytes, checksum of the bytes before them or 0) -> checksum."""
