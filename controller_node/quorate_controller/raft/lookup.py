"""Finds voters whose addresses in the voter set are outdated, as when all hosts of a quorum change (KIP-1347).

A voter that reaches no majority asks its bootstrap servers for the missing voters. The request is a pre-vote: it
names the cluster, the node id and the directory id of the voter, every other node refuses it (KIP-853), and it
changes nothing at its receiver (KIP-996). Static voters have no directory ids in the voter set and are not looked up.

An address at which a voter responded under its own key is used until it fails or the voter set has another one.
After the election, each voter has its new address recorded with UpdateRaftVoter.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.model import Endpoint, ReplicaKey, Voter, find_endpoint

if TYPE_CHECKING:
    from quorate_controller.raft.events import Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The address at which a voter responded. Void once the voter set has another key or address of that voter."""

    key: ReplicaKey
    listed: Endpoint | None
    endpoint: Endpoint


class VoterLookup:
    """The voters that have to be looked up, and the addresses at which they were found."""

    __slots__ = ("_asked", "_found", "_is_reported", "_listener", "_silent")

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._silent: set[int] = set()
        self._found: dict[int, _Found] = {}
        self._asked: dict[int, set[int]] = {}
        self._is_reported = False

    @property
    def silent(self) -> frozenset[int]:
        """Ids of the voters that did not respond to the last Vote request."""
        return frozenset(self._silent)

    def endpoints(self, voter: Voter) -> tuple[Endpoint, ...]:
        """The endpoints of a voter: the address that was found, otherwise those of the voter set."""
        found = self._found.get(voter.node_id)
        if found is None or found.key != voter.key or found.listed != self._listed(voter):
            return voter.endpoints
        return (found.endpoint,)

    def begins(self) -> bool:
        """Return whether this is the first lookup since there was a leader, which is worth a log line."""
        begins, self._is_reported = not self._is_reported, True
        return begins

    def next_voter(self, server_id: int, missing: Sequence[Voter]) -> Voter | None:
        """The next voter to look up at a bootstrap server; None at the end of a round over all missing voters."""
        asked = self._asked.setdefault(server_id, set())
        voter = next((voter for voter in missing if voter.node_id not in asked), None)
        if voter is None:
            del self._asked[server_id]
        else:
            asked.add(voter.node_id)
        return voter

    def found_at(self, voter: Voter, destination: "Destination") -> bool:
        """A voter responded under its own key. Returns whether its address is new."""
        self._silent.discard(voter.node_id)
        address = Endpoint(listener=self._listener, host=destination.host, port=destination.port)
        if find_endpoint(self.endpoints(voter), self._listener) == address:
            return False
        self._found[voter.node_id] = _Found(key=voter.key, listed=self._listed(voter), endpoint=address)
        return True

    def failed(self, voter_id: int, destination: "Destination") -> None:
        """A voter did not respond at that address, or another node did."""
        self._silent.add(voter_id)
        found = self._found.get(voter_id)
        if found is not None and _is_at(found.endpoint, destination):
            del self._found[voter_id]

    def no_response(self, voter_ids: Iterable[int]) -> None:
        """An election ended without a response from these voters."""
        for voter_id in voter_ids:
            self._silent.add(voter_id)
            self._found.pop(voter_id, None)

    def leader_found(self) -> None:
        """The quorum has a leader, which reaches a majority. Addresses that were found stay in use."""
        self._silent.clear()
        self._asked.clear()
        self._is_reported = False

    def _listed(self, voter: Voter) -> Endpoint | None:
        return find_endpoint(voter.endpoints, self._listener)


def _is_at(endpoint: Endpoint, destination: "Destination") -> bool:
    return (endpoint.host, endpoint.port) == (destination.host, destination.port)
