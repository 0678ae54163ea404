"""The gateway against real controllers and brokers: its facts, the nodes at each address, and every step."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from kit.cluster import Cluster, free_ports, manifests
from kit.gatekeeper import Gatekeeper
from kit.java.tools import JavaTools
from kit.names import unused
from kit.waiting import eventually
from quorate_admin.types.cluster import ControllerListener, ControllerRegistration
from quorate_admin.types.topics import NewTopic
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.placement.cluster import ObservedPartition, PartitionId
from quorate_operator.planning.cluster import Address, KafkaFacts, Reached
from quorate_operator.planning.steps import (
    AddVoter,
    ElectPreferredLeaders,
    FinalizeFeature,
    KafkaAction,
    ReassignPartitions,
    RefreshRegistration,
    RemoveVoter,
    SetLogLevels,
    SetThrottles,
    StepError,
    UnregisterBroker,
    UnregisterController,
)
from quorate_operator.planning.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)

pytestmark = pytest.mark.integration

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
GHOST, LEAVING = 99, 2
TIMEOUT_S = 60
PROBED_WITHIN_S = 10
THROTTLED_RECORDS, RECORD_SIZE_BYTES, SLOW_BYTES_PER_S = 100, 100_000, 1_000


def create_topic(gatekeeper: Gatekeeper, prefix: str, *replicas: int) -> PartitionId:
    """A topic with one partition on these brokers."""
    name = unused(prefix)
    created = gatekeeper.cluster.ask(
        lambda client: client.create_topics([NewTopic(name=name, assignments={0: replicas})]),
        brokers=gatekeeper.cluster.brokers,
    )
    assert created is not None
    created.raise_any()
    return PartitionId(name, 0)


def register_ghost(cluster: Cluster) -> None:
    """A controller that was there once, whose features end before those of today."""
    registration = ControllerRegistration(
        controller_id=GHOST,
        incarnation_id=uuid4(),
        listeners=(
            ControllerListener(name="CONTROLLER", host="127.0.0.1", port=free_ports(1), security_protocol=0),
        ),
        features={"metadata.version": (7, 30), "kraft.version": (0, 1)},
    )

    async def register(client) -> bool:
        await client.register_controller(registration)
        return True

    leader = cluster.await_leader()
    assert cluster.ask(register, controllers=[leader])


def twice(action: KafkaAction) -> tuple[KafkaAction, KafkaAction]:
    """Done, and done again as by an operator that was killed in between."""
    return action, action


def test_facts_are_what_stock_tools_print(gatekeeper: Gatekeeper, java_tool: JavaTools) -> None:
    """Leader, epoch, voters, levels, partitions."""
    partition = create_topic(gatekeeper, "facts", 2, 0)
    brokers = ("--bootstrap-server", gatekeeper.cluster.bootstrap_servers)

    def looked() -> tuple[KafkaFacts, ObservedPartition] | None:
        facts = gatekeeper.facts(LEAVING)
        (watched,) = [placed for placed in facts.partitions if placed.partition == partition]
        # Its broker may not have made the replica yet.
        return None if watched.size_bytes is None else (facts, watched)

    facts, watched = eventually(looked, TIMEOUT_S, "the replica on its broker")
    status = java_tool(QUORUM, *brokers, "describe", "--status").succeeded().stdout
    printed = dict(re.findall(r"^(\w+): +(.*)$", status, re.MULTILINE))
    assert int(printed["LeaderId"]) == facts.quorum.leader_id
    assert int(printed["LeaderEpoch"]) == facts.quorum.leader_epoch
    assert printed["ClusterId"] == facts.cluster_id
    assert int(printed["HighWatermark"]) >= facts.quorum.high_watermark > 0
    assert {node_id for node_id, voter in facts.quorum.voters.items() if voter.caught_up} == {
        *gatekeeper.cluster.controllers
    }
    for voter in facts.quorum.voters.values():
        assert f'"directoryId": "{voter.directory_id}"' in printed["CurrentVoters"]
        assert voter.endpoints == {"CONTROLLER": gatekeeper.address(voter.node_id)}
    levels = java_tool(FEATURES, *brokers, "describe").succeeded().stdout
    finalized = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s", levels))
    assert facts.features["kraft.version"] == int(finalized["kraft.version"])
    assert facts.features["transaction.version"] == int(finalized["transaction.version"])
    assert facts.registrations.keys() == {*gatekeeper.cluster.controllers, *gatekeeper.cluster.brokers}
    assert facts.answering == {*gatekeeper.cluster.brokers}
    assert (watched.replicas, sorted(watched.isr), watched.leader) == ((2, 0), [0, 2], 2)
    assert watched.size_bytes == 0
    assert all((load.free_bytes or 0) > 0 for load in facts.loads.values())
    assert facts.offline_partitions == 0


def test_a_look_costs_little_after_the_first(gatekeeper: Gatekeeper) -> None:
    async def look_twice(gateway: KafkaGateway) -> tuple[KafkaFacts | None, PartitionId, KafkaFacts | None]:
        first = await gatekeeper.observe(gateway, 1)
        created = await asyncio.to_thread(create_topic, gatekeeper, "followed", 1)
        return first, created, await gatekeeper.observe(gateway, 1)

    first, created, second = gatekeeper.run(look_twice)
    assert first is not None
    assert second is not None
    seen = {partition.partition for partition in second.partitions} - {
        partition.partition for partition in first.partitions
    }
    assert seen == {created}


def test_probes_report_the_node_that_answers(gatekeeper: Gatekeeper) -> None:
    nodes = (*gatekeeper.cluster.controllers, *gatekeeper.cluster.brokers)
    nobody, silent = Address("127.0.0.1", free_ports(1)), Address("127.0.0.1", free_ports(1))
    nowhere = Address("no-such-name.invalid", 9092)

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def probe_all(gateway: KafkaGateway) -> Mapping[Address, Reached]:
        addresses = {gatekeeper.address(node) for node in nodes}
        server = await asyncio.start_server(be_silent, silent.host, silent.port)
        async with server, asyncio.timeout(PROBED_WITHIN_S):
            return await gateway.probe(frozenset({*addresses, nobody, nowhere, silent}), frozenset(nodes))

    reached = gatekeeper.run(probe_all)
    cluster_id = gatekeeper.facts().cluster_id
    for node_id in nodes:
        reported = reached[gatekeeper.address(node_id)]
        assert (reported.cluster_id, reported.node_id, reported.error) == (cluster_id, node_id, None)
    for where, error in ((nobody, "refused"), (nowhere, "not known"), (silent, "no response")):
        assert (reached[where].cluster_id, reached[where].node_id) == (None, None)
        assert error in (reached[where].error or "")
    known = frozenset({gatekeeper.address(0)})
    stranger = gatekeeper.run(lambda gateway: gateway.probe(known, frozenset({1, 2})))
    assert [(address.cluster_id, address.node_id) for address in stranger.values()] == [(cluster_id, None)]


@pytest.mark.parametrize("leads", [False, True])
def test_a_voter_goes_and_comes(gatekeeper: Gatekeeper, leads: bool) -> None:
    quorum = gatekeeper.facts().quorum
    spare = next(voter_id for voter_id in quorum.voters if (voter_id == quorum.leader_id) is leads)
    voter = quorum.voters[spare]
    assert voter.directory_id is not None
    remove = RemoveVoter(node_id=spare, directory_id=voter.directory_id, reason="test")
    add = AddVoter(node_id=spare, directory_id=voter.directory_id, endpoints=voter.endpoints, reason="test")

    def is_caught_up_observer() -> bool:
        quorum = gatekeeper.facts().quorum
        assert spare not in quorum.voters
        return any(
            (observer.node_id, observer.directory_id, observer.caught_up) == (spare, voter.directory_id, True)
            for observer in quorum.observers
        )

    try:
        gatekeeper.apply(*twice(remove))
        eventually(is_caught_up_observer, TIMEOUT_S, "an observer that may become a voter again")
    finally:
        gatekeeper.apply(*twice(add))  # other tests need all voters
    assert gatekeeper.facts().quorum.voters[spare].endpoints == voter.endpoints
    with pytest.raises(StepError, match=f"controller {spare} was not made a voter: DUPLICATE_VOTER"):
        gatekeeper.apply(replace(add, directory_id="A" * 21 + "Q"))


def test_a_drain_is_throttled(gatekeeper: Gatekeeper) -> None:
    """SetThrottles: replicas of a list move slowly, others at full speed, until the throttles are removed."""
    slow, fast = create_topic(gatekeeper, "throttled", 1), create_topic(gatekeeper, "unthrottled", 1)
    producer = Producer({"bootstrap.servers": gatekeeper.cluster.bootstrap_servers, "acks": "all"})
    for _ in range(THROTTLED_RECORDS):
        producer.produce(slow.topic, bytes(RECORD_SIZE_BYTES))
        producer.produce(fast.topic, bytes(RECORD_SIZE_BYTES))
    assert producer.flush(TIMEOUT_S) == 0

    def has_moved(partition: PartitionId) -> bool:
        placed = (found for found in gatekeeper.facts(0).partitions if found.partition == partition)
        return any(found.replicas == (0,) for found in placed)

    brokers = [*gatekeeper.cluster.brokers]
    throttle = SetThrottles(
        rates=dict.fromkeys(brokers, SLOW_BYTES_PER_S), topics={slow.topic: ("0:1", "0:0")}, reason="test"
    )
    free = replace(throttle, rates=dict.fromkeys(brokers), topics={slow.topic: ("", "")})
    try:
        gatekeeper.apply(*twice(throttle))
        facts = gatekeeper.facts()
        rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), f"{SLOW_BYTES_PER_S}")
        assert facts.replication_rates == dict.fromkeys(brokers, rates)
        assert facts.throttled == {slow.topic: {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:0"}}
        for partition in (slow, fast):
            gatekeeper.apply(ReassignPartitions(node_id=1, targets={partition: (0,)}, reason="test"))
        eventually(lambda: has_moved(fast), TIMEOUT_S, "the other partition to have moved")
        assert not has_moved(slow)
    finally:
        gatekeeper.apply(*twice(free))
    facts = gatekeeper.facts()
    assert (facts.replication_rates, facts.throttled) == ({}, {})
    eventually(lambda: has_moved(slow), TIMEOUT_S, "the partition to have moved")


def test_a_broker_leaves(gatekeeper: Gatekeeper) -> None:
    """ReassignPartitions, ElectPreferredLeaders, UnregisterBroker."""
    partition = create_topic(gatekeeper, "drained", LEAVING, 0)
    unregister = UnregisterBroker(node_id=LEAVING, reason="test")
    with pytest.raises(StepError, match=f"node {LEAVING} was not unregistered: it is in service"):
        gatekeeper.apply(unregister)
    held = {placed.partition for placed in gatekeeper.facts(LEAVING).partitions}
    assert partition in held
    targets = {**dict.fromkeys(held, (1, 0)), partition: (0, 1)}
    drain = ReassignPartitions(node_id=LEAVING, targets=targets, reason="test")
    gatekeeper.apply(*twice(drain))
    eventually(lambda: not gatekeeper.facts(LEAVING).partitions, TIMEOUT_S, "nothing on the broker")
    cancel = ReassignPartitions(node_id=LEAVING, targets={partition: ()}, reason="test")
    gatekeeper.apply(cancel, replace(cancel, targets={PartitionId("no such topic", 0): ()}))

    gatekeeper.apply(ReassignPartitions(node_id=-1, targets={partition: (1, 0)}, reason="test"))
    assert gatekeeper.facts().loads[1].unpreferred > 0
    gatekeeper.apply(*twice(ElectPreferredLeaders(reason="test")))
    assert gatekeeper.facts().loads[1].unpreferred == 0

    gatekeeper.cluster.terminate(LEAVING)
    try:
        fenced = "the broker to be fenced"
        eventually(lambda: gatekeeper.facts().registrations[LEAVING].fenced, TIMEOUT_S, fenced)
        gatekeeper.apply(*twice(unregister))
        facts = gatekeeper.facts()
        assert LEAVING not in facts.registrations
        assert LEAVING not in facts.loads
    finally:
        gatekeeper.cluster.start(LEAVING)  # other tests need it
        gatekeeper.cluster.await_unfenced(LEAVING)


def test_levels_of_loggers_are_reported_and_set(gatekeeper: Gatekeeper) -> None:
    names = {0: "root", **dict.fromkeys(gatekeeper.cluster.controllers, "quorate_controller")}
    loggers = {node_id: frozenset({name, "no.such"}) for node_id, name in names.items()}

    def levels() -> Mapping[int, Mapping[str, str]]:
        facts = gatekeeper.run(lambda gateway: gatekeeper.observe(gateway, loggers=loggers))
        assert facts is not None
        return facts.log_levels

    before = levels()
    assert {node_id: {*reported} for node_id, reported in before.items()} == {
        node_id: {name} for node_id, name in names.items()
    }
    for level in ("WARN", "ERROR"):
        steps = (
            SetLogLevels(node_id=node_id, levels={name: level}, reason="test")
            for node_id, name in names.items()
        )
        gatekeeper.apply(*(again for step in steps for again in twice(step)))
        assert levels() == {node_id: {name: level} for node_id, name in names.items()}
    gatekeeper.apply(
        *(
            SetLogLevels(node_id=node_id, levels=reported, reason="test")
            for node_id, reported in before.items()
        )
    )
    with pytest.raises(StepError, match=r"log levels of node 0 were not set: INVALID_CONFIG: .*no\.such"):
        gatekeeper.apply(SetLogLevels(node_id=0, levels={"no.such": "INFO"}, reason="test"))
    with pytest.raises(StepError, match="log levels of node 77 were not set: it does not run"):
        gatekeeper.apply(SetLogLevels(node_id=77, levels={"root": "INFO"}, reason="test"))


def test_a_ghost_is_refreshed_and_unregistered(tmp_path: Path) -> None:
    """RefreshRegistration, FinalizeFeature, UnregisterController, each again as well."""
    cluster = Cluster.create(
        tmp_path / "cluster", None, manifests(controllers=1, brokers=0, metadata_version="4.3")
    )
    gatekeeper = Gatekeeper(cluster)
    finalize = FinalizeFeature(feature="metadata.version", level=33, reason="test")
    unregister = UnregisterController(node_id=GHOST, reason="test")
    try:
        cluster.start_all()
        register_ghost(cluster)
        with pytest.raises(StepError, match=r"metadata\.version was not set to 33: .*99"):
            gatekeeper.apply(finalize)
        with pytest.raises(StepError, match=f"node {GHOST} was not unregistered: UNSUPPORTED_VERSION"):
            gatekeeper.apply(unregister)
        gatekeeper.apply(*twice(RefreshRegistration(node_id=GHOST, reason="test")))
        ghost = gatekeeper.facts().registrations[GHOST]
        assert (ghost.endpoints, ghost.features["metadata.version"]) == ({}, (7, 33))
        gatekeeper.apply(*twice(finalize))
        gatekeeper.apply(*twice(unregister))
        gatekeeper.apply(RefreshRegistration(node_id=GHOST, reason="it makes no ghost of one that is gone"))
        facts = gatekeeper.facts()
        assert facts.features["metadata.version"] == 33
        assert GHOST not in facts.registrations
    finally:
        cluster.close()
