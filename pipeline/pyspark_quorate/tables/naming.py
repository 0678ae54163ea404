"""Names of the numbers in records."""

from enum import IntEnum
from functools import cache

from quorate_protocol.features import METADATA_VERSION, METADATA_VERSIONS


def name_of(kind: type[IntEnum], number: int) -> str:
    """The name of the member with this number; the number as text if the enum has no such member."""
    return _names(kind).get(number, str(number))


def level_name(feature: str, level: int) -> str:
    """4.3-IV0 for level 30 of metadata.version; the number for other features and unknown levels."""
    version = METADATA_VERSIONS.get(level) if feature == METADATA_VERSION else None
    return str(level) if version is None else version.name


@cache
def _names(kind: type[IntEnum]) -> dict[int, str]:
    return {int(one): one.name for one in kind}
