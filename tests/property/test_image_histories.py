"""The metadata image under random histories: replay, commit, revert, transactions, snapshots, deltas agree.

The model is the list of batches that survive. Whatever was appended, committed and taken back in whatever
order, the image has to equal one that replays those batches and nothing else.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from quorate_protocol.image import MetadataImage
from quorate_protocol.image import index as partition_index
from quorate_protocol.image.snapshot import image_to_records, read_checkpoint, write_checkpoint
from quorate_protocol.records import generated as records
from quorate_protocol.records.generated import MetadataRecord

LEVEL: Final = 33
Batch = tuple[int, tuple[MetadataRecord, ...]]
"""Base offset and records."""

broker_ids = st.integers(1, 4)
replica_lists = st.lists(broker_ids, min_size=1, max_size=4, unique=True).map(tuple)
partition_ids = st.integers(0, 1)
directories = st.sampled_from([None, UUID(int=1), UUID(int=1 << 127), UUID(int=777)])
names = st.sampled_from(["a", "b"])
numbers = st.integers(0, 4)


class RecordMaker:
    """Draws records that an image can replay as it is now."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], image: MetadataImage) -> None:
        self.draw = draw
        self.image = image

    def record(self) -> MetadataRecord:
        """Any record that fits; a NoOpRecord where what was drawn has nothing to refer to."""
        kinds = [name for name in dir(self) if name.startswith("make_")]
        # What depends on one another has to come often enough to meet.
        kinds += ["make_topic", "make_topic_end"] + 3 * ["make_transaction_record"]
        kinds += 4 * ["make_partition", "make_partition_change"]
        made: MetadataRecord | None = getattr(self, self.draw(st.sampled_from(kinds)))()
        return made or records.NoOpRecord()

    def one_of(self, keys: Any) -> Any:
        return self.draw(st.sampled_from(sorted(keys))) if keys else None

    def make_feature(self) -> MetadataRecord:
        return records.FeatureLevelRecord(name=self.draw(names), feature_level=self.draw(st.integers(0, 2)))

    def make_broker(self) -> MetadataRecord:
        cordoned = self.draw(st.none() | st.lists(directories, max_size=2).map(tuple))
        return records.RegisterBrokerRecord(
            broker_id=self.draw(broker_ids),
            incarnation_id=UUID(int=self.draw(st.integers(1, 3))),
            broker_epoch=self.draw(numbers),
            end_points=(
                records.BrokerEndpoint(
                    name="A", host=self.draw(names), port=9092, security_protocol=self.draw(st.integers(0, 3))
                ),
            ),
            features=(records.BrokerFeature(name="f", min_supported_version=0, max_supported_version=1),),
            rack=self.draw(st.none() | names),
            fenced=self.draw(st.booleans()),
            in_controlled_shutdown=self.draw(st.booleans()),
            is_migrating_zk_broker=self.draw(st.booleans()),
            log_dirs=self.draw(st.lists(directories, max_size=2).map(tuple)),
            cordoned_log_dirs=cordoned,
        )

    def make_broker_change(self) -> MetadataRecord | None:
        broker = self.image.cluster.brokers.get(self.one_of(self.image.cluster.brokers))
        if broker is None:
            return None
        return records.BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            fenced=self.draw(st.integers(-1, 1)),
            in_controlled_shutdown=self.draw(st.integers(0, 1)),
            log_dirs=self.draw(st.lists(directories, max_size=2).map(tuple)),
            cordoned_log_dirs=self.draw(st.none() | st.just(())),
        )

    def make_broker_end(self) -> MetadataRecord | None:
        broker = self.image.cluster.brokers.get(self.one_of(self.image.cluster.brokers))
        if broker is None:
            return None
        return self.draw(
            st.sampled_from(
                [
                    records.FenceBrokerRecord(id=broker.broker_id, epoch=broker.epoch),
                    records.UnfenceBrokerRecord(id=broker.broker_id, epoch=broker.epoch),
                    records.UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch),
                ]
            )
        )

    def make_controller(self) -> MetadataRecord:
        controller_id = self.draw(numbers)
        if controller_id in self.image.cluster.controllers and self.draw(st.booleans()):
            return records.UnregisterControllerRecord(controller_id=controller_id)
        return records.RegisterControllerRecord(
            controller_id=controller_id,
            incarnation_id=UUID(int=self.draw(st.integers(1, 3))),
            zk_migration_ready=self.draw(st.booleans()),
            end_points=(),
            features=(records.ControllerFeature(name="f", min_supported_version=0, max_supported_version=1),),
        )

    def make_topic(self) -> MetadataRecord | None:
        name, topic_id = self.draw(names), UUID(int=1000 + self.draw(st.integers(0, 2)))
        if name in self.image.topics.by_name or topic_id in self.image.topics.by_id:
            return None
        return records.TopicRecord(name=name, topic_id=topic_id)

    def make_topic_end(self) -> MetadataRecord | None:
        topic_id = self.one_of(self.image.topics.by_id)
        return topic_id and records.RemoveTopicRecord(topic_id=topic_id)

    def make_clear_elr(self) -> MetadataRecord:
        return records.ClearElrRecord(topic_name=self.one_of(self.image.topics.by_name) or "")

    def make_partition(self) -> MetadataRecord | None:
        topic_id = self.one_of(self.image.topics.by_id)
        if topic_id is None:
            return None
        replicas = self.draw(replica_lists)
        return records.PartitionRecord(
            partition_id=self.draw(partition_ids),
            topic_id=topic_id,
            replicas=replicas,
            isr=self.draw(replica_lists),
            removing_replicas=self.draw(st.just(()) | replica_lists),
            adding_replicas=self.draw(st.just(()) | replica_lists),
            leader=self.draw(st.sampled_from((-1, *replicas))),
            leader_recovery_state=self.draw(st.integers(0, 1)),
            leader_epoch=self.draw(numbers),
            partition_epoch=self.draw(numbers),
            directories=self.draw(self._directories_of(len(replicas))),
            eligible_leader_replicas=self.draw(st.none() | replica_lists),
            last_known_elr=self.draw(st.none() | replica_lists),
        )

    def make_partition_change(self) -> MetadataRecord | None:
        topic = self.image.topics.by_id.get(self.one_of(self.image.topics.by_id))
        partition_id = self.one_of(topic.partitions) if topic else None
        if topic is None or partition_id is None:
            return None
        replicas = self.draw(st.none() | replica_lists)
        return records.PartitionChangeRecord(
            partition_id=partition_id,
            topic_id=topic.topic_id,
            isr=self.draw(st.none() | st.just(()) | replica_lists),
            leader=self.draw(st.integers(-2, 4).filter(bool)),
            replicas=replicas,
            directories=None if replicas is None else self.draw(self._directories_of(len(replicas))),
            removing_replicas=self.draw(st.none() | st.just(()) | replica_lists),
            adding_replicas=self.draw(st.none() | st.just(()) | replica_lists),
            leader_recovery_state=self.draw(st.integers(-1, 1)),
            eligible_leader_replicas=self.draw(st.none() | replica_lists),
            last_known_elr=self.draw(st.none() | replica_lists),
        )

    def _directories_of(self, count: int) -> st.SearchStrategy[tuple[UUID | None, ...]]:
        # None at all would be right only as long as the partition had none: see the unit tests.
        return st.lists(directories, min_size=count, max_size=count).map(tuple)

    def make_config(self) -> MetadataRecord:
        return records.ConfigRecord(
            resource_type=self.draw(st.sampled_from([2, 4])),
            resource_name=self.draw(names),
            name=self.draw(names),
            value=self.draw(st.none() | names),
        )

    def make_quota(self) -> MetadataRecord:
        kinds = self.draw(st.dictionaries(st.sampled_from(["user", "ip"]), st.none() | names, min_size=1))
        return records.ClientQuotaRecord(
            entity=tuple(records.EntityData(entity_type=k, entity_name=n) for k, n in kinds.items()),
            key=self.draw(names),
            value=float(self.draw(numbers)),
            remove=self.draw(st.booleans()),
        )

    def make_producer_ids(self) -> MetadataRecord:
        return records.ProducerIdsRecord(
            broker_id=1, next_producer_id=self.image.next_producer_id + self.draw(st.integers(1, 1000))
        )

    def make_acl(self) -> MetadataRecord:
        acl_id = UUID(int=2000 + self.draw(numbers))
        if acl_id in self.image.acls and self.draw(st.booleans()):
            return records.RemoveAccessControlEntryRecord(id=acl_id)
        return records.AccessControlEntryRecord(
            id=acl_id,
            resource_type=2,
            resource_name=self.draw(names),
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )

    def make_scram(self) -> MetadataRecord:
        key = self.one_of(self.image.scram)
        if key is not None and self.draw(st.booleans()):
            return records.RemoveUserScramCredentialRecord(name=key[1], mechanism=int(key[0]))
        return records.UserScramCredentialRecord(
            name=self.draw(names),
            mechanism=self.draw(st.integers(1, 2)),
            salt=self.draw(st.binary(max_size=2)),
            stored_key=b"",
            server_key=b"",
            iterations=self.draw(numbers),
        )

    def make_token(self) -> MetadataRecord:
        token_id = self.draw(names)
        if self.draw(st.booleans()):
            return records.RemoveDelegationTokenRecord(token_id=token_id)
        return records.DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=self.draw(st.lists(names, max_size=1).map(tuple)),
            issue_timestamp=0,
            max_timestamp=2,
            expiration_timestamp=self.draw(numbers),
            token_id=token_id,
        )

    def make_transaction_record(self) -> MetadataRecord:
        if self.image.transaction is None:
            return records.BeginTransactionRecord(name=self.draw(names))
        return self.draw(st.sampled_from([records.EndTransactionRecord(), records.AbortTransactionRecord()]))


def replay(batches: list[Batch], end_offset: int, image: MetadataImage | None = None) -> MetadataImage:
    """An image that replays the batches below ``end_offset``, none of which it commits."""
    image = image or MetadataImage()
    for base_offset, batch in batches:
        if image.end_offset <= base_offset < end_offset:
            image.replay_batch(batch, base_offset=base_offset, epoch=1, timestamp_ms=base_offset)
    return image


def index_of(image: MetadataImage) -> list[Any]:
    """What the index of an image says."""
    index = image.index
    sets = (index.leaderless, index.imbalanced, index.reassigning, index.with_elr)
    return [
        index.num_partitions,
        [set(index.topics_of_broker(broker_id)) for broker_id in range(6)],
        [index.leaderships(broker_id) for broker_id in range(6)],
        *(set(brokers) for brokers in sets),
        *(len(brokers) for brokers in sets),
    ]


def expected_index_of(image: MetadataImage) -> list[Any]:
    """The same, by looking at all partitions."""
    partitions = {
        (topic.topic_id, partition_id): partition
        for topic in image.topics.by_id.values()
        for partition_id, partition in topic.partitions.items()
    }
    topics = image.topics.by_id
    leaders = Counter(partition.leader for partition in partitions.values())
    sets = (
        {key for key, partition in partitions.items() if not partition.has_leader},
        {key for key, partition in partitions.items() if partition.leader != partition.replicas[0]},
        {
            key
            for key, partition in partitions.items()
            if partition.adding_replicas or partition.removing_replicas
        },
        {key for key, partition in partitions.items() if partition.elr or partition.last_known_elr},
    )
    return [
        len(partitions),
        [
            {topics[key[0]].name for key, partition in partitions.items() if broker_id in partition.replicas}
            for broker_id in range(6)
        ],
        [leaders[broker_id] for broker_id in range(6)],
        *sets,
        *(len(brokers) for brokers in sets),
    ]


class ImageHistory(RuleBasedStateMachine):
    """Appends, commits and reverts at random; after each step all ways to the same state must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage()
        self.batches: list[Batch] = []

    def append(self, batch: tuple[MetadataRecord, ...]) -> None:
        self.image.replay_batch(
            batch, base_offset=self.image.end_offset, epoch=1, timestamp_ms=self.image.end_offset
        )

    @initialize()
    def bootstrap(self) -> None:
        feature = records.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
        self.batches.append((0, (feature,)))
        self.append((feature,))
        self.image.commit(1)

    @rule(data=st.data(), size=st.integers(1, 6))
    def append_batch(self, data: st.DataObject, size: int) -> None:
        base_offset = self.image.end_offset
        maker = RecordMaker(data.draw, self.image)
        batch = []
        for offset in range(base_offset, base_offset + size):
            batch.append(maker.record())
            self.image.replay(batch[-1], offset)
        self.image.advance(end_offset=base_offset + size, epoch=1, timestamp_ms=base_offset)
        self.batches.append((base_offset, tuple(batch)))

    @rule(data=st.data())
    def append_half_a_batch(self, data: st.DataObject) -> None:
        """A decision that is replayed, and reverted before it becomes a batch."""
        maker = RecordMaker(data.draw, self.image)
        self.image.replay(maker.record(), self.image.end_offset)
        self.image.revert_to(max(self.image.provenance.end_offset, self.image.committed_end_offset))

    @rule()
    def append_control_batch(self) -> None:
        end_offset = self.image.end_offset + 2
        self.image.advance(end_offset=end_offset, epoch=1, timestamp_ms=end_offset - 2)

    def uncommitted_ends(self) -> list[int]:
        ends = [base_offset + len(batch) for base_offset, batch in self.batches]
        return [end for end in ends if end > self.image.committed_end_offset]

    @precondition(lambda self: self.uncommitted_ends())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.image.commit(data.draw(st.sampled_from(self.uncommitted_ends())))

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        ends = [self.image.committed_end_offset, *self.uncommitted_ends()]
        end_offset = data.draw(st.sampled_from(ends))
        self.image.revert_to(end_offset)
        self.batches = [batch for batch in self.batches if batch[0] < end_offset]

    def expected_stable_end(self) -> int:
        """End of the last batch that is committed and before any transaction that is open at the commit."""
        stable, is_open = 0, False
        for base_offset, batch in self.batches:
            end_offset = base_offset + len(batch)
            if end_offset > self.image.committed_end_offset:
                break
            for record in batch:
                if isinstance(record, records.BeginTransactionRecord):
                    is_open = True
                elif isinstance(record, records.EndTransactionRecord | records.AbortTransactionRecord):
                    is_open = False
            if not is_open:
                stable = end_offset
        return stable

    @invariant()
    def image_is_what_its_batches_say(self) -> None:
        fresh = replay(self.batches, self.image.end_offset)
        assert self.image.same_as(fresh)
        assert (self.image.transaction is None) == (fresh.transaction is None)

    @invariant()
    def index_is_what_the_partitions_say(self) -> None:
        assert index_of(self.image) == expected_index_of(self.image)

    @invariant()
    def committed_copy_is_what_the_stable_batches_say(self) -> None:
        stable_end = self.expected_stable_end()
        copied = self.image.committed_copy()
        assert copied.same_as(replay(self.batches, stable_end))
        assert copied.provenance == self.image.stable
        assert copied.provenance.end_offset >= stable_end

    @precondition(lambda self: self.image.committed_end_offset > 0)
    @invariant()
    def snapshot_and_the_log_behind_it_lead_to_this(self) -> None:
        copied = self.image.committed_copy()
        checkpoint = read_checkpoint(write_checkpoint(copied, now_ms=1))
        restored = MetadataImage()
        restored.restore(checkpoint.records, copied.provenance)
        assert restored.same_as(copied)
        assert list(image_to_records(restored)) == list(image_to_records(copied))
        assert index_of(restored) == expected_index_of(restored)
        assert replay(self.batches, self.image.end_offset, restored).same_as(self.image)


class HistoryOfLargeTopics(ImageHistory):
    """The same with counts of replicas, which only large topics have."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(partition_index, "COUNTED_PARTITIONS_MIN", 2)
        super().__init__()

    def teardown(self) -> None:
        self._patch.undo()


TestImageHistory = ImageHistory.TestCase
TestImageHistory.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
TestHistoryOfLargeTopics = HistoryOfLargeTopics.TestCase
TestHistoryOfLargeTopics.settings = TestImageHistory.settings
