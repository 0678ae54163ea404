"""Random admin requests, valid and invalid, about few names, so that they meet what earlier ones left.

Where a controller chooses at random, answers cannot be compared: topics whose replicas it places have names that
begin with `placed`, and only requests that do not depend on the places name them. Of
several errors in one resource stock Kafka names any: there is one change for each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from kit.differential import node_requests, security_requests
from kit.differential.node_requests import BROKERS
from kit.differential.nodes import DIRECTORIES, directories_of
from kit.differential.question import At, Caller, Question, always, lists, some, sometimes_by_eve
from kit.releases import RELEASE
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.kafka.generated import alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import alter_partition_reassignments_request as reassign
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as assign
from quorate_protocol.kafka.generated import create_partitions_request as create_partitions
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import delete_topics_request as delete_topics
from quorate_protocol.kafka.generated import describe_configs_request as describe_configs
from quorate_protocol.kafka.generated import elect_leaders_request as elect
from quorate_protocol.kafka.generated import incremental_alter_configs_request as incremental
from quorate_protocol.kafka.generated import list_partition_reassignments_request as list_reassignments
from quorate_protocol.kafka.generated import update_features_request as features
from quorate_protocol.kafka.releases import NEWEST_RELEASE

TIMEOUT: Final = timedelta(seconds=30)
GIVEN: Final = ("given-a", "given-b", "given.c")
PLACED: Final = ("placed-a", "placed-b", "placed_c", "placed.c")
BAD_NAMES: Final = ("", ".", "..", "no such", "x" * 250, "__cluster_metadata", "ünïcode")
FORWARDED: Final = Caller(user="alice")
"""Configs of brokers that are sent to a controller directly are checked on purpose, as by a broker."""
UNKNOWN_ID: Final = UUID(int=7 << 64)


@dataclass(frozen=True, slots=True)
class TopicId:
    """The id that a controller has given to a topic; it differs between the controllers."""

    name: str


_booleans: Final = st.booleans()
_replicas: Final = st.one_of(
    st.permutations(BROKERS).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    st.permutations(BROKERS).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    st.sampled_from([(), (1, 1), (9,), (1, 9), (-1,)]),
)

# Topics

_topic_configs: Final = st.sampled_from(
    [
        *((), (), ()),
        (("retention.ms", "1000"),),
        (("cleanup.policy", "compact,delete"), ("min.insync.replicas", "2")),
        (("retention.ms", "x"),),
        (("unknown", "1"),),
        (("cleanup.policy", None),),
    ]
)


_TOO_MANY_PARTITIONS: Final = (10_001,) if RELEASE == NEWEST_RELEASE else ()
"""In one request. An older release counts only the topics that nothing else is wrong with."""


@st.composite
def _new_given(draw: st.DrawFn) -> create_topics.CreatableTopic:
    """A topic with the replicas that the request names."""
    sets = draw(st.lists(_replicas, min_size=1, max_size=3))
    if draw(st.integers(0, 3)):
        sets = [(*replicas, 1, 2, 3)[: len(sets[0])] if sets[0] else replicas for replicas in sets]
    first = draw(st.sampled_from([0, 0, 0, 0, 1]))
    return create_topics.CreatableTopic(
        name=draw(st.sampled_from(GIVEN)),
        num_partitions=draw(st.sampled_from([-1, -1, -1, -1, 2])),
        replication_factor=draw(st.sampled_from([-1, -1, -1, -1, 1])),
        assignments=tuple(
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in enumerate(sets, first)
        ),
        configs=_created_with(draw(_topic_configs)),
    )


@st.composite
def _new_placed(draw: st.DrawFn) -> create_topics.CreatableTopic:
    """A topic whose replicas the controller chooses, or one that cannot be created."""
    return create_topics.CreatableTopic(
        name=draw(st.sampled_from((*PLACED, *PLACED, *BAD_NAMES))),
        num_partitions=draw(st.sampled_from([-1, 1, 2, 3, 0, -2, *_TOO_MANY_PARTITIONS])),
        replication_factor=draw(st.sampled_from([-1, 1, 2, 3, 3, 0, -2, 4])),
        assignments=(),
        configs=_created_with(draw(_topic_configs)),
    )


def _created_with(configs: tuple[tuple[str, str | None], ...]) -> Any:
    return tuple(create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs)


@st.composite
def _create_topics(draw: st.DrawFn) -> Question:
    request = create_topics.CreateTopicsRequest(
        topics=draw(some(st.one_of(_new_given(), _new_placed()))),
        timeout=TIMEOUT,
        validate_only=draw(st.sampled_from([False, False, True])),
    )
    return Question("CreateTopics", always(request))


@st.composite
def _create_partitions(draw: st.DrawFn) -> Question:
    def placed(name: str, count: int) -> Any:
        return create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)

    def given(name: str, count: int, sets: list[tuple[int, ...]]) -> Any:
        return create_partitions.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=tuple(
                create_partitions.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in sets
            ),
        )

    counts = st.integers(-1, 8)
    topics = draw(
        some(
            st.one_of(
                st.builds(placed, st.sampled_from((*PLACED, *BAD_NAMES)), counts),
                st.builds(given, st.sampled_from(GIVEN), counts, st.lists(_replicas, max_size=3)),
            )
        )
    )
    request = create_partitions.CreatePartitionsRequest(
        topics=topics, timeout=TIMEOUT, validate_only=draw(st.sampled_from([False, False, True]))
    )
    return Question("CreatePartitions", always(request))


@st.composite
def _delete_topics(draw: st.DrawFn) -> Question:
    names = st.sampled_from((*GIVEN, *PLACED, "absent"))
    by_name = st.builds(lambda name: (name, None), names)
    by_id = st.builds(lambda name: (None, TopicId(name)), names)
    odd = st.sampled_from([(None, None), (None, UNKNOWN_ID), ("given-a", UNKNOWN_ID)])
    wanted = draw(some(st.one_of(by_name, by_id, odd), 2))

    def make(at: At) -> Any:
        return delete_topics.DeleteTopicsRequest(
            topics=tuple(
                delete_topics.DeleteTopicState(
                    name=name,
                    topic_id=at.topic_ids.get(topic_id.name, UNKNOWN_ID)
                    if isinstance(topic_id, TopicId)
                    else topic_id,
                )
                for name, topic_id in wanted
            ),
            timeout=TIMEOUT,
        )

    return Question("DeleteTopics", make)


@st.composite
def _reassignments(draw: st.DrawFn) -> Question:
    def partition(index: int, replicas: tuple[int, ...] | None) -> Any:
        return reassign.ReassignablePartition(partition_index=index, replicas=replicas)

    def topic(name: str, partitions: tuple[Any, ...]) -> Any:
        return reassign.ReassignableTopic(name=name, partitions=partitions)

    partitions = some(st.builds(partition, st.integers(-1, 4), st.one_of(st.none(), _replicas)))
    request = reassign.AlterPartitionReassignmentsRequest(
        timeout=TIMEOUT,
        allow_replication_factor_change=draw(st.sampled_from([True, True, False])),
        topics=draw(some(st.builds(topic, st.sampled_from((*GIVEN, "absent")), partitions), 2)),
    )
    return Question("AlterPartitionReassignments", always(request))


@st.composite
def _list_reassignments(draw: st.DrawFn) -> Question:
    def topic(name: str, indexes: tuple[int, ...]) -> Any:
        return list_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)

    topics = st.one_of(
        st.none(), lists(st.builds(topic, st.sampled_from((*GIVEN, "absent")), lists(st.integers(-1, 4))))
    )
    request = list_reassignments.ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=draw(topics))
    return Question("ListPartitionReassignments", always(request))


@st.composite
def _elections(draw: st.DrawFn) -> Question:
    def topic(name: str, partitions: tuple[int, ...]) -> Any:
        return elect.TopicPartitions(topic=name, partitions=partitions)

    wanted = some(st.builds(topic, st.sampled_from((*GIVEN, "absent")), lists(st.integers(-1, 4))), 2)
    request = elect.ElectLeadersRequest(
        election_type=draw(st.sampled_from([0, 0, 0, 1, 1, 2, -1])),
        topic_partitions=draw(wanted),
        timeout=TIMEOUT,
    )
    return Question("ElectLeaders", always(request))


# Configs

_RESOURCES: Final = (
    *((2, name) for name in (*GIVEN, *PLACED, "absent", "", "no such")),
    *((4, name) for name in ("", "1", "2", "3000", "77", "x", "-5")),
    *((16, name) for name in ("sub", "other", "")),
    *((32, name) for name in ("group", "")),
    (5, "x"),
    (0, ""),
)
_KNOWN_RESOURCES: Final = tuple(resource for resource in _RESOURCES if resource[0] not in (0, 5))
"""Describing several resources, one of an unknown type: differs on purpose."""
_VALUES: Final = (
    ("retention.ms", "1000"),
    ("retention.ms", "-7"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact,delete"),
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "0"),
    ("segment.bytes", "2000000"),
    ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "false"),
    ("log.cleaner.threads", "2"),
    ("log.retention.ms", "5000"),
    ("interval.ms", "1000"),
    ("interval.ms", "10"),
    ("match", "client_id=a.*"),
    ("metrics", "org.apache"),
    ("consumer.session.timeout.ms", "50000"),
    ("consumer.heartbeat.interval.ms", "6000"),
    ("share.auto.offset.reset", "latest"),
    ("streams.num.standby.replicas", "1"),
    ("unknown", "1"),
)


@st.composite
def _incremental(draw: st.DrawFn) -> Question:
    def change(pair: tuple[str, str], operation: int) -> Any:
        # Without a value, an unknown operation: differs on purpose, see docs/protocol-differences.md.
        return incremental.AlterableConfig(name=pair[0], config_operation=operation, value=pair[1])

    def resource(key: tuple[int, str], configs: tuple[Any, ...]) -> Any:
        once = {config.name: config for config in configs}
        return incremental.AlterConfigsResource(
            resource_type=key[0], resource_name=key[1], configs=tuple(once.values())
        )

    operations = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3])
    changes = some(st.builds(change, st.sampled_from(_VALUES), operations), 1)
    request = incremental.IncrementalAlterConfigsRequest(
        resources=draw(some(st.builds(resource, st.sampled_from(_RESOURCES), changes), 2)),
        validate_only=draw(st.sampled_from([False, False, True])),
    )
    return Question("IncrementalAlterConfigs", always(request), FORWARDED)


@st.composite
def _alter_configs(draw: st.DrawFn) -> Question:
    def resource(key: tuple[int, str], pairs: tuple[tuple[str, str], ...]) -> Any:
        return alter_configs.AlterConfigsResource(
            resource_type=key[0],
            resource_name=key[1],
            configs=tuple(
                alter_configs.AlterableConfig(name=name, value=value) for name, value in dict(pairs).items()
            ),
        )

    request = alter_configs.AlterConfigsRequest(
        resources=draw(
            some(st.builds(resource, st.sampled_from(_RESOURCES), lists(st.sampled_from(_VALUES), 1)), 2)
        ),
        validate_only=draw(st.sampled_from([False, False, True])),
    )
    return Question("AlterConfigs", always(request), FORWARDED)


@st.composite
def _describe_configs(draw: st.DrawFn) -> Question:
    def resource(key: tuple[int, str], names: tuple[str, ...]) -> Any:
        return describe_configs.DescribeConfigsResource(
            resource_type=key[0], resource_name=key[1], configuration_keys=names
        )

    keys = some(st.sampled_from([name for name, _ in _VALUES]))
    resources = draw(some(st.builds(resource, st.sampled_from(_KNOWN_RESOURCES), keys), 2))
    # Several times the same: differs on purpose, see docs/protocol-differences.md.
    once = tuple(
        {(resource.resource_type, resource.resource_name): resource for resource in resources}.values()
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=once, include_synonyms=draw(_booleans), include_documentation=draw(_booleans)
    )
    return Question("DescribeConfigs", always(request))


# Features and brokers

_FEATURES: Final = (
    *("group.version", "transaction.version", "share.version", "streams.version"),
    *("eligible.leader.replicas.version", "unknown"),
)


@st.composite
def _features(draw: st.DrawFn) -> Question:
    def update(name: str, level: int, kind: int) -> Any:
        return features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)

    updates = draw(
        some(st.builds(update, st.sampled_from(_FEATURES), st.integers(-1, 3), st.integers(0, 4)), 1)
    )
    request = features.UpdateFeaturesRequest(
        timeout=TIMEOUT,
        feature_updates=tuple({update.feature: update for update in updates}.values()),
        validate_only=draw(st.sampled_from([False, False, True])),
    )
    return Question("UpdateFeatures", always(request))


@st.composite
def _assign_to_dirs(draw: st.DrawFn) -> Question:
    # To directories that are not registered: differs on purpose, see docs/protocol-differences.md.
    broker_id = draw(st.sampled_from((*BROKERS, 9)))
    is_stale = draw(st.sampled_from([False, False, False, True]))
    names = draw(some(st.sampled_from((*GIVEN, "absent")), 2))
    partitions = draw(some(st.integers(-1, 4)))
    number = draw(st.integers(0, DIRECTORIES - 1))

    def make(at: At) -> Any:
        topics = tuple(
            assign.TopicData(
                topic_id=at.topic_ids.get(name, UNKNOWN_ID),
                partitions=tuple(assign.PartitionData(partition_index=index) for index in partitions),
            )
            for name in dict.fromkeys(names)
        )
        directory = assign.DirectoryData(id_=directories_of(broker_id)[number], topics=topics)
        return assign.AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=at.epochs.get(broker_id, 0) + is_stale,
            directories=(directory,),
        )

    return Question("AssignReplicasToDirs", make)


_fencing: Final = st.builds(
    lambda broker_id, fenced: Question(f"{'fence' if fenced else 'unfence'} {broker_id}", always(None)),
    st.sampled_from(BROKERS),
    _booleans,
)
"""Not a request of clients: brokers come and go between them, so that there is something to elect."""

_OF_TOPICS: Final = (
    _create_topics(),
    _create_partitions(),
    _reassignments(),
    _list_reassignments(),
    _elections(),
)
_OF_CONFIGS: Final = (_incremental(), _alter_configs(), _describe_configs())
_OF_NODES: Final = (_assign_to_dirs(), _features(), _fencing, *node_requests.REQUESTS)
ROUND: Final = (
    *(_fencing, *_OF_TOPICS, *_OF_CONFIGS, *security_requests.REQUESTS, *_OF_NODES),
    *(*_OF_TOPICS, *_OF_CONFIGS, _delete_topics()),
)
ASKED_IN_A_ROUND: Final = len(ROUND) - (RELEASE != NEWEST_RELEASE)
"""An older release lacks UnregisterController."""
rounds: Final[st.SearchStrategy[tuple[Question, ...]]] = st.tuples(*map(sometimes_by_eve, ROUND))
"""Requests of each kind, by users with rights and without, and brokers that are fenced or unfenced."""


def put_rounds(put: Callable[[Question], None], count: int, number: int | None = None) -> None:
    """Put random rounds. What was put before stays, so that no example can be repeated or made smaller.

    With `number` they are the same each time. Requests that the release of this run lacks are left out: its
    controllers close the connection.
    """

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(rounds)
    def ask(questions: tuple[Question, ...]) -> None:
        for question in questions:
            if _is_known(question):
                put(question)

    (ask if number is None else seed(number)(ask))()


def _is_known(question: Question) -> bool:
    request = question.make(At())
    return request is None or api_of(request).version_max_in(RELEASE) is not None
