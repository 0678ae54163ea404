"""Warns about a replica that could vote and is in no voter set: it runs without adding to fault tolerance."""

from typing import TYPE_CHECKING, Final

from quorate_protocol.uuids import uuid_to_text

from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica

WARN_AFTER_MS: Final = 10_000
"""Longer than it takes to find a leader and its voters, or to join."""


class OutsiderWatch:
    """Warns once, after a while, and again only if the replica has been a voter in between."""

    __slots__ = ("_is_reported", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._is_reported = False

    def poll(self, replica: "Replica") -> int:
        """Warn when the warning is due. Returns when the next call is due (Unix milliseconds)."""
        if not replica.config.can_vote or replica.is_voter:
            self._since_ms, self._is_reported = None, False
            return NEVER_MS
        if self._is_reported:
            return NEVER_MS
        if self._since_ms is None:
            self._since_ms = replica.now_ms
        due_ms = self._since_ms + WARN_AFTER_MS
        if replica.now_ms < due_ms:
            return due_ms
        self._is_reported = True
        replica.effects.warn(
            "not_a_voter",
            replica=str(replica.key),
            voters=[str(voter.key) for voter in replica.voters],
            kraft_version=replica.history.kraft_version,
            leader_id=replica.state.leader_id,
            advice=_advice(replica),
        )
        return NEVER_MS


def _advice(replica: "Replica") -> str:
    config, key = replica.config, replica.key
    predecessor = replica.voters.get(key.node_id)
    if predecessor is not None and predecessor.key.directory_id is not None:
        directory_id = uuid_to_text(predecessor.key.directory_id)
        return (
            f"Node {key.node_id} is a voter with another directory. If this is its disk, set "
            f"directory.id={directory_id} in meta.properties and restart; otherwise remove that voter with "
            "remove-controller, and add this one with add-controller"
        )
    if not replica.log.end_offset and not replica.state.has_leader:
        servers = ",".join(f"{server.host}:{server.port}" for server in config.bootstrap_servers)
        return f"It has found no leader. Check controller.quorum.bootstrap.servers={servers}"
    if replica.history.kraft_version < KRAFT_VERSION_DYNAMIC:
        return (
            "The quorum is static (kraft.version 0): set controller.quorum.voters as on the other controllers, "
            f"with node {key.node_id}"
        )
    if config.auto_join:
        return "It asks to join by itself (controller.quorum.auto.join.enable=true), and has not become a voter yet"
    return "Add it with add-controller, or set controller.quorum.auto.join.enable=true"
