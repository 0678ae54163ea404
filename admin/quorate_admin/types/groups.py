"""Groups of consumers, of share consumers, of streams (KIP-1043)."""

from dataclasses import dataclass

__all__ = ("GroupListing",)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a listing, in the server's words; empty where an older server does not tell."""

    group_id: str
    group_type: str
    protocol_type: str
    group_state: str
