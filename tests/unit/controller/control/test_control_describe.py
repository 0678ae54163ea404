"""DescribeCluster and DescribeConfigs (KIP-133, KIP-226, KIP-569, KIP-919).

Values, sources and synonyms of ordinary configs are compared with stock Kafka in tests/golden.
"""

from uuid import UUID

import pytest
from quorate_controller.control.describe import ConfigDescriber
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.records.generated import ConfigRecord

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def cluster(endpoint_type=2, operations=False):
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )


def configs(resource_type, name, *keys, synonyms=False, documentation=False):
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys or None
    )
    return DescribeConfigsRequest(
        resources=(resource,), include_synonyms=synonyms, include_documentation=documentation
    )


def described(harness, resource_type, name, *keys, **options):
    """One config of a resource."""
    (result,) = harness.apply(configs(resource_type, name, *keys, **options)).results
    assert result.error_code is ErrorCode.none, result.error_message
    (config,) = result.configs
    return config


def test_the_cluster_is_its_controllers(harness):
    """A client finds the controllers (KIP-919)."""
    harness.register_controller(3000)
    harness.register_controller(3001)
    response = harness.apply(cluster(operations=True))
    assert response.error_code is ErrorCode.none
    assert (response.cluster_id, response.controller_id) == (harness.config.cluster_id, 3000)
    assert response.endpoint_type == 2
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [
        (3000, "c3000", 9093),
        (3001, "c3001", 9093),
    ]
    assert response.cluster_authorized_operations == 8096
    assert harness.apply(cluster()).cluster_authorized_operations == -(2**31)


def test_a_refreshed_ghost_is_no_place_to_go(harness):
    harness.register_controller(3000)
    ghost = ControllerRegistrationRequest(
        controller_id=3009, incarnation_id=UUID(int=9), zk_migration_ready=False, listeners=(), features=()
    )
    harness.apply(ghost)
    assert [node.broker_id for node in harness.apply(cluster()).brokers] == [3000]


def test_a_leader_without_an_address_is_not_named(harness):
    harness.register_controller(3001)
    assert harness.apply(cluster()).controller_id == -1
    harness.register_controller(harness.quorum.leader_id)
    assert harness.apply(cluster()).controller_id == harness.quorum.leader_id


@pytest.mark.parametrize(
    ("endpoint_type", "api_version", "error_code"),
    [
        (1, 2, ErrorCode.mismatched_endpoint_type),
        (1, 0, ErrorCode.invalid_request),
        (9, 2, ErrorCode.unsupported_endpoint_type),
        (9, 0, ErrorCode.invalid_request),
    ],
)
def test_brokers_are_not_to_be_found_here(harness, endpoint_type, api_version, error_code):
    response = harness.apply(cluster(endpoint_type), api_version)
    assert response.error_code is error_code
    assert (response.cluster_id, response.controller_id, response.brokers) == ("", -1, ())


def test_the_cluster_is_described_from_metadata_version_15_on(new_harness):
    refusal = new_harness(14).refusal(cluster())
    assert refusal.error_code is ErrorCode.unsupported_version
    assert refusal.message == (
        "Direct-to-controller communication is not supported with the current MetadataVersion."
    )


def test_without_a_level_the_cluster_is_not_described(harness):
    """Nothing false about a level that is not known, in the words of Kafka 4.4.0."""
    del harness.image.features["metadata.version"]
    refusal = harness.refusal(cluster())
    assert refusal.error_code is ErrorCode.unsupported_version
    assert refusal.message == (
        "There is no finalized MetadataVersion, so direct-to-controller communication is not supported."
    )


def test_documentation_comes_only_when_asked_for(harness):
    key = "consumer.session.timeout.ms"
    assert described(harness, GROUP, "g", key).documentation is None
    assert "failures" in described(harness, GROUP, "g", key, documentation=True).documentation


def test_only_the_configs_asked_for_are_described(harness):
    (result,) = harness.apply(configs(GROUP, "g", "share.isolation.level", "unknown")).results
    assert [config.name for config in result.configs] == ["share.isolation.level"]
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=())
    (result,) = harness.apply(DescribeConfigsRequest(resources=(resource,))).results
    assert len(result.configs) > 10


def test_resources_named_again_are_described_once(harness):
    """The size of the response follows from the cluster, not from repetitions."""
    name = str(harness.config.node_id)
    keys = (None, None, ("node.id", "log.dirs"), ("log.dirs", "node.id"))
    resources = tuple(
        DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=key)
        for key in keys
    )
    whole, part = harness.apply(DescribeConfigsRequest(resources=resources * 250)).results
    assert len(whole.configs) > 100
    assert [config.name for config in part.configs] == ["log.dirs", "node.id"]


def test_a_resource_is_looked_up_once_for_all_of_its_keys(harness, monkeypatch):
    """Naming a node again for each of its configs takes linear time."""
    looked_up = []
    entries_of = ConfigDescriber._entries

    def entries(self, resource_type, name):
        looked_up.append(name)
        return entries_of(self, resource_type, name)

    monkeypatch.setattr(ConfigDescriber, "_entries", entries)
    name = str(harness.config.node_id)
    resources = tuple(
        DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=("node.id", f"unknown.{number}")
        )
        for number in range(300)
    )
    results = harness.apply(DescribeConfigsRequest(resources=resources)).results
    assert [len(result.configs) for result in results] == [1] * 300
    assert looked_up == [name]


def test_secrets_are_not_told(harness):
    """Neither passwords nor what is unknown, also behind a listener prefix."""
    for name in (
        "listener.name.external.ssl.keystore.password",
        "listener.name.external.ssl.keystore.location",
        "org.example.plugin.token",
    ):
        harness.replay(ConfigRecord(resource_type=BROKER, resource_name="3000", name=name, value="s3cret"))
        config = described(harness, BROKER, "3000", name, synonyms=True)
        is_shown = name.endswith("location")
        assert config.is_sensitive is not is_shown
        assert ("s3cret" in str(config)) is is_shown
    prefixed = described(
        harness, BROKER, "3000", "listener.name.external.ssl.keystore.location", synonyms=True
    )
    assert (prefixed.synonyms[0].name, prefixed.synonyms[0].source) == (prefixed.name, 2)


def test_cluster_defaults_show_what_is_set_only(harness):
    harness.replay(
        ConfigRecord(resource_type=BROKER, resource_name="", name="log.cleaner.threads", value="2"),
        ConfigRecord(resource_type=BROKER, resource_name="3000", name="log.cleaner.threads", value="3"),
    )
    config = described(harness, BROKER, "", synonyms=True)
    assert (config.name, config.value, config.config_source) == ("log.cleaner.threads", "2", 3)
    assert [(synonym.value, synonym.source) for synonym in config.synonyms] == [("2", 3)]
    config = described(harness, BROKER, "3000", "log.cleaner.threads", synonyms=True)
    assert (config.value, config.config_source) == ("3", 2)
    assert [synonym.value for synonym in config.synonyms] == ["3", "2", "1"]


def test_values_that_nodes_ignore_are_not_described(harness):
    """DescribeConfigs reports the effective values, as Kafka's (DynamicBrokerConfig)."""
    invalid = (
        ("", "min.insync.replicas", "0"),
        ("", "num.partitions", "3"),
        ("3000", "log.cleaner.threads", "many"),
        ("3000", "ssl.keystore.type", "PEM"),
    )
    for name, key, value in invalid:
        harness.replay(ConfigRecord(resource_type=BROKER, resource_name=name, name=key, value=value))
    (defaults,) = harness.apply(configs(BROKER, "")).results
    assert defaults.configs == ()
    for _, key, value in invalid:
        config = described(harness, BROKER, "3000", key, synonyms=True)
        assert config.value != value
        assert value not in [synonym.value for synonym in config.synonyms]
    harness.start_broker(1)
    harness.add_topic("t", 1)
    topic = described(harness, TOPIC, "t", "min.insync.replicas", synonyms=True)
    assert (topic.value, [synonym.value for synonym in topic.synonyms]) == ("1", ["1"])
    harness.replay(
        ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2")
    )
    config = described(harness, BROKER, "3000", "min.insync.replicas", synonyms=True)
    assert (config.value, config.config_source) == ("2", 3)
    assert described(harness, TOPIC, "t", "min.insync.replicas").value == "2"


def test_damaged_values_are_shown_as_they_are(harness):
    harness.start_broker(1)
    harness.start_broker()
    harness.add_topic("t", 1)
    harness.replay(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="x"))
    assert described(harness, TOPIC, "t", "retention.ms").value == "x"


def test_internal_configs_are_shown_when_set(harness):
    harness.start_broker(1)
    harness.start_broker()
    harness.add_topic("t", 1)
    key = "internal.segment.bytes"
    (result,) = harness.apply(configs(TOPIC, "t", key)).results
    assert result.configs == ()
    harness.replay(ConfigRecord(resource_type=TOPIC, resource_name="t", name=key, value="100"))
    assert described(harness, TOPIC, "t", key).value == "100"


@pytest.mark.parametrize(
    ("resource_type", "name", "error_code"),
    [
        (TOPIC, "absent", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (3, "x", ErrorCode.invalid_request),
    ],
)
def test_descriptions_that_are_refused(harness, resource_type, name, error_code):
    """Each resource fails alone, with a text unless Kafka has none."""
    bad = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    good = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    first, second = harness.apply(DescribeConfigsRequest(resources=(bad, good))).results
    assert first.error_code is error_code
    assert bool(first.error_message) == (name != "absent")
    assert second.error_code is ErrorCode.none


@pytest.mark.parametrize("name", ["", "x"])
@pytest.mark.parametrize("resource_type", [0, 3, 99, 127, -1])
@pytest.mark.parametrize("documentation", [False, True])
def test_a_type_that_is_none_fails_alone(harness, resource_type, name, documentation):
    bad = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    good = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    for resources in ((bad, good), (good, bad)):
        request = DescribeConfigsRequest(resources=resources, include_documentation=documentation)
        results = harness.apply(request).results
        assert [(result.error_code, bool(result.configs)) for result in results] == [
            (ErrorCode.invalid_request, False) if resource is bad else (ErrorCode.none, True)
            for resource in resources
        ]


def test_topics_of_later_requests_share_what_they_have_in_common(harness):
    """Thousands of small requests do not describe all configs again, and none gets the configs of another."""
    harness.replay(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="7"))
    harness.start_broker()
    harness.add_topic("t", 1)

    def ask(**options):
        (result,) = harness.apply(configs(TOPIC, "t", **options)).results
        return {config.name: config for config in result.configs}

    first, again = ask(synonyms=True, documentation=True), ask(synonyms=True, documentation=True)
    assert all(first[name] is again[name] for name in first.keys() - {"retention.ms"})
    assert first == again
    assert first["retention.ms"].value == "7"
    plain = ask()
    assert all(config.documentation is None and not config.synonyms for config in plain.values())
    harness.replay(
        ConfigRecord(resource_type=BROKER, resource_name="", name="log.segment.bytes", value="1048576")
    )
    assert ask()["segment.bytes"].value == "1048576"
