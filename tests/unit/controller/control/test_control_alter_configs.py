"""IncrementalAlterConfigs, AlterConfigs, configs of new topics (KIP-133, KIP-226, KIP-339, KIP-966)."""

import time

import pytest
from quorate_controller.control.api import ControlError
from quorate_controller.control.broker_loggers import NO_LOGGERS, LoggerManager
from quorate_controller.control.config_changes import ConfigManager
from quorate_controller.control.config_validation import validate_group
from quorate_controller.control.effective_configs import EffectiveConfigs
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_configs_request as legacy
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorate_protocol.records.generated import ClearElrRecord, ConfigRecord

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
ELR = {"eligible.leader.replicas.version": 1}


def resource(resource_type, name, *operations):
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ),
    )


def alter(*resources, validate_only=False):
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def record(resource_type, name, key, value):
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


@pytest.fixture
def result(harness):
    """Alter one resource of a cluster with broker 1 and topic t. Returns error code and message."""
    harness.start_broker(1)
    harness.add_topic("t", 1)

    def alter_one(resource_type, name, *operations, forwarded=False):
        request = alter(resource(resource_type, name, *operations))
        (response,) = harness.apply(request, forwarded=forwarded).responses
        assert (response.resource_type, response.resource_name) == (resource_type, name)
        return response.error_code, response.error_message

    return alter_one


def configs_of(harness, resource_type, name):
    return dict(harness.image.configs.get((resource_type, name), {}))


def test_set_and_delete(harness, result):
    assert result(TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "8")) == (ErrorCode.none, None)
    assert result(TOPIC, "t", ("retention.ms", DELETE, None)) == (ErrorCode.none, None)
    assert harness.records == [record(TOPIC, "t", "retention.ms", None)]
    assert configs_of(harness, TOPIC, "t") == {"segment.ms": "8"}


def test_append_and_subtract_work_on_the_default_too(harness, result):
    result(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert configs_of(harness, TOPIC, "t") == {"cleanup.policy": "delete,compact"}
    result(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert harness.records == []
    result(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete,other"))
    assert configs_of(harness, TOPIC, "t") == {"cleanup.policy": "compact"}


def test_long_lists_grow_and_shrink_in_linear_time(harness, result):
    result(BROKER, "", ("metric.reporters", SET, ""))
    names = ",".join(f"{number:04}" for number in range(6_000))
    started_s = time.process_time()
    for _ in range(50):
        assert result(BROKER, "", ("metric.reporters", APPEND, names)) == (ErrorCode.none, None)
        assert configs_of(harness, BROKER, "") == {"metric.reporters": names}
        assert result(BROKER, "", ("metric.reporters", SUBTRACT, names)) == (ErrorCode.none, None)
        assert configs_of(harness, BROKER, "") == {"metric.reporters": ""}
    assert time.process_time() - started_s < 5


def test_each_subtraction_takes_one_away(harness, result):
    result(BROKER, "", ("metric.reporters", SET, "a,b,a,c,a"))
    result(BROKER, "", ("metric.reporters", SUBTRACT, "a,c,x,a"))
    assert configs_of(harness, BROKER, "") == {"metric.reporters": "b,a"}
    result(BROKER, "", ("metric.reporters", APPEND, "a,d,d"))
    assert configs_of(harness, BROKER, "") == {"metric.reporters": "b,a,d"}


def test_assignors_that_are_java_classes_may_have_any_name(harness):
    configs = {"streams.assignor.name": "mine"}
    with_class = {"group.streams.assignors": "sticky,org.example.Mine"}
    validate_group(configs, EffectiveConfigs(3000, harness.image, with_class))
    with pytest.raises(ControlError, match="not a registered task assignor"):
        validate_group(configs, EffectiveConfigs(3000, harness.image, {"group.streams.assignors": "sticky"}))


def test_unchanged_values_are_not_written_except_for_brokers(harness, result):
    """No pointless records, but a broker may have to reload a file of the same name."""
    for _ in range(2):
        result(TOPIC, "t", ("retention.ms", SET, "7"))
        result(BROKER, "1", ("log.cleaner.threads", SET, "2"))
    assert harness.records == [record(BROKER, "1", "log.cleaner.threads", "2")]
    result(TOPIC, "t", ("retention.ms", SET, "7"))
    assert harness.records == []


@pytest.mark.parametrize(
    ("changed", "unknown", "change"),
    [
        ((TOPIC, "t"), "message.format.version", ("retention.ms", "7")),
        ((GROUP, "g"), "of.another.release", ("consumer.session.timeout.ms", "50000")),
        ((CLIENT_METRICS, "m"), "of.another.release", ("interval.ms", "1000")),
    ],
)
def test_configs_of_other_releases_are_in_nobodys_way(harness, result, changed, unknown, change):
    resource_type, name = changed
    harness.replay(record(resource_type, name, unknown, "2.8"))
    key, value = change
    assert result(resource_type, name, (key, SET, value)) == (ErrorCode.none, None)
    assert harness.records == [record(resource_type, name, key, value)]
    given = legacy.AlterableConfig(name=key, value=value)
    resources = (
        legacy.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=(given,)),
    )
    (response,) = harness.apply(
        legacy.AlterConfigsRequest(resources=resources, validate_only=False)
    ).responses
    assert (response.error_code, harness.records) == (ErrorCode.none, [])


@pytest.mark.usefixtures("result")
def test_validation_alone_writes_nothing(harness):
    request = alter(resource(TOPIC, "t", ("retention.ms", SET, "7")), validate_only=True)
    (response,) = harness.apply(request).responses
    assert response.error_code is ErrorCode.none
    assert harness.records == []


@pytest.mark.usefixtures("result")
def test_each_resource_succeeds_or_fails_alone(harness):
    request = alter(
        resource(TOPIC, "t", ("retention.ms", SET, "7")),
        resource(TOPIC, "absent", ("retention.ms", SET, "7")),
        resource(GROUP, "g", ("share.isolation.level", SET, "read_committed")),
        resource(GROUP, "g", ("share.isolation.level", DELETE, None)),
        resource(5, "x", ("retention.ms", SET, "7")),
        resource(5, "x", ("retention.ms", SET, "8")),
    )
    responses = harness.apply(request).responses
    assert [(response.resource_name, response.error_code) for response in responses] == [
        ("t", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("g", ErrorCode.invalid_request),
        ("x", ErrorCode.unsupported_version),
        ("x", ErrorCode.unsupported_version),
    ]
    assert responses[2].error_message == "Duplicate resource."
    assert harness.records == [record(TOPIC, "t", "retention.ms", "7")]


@pytest.mark.parametrize(
    ("given", "error_code", "text"),
    [
        ((TOPIC, "t", ("unknown", SET, "1")), ErrorCode.invalid_config, "Unknown topic config name: unknown"),
        ((TOPIC, "t", ("retention.ms", SET, "x")), ErrorCode.invalid_config, "Not a number of type LONG"),
        ((TOPIC, "t", ("retention.ms", SET, "7" * 40_000)), ErrorCode.invalid_config, "maximum value size"),
        ((TOPIC, "t", ("retention.ms", SET, None)), ErrorCode.invalid_request, "Null value not supported"),
        ((TOPIC, "t", ("retention.ms", APPEND, "1")), ErrorCode.invalid_config, "its type is not LIST"),
        ((TOPIC, "t", ("unknown", SUBTRACT, "1")), ErrorCode.invalid_config, "its type is not LIST"),
        ((TOPIC, "t", ("retention.ms", 9, "1")), ErrorCode.invalid_request, "Unknown operations type 9"),
        ((TOPIC, "t", ("remote.storage.enable", SET, "true")), ErrorCode.invalid_config, "Tiered Storage"),
        ((TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.invalid_request, "Default topic resources"),
        (
            (TOPIC, "a b", ("retention.ms", SET, "1")),
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid",
        ),
        ((BROKER, "x", ("log.cleaner.threads", SET, "1")), ErrorCode.invalid_request, "base 10 number"),
        ((BROKER, "-5", ("log.cleaner.threads", SET, "1")), ErrorCode.invalid_request, "negative broker ID"),
        ((BROKER, "9", ("log.cleaner.threads", SET, "1")), ErrorCode.broker_id_not_registered, "id 9"),
        ((BROKER, "1", ("node.id", SET, "1")), ErrorCode.invalid_request, "Cannot update these configs"),
        ((BROKER, "1", ("ssl.keystore.location", SET, "f")), ErrorCode.invalid_request, "listener prefix"),
        ((BROKER, "1", ("log.cleaner.threads", SET, "x")), ErrorCode.invalid_request, "Not a number"),
        (
            (BROKER, "", ("listener.name.a.ssl.keystore.location", SET, "f")),
            ErrorCode.invalid_request,
            "broker id must be specified",
        ),
        (
            (BROKER, "", ("cordoned.log.dirs", SET, "")),
            ErrorCode.invalid_request,
            "broker id must be specified",
        ),
        ((BROKER, "1", ("cordoned.log.dirs", SET, "/d")), ErrorCode.invalid_config, "must be a subset"),
        ((CLIENT_METRICS, "", ("interval.ms", SET, "500")), ErrorCode.invalid_request, "can't be empty"),
        ((CLIENT_METRICS, "s", ("unknown", SET, "1")), ErrorCode.invalid_request, "Unknown client metrics"),
        ((CLIENT_METRICS, "s", ("interval.ms", SET, "99")), ErrorCode.invalid_request, "between 100 and"),
        ((CLIENT_METRICS, "s", ("match", SET, "a=b")), ErrorCode.invalid_config, "Illegal client matching"),
        ((CLIENT_METRICS, "s", ("match", SET, "client_id")), ErrorCode.invalid_config, "Illegal client"),
        ((CLIENT_METRICS, "s", ("match", SET, "client_id=(")), ErrorCode.invalid_config, "Illegal client"),
        (
            (CLIENT_METRICS, "s", ("match", SET, "client_id=a{99999999999}")),
            ErrorCode.invalid_config,
            "Illegal client matching pattern: client_id=a{99999999999}",
        ),
        (
            (CLIENT_METRICS, "s", ("match", SET, f"client_id={'(' * 499}{')' * 499}")),
            ErrorCode.invalid_config,
            "Illegal client matching pattern: client_id=((((",
        ),
        (
            (CLIENT_METRICS, "s", ("match", SET, "client_id=(?a)(?u)b")),
            ErrorCode.invalid_config,
            "Illegal client matching pattern: client_id=(?a)(?u)b",
        ),
        (
            (CLIENT_METRICS, "s", ("match", SET, f"client_id={'a' * 1_001}")),
            ErrorCode.invalid_config,
            "Illegal client matching pattern: client_id=aaaa",
        ),
        ((GROUP, "", ("consumer.heartbeat.interval.ms", SET, "6000")), ErrorCode.invalid_request, "Default"),
        ((GROUP, "g", ("unknown", SET, "1")), ErrorCode.invalid_config, "Unknown group config name"),
        (
            (GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
            ErrorCode.invalid_config,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            (GROUP, "g", ("streams.num.standby.replicas", SET, "9")),
            ErrorCode.invalid_config,
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            (GROUP, "g", ("streams.task.offset.interval.ms", SET, "9")),
            ErrorCode.invalid_config,
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            (GROUP, "g", ("streams.rack.aware.assignment.tags", APPEND, "zone")),
            ErrorCode.invalid_config,
            "its type is not LIST",
        ),
        (
            (GROUP, "g", ("streams.rack.aware.assignment.tags", SET, "zone, zone")),
            ErrorCode.invalid_config,
            "must not contain duplicate tag keys",
        ),
        (
            (GROUP, "g", ("streams.assignor.name", SET, "x")),
            ErrorCode.invalid_config,
            "streams.assignor.name 'x' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (
            (GROUP, "g", ("errors.deadletterqueue.topic.name", SET, "__x")),
            ErrorCode.invalid_config,
            "DLQ topic name must not start with '__'",
        ),
        ((5, "x", ("a", SET, "1")), ErrorCode.unsupported_version, "Unknown resource type 5."),
    ],
)
def test_changes_that_are_refused(harness, result, given, error_code, text):
    code, message = result(*given)
    assert code is error_code
    assert text in message
    assert harness.records == []


def test_a_doubled_config_is_refused(result):
    code, message = result(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert (code, message) == (ErrorCode.invalid_request, "Error due to duplicate config keys")


def test_configs_must_not_contradict_each_other(harness, result):
    assert result(TOPIC, "t", ("min.compaction.lag.ms", SET, "10"))[0] is ErrorCode.none
    code, message = result(TOPIC, "t", ("max.compaction.lag.ms", SET, "9"))
    assert code is ErrorCode.invalid_config
    assert "min.compaction.lag.ms (10) > max.compaction.lag.ms (9)" in message
    assert result(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))[0] is ErrorCode.none
    harness.replay(record(BROKER, "", "group.consumer.max.heartbeat.interval.ms", "60000"))
    code, message = result(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "50000"))
    assert message == "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"


def test_what_is_valid_for_other_resources(harness, result):
    """Subscriptions, groups, brokers, this controller, names of plugins."""
    for given in [
        (
            CLIENT_METRICS,
            "s",
            ("interval.ms", SET, "1000"),
            ("match", SET, "client_id=a.*,client_source_port=1"),
        ),
        (GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:PT1H")),
        (BROKER, "", ("log.retention.ms", SET, "1000")),
        (BROKER, "1", ("listener.name.external.ssl.keystore.location", SET, "/f")),
        (BROKER, "1", ("org.example.plugin.key", SET, "value")),
        (BROKER, "3000", ("log.cleaner.threads", SET, "2")),
    ]:
        assert result(*given) == (ErrorCode.none, None), given
    harness.register_controller(3001)
    assert result(BROKER, "3001", ("log.cleaner.threads", SET, "2")) == (ErrorCode.none, None)


def test_what_a_broker_forwards_it_has_checked(result):
    """A newer broker knows configs that we don't let through."""
    for operation in (("num.partitions", SET, "2"), ("cordoned.log.dirs", SET, "/d")):
        assert result(BROKER, "1", operation)[0] is not ErrorCode.none
        assert result(BROKER, "1", operation, forwarded=True) == (ErrorCode.none, None)


def test_uncordoning_needs_no_broker(result):
    """Directories can be given back through a controller."""
    result(BROKER, "1", ("cordoned.log.dirs", SET, "/a, /b"), forwarded=True)
    assert result(BROKER, "1", ("cordoned.log.dirs", SET, "/b"))[0] is ErrorCode.none
    assert result(BROKER, "1", ("cordoned.log.dirs", DELETE, None))[0] is ErrorCode.none


def test_cordoning_needs_metadata_version_30(new_harness):
    """No directories that the cluster can't know about."""
    harness = new_harness(29)
    harness.start_broker(1)
    request = alter(resource(BROKER, "1", ("cordoned.log.dirs", SET, "/a")))
    (response,) = harness.apply(request, forwarded=True).responses
    assert response.error_code is ErrorCode.invalid_config
    assert "metadata.version >= 4.3-IV0" in response.error_message


def test_eligible_leader_replicas_fix_min_insync_replicas(new_harness):
    """One value for the cluster while ELR is on; a change clears ELR."""
    harness = new_harness(features=ELR)
    harness.start_broker(1)
    harness.add_topic("t", 1)
    for name, operation, text in [
        ("1", ("min.insync.replicas", SET, "2"), "Broker-level min.insync.replicas cannot be altered"),
        ("", ("min.insync.replicas", DELETE, None), "Cluster-level min.insync.replicas cannot be removed"),
    ]:
        (response,) = harness.apply(alter(resource(BROKER, name, operation))).responses
        assert response.error_code is ErrorCode.invalid_config
        assert text in response.error_message
    harness.apply(alter(resource(BROKER, "", ("min.insync.replicas", SET, "2"))))
    assert harness.records == [
        record(BROKER, "", "min.insync.replicas", "2"),
        ClearElrRecord(topic_name=""),
    ]
    harness.apply(alter(resource(TOPIC, "t", ("min.insync.replicas", SET, "2"))))
    assert harness.records == [
        record(TOPIC, "t", "min.insync.replicas", "2"),
        ClearElrRecord(topic_name="t"),
    ]


@pytest.mark.usefixtures("result")
def test_legacy_alter_replaces_everything(harness):
    def replace(**configs):
        given = tuple(
            legacy.AlterableConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        )
        topic = legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=given)
        (response,) = harness.apply(
            legacy.AlterConfigsRequest(resources=(topic,), validate_only=False)
        ).responses
        return response.error_code

    assert replace(retention_ms="7", segment_ms="8") is ErrorCode.none
    assert replace(flush_ms="9", segment_ms="8") is ErrorCode.none
    assert harness.records == [record(TOPIC, "t", "flush.ms", "9"), record(TOPIC, "t", "retention.ms", None)]
    assert replace(flush_ms=None) is ErrorCode.invalid_request
    assert replace(flush_ms="x") is ErrorCode.invalid_config
    assert configs_of(harness, TOPIC, "t") == {"segment.ms": "8", "flush.ms": "9"}


def test_a_request_for_more_than_one_batch_is_refused(harness):
    operations = [(f"plugin.{number}", SET, "x") for number in range(10_001)]
    error = harness.refusal(alter(resource(BROKER, "", *operations)))
    assert error.error_code is ErrorCode.policy_violation


# For topics to be created, and effective values


@pytest.fixture
def manager(new_harness):
    """The config manager of a controller whose file has log.retention.hours=2 and min.insync.replicas=3."""
    harness = new_harness()
    static = {"log.retention.hours": "2", "min.insync.replicas": "3"}
    effective = EffectiveConfigs(3000, harness.image, static)
    manager = ConfigManager(harness.image, effective, harness.quorum, LoggerManager(3000, NO_LOGGERS))
    manager.harness = harness
    return manager


def test_configs_of_a_new_topic_become_records(manager):
    assert manager.validate_new_topic("n", {"segment.ms": "5", "cleanup.policy": "compact"}) == [
        record(TOPIC, "n", "segment.ms", "5"),
        record(TOPIC, "n", "cleanup.policy", "compact"),
    ]


@pytest.mark.parametrize("configs", [{"unknown": "1"}, {"retention.ms": "x"}, {"retention.ms": None}])
def test_bad_configs_of_a_new_topic_are_refused(manager, configs):
    with pytest.raises(ControlError) as caught:
        manager.validate_new_topic("n", configs)
    assert caught.value.error_code is ErrorCode.invalid_config


def test_the_effective_configs_of_a_new_topic_tell_their_source(manager):
    described = manager.describe_new_topic({"segment.ms": "5"})
    by_name = {config.name: (config.value, config.config_source) for config in described}
    assert list(by_name) == sorted(by_name)
    assert by_name["segment.ms"] == ("5", 1)
    assert by_name["retention.ms"] == ("7200000", 4)
    assert by_name["flush.messages"] == ("9223372036854775807", 5)
    assert "internal.segment.bytes" not in by_name


def test_min_insync_replicas_by_level(manager):
    """Topic, this node, cluster, file, in this order; damaged values count as the default."""
    replay = manager.harness.replay
    for resource_type, name, value in [(TOPIC, "t", "9"), (BROKER, "3000", "8"), (BROKER, "", "7")]:
        replay(record(resource_type, name, "min.insync.replicas", value))
    assert manager.min_insync_replicas("t") == 9
    assert manager.min_insync_replicas("other") == 8
    replay(record(BROKER, "3000", "min.insync.replicas", None))
    assert manager.min_insync_replicas("other") == 7
    replay(record(BROKER, "", "min.insync.replicas", None))
    assert manager.min_insync_replicas("other") == 3
    replay(record(TOPIC, "t", "min.insync.replicas", "-1"))
    assert manager.min_insync_replicas("t") == 1


def test_unclean_leader_election_by_level(manager):
    """Off by default."""
    replay = manager.harness.replay
    assert not manager.unclean_leader_election("t")
    replay(record(BROKER, "", "unclean.leader.election.enable", "TRUE"))
    assert manager.unclean_leader_election("t")
    replay(record(TOPIC, "t", "unclean.leader.election.enable", "false"))
    assert not manager.unclean_leader_election("t")
