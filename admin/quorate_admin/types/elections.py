"""Elections of partition leaders (KIP-183, KIP-460)."""

from enum import IntEnum

__all__ = ("ElectionType",)


class ElectionType(IntEnum):
    """PREFERRED gives the first replica the lead; UNCLEAN takes any live replica, and may lose records."""

    PREFERRED = 0
    UNCLEAN = 1
