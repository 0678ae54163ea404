"""What each step does to the model cluster, and what no step may do: the six rules of every plan.

A step that breaks a rule fails the test. `half` does as much of a step as may be done when the operator is killed
in the middle of it; every step must be good for being done again.
"""

from collections.abc import Mapping
from dataclasses import replace

from kit.operator_model.desired_spec import OVERLAP_MS
from kit.operator_model.world import (
    CLUSTER_ID,
    FEATURES,
    REGISTRATION_LEVEL,
    Disk,
    Node,
    Process,
    Voter,
    World,
)
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    Lifecycle,
    Publication,
    Role,
)
from quorate_operator.planning.pods import CONTROLLER
from quorate_operator.planning.steps import (
    Action,
    AddVoter,
    CreateNode,
    DeleteVolume,
    ElectPreferredLeaders,
    FinalizeFeature,
    ForgetNode,
    FormCluster,
    PublishAddress,
    ReassignPartitions,
    RebuildQuorum,
    RefreshRegistration,
    RemoveVoter,
    RetireAddress,
    StartNode,
    StopNode,
    UnregisterBroker,
    UnregisterController,
    WithdrawAddress,
)


def apply(world: World, action: Action, desired: DesiredCluster, *, half: bool = False) -> None:
    """Do the step, or half of it."""
    _Stepper(world, desired, half).do(action)
    world.check_clients()


class _Stepper:
    def __init__(self, world: World, desired: DesiredCluster, half: bool) -> None:
        self.world = world
        self.desired = desired
        self.half = half

    def do(self, action: Action) -> None:
        match action:
            case FormCluster():
                self.form(action)
            case CreateNode():
                self.create(action)
            case StartNode():
                self.start(action)
            case StopNode():
                self.stop(action)
            case DeleteVolume():
                self.delete_volume(action)
            case ForgetNode():
                self.forget(action)
            case PublishAddress():
                self.publish(action)
            case RetireAddress():
                self.retire(action)
            case WithdrawAddress():
                self.withdraw(action)
            case RebuildQuorum():
                raise AssertionError("nobody asked for that")
            case _:
                self.world.elect()
                if self.world.leader_id is not None:
                    # Without one the step fails, and is due again.
                    self.do_in_kafka(action)

    def do_in_kafka(self, action: Action) -> None:
        match action:
            case AddVoter():
                self.add_voter(action)
            case RemoveVoter():
                self.remove_voter(action)
            case UnregisterController() | UnregisterBroker():
                self.unregister(action)
            case RefreshRegistration():
                self.refresh(action)
            case FinalizeFeature():
                self.finalize(action)
            case ReassignPartitions():
                self.reassign(action)
            case ElectPreferredLeaders():
                for partition in self.world.partitions.values():
                    if partition.replicas[0] in partition.isr:
                        partition.leader = partition.replicas[0]
            case _:
                raise AssertionError(f"an unknown step: {action}")

    # -- nodes

    def form(self, action: FormCluster) -> None:
        world = self.world
        assert world.formation is None or not world.formation.is_formed, "a cluster is formed once"
        assert not any(node.disk for node in world.nodes.values()), "the identity is settled before any disk"
        world.formation = Formation(
            cluster_id=action.cluster_id or CLUSTER_ID,
            initial_voters={node_id: f"founder-{node_id}" for node_id in action.node_ids},
            is_formed=False,
            is_static=not self.desired.dynamic_quorum,
        )

    def create(self, action: CreateNode) -> None:
        world = self.world
        wanted = next(node for node in self.desired.nodes if node.node_id == action.node_id)
        node = world.nodes.setdefault(
            action.node_id, Node(node_id=action.node_id, role=wanted.role, pool=wanted.pool)
        )
        node.has_volume, node.is_forgotten = True, False
        if self.half or node.disk is not None:
            return
        world.disks += 1
        directory_id = f"disk-{world.disks}"
        formation = world.formation
        assert formation is not None, "nothing is formatted before the identity is settled"
        if action.is_initial and node.role is Role.CONTROLLER:
            assert world.epoch == 0, (
                "rule 5: once somebody led, an empty disk is never formatted as a founder's"
            )
            directory_id = formation.initial_voters[action.node_id]
            if not world.voters:
                world.kraft_version = 0 if formation.is_static else 1
                world.voters = {
                    node_id: Voter(None if formation.is_static else founder)
                    for node_id, founder in formation.initial_voters.items()
                }
        elif node.role is Role.CONTROLLER and world.kraft_version == 0 and node.node_id in world.voters:
            others = world.sound_voters() - {node.node_id}
            assert 2 * len(others) > len(world.voters), (
                "a static voter with an empty disk could vote for less"
            )
        node.disk = Disk(directory_id)

    def start(self, action: StartNode) -> None:
        world = self.world
        node = world.nodes.get(action.node_id)
        assert node is not None, f"{action}: there is no such node"
        assert node.disk is not None, f"{action}: it has no formatted disk"
        if node.process is not None:
            return
        wanted = next((node for node in self.desired.nodes if node.node_id == action.node_id), None)
        if node.role is Role.CONTROLLER and self.desired.has_shared_pods:
            self.write_for_pod(node, wanted, action)
            return
        if action.beside is not None:
            assert wanted is not None, f"{action}: a broker that leaves starts alone"
            self.start_pod(node, wanted, action)
            return
        assert wanted is None or wanted.pod_mate is None, f"{action}: its pod is to have a controller"
        if wanted is None and node.last is not None:
            node.last = replace(node.last, pod_mate=None)
        if wanted is None:
            assert node.last is not None, "who leaves is started as it ran the last time"
            advertised, revision, features = node.last.advertised, node.last.revision, node.last.features
        else:
            advertised = {**wanted.advertised, **action.advertised}
            revision, features = dict(wanted.revision), FEATURES[wanted.kafka_version]
            self.check_own(wanted, advertised)
        node.process = Process(world.now_ms, advertised, revision, features)
        node.last, node.crashed_at_ms = node.process, None

    def write_for_pod(self, node: Node, wanted: DesiredNode | None, action: StartNode) -> None:
        """Write the configuration of a controller, whose broker's start creates the pod."""
        if wanted is None:
            assert node.last is not None, "who leaves is started as it ran the last time"
            node.written = node.last
            return
        advertised = {**wanted.advertised, **action.advertised}
        self.check_own(wanted, advertised)
        revision, features = dict(wanted.revision), FEATURES[wanted.kafka_version]
        node.written = Process(self.world.now_ms, advertised, revision, features)

    def start_pod(self, node: Node, wanted: DesiredNode, action: StartNode) -> None:
        """Start both nodes of a pod by the start of the broker."""
        world = self.world
        assert action.beside is not None
        mate = world.nodes[action.beside]
        assert mate.disk is not None, f"{action}: the controller in its pod has no formatted disk"
        assert mate.process is None, f"{action}: the controller in its pod runs elsewhere"
        assert mate.written is not None, f"{action}: the controller in its pod has no configuration"
        advertised = {**wanted.advertised, **action.advertised}
        self.check_own(wanted, advertised)
        revision = {**wanted.revision, CONTROLLER: str(mate.node_id)}
        process = Process(world.now_ms, advertised, revision, FEATURES[wanted.kafka_version])
        for own, other, started in ((node, mate, process), (mate, node, mate.written)):
            own.process = replace(
                started,
                started_at_ms=world.now_ms,
                joined=False,
                registered=False,
                was_ready=False,
                pod_mate=other.node_id,
            )
            own.last, own.crashed_at_ms, own.exits_in_a_row = own.process, None, 0

    def check_own(self, wanted: DesiredNode, advertised: Mapping[str, Address]) -> None:
        """Check that a node starts with addresses that lead to it."""
        for listener, address in advertised.items():
            publication = self.world.publications.get(address)
            is_own = publication is not None and publication.node_id == wanted.node_id
            assert is_own or address not in wanted.controlled, (
                f"{wanted.label} starts with {address} ({listener}), which leads to {publication}"
            )

    def stop(self, action: StopNode) -> None:
        world = self.world
        node = world.nodes[action.node_id]
        assert not node.is_lost, "a process whose machine does not answer can't be stopped"
        if node.process is None:
            node.crashed_at_ms, node.exits_in_a_row = None, 0
            return
        mate = None if node.process.pod_mate is None else world.nodes[node.process.pod_mate]
        stopped = [node] if mate is None or mate.process is None else [node, mate]
        for own in stopped:
            if self.desired.lifecycle is not Lifecycle.RUNNING:
                continue
            if own.role is Role.CONTROLLER:
                self.check_majority_without(replace(action, node_id=own.node_id))
            else:
                self.check_partitions_without(replace(action, node_id=own.node_id))
        for own in stopped:
            own.process, own.crashed_at_ms, own.exits_in_a_row = None, None, 0
            if world.leader_id is not None:
                world.fence(own.node_id)
            if world.leader_id == own.node_id:
                world.leader_id = None

    def check_majority_without(self, action: StopNode) -> None:
        """Rules 1 and 2. One or two voters can't keep a majority while one restarts, so all of them have to be well.

        A voter that is not well may always stop.
        """
        world, node_id = self.world, action.node_id
        if not world.is_voter(world.nodes[node_id]):
            return
        sound = world.sound_voters()
        if len(world.voters) <= 2:
            assert node_id not in sound or len(sound) == len(world.voters), (
                f"{action}: {sound} of {set(world.voters)} are well"
            )
            return
        others = sound - {node_id}
        assert node_id not in sound or 2 * len(others) > len(world.voters), (
            f"rule 1: {action}: without it only {others} of {set(world.voters)} are well"
        )

    def check_partitions_without(self, action: StopNode) -> None:
        """A broker without clients may stop even as the last one in sync, to get a corrected configuration."""
        for name, partition in self.world.partitions.items():
            if action.node_id in partition.isr and self.world.serves(action.node_id):
                assert not self.world.is_fragile(partition, action.node_id), f"{action}: {name}: {partition}"
        if action.node_id in {node.node_id for node in self.desired.nodes}:
            process = self.world.nodes[action.node_id].process
            assert process is None or process.joined, f"{action}: it recovers its logs"
            stopped = [
                node.node_id
                for node in self.world.nodes.values()
                if node.role is Role.BROKER
                and node.node_id != action.node_id
                and node.process is None
                and node.last is not None
                and any(node.node_id == desired.node_id for desired in self.desired.nodes)
            ]
            # A broker that was unregistered has no clients, and comes back by a restart alone.
            is_registered = action.node_id in self.world.registrations
            assert not (stopped and is_registered), f"{action}: {stopped} are down already, and one may be"

    def delete_volume(self, action: DeleteVolume) -> None:
        world = self.world
        node = world.nodes[action.node_id]
        assert node.process is None, f"rule 4: {action}: it runs"
        assert not world.is_voter(node), f"rule 4: {action}: it is a voter"
        can_unregister = node.role is Role.BROKER or world.seen_level >= REGISTRATION_LEVEL
        assert not can_unregister or node.node_id not in world.registrations, f"rule 4: {action}: registered"
        node.disk = None
        node.has_volume = self.half

    def forget(self, action: ForgetNode) -> None:
        node = self.world.nodes[action.node_id]
        assert node.process is None, f"{action}: it runs"
        assert not any(
            publication.node_id == node.node_id for publication in self.world.publications.values()
        ), f"rule 3: {action}: addresses point at it"
        if self.half:
            return
        if node.has_volume:
            node.is_forgotten, node.last = True, None
        else:
            del self.world.nodes[action.node_id]

    # -- addresses

    def publish(self, action: PublishAddress) -> None:
        publication = self.world.publications.get(action.address)
        assert publication is None or publication.node_id == action.node_id, (
            f"rule 3: {action}, while it points at {publication}"
        )
        self.world.publications[action.address] = Publication(
            address=action.address,
            node_id=action.node_id,
            listener=action.listener,
            since_ms=publication.since_ms if publication else self.world.now_ms,
            connections=publication.connections if publication else 0,
        )

    def retire(self, action: RetireAddress) -> None:
        publication = self.world.publications[action.address]
        registration = self.world.registrations.get(action.node_id)
        assert registration is None or action.address not in registration.endpoints.values(), (
            f"{action}: clients are told of it"
        )
        if publication.retired_at_ms is None:
            self.world.publications[action.address] = replace(publication, retired_at_ms=self.world.now_ms)

    def withdraw(self, action: WithdrawAddress) -> None:
        publication = self.world.publications.pop(action.address)
        assert publication.retired_at_ms is not None, f"rule 3: {action}: it was not retired"
        assert self.world.now_ms - publication.retired_at_ms >= OVERLAP_MS, f"rule 3: {action}: too early"
        if publication.connections:
            assert self.world.now_ms - publication.retired_at_ms >= 4 * OVERLAP_MS, f"{action}: it is used"

    # -- what Kafka does

    def add_voter(self, action: AddVoter) -> None:
        world = self.world
        node = world.nodes[action.node_id]
        if world.is_voter(node):
            return
        assert world.kraft_version >= 1, f"{action}: the quorum is static"
        assert action.node_id not in world.voters, f"rule 5: {action}: a former disk is a voter still"
        assert node.disk is not None
        assert node.disk.directory_id == action.directory_id, f"{action}: not the disk that it has"
        assert node.process is not None
        assert node.process.joined, f"rule 1: {action}: it does not follow"
        assert node.disk.log_end >= world.seen_committed, f"rule 1: {action}: it has not caught up"
        assert action.endpoints, f"{action}: nobody would find it"
        was_well = world.sound_voters() == set(world.voters)
        world.voters[action.node_id] = Voter(action.directory_id, dict(action.endpoints))
        others = world.sound_voters() - {action.node_id}
        assert was_well or 2 * len(others) > len(world.voters), f"rule 1: {action}: only {others} are well"
        world.write()

    def remove_voter(self, action: RemoveVoter) -> None:
        world = self.world
        voter = world.voters.get(action.node_id)
        if voter is None or voter.directory_id != action.directory_id:
            return
        assert world.kraft_version >= 1, f"{action}: the quorum is static"
        assert len(world.voters) > 1, f"rule 1: {action}: it is the last voter"
        sound = world.sound_voters() - {action.node_id}
        rest = set(world.voters) - {action.node_id}
        assert 2 * len(sound) > len(rest), f"rule 1: {action}: only {sound} of {rest} are well"
        world.write()
        del world.voters[action.node_id]
        if world.leader_id == action.node_id:
            world.leader_id = None
            world.elect()

    def unregister(self, action: UnregisterController | UnregisterBroker) -> None:
        world = self.world
        node = world.nodes.get(action.node_id)
        assert node is None or node.process is None, f"rule 4: {action}: it runs"
        assert action.node_id not in world.voters, f"rule 4: {action}: it is a voter"
        if isinstance(action, UnregisterController):
            assert world.features["metadata.version"] >= REGISTRATION_LEVEL, f"{action}: not supported yet"
        else:
            assert not any(action.node_id in partition.replicas for partition in world.partitions.values()), (
                f"{action}: it has replicas"
            )
        if world.registrations.pop(action.node_id, None) is not None:
            world.write()

    def refresh(self, action: RefreshRegistration) -> None:
        world = self.world
        node = world.nodes.get(action.node_id)
        assert node is None or node.process is None, f"{action}: it lives"
        world.registrations[action.node_id] = replace(
            world.registrations[action.node_id], endpoints={}, features=FEATURES["4.4.0"]
        )
        world.write()

    def finalize(self, action: FinalizeFeature) -> None:
        world = self.world
        if action.feature == "kraft.version":
            assert action.level >= world.kraft_version
            if world.kraft_version == 0:
                world.kraft_version = action.level
                for node_id, voter in world.voters.items():
                    node = world.nodes[node_id]
                    assert node.disk is not None, f"{action}: voter {node_id} has no disk to be known by"
                    voter.directory_id = node.disk.directory_id
                    voter.endpoints = dict(node.last.advertised) if node.last else {}
        else:
            for registration in world.registrations.values():
                low, high = registration.features.get(action.feature, (0, 0))
                assert low <= action.level <= high, f"rule 6: {action}: {registration} blocks it"
            world.features[action.feature] = action.level
        world.write()

    def reassign(self, action: ReassignPartitions) -> None:
        world = self.world
        targets = dict(action.targets)
        names = sorted(targets)
        if self.half:
            names = names[: len(names) // 2]
        staying = {node.node_id for node in self.desired.nodes}
        for name in names:
            partition, target = world.partitions[name], targets[name]
            assert target, "nobody's reassignment is cancelled"
            assert len(set(target)) == len(target), f"{name}: {target}"
            assert set(target) <= staying, f"{name} moves to a broker that leaves: {target}"
            final = set(partition.replicas) - set(partition.removing)
            assert len(target) == len(final), f"{name}: its replication factor changes"
            adding = tuple(broker_id for broker_id in target if broker_id not in partition.isr)
            former = tuple(replica for replica in partition.replicas if replica not in target)
            partition.replicas = (*target, *former)
            partition.adding, partition.removing = adding, former
        world.write()
