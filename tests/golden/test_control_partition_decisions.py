"""Our changes and placements of partitions against Kafka's (tools/capture_partition_decisions.py).

Kafka 4.3.1 and 4.4.0 give the same answers, byte for byte.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.control.partition_change import Election, Rules, Wanted, change_partition
from quorate_controller.control.reassignments import cancellation, reassignment
from quorate_protocol.image import PartitionRegistration
from quorate_protocol.image.partitions import UNASSIGNED_DIRECTORY
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.placement import UsableBroker, place_replicas
from quorate_protocol.records.generated import PartitionChangeRecord

GOLDEN = Path(__file__).parent / "control"
TOPIC_ID = UUID(int=1)


def read(name: str) -> list[dict[str, Any]]:
    return json.loads((GOLDEN / name).read_text())


def to_partition(given: dict[str, Any]) -> PartitionRegistration:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    fields["directories"] = tuple(UUID(int=directory) for directory in given["directories"])
    fields["leader_recovery_state"] = LeaderRecoveryState(given["leader_recovery_state"])
    return PartitionRegistration(**fields, leader_epoch=5, partition_epoch=10)


def to_wanted(given: dict[str, Any]) -> Wanted:
    recovery_state = given.get("leader_recovery_state")
    return Wanted(
        isr=tuple(given["isr"]) if "isr" in given else None,
        election=Election[given["election"]],
        leader_recovery_state=None if recovery_state is None else LeaderRecoveryState(recovery_state),
        lost_replica=given.get("lost_replica"),
        directories={int(broker): UUID(int=number) for broker, number in given["directories"].items()},
    )


def to_rules(case: dict[str, Any]) -> Rules:
    return Rules(
        metadata_version=case["metadata_version"],
        elr_enabled=case["elr_enabled"],
        min_insync_replicas=case["min_insync_replicas"],
        may_lead=lambda broker_id, _: broker_id in case["may_lead"],
    )


def to_record(record: dict[str, Any] | None) -> PartitionChangeRecord | None:
    if record is None:
        return None
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    if "directories" in record:
        fields["directories"] = tuple(
            UUID(int=number) if number else None for number in record["directories"]
        )
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)


@pytest.mark.parametrize("case", read("partition_changes.json"), ids=lambda _: "")
def test_a_partition_changes_as_in_kafka(case: dict[str, Any]) -> None:
    partition, wanted = to_partition(case["partition"]), to_wanted(case["wanted"])
    record = change_partition(TOPIC_ID, 0, partition, wanted, to_rules(case))
    assert record == to_record(case["answer"])


@pytest.mark.parametrize("case", read("reassignments.json"), ids=lambda _: "")
def test_replicas_are_reassigned_as_in_kafka(case: dict[str, Any]) -> None:
    partition, wanted = to_partition(case["partition"]), case["wanted"]
    if "cancel" in wanted:
        change = cancellation(partition, is_unclean_allowed=wanted["unclean"])
        assert (change is None) == (case["answer"] == "refused")
    else:
        change = reassignment(partition, wanted["reassign"], lambda _: UNASSIGNED_DIRECTORY)
    if change is not None:
        record = change_partition(TOPIC_ID, 0, partition, change, to_rules(case))
        assert record == without_lost_copies(to_record(case["answer"]), partition)


def without_lost_copies(
    record: PartitionChangeRecord | None, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    """What Kafka decided, but for replicas that it takes away and leaves in the ELR: see protocol-differences.md."""
    if record is None or record.replicas is None or record.eligible_leader_replicas is None:
        return record
    elr = tuple(replica for replica in record.eligible_leader_replicas if replica in record.replicas)
    return replace(record, eligible_leader_replicas=None if set(elr) == set(partition.elr) else elr)


class AlwaysZero:
    """The random source with which Kafka's answers were captured; shuffles as java.util.Collections does."""

    def randrange(self, _stop: int) -> int:
        return 0

    def shuffle(self, items: list[Any]) -> None:
        for last in range(len(items) - 1, 0, -1):
            items[last], items[0] = items[0], items[last]


@pytest.mark.parametrize("case", read("replica_placements.json"), ids=lambda _: "")
def test_replicas_are_placed_as_in_kafka(case: dict[str, Any]) -> None:
    brokers = [
        UsableBroker(broker_id=broker_id, rack=rack, fenced=fenced)
        for broker_id, rack, fenced in case["brokers"]
    ]
    placed = place_replicas(brokers, case["num_partitions"], case["replication_factor"], AlwaysZero())
    assert [list(replicas) for replicas in placed] == case["answer"]
