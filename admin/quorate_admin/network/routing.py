"""Whom to ask: the pure part of routing."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from quorate_admin.network.address import Address


class Role(Enum):
    """Who shall answer."""

    ANY = "any node"
    CONTROLLER = "the controller"
    LEADER_OF_QUORUM = "the leader of the quorum"
    NODE = "a node"
    ADDRESS = "an address"


@dataclass(frozen=True, slots=True)
class To:
    """Whom a request is for."""

    role: Role
    node_id: int = -1
    address: Address | None = None

    CONTROLLER: ClassVar["To"]
    """Who decides: the active controller or, through brokers, a broker that forwards to it."""
    ANY: ClassVar["To"]
    """Any node: the one with the least to do."""
    LEADER_OF_QUORUM: ClassVar["To"]
    """The leader of the metadata log or, through brokers, any broker, which forwards to it."""

    @classmethod
    def node(cls, node_id: int) -> "To":
        """This broker or controller and no other."""
        return cls(Role.NODE, node_id)

    @classmethod
    def at(cls, address: Address) -> "To":
        """Whoever listens at this address."""
        return cls(Role.ADDRESS, address=address)


To.CONTROLLER = To(Role.CONTROLLER)
To.ANY = To(Role.ANY)
To.LEADER_OF_QUORUM = To(Role.LEADER_OF_QUORUM)
