"""The machines of a run: what their configurations say, how they are formatted, booted and replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kit.simulator.disk_format import format_disk
from kit.simulator.disk_logs import ANY_DIRECTORY
from kit.simulator.network import LISTENER
from kit.simulator.world import PORT, Machine, World
from quorate_controller.config import parse_config

if TYPE_CHECKING:
    from kit.simulator.shape import Shape
    from quorate_controller.config import ControllerConfig

FIRST_NODE_ID: Final = 3000
SEGMENT_BYTES: Final = 4096
SNAPSHOT_AFTER_BYTES: Final = 8192
RETENTION_BYTES: Final = 16384
"""Small, so that logs roll, snapshots are taken and log starts move within seconds."""
LARGE_SCALE: Final = 128
"""What they are multiplied by where the metadata are large."""
TIMER_SKEWS: Final = (1.0, 1.0, 1.5, 4.0)
BROKER_SESSION_MS: Final = 4000


class Cluster:
    """All controllers of a shape, in a world of their own."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.shape = shape
        self._scale = LARGE_SCALE if shape.giant_partitions else 1
        ids = range(FIRST_NODE_ID, FIRST_NODE_ID + shape.voters + shape.observers)
        self.initial_voter_ids = tuple(ids)[: shape.voters]
        initial_voters = frozenset(
            Machine(node_id).replica if shape.is_dynamic else (node_id, ANY_DIRECTORY)
            for node_id in self.initial_voter_ids
        )
        self.world = World(
            seed,
            initial_voters,
            is_dynamic=shape.is_dynamic,
            is_wired=shape.is_wired,
            is_sliced=shape.is_sliced,
        )
        self._configs: dict[tuple[str, bool, str], ControllerConfig] = {}
        self.election_timeouts_ms = {
            # Some wait longer than others before they stand.
            node_id: round(shape.election_timeout_ms * self.world.rng.choice(TIMER_SKEWS))
            for node_id in ids
        }
        for number, node_id in enumerate(ids):
            self.world.machines[node_id] = Machine(
                node_id,
                release=shape.releases[number],
                drift_ppm=shape.drifts_ppm[number],
                slowness=shape.slowness if number in shape.slow else 1,
                is_java_like=number in shape.java_like,
            )
        for machine in self.machines:
            self._format(machine, is_initial_voter=machine.node_id in self.initial_voter_ids)

    @property
    def machines(self) -> list[Machine]:
        """All of them, running or not."""
        return list(self.world.machines.values())

    def boot(self, machine: Machine) -> None:
        """Start a machine that is down; nothing happens to one that runs."""
        if machine.node is None:
            self.world.boot(machine, self._config(machine))

    def replace_disk(self, machine: Machine) -> None:
        """An empty disk in place of the old one, formatted for a replica that is no voter yet."""
        assert machine.node is None
        machine.lose_disk()
        self.world.invariants.disk_replaced(machine.node_id)
        self._format(machine, is_initial_voter=False)

    def _config(self, machine: Machine) -> ControllerConfig:
        """Parsed once for each name and kind of the machine: to parse is most of what it takes to boot."""
        key = (machine.host, self._is_dynamic(machine), self._servers())
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = parse_config(self._properties(machine))
        return config

    def _servers(self) -> str:
        """All of them: the initial voters may all be gone from the voter set one day. Each by its oldest name that
        still leads to it.
        """
        lost = self.world.network.lost_names
        hosts = (
            next(name for name in machine.names if name not in lost)
            for machine in self.world.machines.values()
        )
        return ",".join(f"{host}:{PORT}" for host in hosts)

    def _is_dynamic(self, machine: Machine) -> bool:
        """Whether it looks for its quorum by bootstrap servers. An observer has no choice; nor has a replaced
        disk, which is lost only after a static quorum has become a dynamic one.
        """
        is_voter = machine.node_id in self.initial_voter_ids
        return self.shape.is_dynamic or not is_voter or machine.directory_number > 0

    def _format(self, machine: Machine, *, is_initial_voter: bool) -> None:
        is_dynamic = self._is_dynamic(machine)
        voter_ids = self.initial_voter_ids if is_dynamic and is_initial_voter else ()
        initial_voters = [Machine(node_id) for node_id in voter_ids]
        format_disk(
            machine,
            self._properties(machine),
            is_dynamic=is_dynamic,
            initial_voters=initial_voters,
            metadata_version=self.shape.metadata_version,
        )

    def _properties(self, machine: Machine) -> dict[str, str]:
        if self._is_dynamic(machine):
            quorum = {
                "controller.quorum.bootstrap.servers": self._servers(),
                "controller.quorum.auto.join.enable": str(self.shape.auto_join).lower(),
            }
        else:
            voters = ",".join(f"{node_id}@node{node_id}:{PORT}" for node_id in self.initial_voter_ids)
            quorum = {"controller.quorum.voters": voters}
        return quorum | {
            "process.roles": "controller",
            "node.id": str(machine.node_id),
            "controller.listener.names": LISTENER,
            "listeners": f"{LISTENER}://:{PORT}",
            "advertised.listeners": f"{LISTENER}://{machine.host}:{PORT}",
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
            "log.dirs": str(self.world.directory(machine.node_id)),
            "controller.quorum.election.timeout.ms": str(self.election_timeouts_ms[machine.node_id]),
            "controller.quorum.fetch.max.bytes": str(self.shape.fetch_bytes_max),
            "controller.quorum.fetch.snapshot.max.bytes": str(self.shape.fetch_bytes_max),
            "broker.session.timeout.ms": str(BROKER_SESSION_MS),
            "controller.quorum.election.backoff.max.ms": str(self.shape.election_backoff_ms_max),
            "metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_AFTER_BYTES * self._scale),
            "metadata.max.retention.bytes": str(RETENTION_BYTES * self._scale),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "secret",
            "delegation.token.expiry.check.interval.ms": "2000",
            "internal.metadata.log.segment.bytes": str(SEGMENT_BYTES * self._scale),
        }
