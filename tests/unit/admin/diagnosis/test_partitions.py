"""Partitions in trouble, and nodes without what they should have: how they are counted, and what is found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from kit.replicas import NOW_MS, replica
from quorate_admin.diagnosis import (
    Code,
    Commands,
    Examination,
    Finding,
    NodeKind,
    PartitionFacts,
    PartitionTally,
    RegisteredNode,
    Severity,
    Subject,
    diagnose,
    partitions_of_image,
)
from quorate_admin.types.cluster import FeatureDescription, QuorumDescription, ReplicaDescription
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.generated import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

AT = "--bootstrap-controller c:9093"
NOBODY = UUID(int=0)


def cluster(
    partitions: PartitionFacts | None = None,
    *,
    brokers: Mapping[int, bool] | None = None,
    observers: Sequence[ReplicaDescription] = (),
    kraft_version: int = 1,
    metadata_version: int = 30,
    controllers: Sequence[int] = (1, 2, 3),
    **more: object,
) -> Examination:
    """A cluster of three voters. `brokers` are the registered ones, and whether each is fenced."""
    facts = Examination(
        quorum=QuorumDescription(
            leader_id=1,
            leader_epoch=3,
            high_watermark=9,
            voters=(replica(1), replica(2), replica(3)),
            observers=tuple(observers),
        ),
        leader_since_ms=NOW_MS - 3_600_000,
        features=FeatureDescription(
            finalized={"metadata.version": metadata_version, "kraft.version": kraft_version},
            finalized_epoch=5,
            supported={},
        ),
        controllers={
            controller: RegisteredNode(
                kind=NodeKind.CONTROLLER,
                node_id=controller,
                endpoints=((f"c{controller}", 9093),),
                features={},
            )
            for controller in controllers
        },
        brokers={
            broker_id: RegisteredNode(
                kind=NodeKind.BROKER, node_id=broker_id, endpoints=((f"b{broker_id}", 9092),), fenced=fenced
            )
            for broker_id, fenced in (brokers or {}).items()
        },
        is_log_read=True,
        partitions=partitions,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def found(facts: Examination) -> dict[str, Finding]:
    """The findings by their ids, which no two of them share."""
    findings = diagnose(facts, Commands.through(AT, facts)).findings
    by_id = {finding.finding_id: finding for finding in findings}
    assert len(by_id) == len(findings)
    return by_id


def tally(
    *partitions: tuple[str, tuple[int, ...], tuple[int, ...], bool, int | None],
    registered: Sequence[int] = (10, 11, 12),
) -> PartitionFacts:
    """Count partitions: topic, replicas, ISR, whether it has a leader, `min.insync.replicas`."""
    counted = PartitionTally(registered)
    counted.add_topic()
    for number, (topic, replicas, isr, has_leader, min_isr) in enumerate(partitions):
        counted.add(topic, number, replicas=replicas, isr=isr, has_leader=has_leader, min_isr=min_isr)
    return counted.facts()


@pytest.mark.parametrize(
    ("isr", "has_leader", "min_isr", "expected"),
    [
        ((10, 11, 12), True, 4, "well"),  # Kafka takes the number of replicas for a minimum above it
        ((10, 11), True, 4, "under"),
        ((10, 11), True, 2, "well"),
        ((10,), True, 2, "under"),
        ((10,), True, None, "unknown"),
        ((10,), False, 2, "offline"),
        ((), False, None, "offline"),
    ],
)
def test_a_partition_is_in_one_kind_of_trouble(
    isr: tuple[int, ...], has_leader: bool, min_isr: int | None, expected: str
) -> None:
    facts = tally(("t", (10, 11, 12), isr, has_leader, min_isr))
    kinds = {
        "offline": facts.offline.count,
        "under": facts.under_min_isr.count,
        "unknown": facts.min_isr_unknown,
    }
    assert {kind for kind, count in kinds.items() if count} == {expected} - {"well"}
    assert facts.replicas == {10: 1, 11: 1, 12: 1}


def test_an_image_is_counted_with_its_dynamic_configs() -> None:
    image = MetadataImage()
    records = [
        RegisterBrokerRecord(
            broker_id=10,
            broker_epoch=1,
            incarnation_id=NOBODY,
            end_points=(),
            features=(),
            rack=None,
            fenced=False,
        )
    ]
    for number, name in enumerate(("a", "b"), start=1):
        topic_id = UUID(int=number)
        records.append(TopicRecord(name=name, topic_id=topic_id))
        records += [
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=(10, 11),
                isr=(10,),
                removing_replicas=(),
                adding_replicas=(),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            )
            for partition, leader in ((0, 10), (1, -1))
        ]
    records.append(ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2"))
    image.replay_batch(records, base_offset=0, epoch=1, timestamp_ms=0)
    facts = partitions_of_image(image)
    assert (facts.topics, facts.partitions) == (2, 4)
    assert facts.offline.examples == ("a-1", "b-1")
    assert (facts.under_min_isr.examples, facts.min_isr_unknown) == (("a-0",), 1)
    assert {node_id: partitions.count for node_id, partitions in facts.unregistered.items()} == {11: 4}
    general = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    image.replay_batch([general], base_offset=image.end_offset, epoch=1, timestamp_ms=0)
    facts = partitions_of_image(image)
    assert (facts.under_min_isr.examples, facts.min_isr_unknown) == (("a-0", "b-0"), 0)


def test_findings_stay_short_in_a_large_cluster() -> None:
    lost = [("t", (100 + number % 100,), (), False, None) for number in range(1_000)]
    findings = found(cluster(tally(*lost)))
    offline = findings["partitions-offline"]
    assert (offline.severity, offline.count) == (Severity.DANGER, 1_000)
    assert offline.examples == ("t-0", "t-1", "t-2", "t-3", "t-4")
    assert "and 90 more" in offline.evidence
    gone = [finding for finding in findings.values() if finding.code is Code.REPLICAS_WITHOUT_BROKER]
    assert len(gone) == 11
    assert gone[-1].message.startswith("90 more brokers ")
    assert gone[-1].count == 900
    assert all(
        len(text) < 700 for finding in findings.values() for text in (finding.evidence, finding.advice or "")
    )


@pytest.mark.parametrize(
    ("observers", "expected", "words"),
    [
        ([replica(20)], "broker-not-registered/broker-20", "Restart broker 20: "),
        ([], "replicas-without-broker/broker-20", "Start broker 20: "),
        ([replica(20, NOW_MS - 5_001)], "replicas-without-broker/broker-20", "Start broker 20: "),
    ],
)
def test_a_broker_without_a_registration_runs_or_is_gone(
    observers: list[ReplicaDescription], expected: str, words: str
) -> None:
    findings = found(cluster(tally(("t", (20,), (), False, None)), observers=observers))
    assert [*findings] == (
        [expected, "partitions-offline"] if observers == [replica(20)] else ["partitions-offline", expected]
    )
    assert (findings[expected].advice or "").startswith(words)


def test_whether_a_broker_runs_is_unknown_without_a_leader() -> None:
    facts = cluster(tally(("t", (20,), (), False, None)), quorum=None)
    assert "Whether it runs is unknown" in found(facts)["replicas-without-broker/broker-20"].evidence


@pytest.mark.parametrize(
    ("brokers", "advice"),
    [
        ({10: True, 11: False}, "Start broker 10; "),
        ({10: False, 11: False}, "All of these brokers run. Look for log directories that are offline"),
    ],
)
def test_the_advice_for_partitions_without_a_leader_names_the_broker(
    brokers: dict[int, bool], advice: str
) -> None:
    finding = found(cluster(tally(("t", (10,), (), False, None)), brokers=brokers))["partitions-offline"]
    assert (finding.advice or "").startswith(advice)
    first = min(broker_id for broker_id, fenced in brokers.items() if not fenced)
    assert finding.commands[0].startswith(f"quorate topics --bootstrap-server b{first}:9092")
    assert finding.commands[0].endswith(" --describe --unavailable-partitions")


@pytest.mark.parametrize(
    ("partitions", "command", "words"),
    [
        (tally(("t", (10, 11), (11,), True, 1)), "reassign-partitions", "It has 1 replica: "),
        (tally(("t", (11,), (11,), True, 1)), "cluster unregister", "if it is gone for good, unregister it:"),
        (None, "cluster unregister", "and holds no replicas, unregister it:"),
    ],
)
def test_a_broker_with_replicas_is_not_proposed_to_be_unregistered(
    partitions: PartitionFacts | None, command: str, words: str
) -> None:
    """The doctor's commands do not make it worse."""
    finding = found(cluster(partitions, brokers={10: True, 11: False}, observers=[replica(11)]))[
        "broker-fenced/broker-10"
    ]
    assert command in finding.commands[0]
    assert words in (finding.advice or "")


# Observers


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["controller-could-vote/controller-4"]),
        ({"kraft_version": 0}, []),
        ({"observers": [replica(4, NOW_MS - 60_000)]}, ["ghost-controller/controller-4"]),
        ({"controllers": (1, 2, 3)}, ["observer-not-registered/node-4"]),
        ({"controllers": (1, 2, 3), "metadata_version": 14}, []),
        ({"controllers": (1, 2, 3), "brokers": {4: False}}, []),
        (
            {"observers": [], "answering": frozenset({4})},
            ["controller-not-following/controller-4"],
        ),
        ({"observers": [], "unidentified": frozenset({4})}, ["ghost-controller/controller-4"]),
    ],
)
def test_what_an_observer_is(changes: dict[str, object], expected: list[str]) -> None:
    """A controller that could vote, a ghost that runs and one that is gone are different findings."""
    given: dict[str, object] = {"observers": [replica(4)], "controllers": (1, 2, 3, 4), **changes}
    assert [*found(cluster(**given))] == expected  # type: ignore[arg-type]


def test_a_ghost_at_whose_address_a_server_answers_is_not_called_gone() -> None:
    facts = cluster(controllers=(1, 2, 3, 4), unidentified=frozenset({4}))
    ghost = found(facts)["ghost-controller/controller-4"]
    assert "no such node runs" not in ghost.message + ghost.evidence
    assert "A server answers at its address" in ghost.evidence


# What was not examined


@pytest.mark.parametrize("subject", Subject)
def test_what_was_not_examined_is_a_finding_with_its_reason(subject: Subject) -> None:
    (finding,) = found(cluster(unexamined={subject: "the reason"})).values()
    assert finding.evidence == "the reason"
    assert finding.advice is not None
    assert finding.commands
    notes = (Subject.ADDRESSES, Subject.MIN_INSYNC_REPLICAS)
    assert finding.severity is (Severity.NOTE if subject in notes else Severity.WARNING)


def test_what_only_a_leader_serves_is_a_note_without_one() -> None:
    unread = {Subject.PARTITIONS: "no leader", Subject.REGISTRATIONS: "no leader"}
    facts = replace(
        cluster(quorum=None, is_log_read=False, unexamined=unread), controllers=None, brokers=None
    )
    findings = found(facts)
    assert [finding.severity for finding in findings.values()] == [
        Severity.DANGER,
        Severity.NOTE,
        Severity.NOTE,
    ]
    assert all("CLUSTER_ACTION" not in (finding.advice or "") for finding in findings.values())
    assert "the metadata log was not read" in findings["registrations-not-examined"].message
