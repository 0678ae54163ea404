"""An operator of the quorum: adds, removes and replaces voters, and makes a static quorum a dynamic one.

It looks at what the active controller says and asks for one thing, again and again, as an operator does that may
be restarted at any time: whatever it asks may get lost, be refused, or happen twice. Its rules are those of people
who want to keep their cluster: no disk is lost while another one is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kit.simulator.clients import active_node_id
from kit.simulator.coverage import Happening
from kit.simulator.faults import replica_on
from kit.simulator.network import LISTENER
from kit.simulator.world import CLUSTER_ID, PORT
from quorate_controller.raft.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from quorate_controller.raft.model import Endpoint
from quorate_protocol.features import (
    CONTROLLER_UNREGISTRATION_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from kit.simulator.cluster import Cluster
    from kit.simulator.world import Machine
    from quorate_controller.node import ControllerNode
    from quorate_controller.raft.model import ReplicaKey

PAUSE_MS: Final = (50, 400)
REBOOT_MS_MAX: Final = 1000
LOSE_A_DISK: Final = 0.3
"""How likely a disk is lost when a size is reached, at each look."""
NEXT_SIZE: Final = 0.5
"""The chance that the operator then continues with the next size."""
LEADER_IS_REMOVED: Final = 0.5
UNREGISTER: Final = 0.3
VOTERS_MIN_FOR_DISK_LOSS: Final = 3
DISKS_LOST_MAX: Final = 3


class Operator:
    """Brings the quorum from size to size, and repairs it meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        self._sizes = list(cluster.shape.sizes)
        self._disks_lost = 0

    def start(self) -> None:
        """Begin to change the members."""
        self._work()

    @property
    def is_done(self) -> bool:
        """Whether the last size is reached, with voters that are all there."""
        return len(self._sizes) == 1 and self._is_reached()

    def describe(self) -> str:
        """The state of the operator, for the message of a failure."""
        return f"sizes to reach: {self._sizes}, disks lost: {self._disks_lost}"

    def _work(self) -> None:
        node = self._world.machines[active_node_id(self._world)].node
        if node is not None and node.is_active:
            self._look_at(node)
        self._world.schedule(self._rng.randint(*PAUSE_MS), self._work)

    def _look_at(self, leader: ControllerNode) -> None:
        image, voters = leader.metadata.image, leader.raft.voters
        if leader.raft.kraft_version == 0:
            self._ask_for_level(leader, KRAFT_VERSION, 1)
            return
        living = {replica_on(machine) for machine in self._cluster.machines}
        gone = [voter.key for voter in voters if voter.key not in living]
        if gone:
            self._remove(leader, gone[0])
        elif len(voters) < self._sizes[0]:
            self._add_to(leader)
        elif len(voters) > self._sizes[0]:
            self._remove(leader, self._one_too_many(leader))
        elif image.metadata_version < CONTROLLER_UNREGISTRATION_SINCE:
            self._ask_for_level(leader, METADATA_VERSION, CONTROLLER_UNREGISTRATION_SINCE)
        else:
            self._rest_at_size(leader)

    def _rest_at_size(self, leader: ControllerNode) -> None:
        if self._rng.random() < UNREGISTER:
            self._unregister_somebody(leader)
        if not self._is_reached():
            return
        if self._rng.random() < LOSE_A_DISK and self._may_lose_a_disk():
            self._lose_a_disk()
        elif self._rng.random() < NEXT_SIZE and len(self._sizes) > 1:
            del self._sizes[0]
            self._world.coverage.count(Happening.SIZE_REACHED)

    # ------------------------------------------------------------------------------------ what is asked

    def _ask_for_level(self, leader: ControllerNode, feature: str, level: int) -> None:
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1)
        request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=False)
        self._world.network.ask(leader.node_id, request, lambda _: None)

    def _add_to(self, leader: ControllerNode) -> None:
        voter_ids = leader.raft.voters.ids
        others = [machine for machine in self._cluster.machines if machine.node_id not in voter_ids]
        machine = self._rng.choice(others)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5000,
            voter=replica_on(machine),
            endpoints=(Endpoint(listener=LISTENER, host=machine.host, port=PORT),),
            ack_when_committed=self._rng.random() < 0.5,
        )
        self._world.network.ask_raft(leader.node_id, request)

    def _one_too_many(self, leader: ControllerNode) -> ReplicaKey:
        if self._rng.random() < LEADER_IS_REMOVED:
            return replica_on(self._world.machines[leader.node_id])
        return self._rng.choice(leader.raft.voters.voters).key

    def _remove(self, leader: ControllerNode, key: ReplicaKey) -> None:
        self._world.network.ask_raft(leader.node_id, RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter=key))

    def _unregister_somebody(self, leader: ControllerNode) -> None:
        """An observer, which registers again when it is there; or a voter, which is refused."""
        machine = self._rng.choice(self._cluster.machines)
        request = UnregisterControllerRequest(controller_id=machine.node_id)
        self._world.network.ask(leader.node_id, request, lambda _: None)

    # -------------------------------------------------------------------------------- lost disks, seen from above

    def _is_reached(self) -> bool:
        """Whether every machine is up and knows one and the same voter set, of the wanted size, all there."""
        nodes = self._world.alive
        living = {replica_on(machine) for machine in self._cluster.machines}
        voter_sets = {node.raft.voters for node in nodes}
        if len(nodes) < len(self._cluster.machines) or len(voter_sets) != 1:
            return False
        (voters,) = voter_sets
        return len(voters) == self._sizes[0] and all(voter.key in living for voter in voters)

    def _may_lose_a_disk(self) -> bool:
        """`_is_reached` holds: the voters of one disk less still have whatever is committed."""
        is_enough = self._sizes[0] >= VOTERS_MIN_FOR_DISK_LOSS
        return is_enough and self._disks_lost < DISKS_LOST_MAX

    def _lose_a_disk(self) -> None:
        machine: Machine = self._rng.choice(self._cluster.machines)
        self._world.crash(machine)
        self._cluster.replace_disk(machine)
        self._disks_lost += 1
        self._world.coverage.count(Happening.DISK_LOST)
        self._world.schedule(self._rng.randint(1, REBOOT_MS_MAX), lambda: self._cluster.boot(machine))
